"""Finds the rows of a sheet that meet conditions, and puts them in an order.

Called by `sheets`. What cannot be compared is counted and said; what can be read in two ways is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from retinue.attachment_parsers import Cell
from retinue.errors import ToolError
from retinue.tools.sheet_numbers import Mark
from retinue.tools.sheet_table import SheetTable, at, show, whole
from retinue.tools.sheet_totals import Ambiguous, Numbers, in_two_ways, require_computed, require_whole

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "contains", "starts", "in", "empty", "filled"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on a row."""

    column: str
    op: Operator = "="
    value: str | int | float | bool | list[str | int | float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """The rows that meet all conditions, and what a reader should know about how they were found."""

    rows: list[tuple[int, list[Cell]]]
    notes: list[str]


def matching(table: SheetTable, where: Sequence[Condition], mark: Mark | None = None) -> Matched:
    rows, said = list(table.data()), list[str]()
    for each in where:
        index = table.column(each.column)
        if each.op not in ("empty", "filled"):
            require_computed(table.sheet, table.columns[index], index, {number for number, _ in rows})
        numbers = Numbers(table.sheet, [at(row, index) for _, row in rows], mark)
        test = _test(each, numbers)
        kept: list[tuple[int, list[Cell]]] = []
        unlike: list[tuple[int, Cell]] = []
        for number, row in rows:
            try:
                fits = test(at(row, index))
            except Ambiguous as unclear:
                raise in_two_ways(table.columns[index], number, unclear.text) from None
            if fits:
                kept.append((number, row))
            elif fits is None:
                unlike.append((number, at(row, index)))
        if unlike:
            first = f"{show(unlike[0][1])[:40]!r} in row {unlike[0][0]}"
            count = "1 row" if len(unlike) == 1 else f"{len(unlike):,} rows"
            said.append(
                f"{count} cannot be compared with {each.value!r} and did not match; the first: {first}"
            )
        said += numbers.assumption(rows, index)
        rows = kept
    if not table.sheet.is_whole:
        gone = table.sheet.total - len(table.sheet.rows)
        said.append(f"{gone:,} of {table.sheet.total:,} rows could not be read, and were not looked at")
    return Matched(rows=rows, notes=[*said, *table.twins([each.column for each in where])])


def _test(condition: Condition, numbers: Numbers) -> Callable[[Cell], bool | None]:
    """Whether a cell fits; None where it is of another kind, so that nobody can say."""
    op, value = condition.op, condition.value
    if op == "empty":
        return lambda cell: cell is None or cell == ""
    if op == "filled":
        return lambda cell: cell is not None and cell != ""
    if op == "in":
        options = {_key(each, numbers) for each in (value if isinstance(value, list) else [value])}
        return lambda cell: _key(cell, numbers) in options
    if isinstance(value, list):
        raise ToolError(f"{op} compares with one value, not with a list; use 'in'")
    if op in ("contains", "starts"):
        text = whole(value).lower()
        if op == "contains":
            return lambda cell: text in whole(cell).lower()
        return lambda cell: whole(cell).lower().startswith(text)
    wanted = _key(value, numbers)
    if op == "=":
        return lambda cell: _key(cell, numbers) == wanted
    if op == "!=":
        return lambda cell: _key(cell, numbers) != wanted
    return lambda cell: _ordered(_key(cell, numbers), op, wanted)


def _key(cell: Cell, numbers: Numbers) -> Decimal | str:
    """Numbers compare as numbers, also where one side is text; everything else as text without case."""
    number = numbers.of(cell)
    return number if number is not None else whole(cell).strip().lower()


def _ordered(one: Decimal | str, op: str, other: Decimal | str) -> bool | None:
    if one == "":
        return False  # an empty cell is in no order
    if isinstance(one, str):
        if not isinstance(other, str):
            return None
        sign = (one > other) - (one < other)
    elif isinstance(other, str):
        return None
    else:
        sign = (one > other) - (one < other)
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op]


def in_order(
    table: SheetTable, rows: list[tuple[int, list[Cell]]], index: int, descending: bool, mark: Mark | None
) -> Matched:
    """Numbers in their order, then everything else in that of its text."""
    require_whole(table.sheet, f"the order by {table.columns[index]}")
    reader = Numbers(table.sheet, [at(row, index) for _, row in rows], mark)
    numbers: list[tuple[Decimal, tuple[int, list[Cell]]]] = []
    others: list[tuple[str, tuple[int, list[Cell]]]] = []
    for pair in rows:
        try:
            key = _key(at(pair[1], index), reader)
        except Ambiguous as unclear:
            raise in_two_ways(table.columns[index], pair[0], unclear.text) from None
        numbers.append((key, pair)) if isinstance(key, Decimal) else others.append((key, pair))
    numbers.sort(key=lambda one: one[0], reverse=descending)
    others.sort(key=lambda one: one[0], reverse=descending)
    ordered = [pair for _, pair in (*numbers, *others)]
    return Matched(rows=ordered, notes=reader.assumption(rows, index))
