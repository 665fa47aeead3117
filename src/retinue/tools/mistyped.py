"""The agent that a name which is none means: one rule for calls of a model and for its code.

It looks most like the name of that agent, it is called, and with the arguments of that agent: all that it
needs, and none that it does not know. Any other name that is not there is a mistake like any other.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Mapping, Sequence

from retinue.builtin_tools import DELEGATION_TOOLS
from retinue.tools.base import Tool


def way_meant(name: str, offered: Mapping[str, Tool], given: Collection[str]) -> Tool | None:
    """The way to delegate that is meant by a call of this name with arguments of these names, if one is."""
    near = next(iter(difflib.get_close_matches(name, offered, 1)), None)
    tool = None if near is None else offered[near]
    if tool is None or tool.name not in DELEGATION_TOOLS:
        return None
    needed, known = _arguments(tool)
    return tool if needed <= set(given) <= set(known) else None


def agent_meant(name: str, offered: Mapping[str, Tool], given: Collection[str]) -> str:
    """The agent that is meant by a call of this name with arguments of these names; empty if none is."""
    near = next(iter(difflib.get_close_matches(name, offered, 1)), None)
    tool = None if near is None else offered[near]
    if tool is None or tool.effect != "delegate" or tool.name in DELEGATION_TOOLS:
        return ""
    needed, known = _arguments(tool)
    return tool.name if needed <= set(given) <= set(known) else ""


def agent_meant_in(code: str, name: str, offered: Mapping[str, Tool]) -> str:
    """The same of code that ended for this name; empty where it is no function there."""
    near = next(iter(difflib.get_close_matches(name, offered, 1)), None)
    if not name or near is None:
        return ""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    calls = (
        node
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    )
    given = (_given(call, offered[near]) for call in calls)
    return next((found for each in given if (found := agent_meant(name, offered, each))), "")


def agents_called_in(code: str, offered: Mapping[str, Tool]) -> list[str]:
    """The agents that code names with a bracket behind, each once: of code that nobody can read no more is
    known. What stands in a comment of it or in a text is no call."""
    spoken = re.sub(r"#[^\n]*|'[^'\n]*'|\"[^\"\n]*\"", " ", code)
    called = re.findall(r"(?<![\w.])([^\W\d]\w*)\s*\(", spoken)
    tools = (offered[name] for name in dict.fromkeys(called) if name in offered)
    starts = (tool for tool in tools if tool.effect == "delegate" and "operation" not in _arguments(tool)[0])
    return [tool.name for tool in starts]


def _given(call: ast.Call, tool: Tool) -> Sequence[str]:
    """The names of the arguments of a call in code. What `*` or `**` hand over may be all that is needed."""
    needed, known = _arguments(tool)
    ordered = sorted(known, key=lambda each: each not in needed)  # as in the head that code is shown
    spread = any(isinstance(each, ast.Starred) for each in call.args)
    spread = spread or any(each.arg is None for each in call.keywords)
    placed = [each for each in call.args if not isinstance(each, ast.Starred)]
    names = [*ordered, *[""] * len(placed)][: len(placed)]
    return [*names, *(each.arg for each in call.keywords if each.arg), *(needed if spread else ())]


def _arguments(tool: Tool) -> tuple[set[str], list[str]]:
    """The arguments that a tool needs, and all that it knows."""
    return set(tool.schema.get("required") or ()), list(tool.schema.get("properties") or ())
