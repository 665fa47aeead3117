"""Tables, key-value pairs, prices and dates of a page as plain data, found by rules alone.

Called by `extraction` in the worker. The same page always gives the same data; nothing is guessed, summed
up or invented.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
from typing import Any, cast

from msgspec import Struct

MOST_TABLES = 100
MOST_ROWS = 2000
MOST_COLUMNS = 100
MOST_PAIRS = 1000
MOST_FINDS = 200
MOST_CELL = 500

_SIGN = r"(?:(?:US|A|C|HK|NZ|S)?[$€£¥₹₩₽₺₿])"
_CODE = r"(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL)"
_AMOUNT = r"(?:\d{1,3}(?:[ '.,\u00a0\u202f]\d{3})+|\d{1,12})(?:[.,]\d{1,2})?(?!\d)"
PRICE = re.compile(rf"(?:{_SIGN}|\b{_CODE}\b)\s?{_AMOUNT}|\b{_AMOUNT}\s?(?:[€£¥₹₩₽₺₿]|{_CODE}\b)")
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DATE = re.compile(
    rf"\b\d{{4}}-\d{{2}}-\d{{2}}\b|\b\d{{1,2}}(?:st|nd|rd|th)?\s{_MONTH}\.?,?\s\d{{4}}\b|"
    rf"\b{_MONTH}\.?\s\d{{1,2}}(?:st|nd|rd|th)?,?\s\d{{4}}\b|\b\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}\b"
)
_UNSHOWN = (
    "//script|//style|//noscript|//template|//svg|//head/*[not(self::meta)]|//*[@hidden]|"
    "//*[contains(translate(@style, ' ', ''), 'display:none')]|"
    "//*[contains(translate(@style, ' ', ''), 'visibility:hidden')]"
)
_LINES = frozenset({"p", "li", "div", "tr", "br", "h1", "h2", "h3", "h4", "dt", "dd", "section", "article"})
_PAIR = re.compile(r"[-*•]?\s*([^\s:|][^:|\n]{0,60}?)\s*[:：]\s+(\S.*)")


class PageTable(Struct, frozen=True, kw_only=True):
    """`columns` may be empty where a table has no header."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


class Pair(Struct, frozen=True, kw_only=True):
    """`origin` is where it was found: structured data, a definition list, a table row, a line of text."""

    key: str
    value: Any
    origin: str


class TablesFound(Struct, frozen=True, kw_only=True):
    tables: tuple[PageTable, ...] = ()
    pairs: tuple[Pair, ...] = ()
    prices: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()


def from_html(html: str) -> TablesFound:
    """Everything that can be found in a page."""
    from retinue.web.html import prepared

    lxml: Any = importlib.import_module("lxml.html")  # has no types
    document: Any = lxml.document_fromstring(prepared(html) or "<p></p>")
    structured = _json_ld(document) + _microdata(document)
    for node in document.xpath(_UNSHOWN):
        if node.getparent() is not None:
            node.drop_tree()
    # A table inside a table is found on its own, and again as text in the outer one: layout, not data.
    nodes = [node for node in document.iter("table") if next(node.iterdescendants("table"), None) is None]
    tables = [table for table in map(_table, nodes[:MOST_TABLES]) if table is not None]
    pairs = structured + _meta(document) + _definitions(document) + _rows_as_pairs(tables)
    text = _with_lines(document)
    pairs += _lines_as_pairs(text)
    return TablesFound(
        tables=tuple(tables), pairs=_once(pairs), prices=_finds(PRICE, text), dates=_finds(_DATE, text)
    )


def from_text(text: str) -> TablesFound:
    """The same from Markdown or plain text."""
    tables = markdown_tables(text)
    pairs = _rows_as_pairs(tables) + _lines_as_pairs(text)
    return TablesFound(
        tables=tuple(tables), pairs=_once(pairs), prices=_finds(PRICE, text), dates=_finds(_DATE, text)
    )


def from_csv(text: str) -> TablesFound:
    sample = text[:5000]
    delimiter = max("\t;,|", key=sample.count)
    try:
        rows = [
            tuple(cell.strip() for cell in row) for row in csv.reader(io.StringIO(text), delimiter=delimiter)
        ]
    except csv.Error:
        return from_text(text)
    rows = [row for row in rows if any(row)]
    if not rows:
        return TablesFound()
    return TablesFound(tables=(_limited("", rows[0], rows[1:]),))


def from_json(text: str) -> TablesFound:
    """Lists of objects are tables, everything else is pairs under its path."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return from_text(text)
    tables: list[PageTable] = []
    pairs: list[Pair] = []
    _walk_json(value, "", pairs, tables, 0, "JSON")
    return TablesFound(tables=tuple(tables), pairs=_once(pairs))


def _walk_json(
    value: Any, path: str, pairs: list[Pair], tables: list[PageTable] | None, depth: int, origin: str
) -> None:
    if depth > 20 or len(pairs) >= MOST_PAIRS:
        return
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            _walk_json(inner, f"{path}.{key}" if path else key, pairs, tables, depth + 1, origin)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        objects = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
        is_table = bool(objects) and len(objects) == len(items)
        if is_table and tables is not None and len(tables) < MOST_TABLES:
            columns = tuple(dict.fromkeys(key for item in objects[:MOST_ROWS] for key in item))[:MOST_COLUMNS]
            rows = [tuple(_scalar(item.get(column)) for column in columns) for item in objects]
            tables.append(_limited(path, columns, rows))
        for number, inner in enumerate(items[:200]):
            if is_table and tables is not None:
                # What is in the table need not be said again, only what is nested in its cells.
                nested = {key for key, cell in objects[number].items() if isinstance(cell, dict | list)}
                inner = {key: objects[number][key] for key in objects[number] if key in nested}
            if isinstance(inner, dict | list):
                _walk_json(inner, f"{path}[{number}]", pairs, tables, depth + 1, origin)
        if items and not any(isinstance(item, dict | list) for item in items):
            pairs.append(Pair(key=path, value=items[:200], origin=origin))
    else:
        pairs.append(Pair(key=path, value=value, origin=origin))


def _scalar(value: Any) -> str:
    if value is None:
        return ""
    return _cell(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cell(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_CELL else text[:MOST_CELL] + "…"


def _limited(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> PageTable:
    kept = tuple(row[:MOST_COLUMNS] for row in rows[:MOST_ROWS])
    return PageTable(title=title, columns=columns[:MOST_COLUMNS], rows=kept, more=len(rows) - len(kept))


def _table(node: Any) -> PageTable | None:
    """A table with its spans filled in, so that each row has a value for each column."""
    grid: list[list[str]] = []
    heads: list[bool] = []
    open_cells: dict[int, tuple[int, str]] = {}
    for row in list(node.iter("tr"))[: MOST_ROWS + 10]:
        cells: list[str] = []
        own = [cell for cell in row if cell.tag in ("td", "th")]
        waiting = iter(own)
        while len(cells) < MOST_COLUMNS:
            if len(cells) in open_cells:
                left, text = open_cells.pop(len(cells))
                if left > 1:
                    open_cells[len(cells)] = (left - 1, text)
                cells.append(text)
                continue
            cell = next(waiting, None)
            if cell is None:
                break
            text = _cell(cell.text_content())
            for _ in range(min(_span(cell, "colspan"), MOST_COLUMNS)):
                if _span(cell, "rowspan") > 1:
                    open_cells[len(cells)] = (min(_span(cell, "rowspan") - 1, MOST_ROWS), text)
                cells.append(text)
        if any(cells):
            grid.append(cells[:MOST_COLUMNS])
            heads.append(bool(own) and all(cell.tag == "th" for cell in own))
    if len(grid) < 2 and not (grid and len(grid[0]) > 1):
        return None
    head = tuple(grid.pop(0)) if heads[0] else ()
    return _limited(_table_title(node), head, [tuple(row) for row in grid])


def _span(cell: Any, name: str) -> int:
    value = (cell.get(name) or "1").strip()
    return max(1, int(value)) if value.isascii() and value.isdigit() and len(value) < 6 else 1


def _table_title(node: Any) -> str:
    caption = node.find("caption")
    if caption is not None:
        return _cell(caption.text_content())
    heading = node.xpath("(preceding::*[self::h1 or self::h2 or self::h3 or self::h4])[last()]")
    return _cell(heading[0].text_content()) if heading else ""


def _json_ld(document: Any) -> list[Pair]:
    pairs: list[Pair] = []
    for node in document.xpath("//script[@type='application/ld+json']")[:20]:
        try:
            value = json.loads(node.text_content())
        except (ValueError, RecursionError):
            continue
        _walk_json(value, "", pairs, None, 0, "structured data")
    return [pair for pair in pairs if not pair.key.rpartition(".")[2].startswith("@")]


def _microdata(document: Any) -> list[Pair]:
    pairs: list[Pair] = []
    for node in document.xpath("//*[@itemprop and not(@itemscope)]")[:MOST_PAIRS]:
        value = node.get("content") or node.get("datetime") or node.get("href") or node.text_content()
        for name in node.get("itemprop").split():
            pairs.append(Pair(key=name, value=_cell(value), origin="structured data"))
    return pairs


def _meta(document: Any) -> list[Pair]:
    wanted = re.compile(
        r"(?:og|article|product|twitter|citation|dc|dcterms)[:._]|description$|author$|keywords$", re.I
    )
    found: list[Pair] = []
    for node in document.xpath("//meta[@content]")[:MOST_PAIRS]:
        name = node.get("property") or node.get("name") or ""
        if wanted.match(name):
            found.append(Pair(key=name, value=_cell(node.get("content")), origin="page head"))
    return found


def _definitions(document: Any) -> list[Pair]:
    found: list[Pair] = []
    for node in list(document.iter("dt"))[:MOST_PAIRS]:
        value = node.getnext()
        if value is not None and value.tag == "dd":
            key, text = _cell(node.text_content()), _cell(value.text_content())
            if key and text and len(key) <= 80:
                found.append(Pair(key=key.rstrip(": "), value=text, origin="definition list"))
    return found


def _rows_as_pairs(tables: list[PageTable]) -> list[Pair]:
    """Tables of two columns without a header are pairs in disguise."""
    found: list[Pair] = []
    for table in tables:
        if not table.columns and all(len(row) == 2 for row in table.rows):
            found += [
                Pair(key=row[0].rstrip(": "), value=row[1], origin="table row")
                for row in table.rows
                if row[0] and row[1] and len(row[0]) <= 80
            ]
    return found


def _with_lines(document: Any) -> str:
    out: list[str] = []
    for node in document.iter():
        if not isinstance(node.tag, str):
            continue
        if node.tag in _LINES:
            out.append("\n")
        elif node.tag in ("td", "th"):
            out.append("| ")
        out.append(" ".join((node.text or "").split()) + " ")
        for child in node:
            if child.tail and child.tag == "br":
                child.tail = "\n" + child.tail
        if node.tail:
            out.append(node.tail if node.tail.startswith("\n") else " ".join(node.tail.split()) + " ")
    return re.sub(r"[ \t]{2,}", " ", "".join(out))


def _lines_as_pairs(text: str) -> list[Pair]:
    found: list[Pair] = []
    for line in text.split("\n"):
        line = line.strip()
        if ":" not in line or len(line) > 300 or line.startswith("|"):
            continue
        match = _PAIR.fullmatch(line.replace("**", ""))
        if match and "://" not in match[1] and len(match[1].split()) <= 6:
            found.append(Pair(key=match[1].strip(" #*_"), value=match[2].strip(), origin="line of text"))
    return found


def _once(pairs: list[Pair]) -> tuple[Pair, ...]:
    seen: dict[str, Pair] = {}
    for pair in pairs:
        seen.setdefault(f"{pair.key}\0{pair.value}", pair)
        if len(seen) == MOST_PAIRS:
            break
    return tuple(seen.values())


def _finds(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for match in pattern.finditer(text):
        around = " ".join(text[max(0, match.start() - 40) : match.end() + 20].split())
        found.setdefault(f"{match[0].strip()} (in: {around})")
        if len(found) == MOST_FINDS:
            break
    return tuple(found)


def markdown_tables(text: str) -> list[PageTable]:
    """The tables of a Markdown text, each with the heading above it."""
    tables: list[PageTable] = []
    heading = ""
    block: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.lstrip().startswith("|"):
            block.append(line)
            continue
        if block:
            table = _markdown_table(block, heading)
            if table is not None and len(tables) < MOST_TABLES:
                tables.append(table)
            block = []
        if line.startswith("#"):
            heading = line.lstrip("# ").strip()
    return tables


def _markdown_table(lines: list[str], heading: str) -> PageTable | None:
    rows = [
        tuple(
            _cell(cell.replace("\\|", "|").replace("**", ""))
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))
        )
        for line in lines
    ]
    if len(rows) < 2 or not all(re.fullmatch(r":?-+:?", cell) for cell in rows[1]):
        return None
    return _limited(heading, rows[0], rows[2:])
