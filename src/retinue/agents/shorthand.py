"""Input and output schemas as people write them in an agent file.

    input_schema:
      query: what to look for                        required text with a description
      scope?: a folder to stay in                    `?` makes it optional
      focus?: bugs|style|security - what to look at  one of these, with a description
      count?: integer - how many results             a type, with a description
      tags?: string[]                                a list

or a whole JSON schema of type object. Called by `fields`; it never fetches a reference.
"""

from __future__ import annotations

import re
from typing import Any, cast

from retinue.agents.document import Invalid, YamlValue
from retinue.types import JsonSchema

TYPES = {
    "string": "string",
    "text": "string",
    "str": "string",
    "integer": "integer",
    "int": "integer",
    "number": "number",
    "float": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "object": "object",
    "array": "array",
    "list": "array",
}
_PROPERTY = re.compile(r"(?P<name>[A-Za-z_][\w-]{0,63})(?P<optional>\??)")
_ENUM = re.compile(r"[\w.+-]+(?:\s*\|\s*[\w.+-]+)+")
_DASH = re.compile(r"(?<!\s)\s+[-–—]\s+|:\s+")


def to_schema(value: YamlValue) -> JsonSchema:
    """The JSON schema of an object that a field describes, or `Invalid`."""
    if not isinstance(value.data, dict) or not value.data:
        raise Invalid(
            "must be a mapping of names to types or descriptions, or a JSON schema",
            line=value.line,
            fix="for example 'query: what to look for' and 'scope?: a folder'",
        )
    if _is_json_schema(value.data):
        return _checked(cast("JsonSchema", value.plain()), value, "schema")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for key, inner in value.data.items():
        match = _PROPERTY.fullmatch(key)
        if match is None:
            raise Invalid(
                f"'{key}' is not a usable name", line=inner.line, fix="letters, digits, '_' and '-'"
            )
        name = match["name"]
        if name in properties:
            raise Invalid(f"'{name}' is given twice", line=inner.line)
        properties[name], optional = _property(inner, name)
        if not (match["optional"] or optional):
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _is_json_schema(data: dict[str, YamlValue]) -> bool:
    kind = data.get("type")
    return "$schema" in data or (
        kind is not None and kind.data == "object" and isinstance(data.get("properties", kind).data, dict)
    )


def _property(value: YamlValue, where: str) -> tuple[JsonSchema, bool]:
    """One property's schema, and whether it is optional by what it says itself."""
    data = value.data
    if data is None:
        return {"type": "string"}, False
    if isinstance(data, list):
        options = [item.plain() for item in data]
        if not options or not all(isinstance(option, (str, int, float, bool)) for option in options):
            raise Invalid(f"{where}: a list here means the allowed values", line=value.line)
        return {"enum": options}, False
    if isinstance(data, dict):
        schema = cast("JsonSchema", value.plain())
        optional = schema.pop("optional", False) is True or schema.pop("required", True) is False
        kind = schema.get("type")
        if isinstance(kind, str):
            schema["type"] = TYPES.get(kind, kind)
        return _checked(schema, value, where), optional or "default" in schema
    return _short(value.raw), False


def _short(text: str) -> JsonSchema:
    """`integer - how many`, `a|b|c`, `string[]`, or a plain description."""
    parts = _DASH.split(text.strip(), maxsplit=1)
    head, said = parts[0].strip(), parts[1].strip() if len(parts) == 2 else ""
    schema: JsonSchema
    if head.lower() in TYPES:
        schema = {"type": TYPES[head.lower()]}
    elif head.endswith("[]") and head[:-2].lower() in TYPES:
        schema = {"type": "array", "items": {"type": TYPES[head[:-2].lower()]}}
    elif _ENUM.fullmatch(head):
        schema = {"type": "string", "enum": [option.strip() for option in head.split("|")]}
    else:
        return {"type": "string", "description": text.strip()} if text.strip() else {"type": "string"}
    return {**schema, "description": said} if said else schema


def _checked(schema: JsonSchema, value: YamlValue, where: str) -> JsonSchema:
    from jsonschema import Draft202012Validator, SchemaError  # heavy: only files with a whole schema need it

    for reference in _references(schema):
        if not reference.startswith("#"):
            raise Invalid(
                f"{where}: '$ref: {reference}' points outside the file",
                line=_line_of(value, "$ref"),
                fix="write the schema out, or refer to '#/$defs/…'",
            )
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        path = [str(part) for part in error.absolute_path]
        at = f"{where}.{'.'.join(path)}" if path else where
        raise Invalid(
            f"{at} is not valid JSON schema: {error.message}",
            line=_line_at(value, path),
            fix="see json-schema.org",
        ) from None
    return schema


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        found: list[str] = []
        for key, inner in cast("dict[str, Any]", schema).items():
            if key in ("$ref", "$dynamicRef") and isinstance(inner, str):
                found.append(inner)
            else:
                found.extend(_references(inner))
        return found
    if isinstance(schema, list):
        return [reference for item in cast("list[Any]", schema) for reference in _references(item)]
    return []


def _line_at(value: YamlValue, path: list[str]) -> int:
    """The line of the deepest key on a path."""
    line = value.line
    for part in path:
        if isinstance(value.data, dict) and part in value.data:
            value = value.data[part]
        elif isinstance(value.data, list) and part.isdigit() and int(part) < len(value.data):
            value = value.data[int(part)]
        else:
            break
        line = value.line
    return line


def _line_of(value: YamlValue, key: str) -> int | None:
    """The line of the first such key, however deep."""
    if isinstance(value.data, list):
        lines = (_line_of(item, key) for item in value.data)
    elif isinstance(value.data, dict):
        if key in value.data:
            return value.data[key].line
        lines = (_line_of(item, key) for item in value.data.values())
    else:
        return None
    return next((line for line in lines if line is not None), None)
