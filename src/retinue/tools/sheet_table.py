"""A sheet read as a table: its header, its columns by name, its cells as text.

Used by the tools over spreadsheets and by `attachments`, which shows how a sheet begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retinue.attachment_parsers import Cell, Sheet
from retinue.errors import ToolError
from retinue.tools.sheet_numbers import exactly, read_number
from retinue.tools.sheet_numbers import shown as digits

_MAX_TEXT = 20_000
_MAX_CELL = 200
_MAX_COLUMNS = 100


def at(row: Sequence[Cell], index: int) -> Cell:
    return row[index] if index < len(row) else None


@dataclass(frozen=True, slots=True)
class SheetTable:
    """A sheet read as a table: a row, usually the first that is not empty, names the columns."""

    sheet: Sheet
    header: int
    columns: tuple[str, ...]

    def data(self) -> Iterator[tuple[int, list[Cell]]]:
        """Rows below the header that are not empty, with their numbers in the sheet.

        As they are, so perhaps shorter than the header: one wide row must not make all the others as wide.
        """
        for index, row in enumerate(self.sheet.rows[self.header + 1 :], self.header + 2):
            if any(cell is not None for cell in row):
                yield index, row

    def column(self, name: str) -> int:
        """A column by its name, or by its letter."""
        wanted = name.strip().lower()
        if name in self.columns:
            return self.columns.index(name)
        lowered = [each.lower() for each in self.columns]
        if wanted in lowered:
            return lowered.index(wanted)
        if re.fullmatch(r"[a-z]{1,3}", wanted) and column_number(wanted) < len(self.columns):
            return column_number(wanted)
        known = ", ".join(self.columns[:_MAX_COLUMNS])
        more = f" and {len(self.columns) - _MAX_COLUMNS} more" if len(self.columns) > _MAX_COLUMNS else ""
        raise ToolError(f"there is no column {name!r}; the columns are: {known}{more}")

    def numbered(self, index: int) -> list[str]:
        """A note if a column is named by a number, so that the row of names may be one of data."""
        name = at(self.sheet.rows[self.header], index) if self.header < len(self.sheet.rows) else None
        number = read_number(name) is not None if isinstance(name, str) else name is not None
        if not number:
            return []
        row = self.header + 1
        return [
            f"row {row} was taken for the names of the columns; if {show(name)} is data, it is not counted"
        ]

    def twins(self, names: Sequence[str]) -> list[str]:
        """A note for each of these names that several columns have: which one was taken."""
        said: list[str] = []
        for name in names:
            index = self.column(name)
            called = self.columns[index]
            ending = re.compile(rf"{re.escape(called.lower())}(?: \([a-z]+\))*")
            alike = [
                i for i, each in enumerate(self.columns) if i != index and ending.fullmatch(each.lower())
            ]
            by_name = name.strip().lower() in (each.lower() for each in self.columns)  # and not by its letter
            if alike and by_name:
                others = ", ".join(repr(self.columns[i]) for i in alike)
                said.append(f"{called!r} is column {column_letter(index)}; of the same name are {others}")
        return said


def as_table(sheet: Sheet) -> SheetTable:
    header = sheet.header
    if header is None:
        header = next((i for i, row in enumerate(sheet.rows) if any(cell is not None for cell in row)), 0)
    first = sheet.rows[header] if header < len(sheet.rows) else []
    width = max((len(row) for row in sheet.rows), default=0)
    names: dict[str, None] = {}
    for index in range(width):
        cell = at(first, index)
        name = " ".join(show(cell).split()) or column_letter(index)
        while name in names:
            name = f"{name} ({column_letter(index)})"
        names[name] = None
    return SheetTable(sheet, header, tuple(names))


def column_letter(index: int) -> str:
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def column_number(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number - 1


def show(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int | float):
        return digits(exactly(cell))
    return cell if len(cell) <= _MAX_CELL else cell[:_MAX_CELL] + "…"


def whole(cell: Cell) -> str:
    """All of a cell as text: what two cells are told apart by, where `show` would make them look alike."""
    return cell if isinstance(cell, str) else show(cell)


def table_text(columns: Sequence[str], rows: Sequence[tuple[int | str, Sequence[Cell]]]) -> str:
    """Rows as a Markdown table, each with its row number, cut to a readable size."""
    left_out, columns = len(columns) - _MAX_COLUMNS, columns[:_MAX_COLUMNS]
    lines = [f"| row | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 1)]
    size = sum(map(len, lines))
    for count, (number, row) in enumerate(rows):
        cells = (show(cell).replace("|", "\\|").replace("\n", " ") for cell in row[:_MAX_COLUMNS])
        line = f"| {number} | {' | '.join(cells)} |"
        size += len(line) + 1
        if size > _MAX_TEXT:
            lines.append(f"[{len(rows) - count} more rows do not fit; ask for fewer columns or rows]")
            break
        lines.append(line)
    if left_out > 0:
        lines.append(f"[{left_out} more columns do not fit; ask for those you need]")
    return "\n".join(lines)
