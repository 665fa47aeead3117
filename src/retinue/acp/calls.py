"""What a tool call is called in an editor: its kind, the file it is about, the change it would make."""

from __future__ import annotations

import os
from typing import Any

from acp import helpers, schema

from retinue.types import Effect
from retinue.workspace import HOME

CALLS_SHOWN = 100
"""Files of one call that an editor is told of."""
_KINDS: dict[str, schema.ToolKind] = {
    "read": "read",
    "view": "read",
    "ls": "search",
    "glob": "search",
    "grep": "search",
    "write": "edit",
    "edit": "edit",
    "bash": "execute",
    "run_code": "execute",
    "web_search": "fetch",
    "web_fetch": "fetch",
    "todo": "think",
    "goals": "think",
}
_OF_EFFECT: dict[Effect, schema.ToolKind] = {
    "read": "read",
    "write": "edit",
    "execute": "execute",
    "network": "fetch",
}


def kind_of(name: str, effect: Effect | None = None) -> schema.ToolKind:
    return _KINDS.get(name) or (_OF_EFFECT.get(effect, "other") if effect else "other")


def path_of(given: dict[str, Any], cwd: str) -> str | None:
    """The file of the project that a call is about, as an absolute path."""
    path = given.get("path")
    if not isinstance(path, str) or not path or path.startswith(("~", HOME)):
        return None
    return os.path.normpath(os.path.join(cwd, path))


def location_of(name: str, given: dict[str, Any], cwd: str) -> schema.ToolCallLocation | None:
    path = path_of(given, cwd) if name in _KINDS else None
    if path is None:
        return None
    line = given.get("offset")
    return schema.ToolCallLocation(path=path, line=line if isinstance(line, int) and line > 0 else None)


def diffs(
    name: str, given: dict[str, Any], cwd: str, before: str | None = None
) -> list[schema.FileEditToolCallContent]:
    """The change that a call of `write` or `edit` makes; `before` is what stands in the file now."""
    path = path_of(given, cwd)
    if path is None or name not in ("write", "edit"):
        return []
    old, new = (given.get("old"), given.get("new")) if name == "edit" else (before, given.get("content"))
    if not isinstance(new, str):
        return []
    return [helpers.tool_diff_content(path, new, old if isinstance(old, str) else None)]
