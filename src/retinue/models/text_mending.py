"""Makes JSON out of what a model wrote for JSON. Used by `text_reading` alone; never raises.

What is not JSON by any reading is given back as it was: the tool that gets it explains what is wrong with it.
"""

from __future__ import annotations

import ast
import html
import json
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

from retinue.types import JsonSchema

_MOST = 200_000
"""Characters that are mended; longer text is JSON or is passed on."""

_STRING = r'"(?:\\.|[^"\\])*(?:"|\\?\Z)'
# One that is never closed goes to the end: it is not looked for again from each quote inside it.
_STRING_OR_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_STRING_OR_KEY = re.compile(rf"{_STRING}|(?<=[{{,])(\s*)([A-Za-z_]\w*)(\s*:)", re.DOTALL)
_FENCE = "```"
_OPENING = re.compile(rf"\s*{_FENCE}[\w+-]*[ \t]*\n?")


_PARAMETER = "(?:parameter|param|arg|argument)"


def mend(body: str, schema: JsonSchema) -> str:
    """Arguments as JSON text."""
    text = without_fence(body).strip()
    if not text:
        return "{}"
    found = load_object(text)
    if found is None:
        found = _children(text, schema) or _only_argument(text, schema)
    if found is None:
        return text
    try:
        return json.dumps(found, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return text


def load_object(body: str) -> dict[str, Any] | None:
    """The object that this text was meant to be, or None."""
    text = without_fence(body).strip()
    for candidate in _readings(text):
        try:
            value: Any = candidate()
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict) and all(isinstance(key, str) for key in cast("dict[Any, Any]", value)):
            return cast("dict[str, Any]", value)
    return None


def without_fence(text: str) -> str:
    """The inside of a Markdown fence, where the whole text is one; closed or not."""
    opening = _OPENING.match(text)
    if opening is None:
        return text.strip("\n")
    inside = text[opening.end() :].rstrip()
    if not inside.endswith(_FENCE):
        return inside
    return inside.removesuffix(_FENCE).rstrip(" \t").removesuffix("\n")


def _readings(text: str) -> Iterator[Callable[[], Any]]:
    yield lambda: json.loads(text, strict=False)
    if len(text) > _MOST or not text.startswith("{"):
        return
    tidy = _STRING_OR_COMMA.sub(lambda m: m[0] if m[0] != "," else "", text)
    yield lambda: json.loads(tidy, strict=False)
    yield lambda: _python(text)
    yield lambda: json.loads(_quote_keys(tidy), strict=False)
    if "&quot;" in text or "&#" in text:
        yield lambda: json.loads(html.unescape(text), strict=False)
    yield lambda: json.loads(_balance(tidy), strict=False)


def _python(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in the model's strings: not our source
        value = ast.literal_eval(re.sub(r"(?<=[\s:\[,])(true|false|null)(?=[\s,}\]])", _constant, text))
    json.dumps(value)  # Python also has sets, bytes and numbers with an imaginary part, which JSON has not
    return value


def _constant(match: re.Match[str]) -> str:
    return {"true": "True", "false": "False", "null": "None"}[match[1]]


def _quote_keys(text: str) -> str:
    return _STRING_OR_KEY.sub(lambda m: m[0] if m[2] is None else f'{m[1]}"{m[2]}"{m[3]}', text)


def _balance(text: str) -> str:
    """With the quotes and brackets that are missing at the end."""
    stack: list[str] = []
    in_string = escaped = False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]" and stack:
            stack.pop()
    return text + ('"' if in_string else "") + "".join(reversed(stack))


def _properties(schema: JsonSchema) -> dict[str, Any]:
    properties = schema.get("properties")
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def _children(text: str, schema: JsonSchema) -> dict[str, Any] | None:
    """`<pattern>x</pattern>` or `<parameter name="pattern">x</parameter>`: one tag for each argument."""
    properties = _properties(schema)
    found: dict[str, Any] = {}
    if len(text) > _MOST or not text.startswith("<"):
        return None
    for name in properties:
        own = re.escape(name)
        tag = rf"(?:{_PARAMETER}\s*(?:name\s*)?=\s*[\"']?{own}[\"']?|{own})"
        begin = re.search(rf"<\s*{tag}\s*>", text, re.IGNORECASE)
        if begin is not None:
            end = re.compile(rf"</\s*(?:{_PARAMETER}|{own})\s*>", re.IGNORECASE)
            close = end.search(text, begin.end())
            value = text[begin.end() : close.start() if close else len(text)]
            found[name] = _typed(value.strip("\n"), properties[name])
    return found or None


def _only_argument(text: str, schema: JsonSchema) -> dict[str, Any] | None:
    """Bare text for a tool that takes one text."""
    required = schema.get("required")
    names = [str(each) for each in cast("list[Any]", required)] if isinstance(required, list) else []
    properties = _properties(schema)
    if len(names) != 1 or text.startswith("{"):
        return None
    described: Any = properties.get(names[0])
    if not isinstance(described, dict) or cast("dict[str, Any]", described).get("type") != "string":
        return None
    tagged = re.fullmatch(r"<\s*([\w-]+)\s*>(.*?)(?:</\s*\1\s*>)?", text, re.DOTALL)
    bare = without_fence(tagged[2]) if tagged else text
    if len(bare) > 1 and bare[0] == bare[-1] == '"':
        bare = bare[1:-1]
    return {names[0]: bare}


def _typed(value: str, described: Any) -> Any:
    if isinstance(described, dict) and cast("dict[str, Any]", described).get("type") == "string":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
