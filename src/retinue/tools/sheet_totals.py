"""Adds up a column of a sheet: every row, or an error that says which are missing.

Called by `sheets`. A total that leaves something out says what and how much of it, in the result itself; one
that would rest on rows that were not read, on formulas that nobody computed, on numbers that can be read in
two ways or on several currencies is an error, since nobody could tell it from a right one. Numbers are added
exactly, as they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Literal, TypeGuard

from retinue.attachment_parsers import Cell, Sheet
from retinue.errors import ToolError
from retinue.tools.sheet_numbers import (
    EXACT,
    MEANING_DIGITS,
    Mark,
    Number,
    exactly,
    habit,
    is_date,
    is_error,
    is_long,
    read_number,
    settled,
    without_noise,
)
from retinue.tools.sheet_numbers import shown as digits
from retinue.tools.sheet_table import at
from retinue.tools.sheet_total_rows import total_rows

Function = Literal["count", "sum", "mean", "median", "min", "max", "distinct"]
Kind = Literal["text", "date", "error", "yes or no"]

_WORDS: dict[Kind, tuple[str, str]] = {
    "text": ("is not a number", "are not numbers"),
    "date": ("is a date", "are dates"),
    "error": ("is an error of the spreadsheet", "are errors of the spreadsheet"),
    "yes or no": ("is true or false", "are true or false"),
}


class Numbers:
    """The numbers of one column, in the writing that the column itself, its file or whoever asks says."""

    def __init__(self, sheet: Sheet, cells: Sequence[Cell], mark: Mark | None) -> None:
        self._read: dict[str, Number | None] = {}
        texts = {cell for cell in cells if isinstance(cell, str)}
        for text in texts:
            self._read[text] = read_number(text)
        of_file: Mark | None = "." if sheet.decimal == "." else "," if sheet.decimal == "," else None
        found = [number for number in self._read.values() if number is not None]
        pointed = any(isinstance(cell, float) and not cell.is_integer() for cell in cells)
        both = pointed and any(each.mark == "," for each in found)  # written in both ways
        self.mark: Mark | None = mark or (None if both else habit(found))
        self._assumed: Mark | None = None
        self._why = ""
        self._read_by_it: str | None = None
        if self.mark is None and pointed and of_file == "." and not both:
            self.mark = "."  # its own column shows it
        if self.mark is None and not any(each.mark for each in found):
            self._assumed = of_file or ("." if sheet.assumed == "." else None)
            self._why = "as in other columns" if of_file else "and nothing in the file says so"

    def of(self, cell: Cell) -> Decimal | None:
        """The number in a cell; None for none. Raises `Ambiguous`."""
        if isinstance(cell, bool) or cell is None:
            return None
        if isinstance(cell, int | float):
            return settled(cell)
        found = self.written(cell)
        if found is None:
            return None
        value = found.by(self.mark)
        if value is None and self._assumed is not None:
            value = found.by(self._assumed)
            self._read_by_it = self._read_by_it or cell
        if value is None:
            raise Ambiguous(cell)
        return value

    def assumption(self, rows: Sequence[tuple[int, Sequence[Cell]]], index: int) -> list[str]:
        """What to say if numbers were read in one of two ways, and nothing in their column says in which."""
        text = self._read_by_it
        if text is None:
            return []
        row = next((number for number, cells in rows if at(cells, index) == text), None)
        place = f" in row {row}" if row else ""
        here, other = ("point", ",") if self._assumed == "." else ("comma", ".")
        return [
            f"{text!r}{place} was read with a {here} before the fraction, {self._why}; if a {here} parts "
            f"thousands, call again with decimal={other!r}"
        ]

    def written(self, text: str) -> Number | None:
        if text not in self._read:
            self._read[text] = read_number(text)
        return self._read[text]


class Ambiguous(Exception):
    """A text that is one of two numbers."""

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(slots=True)
class Tally:
    """What was met in the cells of one group, or of all."""

    numbers: list[Decimal] = field(default_factory=list[Decimal])
    filled: int = 0
    empty: int = 0
    long: list[Decimal] = field(default_factory=list[Decimal])
    """Numbers of which a float has more digits than it keeps apart."""
    exact: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    left_out: dict[Kind, list[tuple[int, str]]] = field(default_factory=dict[Kind, list[tuple[int, str]]])
    from_text: int = 0
    percents: int = 0

    def take(self, row: int, cell: Cell) -> bool:
        """Count a cell. False if it is empty."""
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            self.empty += 1
            return False
        self.filled += 1
        return True

    def take_value(self, cell: Cell) -> None:
        """For telling values apart: 7 and "7" are one, 7 and "007" are two."""
        text = digits(settled(cell)) if _is_number(cell) else _plain(cell)
        number = read_number(text) if isinstance(cell, str) else None
        same = number is not None and number.other is None and digits(number.value) == text.strip()
        self.exact.add(("number" if same or _is_number(cell) else "text", text))

    def take_number(self, row: int, cell: Cell, numbers: Numbers, currencies: dict[str, int]) -> None:
        value = numbers.of(cell)
        if value is None:
            self.left_out.setdefault(_kind(cell), []).append((row, _plain(cell)))
            return
        self.numbers.append(value)
        if isinstance(cell, float) and is_long(exactly(cell)):
            self.long.append(value)
        written = numbers.written(cell) if isinstance(cell, str) else None
        if written is not None:
            self.from_text += 1
            self.percents += written.percent
            if written.currency:
                currencies[written.currency] = currencies.get(written.currency, 0) + 1

    def result(self, function: Function) -> str | Decimal | None:
        if function == "count":
            return Decimal(self.filled)
        if function == "distinct":
            return Decimal(len({(kind, text.strip().lower()) for kind, text in self.exact}))
        if not self.numbers:
            texts = [text for found in self.left_out.values() for _, text in found]
            if function in ("min", "max") and texts:
                return min(texts) if function == "min" else max(texts)
            return None
        return self._rounded(_COMPUTE[function](self.numbers))

    def _rounded(self, value: Decimal) -> Decimal:
        """Three thirds are one. Only what noise of the cells themselves can have changed is rounded away."""
        near = without_noise(value)
        with localcontext(EXACT):
            noise = sum(
                (Decimal(1).scaleb(each.adjusted() - MEANING_DIGITS) for each in self.long), Decimal(0)
            )
            return near if abs(near - value) <= noise else value


def _sum(numbers: list[Decimal]) -> Decimal:
    with localcontext(EXACT):
        return sum(numbers, Decimal(0))


def _mean(numbers: list[Decimal]) -> Decimal:
    return _quotient(_sum(numbers), len(numbers))


def _median(numbers: list[Decimal]) -> Decimal:
    ordered, half = sorted(numbers), len(numbers) // 2
    if len(ordered) % 2:
        return ordered[half]
    return _quotient(EXACT.add(ordered[half - 1], ordered[half]), 2)


def _quotient(value: Decimal, by: int) -> Decimal:
    """With two digits more than its parts, or all of them where they end."""
    whole = EXACT.divide(value, Decimal(by))
    most = max(len(value.as_tuple().digits) + 2, MEANING_DIGITS)
    return EXACT.create_decimal(f"{whole:.{most}g}")


_COMPUTE: dict[str, Callable[[list[Decimal]], Decimal]] = {
    "sum": _sum,
    "mean": _mean,
    "median": _median,
    "min": min,
    "max": max,
}


def _is_number(cell: Cell) -> TypeGuard[int | float]:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _number_in(cell: Cell) -> Decimal | None:
    return settled(cell) if _is_number(cell) else None


def _plain(cell: Cell) -> str:
    return ("true" if cell else "false") if isinstance(cell, bool) else str(cell)


def _kind(cell: Cell) -> Kind:
    if isinstance(cell, bool):
        return "yes or no"
    text = str(cell)
    return "error" if is_error(text) else "date" if is_date(text) else "text"


def require_whole(sheet: Sheet, what: str) -> None:
    """An error instead of a figure that would rest on some of the rows."""
    if not sheet.is_whole:
        raise ToolError(
            f"{what} cannot be computed: only the first {len(sheet.rows):,} of {sheet.total:,} rows of sheet "
            f"{sheet.name!r} could be read. A figure over those would be wrong; attach the file with fewer "
            "columns, or in parts."
        )


def require_computed(sheet: Sheet, name: str, index: int, rows: set[int]) -> None:
    """An error where a column holds formulas that nobody has computed."""
    missing = [row for row, column in sheet.uncomputed if column == index and row in rows]
    if missing:
        raise ToolError(
            f"{len(missing):,} of {len(rows):,} cells of {name} are formulas without a value (the first in "
            f"row {min(missing)}): whoever wrote the file has not computed them. Open it in a spreadsheet "
            "program, save it there and attach it again; or compute from the columns that the formulas use."
        )


def in_two_ways(name: str, row: int, text: str) -> ToolError:
    return ToolError(
        f"{name} has numbers that can be read in two ways, like {text!r} in row {row}, and nothing in the "
        "column says which. Call again with decimal='.' if a point begins the fraction, or with decimal=',' "
        "if a comma does."
    )


def require_one_currency(name: str, currencies: dict[str, int], *, by_format: bool) -> None:
    if len(currencies) > 1:
        found = ", ".join(f"{each} ({count:,})" for each, count in sorted(currencies.items()))
        choose = f"e.g. {{'column': {name!r}, 'op': 'contains', 'value': '{min(currencies)}'}}"
        if by_format:
            choose = "by a column that tells them apart: only the formats of the cells name the currency"
        raise ToolError(
            f"{name} has amounts in several currencies: {found}. They cannot be added or compared; choose "
            f"one with where, {choose}."
        )


def notes(
    tallies: Sequence[Tally], function: Function, sheet: Sheet, rows: Sequence[tuple[int, Sequence[Cell]]]
) -> list[str]:
    """Everything that a reader of the figure should know about the cells behind it."""
    said: list[str] = []
    counting = function in ("count", "distinct")
    for kind in () if counting else _WORDS:
        found = sorted(
            each
            for tally in tallies
            if tally.numbers or function not in ("min", "max")
            for each in tally.left_out.get(kind, ())
        )
        if found:
            one, many = _WORDS[kind]
            (row, text), count = found[0], len(found)
            first = f"{text[:40]!r} in row {row}"
            said.append(
                f"1 cell {one} and was left out: {first}"
                if count == 1
                else f"{count:,} cells {many} and were left out; the first: {first}"
            )
    if empty := sum(tally.empty for tally in tallies):
        said.append(f"{_cells(empty)} empty")
    if not counting:
        if from_text := sum(tally.from_text for tally in tallies):
            said.append(f"{_cells(from_text)} text that was read as a number")
        if long := sum(len(tally.long) for tally in tallies):
            said.append(
                f"{_cells(long)} longer than the {MEANING_DIGITS} digits that spreadsheets keep apart: the "
                "last may be noise of a computation"
            )
        if percents := sum(tally.percents for tally in tallies):
            said.append(f"{_cells(percents)} percentages, taken as hundredths")
    if function == "distinct":
        exact = sum(len(tally.exact) for tally in tallies)
        folded = sum(int(tally.result("distinct") or 0) for tally in tallies)
        if exact != folded:
            said.append(f"{exact:,} if upper and lower case, or spaces at the ends, make a difference")
    return [*said, *_of_rows(sheet, rows)]


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count:,} cells are"


def _of_rows(sheet: Sheet, rows: Sequence[tuple[int, Sequence[Cell]]]) -> list[str]:
    said: list[str] = []
    hidden = set(sheet.hidden)
    if hidden and (counted := sum(number in hidden for number, _ in rows)):
        said.append(f"{counted:,} of these rows are hidden in the file, and counted")
    if sheet.unchecked:
        said.append("formulas without a value, errors and hidden rows could not be looked for in this file")
    return said


def total_of(
    sheet: Sheet,
    name: str,
    index: int,
    function: Function,
    rows: Sequence[tuple[int, Sequence[Cell]]],
    group_of: Callable[[Sequence[Cell]], tuple[str, ...]],
    mark: Mark | None,
) -> tuple[list[tuple[tuple[str, ...], str | Decimal | None]], list[str]]:
    """The figure of each group of these rows, and what to say about them. Raises `ToolError`."""
    require_whole(sheet, f"{function} of {name}")
    if function != "count":
        require_computed(sheet, name, index, {number for number, _ in rows})
    numbers = Numbers(sheet, [at(row, index) for _, row in rows], mark)
    currencies: dict[str, int] = {}
    formats = {row: money for column, money, found in sheet.currencies if column == index for row in found}
    tallies: dict[tuple[str, ...], Tally] = {}
    for number, row in rows:
        cell = at(row, index)
        key = group_of(row)
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = Tally()
        if not tally.take(number, cell) or function == "count":
            continue
        if function == "distinct":
            tally.take_value(cell)
            continue
        try:
            tally.take_number(number, cell, numbers, currencies)
        except Ambiguous as unclear:
            raise in_two_ways(name, number, unclear.text) from None
        if number in formats:
            currencies[formats[number]] = currencies.get(formats[number], 0) + 1
    require_one_currency(name, currencies, by_format=bool(formats))
    results = [(group, tally.result(function)) for group, tally in tallies.items()]
    said = notes(list(tallies.values()), function, sheet, rows)
    if function in ("count", "distinct"):  # what is counted need not be numbers: a total shows in any column
        width = max((len(row) for _, row in rows), default=0)
        said += total_rows(rows, range(width), _number_in, sheet.sums)
    else:
        said += total_rows(rows, [index], numbers.of, sheet.sums)
    return results, [*numbers.assumption(rows, index), *said]
