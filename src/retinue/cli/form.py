"""A form at the terminal: a line for each property of a JSON schema, read as what the schema says it is.

Used by `asking` for what an MCP server asks while a call runs. Pure: `asking` shows and reads the lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from retinue.view.words import one_line

YES, NO = ("y", "yes", "true", "1"), ("n", "no", "false", "0")


class NotThat(ValueError):
    """What was typed does not fit the field. The text says what does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    value: Any
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FormField:
    """One field. `known` is taken where nothing is typed; None: it may be left out, or has to be given."""

    name: str
    kind: str
    title: str
    needed: bool
    known: Any
    choices: tuple[Choice, ...]

    @property
    def prompt(self) -> str:
        what = {"boolean": "y or n", "integer": "a whole number", "number": "a number"}.get(self.kind, "")
        if self.choices:
            shown = ", ".join(f"{i}: {one.title}" for i, one in enumerate(self.choices, 1))
            what = f"{shown}; some, with commas" if self.kind == "array" else shown
        old = "" if self.known is None else f" [{one_line(_text(self.known), 60)}]"
        left = "" if self.needed or self.known is not None else " [nothing]"
        return f"{one_line(self.title, 60)}{f' ({one_line(what, 300)})' if what else ''}{old or left}:"

    def read(self, typed: str) -> Any:
        """The value, or None to leave it out. Raises `NotThat`."""
        typed = typed.strip()
        if not typed:
            if self.known is None and self.needed:
                raise NotThat("this has to be given")
            return self.known
        if self.kind == "array":
            return [self._choice(each.strip()) for each in typed.split(",")]
        if self.choices:
            return self._choice(typed)
        if self.kind == "boolean":
            if typed.lower() not in (*YES, *NO):
                raise NotThat("y or n")
            return typed.lower() in YES
        if self.kind in ("integer", "number"):
            try:
                return int(typed) if self.kind == "integer" else float(typed)
            except ValueError:
                raise NotThat("a number") from None
        return typed

    def _choice(self, typed: str) -> Any:
        for number, one in enumerate(self.choices, 1):
            if typed in (str(number), one.title, one.value):
                return one.value
        if self.choices:
            raise NotThat(f"one of 1 to {len(self.choices)}")
        return typed


def form_fields(schema: Mapping[str, Any], filled: str) -> list[FormField]:
    """The fields of a question; `filled`: what is known already, as JSON."""
    known = cast("dict[str, Any]", json.loads(filled or "{}"))
    needed: Any = schema.get("required") or ()
    properties = schema.get("properties")
    fields = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    return [_field(name, one, known.get(name), name in needed) for name, one in fields.items()]


def _field(name: str, written: Any, known: Any, needed: bool) -> FormField:
    schema = cast("dict[str, Any]", written) if isinstance(written, dict) else {}
    kind = str(schema.get("type") or "string")
    described = schema.get("description")
    title = f"{schema.get('title') or name}{f', {described}' if described else ''}"
    inner = schema.get("items") if kind == "array" else schema
    choices = _choices(cast("dict[str, Any]", inner) if isinstance(inner, dict) else {})
    kept = known if known not in ("", None) else schema.get("default")
    return FormField(name=name, kind=kind, title=title, needed=needed, known=kept, choices=choices)


def _choices(schema: dict[str, Any]) -> tuple[Choice, ...]:
    told: Any = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(told, list):
        found = [cast("dict[str, Any]", each) for each in cast("list[Any]", told) if isinstance(each, dict)]
        return tuple(
            Choice(value=one.get("const"), title=str(one.get("title", one.get("const")))) for one in found
        )
    values: Any = schema.get("enum")
    if not isinstance(values, list):
        return ()
    return tuple(Choice(value=one, title=str(one)) for one in cast("list[Any]", values))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
