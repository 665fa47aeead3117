"""What the tables of a page say on a point: the cells under its header, or those of its row.

Called by `digest`. A table counts where its header and the names of its rows have the words of the point; the
answer is made of cells as they stand there, with the names they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.models.offline.results import clip
from retinue.models.offline.words import Term
from retinue.web.tables import PRICE, PageTable, markdown_tables

MOST_CELLS = 8
_OF_PRICES = re.compile(r"(?i)pric|cost|fee|charge")
Said = tuple[float, str]


def best_cells(text: str, terms: Sequence[Term], width: int) -> Said:
    """How well the best answer of all tables fits, weighed as sentences are, and that answer."""
    best: Said = (0.0, "")
    for table in map(_even, markdown_tables(text)):
        for said in (_by_column(table, terms), _by_row(table, terms)):
            best = max(best, said, key=lambda one: one[0])
    return best[0], clip(best[1], width)


def _even(table: PageTable) -> PageTable:
    """Every row with as many cells as the header, two at least, whatever the page says."""
    wide = max(2, len(table.columns))
    columns, *rows = ((*row, *[""] * wide)[:wide] for row in (table.columns, *table.rows))
    return PageTable(title=table.title, columns=columns, rows=tuple(rows))


def _weight(terms: Sequence[Term], *texts: str) -> float:
    return sum(term.weight for term in terms if any(term.found_in(text) for text in texts))


def _by_column(table: PageTable, terms: Sequence[Term]) -> Said:
    """The column whose header fits: its cells, each with the name of its row, of the rows that fit best."""
    headers = [_header(table, at, terms) for at in range(1, len(table.columns))]
    weights = [_weight(terms, header) for header in headers]
    if not any(weights) or not table.rows:
        return 0.0, ""
    at = weights.index(max(weights)) + 1
    fits = [_weight(terms, headers[at - 1], row[0]) for row in table.rows]
    rows = [row for row, fit in zip(table.rows, fits, strict=True) if fit == max(fits) and row[at].strip()]
    cells = [f"{row[0]}: {row[at]}" if row[0].strip() else row[at] for row in rows]
    header = f"{table.columns[at]}: " if len(cells) > 1 else ""
    return (max(fits), header + _listed(cells, "; ")) if cells else (0.0, "")


def _header(table: PageTable, at: int, terms: Sequence[Term]) -> str:
    """The header of a column; where a price is asked for, prices say themselves what they are."""
    asked = next((term.text for term in terms if _OF_PRICES.match(term.text)), "")
    prices = sum(PRICE.search(row[at]) is not None for row in table.rows) if asked else 0
    return f"{table.columns[at]} {asked}" if prices * 2 > len(table.rows) else table.columns[at]


def _by_row(table: PageTable, terms: Sequence[Term]) -> Said:
    """The row whose first cell fits, with the headers of its cells. A table of pairs may have none: its first
    pair then stands where the header should."""
    pairs = len(table.columns) == 2
    rows = (table.columns, *table.rows) if pairs else table.rows
    fits = [_weight(terms, row[0]) for row in rows]
    if not any(fits):
        return 0.0, ""
    fit = max(fits)
    row = rows[fits.index(fit)]
    if pairs:
        return fit, f"{row[0]}: {row[1]}"
    cells = [
        f"{name}: {cell}" for name, cell in zip(table.columns[1:], row[1:], strict=False) if cell.strip()
    ]
    return fit, f"{row[0]}: {_listed(cells, ', ')}"


def _listed(cells: Sequence[str], between: str) -> str:
    more = f"{between}and {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else ""
    return between.join(cells[:MOST_CELLS]) + more
