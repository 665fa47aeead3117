"""Parses hostile formats in a process of its own: `python -m retinue.attachment_parsers KIND LIMITS`.

The file comes in on standard input, the result goes out on standard output as JSON. The process limits its
own memory, time and output before it looks at a byte, since a workbook of 10 KB can ask for 500 GB. Started
by `attachments` alone; it opens no file and no connection, and imports next to nothing, to start quickly.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from itertools import islice, pairwise
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

Cell = str | int | float | bool | None
LOOKED_AT = 20
"""Rows of a sheet in which the names of its columns are looked for."""


DoubtKind = Literal["longer", "shorter", "swallowed", "twice", "pieces"]


class Doubtful(Struct, frozen=True, kw_only=True):
    """Numbers of rows that may have been meant otherwise: with more or fewer cells than the header, with a
    cell that may have swallowed rows, with a cell that the file has twice, with a value written in pieces."""

    kind: DoubtKind
    rows: list[int]


class Remark(Struct, frozen=True, kw_only=True):
    """What to say beside every figure over a sheet, or over one column of it."""

    text: str
    column: int | None = None


class Sheet(Struct, frozen=True, kw_only=True):
    """`rows` begin at row 1, column A; empty cells at their ends may be missing. `total` rows are there."""

    name: str
    rows: list[list[Cell]]
    total: int = 0
    uncomputed: list[tuple[int, int]] = []
    """Cells with a formula and no value: the row's number, the column's index. Their text is the formula."""
    sums: list[tuple[int, int]] = []
    """Cells, in the same way, whose formula adds up others of their own column."""
    currencies: list[tuple[int, str, list[int]]] = []
    """By their formats, in columns that have several: the column's index, the currency, the rows' numbers."""
    hidden: list[int] = []
    """Numbers of rows that a person does not see."""
    decimal: str = ""
    """What stands before a fraction in all numbers of a text file that show it: a point or a comma."""
    assumed: str = ""
    """What begins a fraction where no number of the file shows it: what is read by it says so."""
    header: int | None = None
    """The index of the row that names the columns; None for the first that is not empty."""
    doubtful: list[Doubtful] = []
    remarks: list[Remark] = []
    unchecked: bool = False
    """Whether formulas without values, errors and hidden rows could not be looked for."""

    @property
    def is_whole(self) -> bool:
        """Whether every row could be read."""
        return len(self.rows) >= self.total


class ParserLimits(Struct, frozen=True, kw_only=True):
    seconds: float = 20.0
    memory: int = 1_000_000_000
    pages: int = 100
    characters: int = 400_000
    cells: int = 2_000_000
    columns: int = 16_384
    cell_characters: int = 30_000_000
    unpacked: int = 300_000_000


class ParsedPages(Struct, frozen=True, kw_only=True, tag="pages"):
    pages: list[str]
    total: int


class Tables(Struct, frozen=True, kw_only=True, tag="tables"):
    sheets: tuple[Sheet, ...]


class ParserFailed(Struct, frozen=True, kw_only=True, tag="failed"):
    what: str
    fix: str = ""


Parsed = ParsedPages | Tables | ParserFailed


def main(kind: str, limits: ParserLimits) -> None:
    _confine(limits)
    data = sys.stdin.buffer.read()
    parse = {"pdf": parse_pdf, "workbook": parse_workbook, "csv": _parse_csv}[kind]
    sys.stdout.buffer.write(msgspec.json.encode(parse(data, limits)))


def _confine(limits: ParserLimits) -> None:
    import resource

    seconds = max(1, int(limits.seconds))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def parse_pdf(data: bytes, limits: ParserLimits) -> Parsed:
    try:
        import pypdfium2  # pyright: ignore[reportMissingTypeStubs]  # it ships none
    except ImportError:
        return ParserFailed(
            what="is a PDF, and the package pypdfium2 is missing", fix="pip install 'retinue[web]'"
        )
    library = cast("Any", pypdfium2)
    try:
        document = library.PdfDocument(data)
    except library.PdfiumError as error:
        if "password" in str(error).lower():
            return ParserFailed(what="is a PDF with a password", fix="save it without one and attach that")
        return ParserFailed(what=f"could not be read as PDF: {error}")
    pages: list[str] = []
    size = 0
    for index in range(min(len(document), limits.pages)):
        try:
            text = str(document[index].get_textpage().get_text_range())
        except library.PdfiumError:
            text = ""
        pages.append(text.replace("\r\n", "\n").replace("\x00", "")[: limits.characters - size])
        size += len(pages[-1])
        if size >= limits.characters:
            break
    return ParsedPages(pages=pages, total=len(document))


def _parse_csv(data: bytes, limits: ParserLimits) -> Parsed:
    from retinue.attachment_csv import parse_csv

    return parse_csv(data, limits)


_LOCKED = ParserFailed(what="is a spreadsheet with a password", fix="save it without one and attach that")


def parse_workbook(data: bytes, limits: ParserLimits) -> Parsed:
    import io

    try:
        import python_calamine
    except ImportError:
        return ParserFailed(
            what="is a spreadsheet, and the package python-calamine is missing",
            fix="pip install 'retinue[sheets]'",
        )
    from retinue.attachment_formulas import ImpossibleSheet, looked_over

    bomb = _zip_bomb(data, limits)
    if bomb is not None:
        return bomb
    if data.startswith(b"\xd0\xcf\x11\xe0") and "EncryptedPackage".encode("utf-16-le") in data:
        return _LOCKED  # the parser only says that it does not know such a file
    try:
        book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets: list[Sheet] = []
        left, room = limits.cells, limits.cell_characters
        for name in book.sheet_names:
            sheet = book.get_sheet_by_name(name)
            total, width = (0, 0) if sheet.end is None else (sheet.end[0] + 1, sheet.end[1] + 1)
            if total * width > 40 * limits.cells:
                return ParserFailed(
                    what=f"has {total:,} rows and {width:,} columns in sheet {name!r}, too many to read"
                )
            fits = min(total, left // max(width, 1))
            rows = sheet.to_python(skip_empty_area=False, nrows=fits) if fits else []
            left -= len(rows) * width
            kept, room = _fitting((_row(row) for row in rows), room)
            sheets.append(Sheet(name=name, rows=kept, total=total))
        sheets = looked_over(data, sheets)
    except ImpossibleSheet as error:
        return ParserFailed(what=str(error), fix="save it in a spreadsheet program and attach that")
    except python_calamine.PasswordError:
        return _LOCKED
    except (python_calamine.CalamineError, ValueError, OSError) as error:
        return ParserFailed(what=f"could not be read as a spreadsheet: {str(error)[:200]}")
    return Tables(sheets=tuple(map(_below_title, sheets)))


def _below_title(sheet: Sheet) -> Sheet:
    """The sheet with its header, where a title stands above that: alone in its row, above names of columns.

    What is below a title are names if they are texts, each another, and if something in the next row is no
    text: two rows of texts may as well be rows of data under a single name.
    """
    filled = ((i, [cell for cell in row if cell is not None]) for i, row in enumerate(sheet.rows))
    begin = [(i, cells) for i, cells in islice(filled, LOOKED_AT) if cells]
    for (i, names), (_, below) in pairwise(begin):
        if len(names) == 1:
            continue
        texts = {cell for cell in names if isinstance(cell, str)}
        told = len(texts) == len(names) and not all(isinstance(cell, str) for cell in below)
        if i == begin[0][0] or not told:
            break
        remark = Remark(text=f"row {i + 1} names the columns; what stands above it is not counted")
        return msgspec.structs.replace(sheet, header=i, remarks=[*sheet.remarks, remark])
    return sheet


def _zip_bomb(data: bytes, limits: ParserLimits) -> ParserFailed | None:
    import io
    import zipfile

    if not data.startswith(b"PK"):
        return None
    try:
        entries = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        return ParserFailed(what=f"is damaged: {error}")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.unpacked or len(entries) > 10_000:
        return ParserFailed(
            what=f"unpacks to {unpacked:,} bytes in {len(entries):,} parts, too much to read "
            f"(at most {limits.unpacked:,} bytes)",
            fix="attach a smaller part of it",
        )
    return None


def number_or_text(text: str, *, thousands: bool = False) -> Cell:
    """`007`, telephone numbers and dates stay text: a number is what would be written again the same.

    `thousands`: a point may part thousands, so `1.234` stays text too.
    """
    if text.isdigit() and text.isascii() and text[0] != "0" and len(text) < 25:
        return int(text)  # most numbers by far
    stripped = text.strip()
    if not stripped:
        return None
    if stripped.isascii() and len(stripped) < 25 and stripped[-1].isdigit():
        digits = stripped.lstrip("-")
        if digits.isdigit() and (digits == "0" or not digits.startswith("0")):
            return int(stripped)
        whole, _, fraction = digits.partition(".")
        if whole.isdigit() and fraction.isdigit() and (whole == "0" or not whole.startswith("0")):
            exact = len(whole.lstrip("0")) + len(fraction) <= 15  # a float would lose the rest
            grouped = thousands and len(fraction) == 3 and len(whole) <= 3 and whole != "0"
            return float(stripped) if exact and not grouped else text
    return text


def _fitting(rows: Iterable[list[Cell]], room: int) -> tuple[list[list[Cell]], int]:
    """The first rows, as far as their text has room, and the room that is left: none after one did not fit.

    Many cells may share one long text in the file, and each would have it to itself from here on.
    """
    kept: list[list[Cell]] = []
    for row in rows:
        size = sum(len(cell) for cell in row if isinstance(cell, str))
        if size > room:
            return kept, -1
        room -= size
        kept.append(row)
    return kept, room


def _row(row: Iterable[Any]) -> list[Cell]:
    cells = [_cell(each) for each in row]
    while cells and cells[-1] is None:
        cells.pop()
    return cells


def _cell(value: Any) -> Cell:
    if value is None or value == "":
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number, and would make it an empty cell
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "isoformat"):  # dates and times, midnight without its zeros
        return str(value.isoformat()).removesuffix("T00:00:00")
    return str(value)


if __name__ == "__main__":
    main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=ParserLimits))
