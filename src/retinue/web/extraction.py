"""Fills the fields or the JSON schema a model asked for from what `tables` found, and says what is missing.

Called by `pool` in the worker. A field is filled only from a key or a column of that name; where nothing
fits it is reported as missing, never guessed.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from msgspec import Struct

from retinue.web import tables
from retinue.web.content import decode, kind_of, media_type
from retinue.web.page import clean
from retinue.web.tables import PageTable, Pair, TablesFound

SHOWN_ROWS = 15
SHOWN_PAIRS = 80
SHOWN_FINDS = 30
_NUMBER = re.compile(r"-?\d(?:[\d.,'\u00a0\u202f ]*\d)?")
_ORIGINS = ("structured data", "JSON", "definition list", "table row", "page head", "line of text")


class ExtractJob(Struct, frozen=True, kw_only=True, tag="extract"):
    """`fields` are names; `schema` is a JSON schema, as JSON text; `table` asks for one table in full."""

    body: bytes
    content_type: str
    url: str
    fields: tuple[str, ...] = ()
    schema: str = ""
    table: int = 0
    cut: bool = False


class Extracted(Struct, frozen=True, kw_only=True, tag="extract"):
    """`text` is JSON; `missing` are the fields that nothing was found for."""

    text: str = ""
    missing: tuple[str, ...] = ()
    problem: str = ""


def extract(job: ExtractJob) -> Extracted:
    found = _found(job)
    if found is None:
        return Extracted(problem="it is not text, so there is nothing to extract")
    if job.table:
        return _one_table(found, job.table)
    if job.schema:
        return _by_schema(found, json.loads(job.schema))
    if job.fields:
        filled, missing = _by_names(found, job.fields)
        return Extracted(text=_json({"fields": filled, "missing": missing}), missing=tuple(missing))
    return Extracted(text=_json(_overview(found)))


def _found(job: ExtractJob) -> TablesFound | None:
    kind = kind_of(job.content_type, job.body[:2048])
    if kind in ("binary", "pdf"):
        return None
    text = clean(decode(job.body, job.content_type, cut=job.cut))
    if kind == "html":
        return tables.from_html(text)
    if kind == "json" or job.url.endswith(".json"):
        return tables.from_json(text)
    if media_type(job.content_type) in ("text/csv", "text/tab-separated-values") or re.search(
        r"\.[ct]sv$", job.url
    ):
        return tables.from_csv(text)
    return tables.from_text(text)


def _json(value: Any) -> str:
    return clean(json.dumps(value, indent=1, ensure_ascii=False))


def _overview(found: TablesFound) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "tables": [
            {
                "number": number,
                "title": table.title,
                "columns": list(table.columns),
                "rows": [list(row) for row in table.rows[:SHOWN_ROWS]],
                "rows_in_all": len(table.rows) + table.more,
            }
            for number, table in enumerate(found.tables, 1)
        ],
        "pairs": [[pair.key, pair.value] for pair in found.pairs[:SHOWN_PAIRS]],
        "prices": list(found.prices[:SHOWN_FINDS]),
        "dates": list(found.dates[:SHOWN_FINDS]),
    }
    return {key: value for key, value in shown.items() if value}


def _one_table(found: TablesFound, number: int) -> Extracted:
    if not 0 < number <= len(found.tables):
        have = f"there are {len(found.tables)}, counted from 1" if found.tables else "there are none"
        return Extracted(problem=f"it has no table {number}: {have}")
    table = found.tables[number - 1]
    rows: list[Any] = [_row_as_object(table, row) for row in table.rows]
    return Extracted(
        text=_json({"title": table.title, "columns": table.columns, "rows": rows, "left_out": table.more})
    )


def _row_as_object(table: PageTable, row: tuple[str, ...]) -> Any:
    if not table.columns or len(set(table.columns)) < len(table.columns):
        return list(row)
    return dict(zip(table.columns, row, strict=False))


def words(name: str) -> tuple[str, ...]:
    """The words of a name, whether camelCase, snake_case or prose."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return tuple(re.findall(r"[^\W_]+", spaced.casefold()))


def _fit(asked: tuple[str, ...], have: str) -> int:
    """How well a key answers to a name: 3 the same, 2 its last part is the same, 1 it holds all words."""
    if not asked:
        return 0
    if words(have) == asked:
        return 3
    if words(have.rpartition(".")[2].rpartition(":")[2]) == asked:
        return 2
    return 1 if set(asked) <= set(words(have)) else 0


def _best_pair(found: TablesFound, name: str) -> Pair | None:
    asked = words(name)
    scored = [
        (_fit(asked, pair.key), -_ORIGINS.index(pair.origin), -number, pair)
        for number, pair in enumerate(found.pairs)
        if pair.value not in (None, "")
    ]
    best = max(scored, key=lambda item: item[:3], default=None)
    return best[3] if best is not None and best[0] > 0 else None


def _column(found: TablesFound, name: str) -> tuple[PageTable, int] | None:
    asked = words(name)
    best: tuple[int, int, PageTable, int] | None = None
    for table in found.tables:
        for index, column in enumerate(table.columns):
            score = _fit(asked, column)
            if score and (best is None or (score, len(table.rows)) > best[:2]):
                best = (score, len(table.rows), table, index)
    return None if best is None else (best[2], best[3])


def _by_names(found: TablesFound, names: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    filled: dict[str, Any] = {}
    missing: list[str] = []
    for name in names:
        pair = _best_pair(found, name)
        column = _column(found, name)
        if pair is not None and (column is None or _fit(words(name), pair.key) >= 2):
            filled[name] = {"value": pair.value, "from": f"{pair.origin}: {pair.key}"}
        elif column is not None:
            table, index = column
            values = [row[index] for row in table.rows if index < len(row)][:100]
            filled[name] = {
                "value": values,
                "from": f"column {table.columns[index]!r} of table {table.title!r}",
            }
        elif words(name) in (("prices",), ("price",)) and found.prices:
            filled[name] = {"value": list(found.prices[:SHOWN_FINDS]), "from": "amounts in the text"}
        elif words(name) in (("dates",), ("date",)) and found.dates:
            filled[name] = {"value": list(found.dates[:SHOWN_FINDS]), "from": "dates in the text"}
        else:
            missing.append(name)
    return filled, missing


def _by_schema(found: TablesFound, schema: dict[str, Any]) -> Extracted:
    missing: list[str] = []
    if schema.get("type") == "array":
        data: Any = _rows(found, cast("dict[str, Any]", schema.get("items") or {}), "rows", missing)
    else:
        data = _object(found, schema, missing)
    return Extracted(text=_json({"data": data, "missing": missing}), missing=tuple(missing))


def _object(found: TablesFound, schema: dict[str, Any], missing: list[str]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, inner in cast("dict[str, dict[str, Any]]", schema.get("properties") or {}).items():
        items = cast("dict[str, Any]", inner.get("items") or {})
        if inner.get("type") == "array" and items.get("type") == "object":
            filled[name] = _rows(found, items, name, missing)
            continue
        if inner.get("type") == "object":
            filled[name] = _object(found, inner, missing)
            continue
        value = _value(found, name, inner)
        if value is None:
            missing.append(name)
        else:
            filled[name] = value
    return filled


def _value(found: TablesFound, name: str, schema: dict[str, Any]) -> Any:
    pair = _best_pair(found, name)
    column = _column(found, name)
    if schema.get("type") == "array":
        items = cast("dict[str, Any]", schema.get("items") or {})
        if column is not None:
            table, index = column
            values = [coerce(row[index], items) for row in table.rows if index < len(row)]
            return [value for value in values if value is not None]
        listed: Any = None if pair is None else pair.value
        if not isinstance(listed, list):
            return None
        return [coerce(value, items) for value in cast("list[Any]", listed)] or None
    if pair is not None:
        return coerce(pair.value, schema)
    if column is not None and len(column[0].rows) == 1:
        return coerce(column[0].rows[0][column[1]], schema)
    return None


def _rows(found: TablesFound, schema: dict[str, Any], name: str, missing: list[str]) -> list[dict[str, Any]]:
    """The rows of the table that has the most of the asked columns."""
    asked = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    best: tuple[int, PageTable, dict[str, int]] | None = None
    for table in found.tables:
        where: dict[str, int] = {}
        for prop in asked:
            scores = [_fit(words(prop), column) for column in table.columns]
            if scores and max(scores):
                where[prop] = scores.index(max(scores))
        if where and (best is None or len(where) > best[0]):
            best = (len(where), table, where)
    if best is None:
        missing.append(name)
        return []
    _, table, where = best
    missing += [f"{name}.{prop}" for prop in asked if prop not in where]
    return [
        {prop: coerce(row[at], asked[prop]) for prop, at in where.items() if at < len(row)}
        for row in table.rows
    ]


def coerce(value: Any, schema: dict[str, Any]) -> Any:
    """A value in the type that is asked for, or None where its text cannot be one."""
    kind = schema.get("type")
    if kind in ("number", "integer"):
        number = value if isinstance(value, int | float) else to_number(str(value))
        if number is None or isinstance(number, bool):
            return None
        return round(number) if kind == "integer" else number
    if kind == "boolean":
        text = str(value).strip().casefold()
        return (
            True
            if text in ("true", "yes", "1", "✓", "✔")
            else False
            if text in ("false", "no", "0")
            else None
        )
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value


def to_number(text: str) -> float | int | None:
    """The first number in a text: 1,234.50 and 1.234,50 and 1 234,5 alike."""
    match = _NUMBER.search(text.replace("\u2212", "-"))
    if match is None:
        return None
    digits = re.sub(r"['\u00a0\u202f ]", "", match[0])
    comma, point = digits.rfind(","), digits.rfind(".")
    if comma >= 0 and point >= 0:
        decimal = "," if comma > point else "."
    else:
        only = "," if comma >= 0 else "."
        last = digits.rpartition(only)[2]
        # A lone separator before exactly three digits divides thousands, unless it is a point.
        decimal = only if digits.count(only) == 1 and (only == "." or len(last) != 3) else ""
    whole, _, part = digits.rpartition(decimal) if decimal and decimal in digits else (digits, "", "")
    whole = re.sub(r"[.,]", "", whole)
    try:
        return float(f"{whole}.{part}") if part else int(whole)
    except ValueError:
        return None
