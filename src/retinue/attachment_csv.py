"""Reads a table out of text: what parts its cells, which quotation marks are meant, which row is the header.

Called by `attachment_parsers`, in the process that parses. No row is lost in silence: a quotation mark that
nothing closes is a character, a cell that may hold rows of the table is doubtful, and so is a row with more
or fewer cells than the header. Whoever adds up is told.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from retinue.attachment_parsers import (
    Doubtful,
    Parsed,
    ParserFailed,
    ParserLimits,
    Remark,
    Sheet,
    Tables,
    number_or_text,
)

DELIMITERS = "\t;|,"
"""The rarer in text and numbers, the more it says: the first wins where several part all rows alike."""
_NAMES = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
_MOST_FIELD = 1_000_000
_SAMPLE_LINES = 200
_SAMPLE_CHARACTERS = 100_000
_BLANK = "[ \u00a0\u2009\u202f]"
_NUMBER = re.compile(
    rf"""[-+−("]?[^\w\s;|,.()]?{_BLANK}?\d(?:[\d.,'’]|{_BLANK})*[^\w\s;|,.()]?(?:{_BLANK}?[A-Z]{{3}})?\)?"""
)
_SEPARATOR = re.compile(r"""["']?sep=([\t;|,])["']?\s*""", re.IGNORECASE)


class _TooWide(Exception):
    def __init__(self, line: int, columns: int) -> None:
        self.what = f"has {columns:,} columns in line {line}"


@dataclass(slots=True)
class Records:
    """The rows of a text, and the numbers of those that say something about its quotation marks."""

    limits: ParserLimits
    rows: list[list[str]] = field(default_factory=list[list[str]])
    """The first ones, as far as there is room: none is skipped."""
    total: int = 0
    strays: list[int] = field(default_factory=list[int])
    """With a quotation mark that belongs to no pair, and was read as a character."""
    broken: list[int] = field(default_factory=list[int])
    """With a line break inside of a cell."""
    swallowed: list[int] = field(default_factory=list[int])
    """With a cell that may be several rows."""
    _cells: int = 0
    _characters: int = 0

    def add(self, row: list[str]) -> None:
        self.total += 1
        if len(row) > self.limits.columns:
            raise _TooWide(self.total, len(row))
        self._cells += len(row)
        self._characters += sum(map(len, row))
        if self._cells <= self.limits.cells and self._characters <= self.limits.cell_characters:
            self.rows.append(row)


def parse_csv(data: bytes, limits: ParserLimits) -> Parsed:
    text = data.decode("utf-8", errors="replace").replace("\x00", "\ufffd")
    sample = _sample(text)
    delimiter, remark = guess_delimiter(text)
    lines: Iterable[str] = io.StringIO(text, newline="")
    if sample and _SEPARATOR.fullmatch(sample[0]):
        lines = chain(["\n"], islice(lines, 1, None))  # it tells a program how to read the rest
    try:
        records = read_records(lines, _Likeness(sample, delimiter), limits)
    except _TooWide as wide:
        return ParserFailed(
            what=f"{wide.what}, at most {limits.columns:,} can be read",
            fix="attach a part with fewer columns",
        )
    rows = records.rows
    marks = marks_of(rows)
    shown = set[str]().union(*marks.values())
    decimal = next(iter(shown)) if len(shown) == 1 else ""
    pointed = {index for index, found in marks.items() if found == {"."}}
    header = _header(rows)
    sheet = Sheet(
        name="data",
        rows=[
            [number_or_text(each, thousands=index not in pointed) for index, each in enumerate(row)]
            for row in rows
        ],
        total=records.total,
        decimal=decimal,
        # Between commas a fraction begins with a point, as long as nothing says otherwise.
        assumed="." if not decimal and delimiter == "," else "",
        header=header,
        doubtful=_doubtful(records, header),
        remarks=_remarks(records, header, remark),
    )
    return Tables(sheets=(sheet,))


def _sample(text: str) -> list[str]:
    """The first lines that are not empty, without half a one."""
    start = text[:_SAMPLE_CHARACTERS]
    lines = [line for line in io.StringIO(start, newline="") if line.strip("\r\n ")][: _SAMPLE_LINES + 1]
    return lines[:-1] if len(lines) > _SAMPLE_LINES or (len(text) > len(start) and len(lines) > 1) else lines


# ── rows and quotation marks ────────────────────────────────────────────────────────────────────────────


def read_records(lines: Iterable[str], likeness: _Likeness, limits: ParserLimits) -> Records:
    """All rows. What quotation marks hold together is one, unless it looks like rows of this very table."""
    csv.field_size_limit(_MOST_FIELD)
    found = Records(limits)
    source = iter(lines)
    ahead: deque[str] = deque()  # lines that were looked at, and not taken
    while ahead or ahead.extend(islice(source, 1)) or ahead:
        if '"' in ahead[0]:
            _take_quoted(ahead, source, likeness, found)
        else:
            plain = ahead.popleft().rstrip("\r\n")
            found.add(plain.split(likeness.delimiter) if plain else [])
    return found


def _take_quoted(ahead: deque[str], source: Iterator[str], likeness: _Likeness, found: Records) -> None:
    """Read the row that begins in the first line ahead.

    A line that leaves a cell open has an odd number of marks, and the next such line closes it or is an
    error. So no line is looked at more than twice, whatever the file.
    """

    def following() -> Iterator[str]:
        yield from list(ahead)
        for line in source:
            ahead.append(line)
            yield line

    reader = csv.reader(following(), delimiter=likeness.delimiter, strict=True)
    try:
        row = next(reader)
    except csv.Error:  # a mark that nothing closes, or text after the one that closes
        found.add(likeness.literal(ahead.popleft()))
        found.strays.append(found.total)
        return
    apart = [likeness.literal(ahead.popleft()) for _ in range(reader.line_num)]
    verdict = likeness.judge(apart) if len(apart) > 1 else "row"
    if verdict == "rows":
        found.strays.extend((found.total + 1, found.total + len(apart)))
        for each in apart:
            found.add(each)
        return
    found.add(row)
    if verdict == "unsure":
        found.swallowed.append(found.total)
    elif verdict == "cell":
        found.broken.append(found.total)


class _Likeness:
    """What a row of this table looks like: how many cells it has, and which of them are numbers."""

    def __init__(self, sample: Sequence[str], delimiter: str) -> None:
        self.delimiter = delimiter
        part = re.escape(delimiter)
        self._field = re.compile(rf'"((?:[^"]|"")*+)"(?={part}|[\r\n]*\Z)|([^{part}\r\n]*)')
        rows = [self.literal(line) for line in sample if not _SEPARATOR.fullmatch(line)]
        self._width = max(Counter(map(len, rows)).most_common(1), default=(0, 0))[0]
        alike = [row for row in rows[1:] if len(row) == self._width]
        self._numbers = [
            index
            for index in range(self._width)
            if 2 * sum(_is_number(row[index]) for row in alike)
            > sum(bool(row[index].strip()) for row in alike)
        ]

    def literal(self, line: str) -> list[str]:
        """The cells of one line, where a mark that belongs to no pair is a character."""
        cells: list[str] = []
        at = 0
        while match := self._field.match(line, at):
            inside = match[1]
            cells.append(match[2] if inside is None else inside.replace('""', '"'))
            at = match.end() + 1
            if at > len(line.rstrip("\r\n")):
                break
        return cells if line.strip("\r\n") else []

    def judge(self, apart: Sequence[list[str]]) -> str:
        """Whether these lines are `rows`, one row with a `cell` of several lines, or nobody can say."""
        filled = [index for index, row in enumerate(apart) if row]
        alike = [index for index in filled if self._is_alike(apart[index])]
        if self._numbers and len(alike) == len(filled):
            return "rows"
        inner = [index for index in alike if 0 < index < len(apart) - 1]
        both = 0 in alike and len(apart) - 1 in alike
        return "unsure" if self._width > 1 and (inner or both) else "cell"

    def _is_alike(self, row: Sequence[str]) -> bool:
        if len(row) != self._width:
            return False
        cells = [row[index] for index in self._numbers if row[index].strip()]
        return not self._numbers or (bool(cells) and all(map(_is_number, cells)))


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


# ── header and raggedness ───────────────────────────────────────────────────────────────────────────────


def _is_filled(row: Iterable[str]) -> bool:
    return any(cell.strip() for cell in row)


def _width(row: Sequence[str]) -> int:
    """Without empty cells at the end."""
    return next((index for index in range(len(row), 0, -1) if row[index - 1].strip()), 0)


def _header(rows: Sequence[list[str]]) -> int:
    """The row that names the columns: the first, or the first of several names below lines of one cell."""
    filled = [index for index, row in enumerate(rows[:_SAMPLE_LINES]) if _is_filled(row)]
    if not filled:
        return 0
    first = filled[0]
    if _width(rows[first]) > 1:
        return first
    below = next((index for index in filled if _width(rows[index]) > 1), first)
    names = rows[below][: _width(rows[below])]
    usual = Counter(len(rows[index]) for index in filled if index >= below).most_common(1)[0][0]
    named = all(cell.strip() and not _is_number(cell) for cell in names)
    return below if named and len(rows[below]) == usual and len(filled) > filled.index(below) + 1 else first


def _doubtful(records: Records, header: int) -> list[Doubtful]:
    rows = records.rows
    if not rows:
        return []
    most, least = len(rows[header]), _width(rows[header])
    longer: list[int] = []
    shorter: list[int] = []
    # A mark at the end of every row parts nothing; at the end of some full ones, it may be one too many.
    alike = len({len(row) for row in rows[header + 1 :] if _is_filled(row)}) == 1
    for number, row in enumerate(rows[header + 1 :], header + 2):
        if len(row) > most and (_width(row) > most or (_width(row) == most and not alike)):
            longer.append(number)
        elif len(row) < least and _is_filled(row):
            shorter.append(number)
    found = (
        Doubtful(kind="longer", rows=longer),
        Doubtful(kind="shorter", rows=shorter),
        Doubtful(kind="swallowed", rows=records.swallowed),
    )
    return [each for each in found if each.rows]


def _remarks(records: Records, header: int, remark: str) -> list[Remark]:
    said = [remark] if remark else []
    if parted := _parted_name(records.rows[header : header + _SAMPLE_LINES]):
        said.append(
            f"{parted!r} in the header may be the end of the name before it, and the cells be parted so"
        )
    if any(map(_is_filled, records.rows[:header])):
        said.append(f"row {header + 1} names the columns; what stands above it is not counted")
    if strays := sorted(set(records.strays)):
        rows = (
            f"row {strays[0]}" if len(strays) == 1 else f"{len(strays):,} rows, the first is row {strays[0]}"
        )
        said.append(f"a quotation mark that belongs to no pair was read as a character: {rows}")
    if broken := records.broken:
        said.append(
            f"1 cell of the file has line breaks in it: row {broken[0]}"
            if len(broken) == 1
            else f"{len(broken):,} rows have line breaks in their cells; the first: row {broken[0]}"
        )
    return [Remark(text=text) for text in said]


def _parted_name(rows: Sequence[list[str]]) -> str:
    """A name that begins with a space, as after a comma in a sentence, where no cell below it does."""
    for index, name in enumerate(rows[0] if rows else ()):
        if index and name[:1] == " " and name.strip():
            below = [row[index] for row in rows[1:] if index < len(row) and row[index].strip()]
            if not any(cell[:1] == " " for cell in below):
                return name.strip()
    return ""


# ── what parts the cells, what begins a fraction ────────────────────────────────────────────────────────


def guess_delimiter(text: str) -> tuple[str, str]:
    """What parts every row like the header, and a remark if another does too. The library's own guess can
    take for ever."""
    lines = _sample(text)
    if lines and (said := _SEPARATOR.fullmatch(lines[0])):
        return said[1], ""
    if _is_one_column(lines):
        return next((each for each in DELIMITERS if all(each not in line for line in lines)), ","), ""
    fits = {each: _fit(lines, each) for each in DELIMITERS}
    best = max(DELIMITERS, key=lambda each: (*fits[each], sum(line.count(each) for line in lines)))
    others = [each for each in DELIMITERS if each != best and fits[each][0] > 0.6 * fits[best][0]]
    if not others:
        return best, ""
    return best, f"{_NAMES[best]} part the cells; {_NAMES[others[0]]} would part the rows alike too"


def _is_one_column(lines: Sequence[str]) -> bool:
    """Whether each line is one number below a name that is not parted as they are."""
    if len(lines) < 2 or not all(_is_number(line) for line in lines[1:]):
        return False
    return not any(each in lines[0] for each in DELIMITERS) or (", " in lines[0] and ", " not in lines[1])


def _fit(lines: Sequence[str], delimiter: str) -> tuple[float, float]:
    """How many rows have as many cells as the header, the more so if they are numbers; and as most rows."""
    found = read_records(lines, _Likeness(lines, delimiter), ParserLimits(columns=_SAMPLE_CHARACTERS))
    rows = [row for row in found.rows if _is_filled(row)]
    if not rows:
        return 0.0, 0.0
    usual, times = Counter(len(row) for row in rows).most_common(1)[0]
    cells = [cell for row in rows[1:] for cell in row if cell.strip()]
    numbers = sum(map(_is_number, cells)) / max(len(cells), 1)
    first, named = len(rows[0]), _width(rows[0])
    alike = sum(len(row) == first or _width(row) == named for row in rows[1:]) / max(len(rows) - 1, 1)
    alike = 1.0 if len(rows) == 1 else alike
    weight = 1 + numbers
    return (alike * weight if named > 1 else 0.0), (times / len(rows) * weight if usual > 1 else 0.0)


_COMMA = re.compile(r"\s*-?(?:\d{1,3}(?:\.\d{3})+,\d+|\d+,\d{1,2}|\d+,\d{4,}|\d{4,},\d+)\s*")
_POINT = re.compile(r"\s*-?(?:\d{1,3}(?:,\d{3})+\.\d+|\d+\.\d{1,2}|\d+\.\d{4,}|\d{4,}\.\d+)\s*")


def marks_of(rows: Iterable[list[str]]) -> dict[int, set[str]]:
    """By column, what begins a fraction in the numbers that show it: points, commas, or both."""
    found: dict[int, set[str]] = {}
    for row in rows:
        for index, cell in enumerate(row):
            if "," in cell and _COMMA.fullmatch(cell):
                found.setdefault(index, set()).add(",")
            elif "." in cell and _POINT.fullmatch(cell):
                found.setdefault(index, set()).add(".")
    return found
