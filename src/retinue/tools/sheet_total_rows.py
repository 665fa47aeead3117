"""Finds rows that are totals of other rows, by their words and by arithmetic: they would be counted twice.

Called by `sheet_totals`. Nothing is left out because of it, since the sum of some numbers may be one of them
by chance: the figure says which row it is, and that it is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext

from retinue.attachment_parsers import Cell
from retinue.tools.sheet_numbers import EXACT
from retinue.tools.sheet_table import at

_WORDS = (
    r"(?:grand[ -]|sub[ -]?|overall )?totals?|sum|all|overall"  # English
    r"|(?:gesamt|zwischen|end|teil)?summen?|(?:ins)?gesamt(?:ergebnis|betrag)?|saldo"  # German
    r"|(?:sous-)?total(?: général)?|somme|ensemble"  # French
    r"|(?:suma|sub)? ?totale?s?(?: general| generale| geral)?|suma|somma|soma"  # Spanish, Italian, Portuguese
    r"|(?:sub|eind)?totaal|som"  # Dutch
    r"|totalt|(?:del)?sum(?:ma)?|i alt|ialt|samtals|samlet"  # Swedish, Norwegian, Danish, Icelandic
    r"|yhteensä|(?:väli)?summa|kokku|kopā|iš viso|viso"  # Finnish, Estonian, Latvian, Lithuanian
    r"|razem|ogółem|łącznie|suma częściowa"  # Polish
    r"|celkem|(?:mezi|medzi)?s(?:ou|ú)čet|spolu"  # Czech, Slovak
    r"|(?:mind)?összesen|részösszeg|ukupno|skupaj|vsota|zbroj|svega"  # Hungarian, Slovene, Croatian, Serbian
    r"|итого|всего|сумма|разом|усього|всього|общо|сума|укупно"  # Russian, Ukrainian, Bulgarian, Serbian
    r"|(?:υπο|γενικό )?σύνολο|άθροισμα|(?:genel |ara )?toplam|total general"  # Greek, Turkish, Romanian
)
_TOTAL = re.compile(rf"(?i)(?:{_WORDS})(?:[\W\d]|\b(?:eur|usd|gbp|chf|sek|nok|dkk|pln|czk|huf)\b)*")
_OF_SOMETHING = re.compile(
    r"(?i)(?:(?:grand|sub|overall)[ -]?)?totals?[ :]+(?:[^&]+)|.+ (?:sub-?|grand )?totals?"
    r"|(?:zwischen|gesamt|teil|end)?summe[ :]+.+|.+ (?:zwischen|gesamt|teil)?summe|sous-total[ :]+.+"
    r"|(?:subtotale?s?|totale|totaal|totalt|razem|celkem|összesen|yhteensä|итого|всего|σύνολο|toplam)[ :]+.+"
)
"""A total of a part: "Subtotal A", "Total North", "Summe Nord"."""
_MOST_CHARACTERS = 40
_FEWEST_PARTS = 2

Rows = Sequence[tuple[int, Sequence[Cell]]]


def total_rows(
    rows: Rows,
    columns: Sequence[int],
    value: Callable[[Cell], Decimal | None],
    sums: Iterable[tuple[int, int]],
) -> list[str]:
    """What to say about rows that look like totals of the others, by the numbers of these columns.

    `sums`: cells whose formula adds up others of their column.
    """
    added = {number for number, column in sums if column in columns}
    named = [number for number, row in rows if number in added or any(map(_is_called_total, row))]
    if named:
        if len(named) == 1:
            return [f"row {named[0]} looks like a total of other rows, and is counted"]
        return [f"{len(named):,} rows look like totals of others, and are counted; the first: row {named[0]}"]
    for column in columns:
        number = _sum_of_the_others([(number, value(at(row, column))) for number, row in rows])
        if number is not None:
            return [f"row {number} may be a total of the others, since it is their sum; it is counted"]
    return []


def _sum_of_the_others(values: Sequence[tuple[int, Decimal | None]]) -> int | None:
    """The number of the last row, or of the first, if it is the sum of two others or more."""
    found = [(number, value) for number, value in values if value]
    if len(found) <= _FEWEST_PARTS:
        return None
    with localcontext(EXACT):
        whole = sum((value for _, value in found), Decimal(0))
        return next((number for number, value in (found[-1], found[0]) if value * 2 == whole), None)


def _is_called_total(cell: Cell) -> bool:
    return (
        isinstance(cell, str)
        and len(cell) <= _MOST_CHARACTERS
        and any(each.fullmatch(cell.strip()) for each in (_TOTAL, _OF_SOMETHING))
    )
