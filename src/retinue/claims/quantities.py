"""Numbers, amounts with their units, percentages and dates in a text, in a form in which two can be
compared.

Called by `verdicts`. "330 m", "0.33 km" and "330 metres" are one amount, "1.2 million" is 1,234,567
rounded, "about 1,000" is 1,024, "March 1889" fits "12 March 1889". What is
read too strictly would accuse the innocent, so a number whose other side has no unit fits it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Literal

from retinue.claims.lists import lines_of, listed
from retinue.claims.words import leaning, words

Meant = Literal["", "about", "over", "under"]
OFF = 0.05
"""Share by which a number may be off that is said to be rounded, or plainly is."""
YEARS_OFF = 5.0
BEYOND = 1.25
"""So many times as much may be what is "more than" it."""
LONGEST_NUMBER = 40
"""Characters; what is longer is no amount of anything, and beyond what arithmetic holds."""


def _values(name: str) -> dict[str, float]:
    words_and_values = iter(listed(name))
    return {word: float(value) for word, value in zip(words_and_values, words_and_values, strict=True)}


_SCALES = _values("scales.txt")
_SMALL = _values("number_words.txt")
_ORDINALS = _values("ordinals.txt")
_TIMES = _values("multiples.txt")
_UNITS: dict[str, tuple[str, float]] = {
    name: (dimension, float(factor))
    for dimension, factor, *unit_names in map(str.split, lines_of("units.txt"))
    for name in unit_names
}
_ROUNDINGS: dict[str, Meant] = {
    word.replace("_", " "): kind
    for kind, line in zip(("about", "over", "under"), lines_of("roundings.txt"), strict=True)
    for word in line.split()[1:]
}
_BLANKS = {word: re.escape(word).replace("\\ ", "\\s+") for word in sorted(_ROUNDINGS, key=len, reverse=True)}
_UNSPACED = [word for word in _ROUNDINGS if word[0] > "\u2e80"]
_MEANT = re.compile(
    rf"((?<!\w)(?:{'|'.join(_BLANKS.values())})|{'|'.join(_UNSPACED)})(?:\s+(?:an?|the))?\s*[$€£¥]?\s?$",
    re.IGNORECASE,
)
_BEHIND_MEANT = re.compile(r"\+(?!\w)|\s+or\s+(?:more|so)\b")
_AMBIGUOUS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}[.,]\d{3}(?![\d.,]\d|\d)")
_THOUSAND_POINTS = re.compile(r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}")
_MONTHS = {name: at for at, line in enumerate(lines_of("months.txt"), start=1) for name in line.split()}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATES = (
    re.compile(
        rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+|de\s+|ב)?(?P<m>{_MONTH})\b\.?"
        r"(?:,?\s+(?:de\s+)?(?P<y>\d{4})\b)?",
        re.I,
    ),
    re.compile(
        rf"\b(?P<m>{_MONTH})\b\.?\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)(?:,?\s+(?P<y>\d{{4}})\b)?", re.I
    ),
    re.compile(rf"\b(?P<m>{_MONTH})\b\.?,?\s+(?:of\s+|de\s+)?(?P<y>\d{{4}})\b", re.I),
    re.compile(r"\b(?P<y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})\b"),
    re.compile(r"(?P<y>\d{4})\s?[年년](?:\s?(?P<m>\d{1,2})\s?[月월](?:\s?(?P<d>\d{1,2})\s?[日일])?)?"),
)
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.])[-−])?(?P<money>[$€£¥])?\s?"
    r"(?P<n>\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}"
    r"|\d{1,3}(?:[,\u00a0\u202f’' ]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)(?P<ordinal>st|nd|rd|th)?"
)
_COUNTED = "|".join((*_SMALL, *_ORDINALS, *_TIMES, "dozen", "hundred", "thousand", "million", "billion"))
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_WORDS = re.compile(rf"\b(?:(?P<tens>{_TENS})[-\s])?(?P<w>{_COUNTED})\b(?P<rest>\s\w+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Quantity:
    """`value` in the base unit of its dimension; `text` as it stood there, `fine` how exactly it was said."""

    value: float
    dimension: str
    """`""` where no unit that we know stands beside it."""
    fine: float
    text: str
    start: int
    end: int
    before: str = ""
    """The stem of the word right before it, as in "type 2"; `""` for small words."""
    behind: str = ""
    """The stem of the word that is counted."""
    spelled: bool = False
    bare: float = 0.0
    """The number as it was written, without its unit."""
    scaled: bool = False
    """Whether it was said in thousands or more, as in "12k" and "3 million"."""
    meant: Meant = ""
    """How the words around it say that it is meant."""
    other: float | None = None
    """What `bare` is to a reader for whom the comma and the point mean the opposite."""

    @property
    def rounded(self) -> bool:
        """Whether it stands for a finer number by how it is written: "1.2 million", "3.5"; not "5,900"."""
        return self.scaled or self.fine < 1.0 or not self.bare.is_integer()

    @property
    def year(self) -> bool:
        return not self.dimension and len(self.text) == 4 and self.text.isdigit() and self.value <= 2100

    @property
    def small(self) -> bool:
        """One that stands in every other sentence."""
        return not self.dimension and abs(self.value) <= 31


@dataclass(frozen=True, slots=True)
class Date:
    year: int | None
    month: int | None
    day: int | None
    text: str
    start: int
    end: int


def dates(text: str) -> list[Date]:
    """Dates with at least a month, or a day, beside a year; years alone are numbers."""
    text = _plain_decimals(text)
    found: list[Date] = []
    taken: list[tuple[int, int]] = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            parts = match.groupdict()
            month = parts.get("m") or ""
            number = int(month) if month.isdigit() else _MONTHS.get(month.casefold(), 0)
            day = int(parts["d"]) if parts.get("d") else None
            year = int(parts["y"]) if parts.get("y") else None
            if number > 12 or (day or 0) > 31 or (day is None and year is None):
                continue
            taken.append((match.start(), match.end()))
            found.append(Date(year, number or None, day, match[0], match.start(), match.end()))
    return sorted(found, key=lambda date: date.start)


def quantities(text: str, without: list[Date]) -> list[Quantity]:
    """Numbers and amounts, those of dates left out."""
    text = _plain_decimals(text)
    swapped = _AMBIGUOUS.search(text) is not None and leaning(words(text)) == "european"
    spans = [(date.start, date.end) for date in without]
    found: list[Quantity] = []
    for match in _NUMBER.finditer(text):
        if len(match["n"]) > LONGEST_NUMBER or _inside(match.start("n"), spans) or not _alone(text, match):
            continue
        found.append(_read(match, text, swapped=swapped))
    found = _ranges(found, text)
    for match in _WORDS.finditer(text):
        if not _inside(match.start(), spans) and (one := _spelled(match)):
            found.append(one)
    return sorted((_beside(one, text) for one in found), key=lambda one: one.start)


_TO = re.compile(r"\s?(?:-|–|—|to|and|or|bis|à)\s?[$€£¥]?")


def _ranges(found: list[Quantity], text: str) -> list[Quantity]:
    """In "2 to 3 months" both are months."""
    result = list(found)
    for at in range(len(found) - 2, -1, -1):
        one, other = result[at], result[at + 1]
        if (
            one.dimension
            or not other.dimension
            or other.dimension == "rank"
            or not _TO.fullmatch(text, one.end, other.start)
        ):
            continue
        factor = abs(other.value) / other.bare if other.bare else 1.0
        result[at] = replace(
            one,
            value=one.value * factor,
            fine=one.fine * factor,
            dimension=other.dimension,
            scaled=one.scaled or other.scaled,
            meant=one.meant or other.meant,
        )
    return result


_BEFORE = re.compile(r"([^\W\d_]{3,})[\s-]$")
_BEHIND = re.compile(r"[\s-]([^\W\d_]{3,})")


def _beside(one: Quantity, text: str) -> Quantity:
    """A number with its neighbours."""
    before = _BEFORE.search(text, max(0, one.start - 20), one.start)
    behind = _BEHIND.match(text, one.end)
    return replace(
        one,
        before=_neighbour(before[1]) if before else "",
        behind=_neighbour(behind[1]) if behind else "",
        meant=one.meant or _meant(one, text),
    )


def _meant(one: Quantity, text: str) -> Meant:
    """What the words around a number say of it."""
    if match := _BEHIND_MEANT.match(text, one.end):
        return "about" if match[0].endswith("so") else "over"
    match = _MEANT.search(text, max(0, one.start - 30), one.start)
    return "" if match is None else _ROUNDINGS.get(" ".join(match[1].casefold().split()), "")


def _neighbour(word: str) -> str:
    found = words(word)
    return found[0].stem if found and found[0].content else ""


def _plain_decimals(text: str) -> str:
    return text if text.isascii() else "".join(map(_digit, text))


def _digit(char: str) -> str:
    """Digits of other scripts as ours; every character stays one character, so that places stay true."""
    if char.isdecimal() and not char.isascii():
        return str(unicodedata.decimal(char))
    return char


def _inside(at: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def _alone(text: str, match: re.Match[str]) -> bool:
    """Not a part of a name or a version: "B12", "3.11.7", "covid-19"."""
    at, end = match.start("n"), match.end("n")
    before = text[at - 1] if at else " "
    if before == "[" and text[end : end + 1] in "],":
        return False
    after = text[end : end + 2]
    if (
        (before.isalpha() and before < "\u2e80")
        or before in "_#@/"
        or (before in ".," and at > 1 and text[at - 2].isdigit())
    ):
        return False
    if before in "-–" and at > 1 and text[at - 2].isalpha():
        return False
    return not (len(after) == 2 and after[0] in ".:/" and after[1].isdigit())


def _plain_digits(written: str, *, swapped: bool) -> str:
    """A number as programs write it. `swapped`: where the point parts thousands, and the comma decimals."""
    digits = re.sub(r"[\s\u00a0\u202f’']", "", written)
    if _THOUSAND_POINTS.fullmatch(digits) or (swapped and re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", digits)):
        return digits.replace(".", "").replace(",", ".")
    if not (swapped and digits.count(",") == 1) and re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", digits):
        return digits.replace(",", "")
    return digits.replace(",", ".")


def _read(match: re.Match[str], text: str, *, swapped: bool) -> Quantity:
    digits = _plain_digits(match["n"], swapped=swapped)
    bare = value = float(digits)
    other = float(_plain_digits(match["n"], swapped=False)) if swapped else bare
    decimals = len(digits.partition(".")[2])
    zeros = 0 if decimals else len(digits) - len(digits.rstrip("0"))
    fine = 10.0**-decimals if decimals else 10.0 ** min(zeros, max(0, len(digits) - 1))
    scale, dimension, factor, end = _behind(match.end("n") + len(match["ordinal"] or ""), text)
    if match["money"]:
        dimension, factor = _UNITS[match["money"]]
    if match["ordinal"]:
        dimension, factor = "rank", 1.0
    if match["sign"]:
        value = -value
    return Quantity(
        value * scale * factor,
        dimension,
        fine * scale * factor,
        text[match.start("n") - len(match["money"] or "") : end].strip(),
        match.start("n"),
        end,
        bare=bare,
        scaled=scale >= 1000,
        other=other if other != bare else None,
    )


_OTHER_SCRIPTS = sorted((name for name in (*_UNITS, *_SCALES) if name[0] > "\u03ff"), key=len, reverse=True)
_UNBLANKED = "|".join(name for name in _OTHER_SCRIPTS if name[0] >= "\u2e80")
_BLANKED = "|".join(name for name in _OTHER_SCRIPTS if name[0] < "\u2e80")
_NEXT = re.compile(
    rf"[\s\u00a0-]{{0,2}}(%|％|°[CF]|{_UNBLANKED}|(?:{_BLANKED})(?![^\W\d_])|[A-Za-zµμ²/]+\d?)"
)


def _behind(at: int, text: str) -> tuple[float, str, float, int]:
    """What follows a number: a scale, then a unit. Returns both, and where they end."""
    scale, dimension, factor, end = 1.0, "", 1.0, at
    for _ in range(3):
        match = _NEXT.match(text, end)
        if match is None:
            break
        word = match[1]
        if word.casefold() in _SCALES and not (word == "k" and match[0] != "k"):
            scale *= _SCALES[word.casefold()]
        elif word.casefold() == "per" and text[match.end() : match.end() + 5] == " cent":
            return scale, "percent", 1.0, match.end() + 5
        elif unit := _UNITS.get(word) or (_UNITS.get(word.casefold()) if len(word) > 2 else None):
            if len(word) == 1 and word.isalpha() and "-" in match[0]:
                break
            return scale, *unit, match.end()
        elif word.casefold() in ("square", "cubic", "sq") and (unit := _NEXT.match(text, match.end())):
            known = _UNITS.get(unit[1].casefold())
            power = 3 if word.casefold() == "cubic" else 2
            if known and known[0] == "length":
                return scale, "area" if power == 2 else "room", known[1] ** power, unit.end()
            break
        else:
            break
        end = match.end()
    return scale, dimension, factor, end


def _spelled(match: re.Match[str]) -> Quantity | None:
    word = match["w"].casefold()
    if word in _ORDINALS:
        if word == "second" or (word == "first" and (match["rest"] or "").strip().casefold() in ("of", "")):
            return None
        rank = _ORDINALS.get(word, 0.0)
        return Quantity(rank, "rank", 1.0, match["w"], match.start(), match.end("w"), spelled=True, bare=rank)
    if word in ("one", "half", "double", "hundred", "thousand", "million", "billion", "zero"):
        return None  # too often said of nothing counted
    value = _SMALL.get(word) or _TIMES.get(word) or _SCALES.get(word) or 0.0
    if match["tens"]:
        value += _SMALL.get(match["tens"].casefold(), 0.0)
    scale, dimension, factor, end = _behind(match.end("w"), match.string)
    return Quantity(
        value * scale * factor,
        dimension,
        scale * factor,
        match.string[match.start() : end],
        match.start(),
        end,
        spelled=True,
        bare=value * scale * factor,
        scaled=scale >= 1000,
    )


def fits(claim: Quantity, source: Quantity) -> bool:
    """Whether what a claim says is what a source says. A plain number has to be the very same; one that is
    said to be about so much, or in millions, may be a few percent off."""
    return any(_fits(one, other) for one in _readings(claim) for other in _readings(source))


def _readings(quantity: Quantity) -> tuple[Quantity, ...]:
    if quantity.other is None:
        return (quantity,)
    factor = quantity.other / quantity.bare if quantity.bare else 1.0
    return quantity, replace(
        quantity,
        value=quantity.value * factor,
        fine=quantity.fine * factor,
        bare=quantity.other,
        other=None,
    )


def _fits(claim: Quantity, source: Quantity) -> bool:
    if claim.dimension and source.dimension and claim.dimension != source.dimension:
        return False
    if claim.dimension and not source.dimension:
        return _near(claim.value, source.value, 0.0) or _near(claim.bare, source.value, 0.0)
    if source.dimension and not claim.dimension:
        same = source.dimension in ("percent", "rank") and _near(claim.value, source.value, 0.0)
        return same or _near(claim.value, source.bare, 0.0)
    converted = 0.006 * abs(source.value) if _converted(claim, source) else 0.0
    return _near(claim.value, source.value, max(_slack(claim, source), converted)) or _bounds(claim, source)


def _slack(claim: Quantity, source: Quantity) -> float:
    """How far off a claim may be by how it is said and written."""
    most = OFF * abs(claim.value)
    if claim.meant == "about":
        return YEARS_OFF if claim.year and not claim.behind else most
    return min(0.5 * claim.fine, most) if claim.rounded and claim.fine > source.fine else 0.0


def _bounds(claim: Quantity, source: Quantity) -> bool:
    """Whether "more than" and "up to" are true, and not by far."""
    if claim.value * source.value <= 0 or claim.year:
        return False
    share = source.value / claim.value
    return (claim.meant == "over" and 1 <= share <= BEYOND) or (
        claim.meant == "under" and 1 <= 1 / share <= BEYOND
    )


def _converted(claim: Quantity, source: Quantity) -> bool:
    """Whether they stand in other units: then rounding is coarser than the digits say."""
    one, other = (re.sub(r"[\d.,\s\u00a0]", "", text.text) for text in (claim, source))
    return bool(claim.dimension) and _UNITS.get(one) != _UNITS.get(other)


def _near(one: float, other: float, within: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=max(within * 1.0001, 1e-12))


def fits_date(claim: Date, source: Date) -> bool:
    """Whether all that a claim says of a date stands in the source's."""
    return all(
        said is None or said == have
        for said, have in ((claim.year, source.year), (claim.month, source.month), (claim.day, source.day))
    )
