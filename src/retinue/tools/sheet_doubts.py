"""Rows that may have been meant otherwise than they were read: an error, until somebody says what to do.

Called by `sheets`. A row with a cell too many may have all its cells one column too far to the right, and no
figure shows it. So there is none before whoever asks has decided; and then it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from retinue.attachment_parsers import Doubtful, DoubtKind, Sheet
from retinue.errors import ToolError

Decision = Literal["keep", "skip"]

_WORDS: dict[DoubtKind, tuple[str, str]] = {
    "longer": ("has more cells than the header has names", "have more cells than the header has names"),
    "shorter": ("has fewer cells than the header has names", "have fewer cells than the header has names"),
    "swallowed": (
        "has a cell between quotation marks that may be several rows",
        "have cells between quotation marks that may be several rows",
    ),
    "twice": ("has a cell that the file holds twice", "have cells that the file holds twice"),
    "pieces": (
        "has a value that the file writes in pieces, not all of which were read",
        "have values that the file writes in pieces, not all of which were read",
    ),
}


def doubts(sheet: Sheet, among: Iterable[int] | None = None) -> list[str]:
    """What is doubtful about the rows of a sheet, or about those of these numbers."""
    only = None if among is None else set(among)
    said: list[str] = []
    for each in sheet.doubtful:
        rows = each.rows if only is None else [number for number in each.rows if number in only]
        if rows:
            said.append(_words(each, rows))
    return said


def _words(each: Doubtful, rows: Sequence[int]) -> str:
    one, many = _WORDS[each.kind]
    return (
        f"1 row {one}: row {rows[0]}"
        if len(rows) == 1
        else f"{len(rows):,} rows {many}; the first: row {rows[0]}"
    )


def decided(sheet: Sheet, what: str, decision: Decision | None) -> tuple[Sheet, list[str]]:
    """The sheet that figures are to be computed from, and what to say beside them. Raises `ToolError`.

    All rows are looked at, also those that a condition leaves out: a cell in the wrong column meets another.
    """
    said = doubts(sheet)
    if not said:
        return sheet, []
    if decision is None:
        raise ToolError(
            f"{what} cannot be computed for sure: {'; '.join(said)}. Their cells may stand in the wrong "
            "columns, or be missing. Look at them with sheet_read; then correct the file, or call again with "
            "doubtful='keep' to count them as they were read, or with doubtful='skip' to leave them out."
        )
    if decision == "keep":
        return sheet, [f"{each}; counted as they were read" for each in said]
    gone = {number for each in sheet.doubtful for number in each.rows}
    rows = [[] if number in gone else row for number, row in enumerate(sheet.rows, 1)]
    return replace(sheet, rows=rows), [f"{each}; left out" for each in said]


def remarks(sheet: Sheet, columns: Iterable[int]) -> list[str]:
    """What there is to say about a sheet and about these columns of it, whatever the rows."""
    wanted = set(columns)
    return [each.text for each in sheet.remarks if each.column is None or each.column in wanted]
