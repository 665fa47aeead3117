"""Looks a workbook over for what its values do not tell: formulas without a value, those that add up others,
errors, hidden rows, cells that are there twice, currencies that only formats name, and whole numbers that are
longer than a float can hold.

Called by `attachment_parsers`, in the process that parses. A program that writes workbooks often writes
formulas and leaves it to a spreadsheet program to compute them; to the parser such cells are empty, and so
are those that show an error. Reads the XML of `.xlsx`, `.xlsm` and `.ods`. The binary formats are not looked
over, and their sheets say so.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from msgspec.structs import replace

from retinue.attachment_parsers import Doubtful, Remark, Sheet

MOST_FORMULA = 80
MOST_FOUND = 2_000_000
MOST_HIDDEN = 100_000
MOST_ROWS = 1_048_576
_PIECE = 1 << 20
_WORTH_IT = re.compile(
    rb"<(?:\w+:)?f[\s/>]|hidden=|\st=[\"']e[\"']|v>\s*-?\d{16,}\s*</|<!|.<\?|v(?:\s[^<>]*)?>[^<]*&|/(?:\w+:)?v>\s*<(?:\w+:)?v[\s/>]"
)
_ADDRESS = re.compile(rb"<(?:\w+:)?(?:c|row)(?=[\s/>])(?:[^>]*?\sr=[\"']([A-Z]*\d+)[\"'])?")
_DATA = re.compile(rb"<(?:\w+:)?sheetData[\s/>]")
_ADDS_UP = re.compile(r"(?i)\+?(?:SUM|SUBTOTAL|AGGREGATE)\(.*\)|[$A-Z\d]+(?:\+[$A-Z\d]+)+")
_REFERENCE = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})(?::\$?([A-Z]{1,3})\$?(\d{1,7}))?")
_CODES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|NOK|NZD|PLN|RON|RUB|SEK|SGD|THB|TRY|"
    "USD|ZAR"
)
_MONEY = re.compile(rf"\[\$([^\]-]+)(?:-([^\]]*))?\]|(?<!\[)([$€£¥₹₽₩₺₴₦฿₫₪]|\b(?:{_CODES})\b)")
"""A currency in a number format: `[$€-407]`, `"€"`, `"EUR"`. The built-in formats name none."""
_SAME = {"EUR": "€", "USD": "$", "GBP": "£", "US$": "$"}
_AMERICAN = ("", "409", "en-US")
_LONG = re.compile(r"-?\d{16,24}")
_MOST_COLUMNS = 16_384
_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz$"


@dataclass(slots=True)
class _Found:
    """What one sheet holds: formulas and errors by row number and column, and the rows that are hidden."""

    errors: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    formulas: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    hidden: list[int] = field(default_factory=list[int])
    whole: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """Whole numbers with more digits than the parser's floats keep."""
    twice: set[int] = field(default_factory=set[int])
    """Numbers of rows with a cell that the file holds twice."""
    pieces: set[int] = field(default_factory=set[int])
    """Numbers of rows with a value that stands between comments or is written with references."""
    computed: Counter[int] = field(default_factory=Counter[int])
    """How many formulas with a value a column has, how many of these are 0, how many an empty text."""
    zeros: Counter[int] = field(default_factory=Counter[int])
    blanks: Counter[int] = field(default_factory=Counter[int])
    sums: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    money: dict[tuple[int, str], list[int]] = field(default_factory=dict[tuple[int, str], list[int]])
    """Rows by column and currency, as formats name it."""

    def currencies(self) -> list[tuple[int, str, list[int]]]:
        named = Counter(column for column, _ in self.money)
        return [(*key, rows) for key, rows in self.money.items() if named[key[0]] > 1]

    def doubtful(self) -> list[Doubtful]:
        twice = Doubtful(kind="twice", rows=sorted(self.twice))
        pieces = Doubtful(kind="pieces", rows=sorted(self.pieces))
        return [each for each in (twice, pieces) if each.rows]

    def remarks(self) -> list[Remark]:
        said: list[Remark] = []
        for column, count in self.computed.items():
            if self.zeros[column] == count:
                which = (
                    "the only formula of this column has"
                    if count == 1
                    else f"all {count:,} formulas of this column have"
                )
                text = f"{which} the value 0 in the file: perhaps nobody has computed them"
                said.append(Remark(text=text, column=column))
        for column, count in self.blanks.items():
            which = (
                "1 formula of this column has" if count == 1 else f"{count:,} formulas of this column have"
            )
            said.append(Remark(text=f"{which} an empty text as its value", column=column))
        return said


class ImpossibleSheet(Exception):
    """A file that no spreadsheet program writes, and of which the parser would lose a part."""


def looked_over(data: bytes, sheets: list[Sheet]) -> list[Sheet]:
    """The same sheets with what was found. Where that cannot be told, they say so."""
    unknown = [replace(sheet, unchecked=True) for sheet in sheets]
    if not data.startswith(b"PK"):
        return unknown
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
            if len(names) < len(archive.namelist()):
                twice = next(name for name, count in Counter(archive.namelist()).items() if count > 1)
                raise ImpossibleSheet(f"holds two parts of the name {twice!r}")
            found = _of_ods(archive) if "content.xml" in names else _of_xlsx(archive, names)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile, expat.ExpatError, NotImplementedError):
        return unknown
    return [
        _with(sheet, found[sheet.name]) if sheet.name in found else other
        for sheet, other in zip(sheets, unknown, strict=True)
    ]


def _with(sheet: Sheet, found: _Found) -> Sheet:
    """To the parser a sheet ends with its last value; formulas may go on below it."""
    rows, total = sheet.rows, sheet.total
    if sheet.is_whole:
        last = max((number for number, _ in (*found.formulas, *found.errors)), default=0)
        rows += [[] for _ in range(min(last, MOST_ROWS) - len(rows))]
        total = max(total, len(rows), last)
    uncomputed: list[tuple[int, int]] = []
    for cells in (found.errors, found.formulas):
        for (number, column), text in cells.items():
            if number > len(rows):
                continue  # beyond what was read: the sheet is not whole
            row = rows[number - 1]
            row.extend([None] * (column + 1 - len(row)))
            row[column] = text
            if cells is found.formulas:
                uncomputed.append((number, column))
    for (number, column), whole in found.whole.items():
        if number <= len(rows) and column < len(rows[number - 1]):
            rows[number - 1][column] = whole
    return replace(
        sheet,
        rows=rows,
        total=total,
        uncomputed=uncomputed,
        hidden=[number for number in found.hidden if number <= len(rows)],
        sums=found.sums,
        currencies=found.currencies(),
        doubtful=found.doubtful(),
        remarks=found.remarks(),
    )


class _Reader:
    """What reads a part. The text of an element may come in pieces."""

    parser: expat.XMLParserType

    def start(self, tag: str, given: dict[str, str]) -> None: ...

    def end(self, tag: str) -> None: ...

    def text(self, data: str) -> None: ...

    def between(self) -> None:
        """A comment, an instruction or a section of raw text stands here."""


def _read(archive: zipfile.ZipFile, name: str, reader: _Reader) -> None:
    """Feed one part of the archive to a reader, piece by piece."""
    parser = expat.ParserCreate()
    reader.parser = parser
    parser.CommentHandler = lambda _: reader.between()
    parser.StartCdataSectionHandler = reader.between
    parser.ProcessingInstructionHandler = lambda _, __: reader.between()
    parser.StartElementHandler = lambda tag, given: reader.start(tag.rpartition(":")[2], given)
    parser.EndElementHandler = lambda tag: reader.end(tag.rpartition(":")[2])
    parser.CharacterDataHandler = reader.text
    with archive.open(name) as part:
        parser.ParseFile(part)


def _is_worth_it(archive: zipfile.ZipFile, name: str) -> bool:
    with archive.open(name) as part:
        before = b""
        while piece := part.read(_PIECE):
            if _WORTH_IT.search(before + piece):
                return True
            before = piece[-64:]
    return False


def _are_addresses_clear(archive: zipfile.ZipFile, name: str) -> bool:
    """Whether each row and each cell has an address, and none has that of another."""
    seen: list[bytes] = []
    parts = 0
    with archive.open(name) as part:
        before = b""
        while piece := part.read(_PIECE):
            text, _, before = (before + piece).rpartition(b"<")
            before = b"<" + before
            seen += _ADDRESS.findall(text)
            parts += len(_DATA.findall(text))
            if len(seen) > 2 * MOST_FOUND:
                raise ValueError("more cells than are counted")
        seen += _ADDRESS.findall(before)
    if parts > 1:
        raise ImpossibleSheet("holds the cells of one sheet in several parts")
    for each in seen:
        if len(each) > 7 and (int(each.lstrip(_UPPER) or 0) > MOST_ROWS):
            raise ImpossibleSheet(
                f"holds a row {each.lstrip(_UPPER).decode()}, and {MOST_ROWS:,} is the last"
            )
    return b"" not in seen and len(set(seen)) == len(seen)


def _attribute(given: dict[str, str], name: str) -> str | None:
    """An attribute by its name without the prefix."""
    return next((value for key, value in given.items() if key.rpartition(":")[2] == name), None)


# ── .xlsx ───────────────────────────────────────────────────────────────────────────────────────────────


class _Links(_Reader):
    """The `id`s of a part and where they lead, or the names of sheets and their ids."""

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}
        self.sheets: dict[str, str] = {}

    def start(self, tag: str, given: dict[str, str]) -> None:
        if tag == "Relationship":
            self.targets[given.get("Id", "")] = given.get("Target", "")
        elif tag == "sheet":
            linked = next((v for k, v in given.items() if k.endswith(":id")), "")
            self.sheets[given.get("name", "")] = linked


class _Styles(_Reader):
    """The currency that each style of a workbook names by its number format, by its index; empty for none."""

    def __init__(self) -> None:
        self.currencies: list[str] = []
        self._formats: dict[str, str] = {}
        self._of_cells = False

    def start(self, tag: str, given: dict[str, str]) -> None:
        if tag == "numFmt":
            self._formats[given.get("numFmtId", "")] = _currency(given.get("formatCode", ""))
        elif tag == "cellXfs":
            self._of_cells = True
        elif tag == "xf" and self._of_cells:
            self.currencies.append(self._formats.get(given.get("numFmtId", ""), ""))

    def end(self, tag: str) -> None:
        if tag == "cellXfs":
            self._of_cells = False


def _currency(code: str) -> str:
    found = _MONEY.search(code.partition(";")[0])
    if found is None:
        return ""
    symbol = (found[1] or found[3]).strip(' "')
    elsewhere = symbol == "$" and (found[2] or "") not in _AMERICAN  # of Australia, Canada …
    return f"$ ({found[2]})" if elsewhere else _SAME.get(symbol, symbol)


def _adds_up(formula: str, column: int) -> bool:
    """Whether a formula is a sum of other rows of its own column."""
    if _ADDS_UP.fullmatch(formula.replace(" ", "")) is None:
        return False
    parts = [
        (_column(one), int(top), _column(other or one), int(bottom or top))
        for one, top, other, bottom in _REFERENCE.findall(formula.upper())
    ]
    rows = {row for left, top, right, bottom in parts if left <= column <= right for row in (top, bottom)}
    return len(rows) > 1


class _Cells(_Reader):
    """The cells of a sheet of an .xlsx."""

    def __init__(self, *, clear: bool, styles: Sequence[str] = ()) -> None:
        """`clear`: no cell can be there twice, so that they need not be remembered."""
        self.found = _Found()
        self._styles = styles
        self._style = ""
        self._seen: set[int] | None = None if clear else set()
        self._row = self._column = 0
        self._in = ""
        self._formula: list[str] | None = None
        self._value = False
        self._type: str | None = None
        self._shown = ""
        self._begin = 0

    def start(self, tag: str, given: dict[str, str]) -> None:
        self._in = tag
        if tag == "row":
            self._row = int(given.get("r") or self._row + 1)
            self._column = -1
            if given.get("hidden") in ("1", "true"):
                self.found.hidden.append(self._row)
        elif tag == "c":
            self._to(given.get("r"))
            self._formula, self._value, self._shown = None, False, ""
            self._type = given.get("t")
            self._style = given.get("s", "") if self._styles else ""
        elif tag == "f":
            self._formula = []
        elif tag == "v":
            self._begin = -1
            if self._shown:
                self.found.pieces.add(self._row)  # two values
            self._value = self._value or self._type == "str"  # a formula whose result is an empty text

    def _to(self, address: str | None) -> None:
        """The parser goes by the address of a cell, not by that of its row."""
        if address is None:
            self._column += 1
            return
        self._column = _column(address)
        number = address.lstrip(_LETTERS)
        self._row = int(number) if number.isdigit() else self._row

    def between(self) -> None:
        if self._in == "v":
            self.found.pieces.add(self._row)

    def text(self, data: str) -> None:
        if self._in == "f" and self._formula is not None and len(self._formula) < MOST_FORMULA:
            self._formula.append(data)
        elif self._in in ("v", "t"):
            if self._in == "v" and self._begin < 0:
                self._begin = self.parser.CurrentByteIndex
            self._shown += data
            self._value = self._value or bool(data.strip())

    def end(self, tag: str) -> None:
        written = self.parser.CurrentByteIndex - self._begin
        if tag == "v" and self._type in (None, "n") and self._begin >= 0 and written != len(self._shown):
            self.found.pieces.add(self._row)  # a reference such as `&#48;`, which the parser leaves out
        self._in = ""
        if tag != "c":
            return
        if self._formula is not None and not self._value:
            formula = "".join(self._formula)[:MOST_FORMULA] or "…"
            _keep(self.found.formulas, self._row, self._column, f"={formula}")
        elif self._type == "e" and self._value:
            _keep(self.found.errors, self._row, self._column, self._shown[:MOST_FORMULA])
        elif self._formula is not None:
            self._count_formula()
        if self._style.isdigit() and self._value and self._type in (None, "n"):
            money = self._styles[int(self._style)] if int(self._style) < len(self._styles) else ""
            if money:
                self.found.money.setdefault((self._column, money), []).append(self._row)
        if self._type in (None, "n") and _LONG.fullmatch(self._shown.strip()):
            self.found.whole[self._row, self._column] = int(self._shown)
        if self._seen is not None and (self._value or self._formula is not None):
            key = self._row * _MOST_COLUMNS + self._column
            if key in self._seen:
                self.found.twice.add(self._row)
            self._seen.add(key)

    def _count_formula(self) -> None:
        if _adds_up("".join(self._formula or ()), self._column):
            self.found.sums.append((self._row, self._column))
        self.found.computed[self._column] += 1
        if not self._shown:
            self.found.blanks[self._column] += 1
        elif self._type in (None, "n") and self._shown.strip() == "0":
            self.found.zeros[self._column] += 1


def _keep(cells: dict[tuple[int, int], str], row: int, column: int, text: str) -> None:
    if len(cells) >= MOST_FOUND:
        raise ValueError("more cells than are counted")
    cells[row, column] = text


def _column(reference: str) -> int:
    number = 0
    for letter in reference:
        if not letter.isalpha():
            break
        number = number * 26 + ord(letter.upper()) - 64
    return number - 1


def _of_xlsx(archive: zipfile.ZipFile, names: set[str]) -> dict[str, _Found]:
    if "xl/workbook.xml" not in names:
        return {}  # a binary one
    links = _Links()
    _read(archive, "xl/workbook.xml", links)
    _read(archive, "xl/_rels/workbook.xml.rels", links)
    styles = _Styles()
    if "xl/styles.xml" in names:
        _read(archive, "xl/styles.xml", styles)
    several = styles.currencies if len({*styles.currencies} - {""}) > 1 else []
    found: dict[str, _Found] = {}
    for name, link in links.sheets.items():
        target = posixpath.normpath(posixpath.join("/xl", links.targets[link])).lstrip("/")
        if target not in names:
            continue
        clear = _are_addresses_clear(archive, target)
        cells = _Cells(clear=clear, styles=several)
        if not clear or several or _is_worth_it(archive, target):
            _read(archive, target, cells)
        found[name] = cells.found
    return found


# ── .ods ────────────────────────────────────────────────────────────────────────────────────────────────


_NO_BRACKETS = {ord(each): None for each in "[]."}
"""Addresses of an .ods are written `[.B2:.B3]`."""


class _OdsCells(_Reader):
    """The cells of all sheets of an .ods, where one element may stand for many cells and rows."""

    def __init__(self) -> None:
        self.sheets: dict[str, _Found] = {}
        self._found = _Found()
        self._row = self._rows = self._column = self._columns = 0
        self._formula: str | None = None
        self._value = False

    def start(self, tag: str, given: dict[str, str]) -> None:
        if tag == "table":
            self._found = self.sheets.setdefault(_attribute(given, "name") or "", _Found())
            self._row = self._rows = 0
        elif tag == "table-row":
            self._row += self._rows
            self._rows = int(_attribute(given, "number-rows-repeated") or 1)
            self._column = self._columns = 0
            if _attribute(given, "visibility") in ("collapse", "filter"):
                last = self._row + min(self._rows, MOST_HIDDEN)  # the last element may stand for a million
                self._found.hidden.extend(range(self._row + 1, last + 1))
        elif tag in ("table-cell", "covered-table-cell"):
            self._column += self._columns
            self._columns = int(_attribute(given, "number-columns-repeated") or 1)
            self._formula = _attribute(given, "formula")
            self._value = _attribute(given, "value-type") is not None
            self._note_value(_attribute(given, "currency"))

    def text(self, data: str) -> None:
        self._value = self._value or bool(data.strip())

    def end(self, tag: str) -> None:
        if tag in ("table-cell", "covered-table-cell") and self._formula is not None and not self._value:
            formula = self._formula.partition(":=")[2] or self._formula.lstrip("=")
            for row, column in self._cells():
                _keep(self._found.formulas, row, column, f"={formula[:MOST_FORMULA]}")
            self._formula = None

    def _note_value(self, currency: str | None) -> None:
        cells = range(self._row + 1, self._row + 1 + min(self._rows, MOST_HIDDEN))
        if currency and self._value:
            named = _SAME.get(currency, currency)
            self._found.money.setdefault((self._column, named), []).extend(cells)
        plain = (self._formula or "").rpartition("=")[2].translate(_NO_BRACKETS)
        if self._value and plain and _adds_up(plain, self._column):
            self._found.sums += [(row, self._column) for row in cells]

    def _cells(self) -> Iterator[tuple[int, int]]:
        for row in range(self._row + 1, self._row + self._rows + 1):
            for column in range(self._column, self._column + self._columns):
                yield row, column


def _of_ods(archive: zipfile.ZipFile) -> dict[str, _Found]:
    cells = _OdsCells()
    _read(archive, "content.xml", cells)
    return cells.sheets
