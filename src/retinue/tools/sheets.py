"""Tools over attached workbooks: look at ranges, filter rows, add things up.

A `Workbook` is parsed once, when it is attached, and held as plain values; formulas are the values they had
when the file was saved. The tools read it and change nothing. They are offered, together with
`sheet_guidance`, only while a workbook is attached and the setting is on.
"""

from __future__ import annotations

import asyncio
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from retinue.attachment_parsers import Cell, Sheet
from retinue.errors import ToolError
from retinue.settings import SheetSettings
from retinue.tools.base import Tool, tool
from retinue.tools.descriptions import describe

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "contains", "starts", "in", "empty", "filled"]
Function = Literal["count", "sum", "mean", "median", "min", "max", "distinct"]

MAX_ROWS = 200
_MAX_TEXT = 20_000
_MAX_CELL = 200
_MAX_COLUMNS = 100


class Workbook(Struct, frozen=True, kw_only=True):
    name: str
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on a row."""

    column: str
    op: Operator = "="
    value: str | int | float | bool | list[str | int | float] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A sheet read as a table: the first row that is not empty names the columns."""

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
        lowered = [each.lower() for each in self.columns]
        if wanted in lowered:
            return lowered.index(wanted)
        if re.fullmatch(r"[a-z]{1,3}", wanted) and column_number(wanted) < len(self.columns):
            return column_number(wanted)
        known = ", ".join(self.columns[:_MAX_COLUMNS])
        more = f" and {len(self.columns) - _MAX_COLUMNS} more" if len(self.columns) > _MAX_COLUMNS else ""
        raise ToolError(f"there is no column {name!r}; the columns are: {known}{more}")


def at(row: Sequence[Cell], index: int) -> Cell:
    return row[index] if index < len(row) else None


def as_table(sheet: Sheet) -> Table:
    header = next((i for i, row in enumerate(sheet.rows) if any(cell is not None for cell in row)), 0)
    first = sheet.rows[header] if sheet.rows else []
    width = max((len(row) for row in sheet.rows), default=0)
    names: dict[str, None] = {}
    for index in range(width):
        cell = at(first, index)
        name = " ".join(show(cell).split()) or column_letter(index)
        while name in names:
            name = f"{name} ({column_letter(index)})"
        names[name] = None
    return Table(sheet, header, tuple(names))


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
    if isinstance(cell, float):
        return f"{cell:.10g}"
    text = str(cell)
    return text if len(text) <= _MAX_CELL else text[:_MAX_CELL] + "…"


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


def pick_sheet(workbooks: Sequence[Workbook], workbook: str | None, sheet: str | None) -> Sheet:
    """By name; what is not named is the first."""
    books = [each for each in workbooks if workbook is None or each.name == workbook]
    if not books:
        known = ", ".join(each.name for each in workbooks)
        raise ToolError(f"no workbook {workbook!r} is attached; attached: {known}")
    sheets = [each for book in books for each in book.sheets]
    found = [each for each in sheets if sheet is None or each.name.lower() == sheet.strip().lower()]
    if not found:
        raise ToolError(
            f"there is no sheet {sheet!r}; the sheets are: {', '.join(each.name for each in sheets)}"
        )
    return found[0]


_RANGE = re.compile(r"\$?([A-Z]{1,3})?\$?(\d{1,7})?(?::\$?([A-Z]{1,3})?\$?(\d{1,7})?)?", re.IGNORECASE)


def read_range(sheet: Sheet, cells: str) -> str:
    match = _RANGE.fullmatch(cells.strip())
    if match is None or not cells.strip():
        raise ToolError(f"{cells!r} is not a range; write one like A1:D20, A:C, 5:10 or B7")
    width = max((len(row) for row in sheet.rows), default=0)
    left, top, right, bottom = match.groups()
    single = ":" not in cells
    first_column = column_number(left) if left else 0
    last_column = column_number(right) if right else (first_column if single and left else width - 1)
    first_row = int(top) if top else 1
    last_row = int(bottom) if bottom else (first_row if single and top else len(sheet.rows))
    last_column, last_row = min(last_column, width - 1), min(last_row, len(sheet.rows))
    if first_row < 1 or first_row > last_row or first_column > last_column:
        return f"{cells} is empty: the sheet has {len(sheet.rows)} rows and {width} columns"
    shown = range(first_row, min(last_row, first_row + MAX_ROWS - 1) + 1)
    columns = range(first_column, last_column + 1)
    rows: list[tuple[int | str, list[Cell]]] = []
    for number in shown:
        row = sheet.rows[number - 1]
        rows.append((number, [at(row, i) for i in columns]))
    text = table_text([column_letter(i) for i in columns], rows)
    if last_row > shown[-1]:
        text += f"\n[{last_row - shown[-1]} more rows; go on at row {shown[-1] + 1}]"
    return text


def matching(table: Table, where: Sequence[Condition]) -> list[tuple[int, list[Cell]]]:
    tests = [(table.column(each.column), _test(each)) for each in where]
    return [(number, row) for number, row in table.data() if all(test(at(row, i)) for i, test in tests)]


def _test(condition: Condition) -> Callable[[Cell], bool]:
    op, value = condition.op, condition.value
    if op == "empty":
        return lambda cell: cell is None or cell == ""
    if op == "filled":
        return lambda cell: cell is not None and cell != ""
    if op == "in":
        options = {_key(each) for each in (value if isinstance(value, list) else [value])}
        return lambda cell: _key(cell) in options
    if isinstance(value, list):
        raise ToolError(f"{op} compares with one value, not with a list; use 'in'")
    if op in ("contains", "starts"):
        text = show(value).lower()
        if op == "contains":
            return lambda cell: text in show(cell).lower()
        return lambda cell: show(cell).lower().startswith(text)
    wanted = _key(value)
    if op == "=":
        return lambda cell: _key(cell) == wanted
    if op == "!=":
        return lambda cell: _key(cell) != wanted
    return lambda cell: _ordered(_key(cell), op, wanted)


def _key(cell: Cell) -> float | str:
    """Numbers compare as numbers, also where one side is text; everything else as text without case."""
    number = number_of(cell)
    return number if number is not None else show(cell).strip().lower()


def number_of(cell: Cell) -> float | None:
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, int | float):
        return float(cell)
    try:
        return float(cell) if re.fullmatch(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", cell, re.IGNORECASE) else None
    except ValueError:
        return None


def _ordered(one: float | str, op: str, other: float | str) -> bool:
    if isinstance(one, str):
        if isinstance(other, str) and one:
            sign = (one > other) - (one < other)
        else:
            return False  # a number and a text, or an empty cell, are in no order
    elif isinstance(other, str):
        return False
    else:
        sign = (one > other) - (one < other)
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op]


def aggregate(
    table: Table, column: str, function: Function, group_by: Sequence[str], where: Sequence[Condition]
) -> str:
    target = table.column(column)
    keys = [table.column(each) for each in group_by]
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for _, row in matching(table, where):
        groups.setdefault(tuple(show(at(row, i)) for i in keys), []).append(at(row, target))
    if not groups:
        return "no rows match"
    title = f"{function} of {table.columns[target]}"
    left_out = 0
    results: list[tuple[tuple[str, ...], Cell]] = []
    for key, cells in groups.items():
        value, skipped = _aggregated(cells, function)
        left_out += skipped
        results.append((key, value))
    results.sort(key=lambda pair: (-(number_of(pair[1]) or 0), pair[0]))
    rows: list[tuple[int | str, list[Cell]]] = [
        (number, [*key, value]) for number, (key, value) in enumerate(results[:MAX_ROWS], 1)
    ]
    text = (
        table_text([*(table.columns[i] for i in keys), title], rows)
        if keys
        else f"{title}: {show(results[0][1])}"
    )
    if len(results) > MAX_ROWS:
        text += f"\n[{len(results) - MAX_ROWS} more groups]"
    if left_out:
        text += f"\n[{left_out} cells that are not numbers were left out]"
    return text


def _aggregated(cells: list[Cell], function: Function) -> tuple[Cell, int]:
    filled = [cell for cell in cells if cell is not None and cell != ""]
    if function == "count":
        return len(filled), 0
    if function == "distinct":
        return len({_key(cell) for cell in filled}), 0
    numbers = [number for cell in filled if (number := number_of(cell)) is not None]
    if not numbers:
        if function in ("min", "max") and filled:
            texts = [show(cell) for cell in filled]
            return (min(texts) if function == "min" else max(texts)), 0
        return None, len(filled)
    compute: dict[str, Callable[[list[float]], float]] = {
        "sum": sum,
        "mean": statistics.fmean,
        "median": statistics.median,
        "min": min,
        "max": max,
    }
    return compute[function](numbers), len(filled) - len(numbers)


def sheet_guidance(workbooks: Sequence[Workbook], settings: SheetSettings) -> str:
    """What an agent is told about spreadsheets: nothing unless one is attached and the setting is on."""
    return describe("sheet_guidance") if workbooks and settings.enabled else ""


def sheet_tools(workbooks: Sequence[Workbook]) -> list[Tool]:
    """The tools over these workbooks. The work is done in a thread: a sheet may have half a million cells."""

    async def sheet_read(cells: str, sheet: str | None = None, workbook: str | None = None) -> str:
        chosen = pick_sheet(workbooks, workbook, sheet)
        return await asyncio.to_thread(read_range, chosen, cells)

    async def sheet_filter(
        where: list[Condition],
        columns: list[str] | None = None,
        sort_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
        sheet: str | None = None,
        workbook: str | None = None,
    ) -> str:
        chosen = pick_sheet(workbooks, workbook, sheet)
        return await asyncio.to_thread(_filtered, chosen, where, columns or [], sort_by, descending, limit)

    async def sheet_aggregate(
        column: str,
        function: Function,
        group_by: list[str] | None = None,
        where: list[Condition] | None = None,
        sheet: str | None = None,
        workbook: str | None = None,
    ) -> str:
        chosen = pick_sheet(workbooks, workbook, sheet)
        return await asyncio.to_thread(
            lambda: aggregate(as_table(chosen), column, function, group_by or [], where or [])
        )

    functions = (sheet_read, sheet_filter, sheet_aggregate)
    return (
        [tool(description=describe(each.__name__), effect="read")(each) for each in functions]
        if workbooks
        else []
    )


def _filtered(
    sheet: Sheet,
    where: Sequence[Condition],
    columns: Sequence[str],
    sort_by: str | None,
    descending: bool,
    limit: int,
) -> str:
    table = as_table(sheet)
    rows = matching(table, where)
    if sort_by is not None:
        index = table.column(sort_by)
        numbers = [pair for pair in rows if isinstance(_key(at(pair[1], index)), float)]
        others = [pair for pair in rows if isinstance(_key(at(pair[1], index)), str)]
        numbers.sort(key=lambda pair: number_of(at(pair[1], index)) or 0.0, reverse=descending)
        others.sort(key=lambda pair: str(_key(at(pair[1], index))), reverse=descending)
        rows = numbers + others
    shown = rows[: max(1, min(limit, MAX_ROWS))]
    chosen = [table.column(each) for each in columns] or list(range(len(table.columns)))
    if not rows:
        return "no rows match"
    text = table_text(
        [table.columns[i] for i in chosen], [(number, [at(row, i) for i in chosen]) for number, row in shown]
    )
    return (
        f"{len(rows)} rows match" + (f", {len(shown)} shown" if len(shown) < len(rows) else "") + f"\n{text}"
    )
