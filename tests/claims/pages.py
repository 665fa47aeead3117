"""Pages of our own, with claims that they support: what the tests of claims are made of."""

from __future__ import annotations

BRIDGE = """# The Harrow Bridge

The Harrow Bridge is a suspension bridge over the river Tamsin in the north of Calder. It was designed by the engineer
Ada Whitlock, and the Calder Iron Company built it from 1871 to 1874. The main span is 330 metres (1,083 ft) long, and
the two towers rise 62 m above the water. The bridge opened on 14 March 1874. It was not popular with the ferrymen at
first, since it took two thirds of their trade. About 5,889,000 vehicles cross it each year. In 1952 the wooden deck
was replaced by steel, which increased the permitted load from 12 to 30 tonnes. Tolls were abolished in 1998.
"""
TEA = """# Mountain tea

Mountain tea is grown between 1,200 and 2,100 metres above the sea. The leaves are picked by hand from April to June.
A bush gives its first leaves after 3 years and can be picked for about 50 years. Exports fell by 8 percent in 2021,
to 1.2 million kilograms, while prices rose to $14.50 per kilogram. The growers' union, led by Marta Oliveira, said:
"We will plant more trees before we build another factory." Caffeine content is lower than in black tea.
"""
JAPANESE = """# 桜橋

桜橋は1931年に完成した。長さは240メートルで、川の北側と公園を結ぶ。設計者は田中一郎である。
"""
GERMAN = """# Die alte Mühle

Die Mühle wurde 1788 von Johann Brandt gebaut. Sie steht am Ufer der Elster und ist 18 Meter hoch. Seit 1961 wird dort
kein Mehl mehr gemahlen. Das Museum hat 12.000 Besucher im Jahr.
"""
PAGES = {
    "https://example.org/bridge": BRIDGE,
    "https://example.org/tea": TEA,
    "https://example.org/sakura": JAPANESE,
    "https://example.org/mill": GERMAN,
}
TRUE = [
    ("bridge", "The main span of the Harrow Bridge is 330 m long."),
    ("bridge", "The main span is 0.33 km long."),
    ("bridge", "Its main span is about 1,083 feet long."),
    ("bridge", "The bridge was designed by the engineer Ada Whitlock."),
    ("bridge", "It was built from 1871 to 1874 by the Calder Iron Company."),
    ("bridge", "The bridge opened in March 1874."),
    ("bridge", "The Harrow Bridge opened on March 14, 1874."),
    ("bridge", "About 5.9 million vehicles cross the bridge each year."),
    ("bridge", "The bridge was not popular with the ferrymen at first."),
    ("bridge", "The new steel deck increased the permitted load from 12 to 30 tonnes."),
    ("bridge", "Tolls were abolished in 1998."),
    ("tea", "Mountain tea is grown between 1,200 and 2,100 m above the sea."),
    ("tea", "Exports of mountain tea fell by 8 % in 2021."),
    ("tea", "Exports fell to 1.2 million kg, while prices rose to $14.50 per kilogram."),
    ("tea", "A bush can be picked for about fifty years."),
    ("tea", "Marta Oliveira leads the growers' union."),
    ("tea", "The union said: “We will plant more trees before we build another factory.”"),
    ("tea", "Its caffeine content is lower than in black tea."),
    ("tea", "The growers’ union said “plant more trees before we build an another factory”."),
    ("bridge", "The Harrow Bridge (HB) is a suspension bridge over the river Tamsin."),
    ("bridge", "Length: the main span of the bridge is 330 m long."),
    ("bridge", "It was hardly popular with the ferrymen at first, who lost two thirds of their trade."),
    ("mill", "Die Mühle wurde 1788 von Johann Brandt gebaut."),
    ("mill", "Die Mühle am Ufer der Elster ist 18 Meter hoch."),
    ("sakura", "桜橋は1931年に完成した。"),
    ("sakura", "桜橋の長さは240メートルである。"),
]
FALSE = [
    ("bridge", "The main span of the Harrow Bridge is 350 m long.", "number"),
    ("bridge", "The main span is 330 km long.", "number"),
    ("bridge", "The main span is 330 feet long.", "number"),
    ("bridge", "The bridge was designed by the engineer Peter Haldane.", "name"),
    ("bridge", "The bridge was designed by the engineer Marta Oliveira.", "name"),
    ("bridge", "It was built from 1871 to 1876 by the Calder Iron Company.", "number"),
    ("bridge", "The bridge opened in May 1874.", "date"),
    ("bridge", "The Harrow Bridge opened on March 15, 1874.", "date"),
    ("bridge", "About 6.9 million vehicles cross the bridge each year.", "number"),
    ("bridge", "The bridge was popular with the ferrymen at first.", "negation"),
    ("bridge", "The new steel deck decreased the permitted load from 12 to 30 tonnes.", "opposite"),
    ("bridge", "Tolls were not abolished in 1998.", "negation"),
    ("tea", "Mountain tea is grown between 1,200 and 2,700 m above the sea.", "number"),
    ("tea", "Exports of mountain tea rose by 8 % in 2021.", "opposite"),
    ("tea", "Exports of mountain tea fell by 18 % in 2021.", "number"),
    ("tea", "Exports fell to 1.2 billion kg, while prices rose to $14.50 per kilogram.", "number"),
    ("tea", "Ada Whitlock leads the growers' union.", "name"),
    ("tea", "The union said: “We will plant more trees before we open another factory.”", "quotation"),
    ("tea", "The union said “more trees than factories”.", "quotation"),
    ("tea", "The union said “We will plant more flowers before we build another factory.”", "quotation"),
    ("tea", "The union said “We will plant no more trees before we build another factory.”", "quotation"),
    ("bridge", "The bridge was designed by the engineer Ada Haldane.", "name"),
    ("bridge", "The Elder Iron Company built the bridge from 1871 to 1874.", "name"),
    ("bridge", "The bridge over the Tamsin was not opened on 14 March 1874.", "negation"),
    ("bridge", "The wooden deck of the Harrow Bridge was not exchanged for steel in 1952.", "negation"),
    ("tea", "The leaves of mountain tea are not collected by hand from April to June.", "negation"),
    ("tea", "Its caffeine content is higher than in black tea.", "opposite"),
    ("mill", "Die Mühle wurde 1798 von Johann Brandt gebaut.", "number"),
    ("mill", "Die Mühle am Ufer der Elster ist 28 Meter hoch.", "number"),
    ("sakura", "桜橋は1941年に完成した。", "date"),
    ("sakura", "桜橋の長さは340メートルである。", "number"),
]
