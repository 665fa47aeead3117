"""Tools over attached workbooks: look at ranges, filter rows, add things up.

A `Workbook` is parsed once, when it is attached, and held as plain values; formulas are the values they had
when the file was saved. The tools read it and change nothing: `sheet_rows` finds rows, `sheet_totals` adds
up. They are offered, together with `sheet_guidance`, only while a workbook is attached and the setting is on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from msgspec import Struct

from retinue.attachment_parsers import Cell, Sheet
from retinue.errors import ToolError
from retinue.settings import SheetSettings
from retinue.tools.base import Tool, tool
from retinue.tools.descriptions import describe
from retinue.tools.sheet_doubts import Decision, decided, doubts, remarks
from retinue.tools.sheet_numbers import Mark
from retinue.tools.sheet_numbers import shown as digits
from retinue.tools.sheet_rows import Condition, in_order, matching
from retinue.tools.sheet_table import (
    SheetTable,
    as_table,
    at,
    column_letter,
    column_number,
    show,
    table_text,
    whole,
)
from retinue.tools.sheet_totals import Function, require_computed, require_whole, total_of

MAX_ROWS = 200


class Workbook(Struct, frozen=True, kw_only=True):
    name: str
    sheets: tuple[Sheet, ...]


def latest(workbooks: Iterable[Workbook]) -> list[Workbook]:
    """Without those that a later one of the same name has replaced."""
    return list({each.name: each for each in workbooks}.values())


def pick_sheet(workbooks: Sequence[Workbook], workbook: str | None, sheet: str | None) -> tuple[Sheet, str]:
    """By name; what is not named is the first. And a note where that was a choice among several."""
    books = [each for each in workbooks if workbook is None or each.name == workbook]
    if not books:
        known = ", ".join(each.name for each in workbooks)
        raise ToolError(f"no workbook {workbook!r} is attached; attached: {known}")
    sheets = [(book, each) for book in books for each in book.sheets]
    found = [one for one in sheets if sheet is None or one[1].name.lower() == sheet.strip().lower()]
    if not found:
        raise ToolError(
            f"there is no sheet {sheet!r}; the sheets are: {', '.join(each.name for _, each in sheets)}"
        )
    book, chosen = found[0]
    note = f"sheet {chosen.name!r} of {book.name}, the first of {len(found)}" if len(found) > 1 else ""
    return chosen, note


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
        if not sheet.is_whole and first_row > len(sheet.rows):
            raise ToolError(
                f"row {first_row:,} could not be read: only the first {len(sheet.rows):,} of "
                f"{sheet.total:,} rows of this sheet fit. Attach the file with fewer columns, or in parts."
            )
        return f"{cells} is empty: the sheet has {sheet.total} rows and {width} columns"
    shown = range(first_row, min(last_row, first_row + MAX_ROWS - 1) + 1)
    columns = range(first_column, last_column + 1)
    rows: list[tuple[int | str, list[Cell]]] = []
    for number in shown:
        row = sheet.rows[number - 1]
        rows.append((number, [at(row, i) for i in columns]))
    text = table_text([column_letter(i) for i in columns], rows)
    if last_row > shown[-1]:
        text += f"\n[{last_row - shown[-1]} more rows; go on at row {shown[-1] + 1}]"
    if last_row == len(sheet.rows) and not sheet.is_whole:
        text += f"\n[{sheet.total - len(sheet.rows):,} rows after that could not be read]"
    empty = {(row, column) for row, column in sheet.uncomputed if row in shown and column in columns}
    if empty:
        text += f"\n[{len(empty):,} of these cells are formulas without a value; the formula is shown]"
    return "\n".join([text, *_bracketed(doubts(sheet, shown))])


def aggregate(
    table: SheetTable,
    column: str,
    function: Function,
    group_by: Sequence[str] = (),
    where: Sequence[Condition] = (),
    mark: Mark | None = None,
    doubtful: Decision | None = None,
) -> str:
    target = table.column(column)
    keys = [table.column(each) for each in group_by]
    title = f"{function} of {table.columns[target]}"
    require_whole(table.sheet, title)
    sheet, said = decided(table.sheet, title, doubtful)
    table = replace(table, sheet=sheet)
    matched = matching(table, where, mark)
    for key in keys:
        require_computed(table.sheet, table.columns[key], key, {number for number, _ in matched.rows})
    used = (target, *keys, *(table.column(each.column) for each in where))
    said += [
        *remarks(sheet, used),
        *matched.notes,
        *table.twins([column, *group_by]),
        *table.numbered(target),
    ]
    if not matched.rows:
        return "\n".join(["no rows match", *_bracketed(said)])
    results, more = total_of(
        table.sheet,
        table.columns[target],
        target,
        function,
        matched.rows,
        lambda row: tuple(whole(at(row, i)) for i in keys),
        mark,
    )
    results.sort(key=lambda pair: (-pair[1] if isinstance(pair[1], Decimal) else 0, pair[0]))
    if keys:
        rows: list[tuple[int | str, list[Cell]]] = [
            (number, [*(each or "(empty)" for each in key), _figure(value)])
            for number, (key, value) in enumerate(results[:MAX_ROWS], 1)
        ]
        text = table_text([*(table.columns[i] for i in keys), title], rows)
    else:
        text = f"{title}: {_figure(results[0][1])}"
    if len(results) > MAX_ROWS:
        said.append(f"{len(results) - MAX_ROWS} more groups")
    return "\n".join([text, *_bracketed([*said, *more])])


def _figure(value: str | Decimal | None) -> str:
    return "" if value is None else digits(value) if isinstance(value, Decimal) else show(value)


def _bracketed(said: Sequence[str]) -> list[str]:
    return [f"[{each}]" for each in dict.fromkeys(said)]


def sheet_guidance(workbooks: Sequence[Workbook], settings: SheetSettings) -> str:
    """What an agent is told about spreadsheets: nothing unless one is attached and the setting is on."""
    return describe("sheet_guidance") if workbooks and settings.enabled else ""


def sheet_tools(workbooks: Sequence[Workbook]) -> list[Tool]:
    """The tools over these workbooks, the last of each name. The work is done in a thread: a sheet may have
    half a million cells."""
    workbooks = latest(workbooks)

    async def sheet_read(cells: str, sheet: str | None = None, workbook: str | None = None) -> str:
        chosen, note = pick_sheet(workbooks, workbook, sheet)
        return _noted(await asyncio.to_thread(read_range, chosen, cells), note)

    async def sheet_filter(
        where: list[Condition],
        columns: list[str] | None = None,
        sort_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
        sheet: str | None = None,
        workbook: str | None = None,
        decimal: Mark | None = None,
    ) -> str:
        chosen, note = pick_sheet(workbooks, workbook, sheet)
        wanted = (chosen, where, columns or [], sort_by, descending, limit, decimal)
        return _noted(await asyncio.to_thread(_filtered, *wanted), note)

    async def sheet_aggregate(
        column: str,
        function: Function,
        group_by: list[str] | None = None,
        where: list[Condition] | None = None,
        sheet: str | None = None,
        workbook: str | None = None,
        decimal: Mark | None = None,
        doubtful: Decision | None = None,
    ) -> str:
        chosen, note = pick_sheet(workbooks, workbook, sheet)
        wanted = (column, function, group_by or [], where or [], decimal, doubtful)
        text = await asyncio.to_thread(lambda: aggregate(as_table(chosen), *wanted))
        return _noted(text, note)

    functions = (sheet_read, sheet_filter, sheet_aggregate)
    return (
        [tool(description=describe(each.__name__), effect="read")(each) for each in functions]
        if workbooks
        else []
    )


def _noted(text: str, note: str) -> str:
    return f"{text}\n[{note}]" if note else text


def _filtered(
    sheet: Sheet,
    where: Sequence[Condition],
    columns: Sequence[str],
    sort_by: str | None,
    descending: bool,
    limit: int,
    mark: Mark | None,
) -> str:
    table = as_table(sheet)
    matched = matching(table, where, mark)
    rows, ordering = matched.rows, list[str]()
    if sort_by is not None:
        ordered = in_order(table, rows, table.column(sort_by), descending, mark)
        rows, ordering = ordered.rows, ordered.notes
    shown = rows[: max(1, min(limit, MAX_ROWS))]
    chosen = [table.column(each) for each in columns] or list(range(len(table.columns)))
    said = [*doubts(sheet), *remarks(sheet, chosen), *matched.notes, *ordering]
    said += table.twins([*columns, *([sort_by] if sort_by else [])])
    if not rows:
        return "\n".join(["no rows match", *_bracketed(said)])
    hidden = set(sheet.hidden)
    if hidden and (count := sum(number in hidden for number, _ in rows)):
        said.append(f"{count:,} of these rows are hidden in the file")
    text = table_text(
        [table.columns[i] for i in chosen], [(number, [at(row, i) for i in chosen]) for number, row in shown]
    )
    count_shown = f", {len(shown)} shown" if len(shown) < len(rows) else ""
    return "\n".join([f"{len(rows)} rows match{count_shown}", text, *_bracketed(said)])
