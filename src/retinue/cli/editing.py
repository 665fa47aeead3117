"""The arguments of a call as text that a person edits, and back.

YAML, since long texts keep their lines there; what is read back has the types that were there before, so
that `command: yes` stays a text. Used by `asking` alone.
"""

from __future__ import annotations

import json
from typing import Any, cast

_HEAD = "# Change the arguments, save and close. Nothing runs before you are done.\n"


class Unusable(ValueError):
    """The text cannot be used as arguments."""


def as_text(raw: str) -> str:
    """The arguments of a call, ready to be edited."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    given = _object(raw)
    return _HEAD + yaml.dump(
        given, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=10_000
    )


def from_text(text: str, before: str) -> str:
    """What the person wrote, as JSON. Values keep the type they had before."""
    import yaml

    try:
        # Nothing is guessed about a scalar: every one is text until the old type says otherwise.
        value: Any = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  # builds no objects
    except yaml.YAMLError as error:
        raise Unusable(f"not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise Unusable("the arguments must stay one 'name: value' per argument")
    old = _object(before)
    given = cast("dict[str, Any]", value)
    return json.dumps(
        {name: _as_before(new, old.get(name)) for name, new in given.items()}, ensure_ascii=False
    )


def _as_before(new: Any, old: Any) -> Any:
    if isinstance(new, str) and not isinstance(old, str):
        try:
            return json.loads(new)
        except (ValueError, RecursionError):
            return new
    if isinstance(new, list):
        was = cast("list[Any]", old) if isinstance(old, list) else []
        items = cast("list[Any]", new)
        return [
            _as_before(item, was[index] if index < len(was) else (was[0] if was else None))
            for index, item in enumerate(items)
        ]
    if isinstance(new, dict):
        fields = cast("dict[str, Any]", old) if isinstance(old, dict) else {}
        return {
            name: _as_before(inner, fields.get(name)) for name, inner in cast("dict[str, Any]", new).items()
        }
    return new


def _object(raw: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        raise Unusable("the arguments are not valid JSON and cannot be edited") from None
    if not isinstance(value, dict):
        raise Unusable("the arguments are not an object and cannot be edited")
    return cast("dict[str, Any]", value)
