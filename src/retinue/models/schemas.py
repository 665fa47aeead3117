"""Fits JSON schemas to what a provider accepts.

`is_strict` says whether OpenAI would enforce a schema as it stands; `closed` makes a copy that Anthropic
enforces; `gemini_schema` makes a copy in the part of JSON schema that Gemini knows. What a provider cannot
enforce is moved into the description, where the model still reads it. Nothing here changes its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

Schema = dict[str, Any]

# Limits that a provider's grammar cannot enforce.
_UNENFORCED = (
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "pattern",
)
_NEVER_STRICT = ("oneOf", "allOf", "patternProperties", "default", "minLength", "maxLength", "uniqueItems")
_GEMINI_KEEPS = frozenset(
    {
        "type",
        "description",
        "enum",
        "properties",
        "required",
        "items",
        "prefixItems",
        "anyOf",
        "additionalProperties",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "nullable",
        "$ref",
        "$defs",
    }
)


def is_strict(schema: Any) -> bool:
    """Whether every object in it lists all its properties as required and allows no others."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return True
    node = cast("Schema", schema)
    if node.get("type") == "object" or "properties" in node:
        properties: Schema = node.get("properties") or {}
        if node.get("additionalProperties") is not False:
            return False
        if set(properties) != set(node.get("required") or ()):
            return False
    if any(name in node for name in _NEVER_STRICT):
        return False
    return all(
        all(is_strict(v) for v in cast("Schema", value).values())
        if name in ("properties", "$defs", "definitions")
        else is_strict(value)
        for name, value in node.items()
        if name in ("properties", "$defs", "definitions", "items", "anyOf", "prefixItems")
    )


def closed(schema: Any) -> Any:
    """A copy in which no object allows other properties, and unenforceable limits are words."""
    if isinstance(schema, list):
        return [closed(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    node = dict(cast("Schema", schema))
    _put_into_words(node, _UNENFORCED)
    if node.get("type") == "object" or "properties" in node:
        node["additionalProperties"] = False
        node.setdefault("properties", {})
    for name, value in node.items():
        node[name] = _within(name, value, closed)
    if "oneOf" in node:
        node["anyOf"] = node.pop("oneOf")
    return node


def gemini_schema(schema: Schema) -> Schema:
    """A copy in Gemini's subset: references resolved, constants as enums, unknown keywords gone."""
    definitions: Schema = {**(schema.get("definitions") or {}), **(schema.get("$defs") or {})}
    recursive: set[str] = set()
    made = cast("Schema", _gemini(schema, definitions, (), recursive))
    made.pop("$defs", None)
    if recursive:  # a reference to itself cannot be written out: keep it as one
        made["$defs"] = {
            name: _gemini(definitions[name], definitions, (name,), recursive) for name in sorted(recursive)
        }
    return made


def _gemini(schema: Any, definitions: Schema, inside: tuple[str, ...], recursive: set[str]) -> Any:
    if not isinstance(schema, dict):
        return {} if schema is True else schema
    node = dict(cast("Schema", schema))
    reference = node.get("$ref")
    if isinstance(reference, str):
        name = reference.rsplit("/", 1)[-1]
        if name in inside or name not in definitions:
            if name in definitions:
                recursive.add(name)
            return {"$ref": f"#/$defs/{name}"}
        del node["$ref"]
        return _gemini({**definitions[name], **node}, definitions, (*inside, name), recursive)
    for part in cast("list[Any]", node.pop("allOf", None) or []):
        _join(node, _gemini(part, definitions, inside, recursive))
    if "const" in node:
        node["enum"] = [node.pop("const")]
        node.setdefault("type", _type_of(node["enum"][0]))
    if "oneOf" in node:
        node["anyOf"] = node.pop("oneOf")
    _put_into_words(
        node, ("minLength", "maxLength", "pattern", "exclusiveMinimum", "exclusiveMaximum", "format")
    )

    def change(part: Any) -> Any:
        return _gemini(part, definitions, inside, recursive)

    return {name: _within(name, value, change) for name, value in node.items() if name in _GEMINI_KEEPS}


def _join(node: Schema, part: Any) -> None:
    """Add one member of an `allOf` to its parent."""
    for name, value in cast("Schema", part).items() if isinstance(part, dict) else ():
        if name == "properties":
            node["properties"] = {**value, **(node.get("properties") or {})}
        elif name == "required":
            node["required"] = list(dict.fromkeys([*(node.get("required") or ()), *value]))
        else:
            node.setdefault(name, value)


def _within(name: str, value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a change to the schemas inside a keyword."""
    if name in ("properties", "$defs", "definitions") and isinstance(value, dict):
        return {key: change(part) for key, part in cast("Schema", value).items()}
    if name in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
        return [change(part) for part in cast("list[Any]", value)]
    if name in ("items", "additionalProperties") and isinstance(value, dict):
        return change(value)
    return value


def _put_into_words(node: Schema, names: tuple[str, ...]) -> None:
    said = [
        f"{name}: {node.pop(name)}" for name in names if name in node and not isinstance(node[name], dict)
    ]
    if said:
        words = ", ".join(said)
        node["description"] = f"{node['description']} ({words})" if node.get("description") else words


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return "number" if isinstance(value, float) else "string"
