"""An answer in the form of a JSON schema, filled from what the rules found.

Simple schemas are filled so that they validate: objects, lists, text, numbers, choices, references within the
schema. Called when a request asks for JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from retinue.models.offline.results import clip, urls_in
from retinue.models.offline.scene import Say, SceneItem
from retinue.types import JsonSchema

MAX_DEPTH = 8


def to_json(say: Say, schema: JsonSchema) -> str:
    items = say.items or _items_in(say.text)
    value = _fill(schema, schema, "", say.text, items, None, 0)
    return json.dumps(value, ensure_ascii=False)


def _items_in(text: str) -> tuple[SceneItem, ...]:
    """Findings written as `path:line` in a text."""
    found = [
        SceneItem(title=clip(match[3], 120), path=match[1], line=int(match[2]), text=clip(match[3], 200))
        for match in re.finditer(
            r"`?([\w./-]{1,200}\.\w{1,8}):(\d{1,7})`?:?[ \t]*([^\n]{0,200})", text[:50_000]
        )
    ]
    return tuple(found[:20]) or tuple(SceneItem(title=url, url=url) for url in urls_in(text)[:10])


def _fill(
    schema: Any,
    root: JsonSchema,
    name: str,
    text: str,
    items: tuple[SceneItem, ...],
    item: SceneItem | None,
    depth: int,
) -> Any:
    about = _resolve(schema, root)
    if depth > MAX_DEPTH:
        return None
    for key in ("const", "default"):
        if key in about:
            return about[key]
    options = about.get("enum")
    if isinstance(options, list) and options:
        return _choose(cast("list[Any]", options), text, item)
    for key in ("anyOf", "oneOf"):
        choices = about.get(key)
        if isinstance(choices, list) and choices:
            real = [choice for choice in cast("list[Any]", choices) if choice != {"type": "null"}]
            return _fill((real or choices)[0], root, name, text, items, item, depth + 1)
    merged = about.get("allOf")
    if isinstance(merged, list) and merged:
        return _fill(cast("list[Any]", merged)[0], root, name, text, items, item, depth + 1)
    kind = about.get("type")
    if isinstance(kind, list):
        kinds = [one for one in cast("list[Any]", kind) if one != "null"]
        kind = kinds[0] if kinds else "null"
    if kind is None:
        kind = "object" if "properties" in about else "array" if "items" in about else "string"
    if kind == "object":
        return _object(about, root, text, items, item, depth)
    if kind == "array":
        return _array(about, root, name, text, items, depth)
    return _scalar(str(kind), about, name, text, items, item)


def _resolve(schema: Any, root: JsonSchema) -> dict[str, Any]:
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        about = cast("dict[str, Any]", schema)
        reference = about.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return about
        target: Any = root
        for part in reference[2:].split("/"):
            target = cast("dict[str, Any]", target).get(part) if isinstance(target, dict) else None
        schema = target
    return {}


def _object(
    about: dict[str, Any],
    root: JsonSchema,
    text: str,
    items: tuple[SceneItem, ...],
    item: SceneItem | None,
    depth: int,
) -> dict[str, Any]:
    known: Any = about.get("properties")
    properties = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    required: Any = about.get("required")
    wanted = set(cast("list[str]", required)) if isinstance(required, list) else set[str]()
    found: dict[str, Any] = {}
    for name, inner in properties.items():
        value = _fill(inner, root, name, text, items, item, depth + 1)
        if value is not None or name in wanted:
            found[name] = value
    for name in wanted - set(found):
        found[name] = text
    return found


def _array(
    about: dict[str, Any], root: JsonSchema, name: str, text: str, items: tuple[SceneItem, ...], depth: int
) -> list[Any]:
    least = about.get("minItems", 0)
    most = about.get("maxItems", 20)
    inner: Any = about.get("items", {})
    source = list(items[: most if isinstance(most, int) else 20])
    values = [_fill(inner, root, name.rstrip("s"), text, items, item, depth + 1) for item in source]
    while isinstance(least, int) and len(values) < min(least, 50):
        values.append(_fill(inner, root, name.rstrip("s"), text, items, None, depth + 1))
    if about.get("uniqueItems"):
        seen: list[Any] = []
        for value in values:
            if value not in seen:
                seen.append(value)
        values = seen
    return values


def _choose(options: list[Any], text: str, item: SceneItem | None) -> Any:
    """The option that the finding or the text names first, else the last one."""
    if item is not None:
        known = [option for option in (item.severity, "low", "info", "minor") if option in options]
        if known:
            return known[0]
    lowered = text.lower()
    places = [(lowered.find(str(option).lower()), option) for option in options]
    found = [(at, option) for at, option in places if at >= 0]
    return min(found, key=lambda one: one[0])[1] if found else options[-1]


def _scalar(
    kind: str,
    about: dict[str, Any],
    name: str,
    text: str,
    items: tuple[SceneItem, ...],
    item: SceneItem | None,
) -> Any:
    one = item or (items[0] if items else SceneItem(title=clip(text, 120), text=text))
    if kind in ("integer", "number"):
        return _number(kind, about, name.lower(), text, items, one)
    if kind == "boolean":
        return bool(items) if re.search(r"found|exists|success|ok|has_", name.lower()) else False
    if kind == "null":
        return None
    return _sized(_text(name.lower(), text, one, item is not None), about)


def _text(name: str, text: str, one: SceneItem, within: bool) -> str:
    if re.search(r"path|file", name):
        return one.path
    if re.search(r"url|link|source|href", name):
        return one.url or (f"{one.path}:{one.line}" if one.path else "")
    if re.search(r"severity|level", name):
        return one.severity or "low"
    if re.search(r"title|name|label|heading", name):
        return one.title
    if re.search(r"location|where|position", name) and one.path:
        return f"{one.path}:{one.line}"
    return (one.text or one.title) if within else text


def _number(
    kind: str, about: dict[str, Any], name: str, text: str, items: tuple[SceneItem, ...], one: SceneItem
) -> int | float:
    value: float
    if "line" in name:
        value = one.line
    elif re.search(r"count|total|number|matches", name):
        value = len(items)
    else:
        match = re.search(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,6})?", text)
        value = float(match[0]) if match else 0.0
    low, high = about.get("minimum"), about.get("maximum")
    above, below = about.get("exclusiveMinimum"), about.get("exclusiveMaximum")
    if isinstance(above, (int, float)) and value <= above:
        value = above + 1
    if isinstance(below, (int, float)) and value >= below:
        value = below - 1
    if isinstance(low, (int, float)):
        value = max(value, low)
    if isinstance(high, (int, float)):
        value = min(value, high)
    return int(value) if kind == "integer" else value


def _sized(text: str, about: dict[str, Any]) -> str:
    most, least = about.get("maxLength"), about.get("minLength")
    if isinstance(most, int) and len(text) > most:
        text = text[: max(0, most)]
    if isinstance(least, int) and len(text) < least:
        text = (text or "not found").ljust(min(least, 10_000), ".")
    return text
