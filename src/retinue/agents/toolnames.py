"""Tool names as agent files write them, and the names of the same tools here.

Called by `fields`. Files made for Claude Code say `Read, Bash(git *), Task`; here the tools are `read`,
`bash` and the delegation tools. Nothing is granted here: a list of names is a wish, and what an agent
really holds is cut down to what its parent holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from retinue.agents.document import YamlValue
from retinue.builtin_tools import BUILT_IN, DELEGATION_TOOLS

DELEGATION = tuple(name for name in DELEGATION_TOOLS if name != "background")

_ELSEWHERE = """
notebookedit bashoutput killshell killbash taskoutput taskstop exitplanmode enterplanmode askuserquestion
slashcommand lsp
"""
# Other programs' names in lower case. An empty tuple: known there, nothing like it here.
CLAUDE: dict[str, tuple[str, ...]] = {
    **{alias.lower(): (tool.name,) for tool in BUILT_IN.values() for alias in tool.aliases},
    **dict.fromkeys(("task", "agent"), DELEGATION),
    **dict.fromkeys(_ELSEWHERE.split(), ()),
}

RESERVED = frozenset({*BUILT_IN, "agents", "tasks", "inherit", "small"})
"""An agent is offered as a tool under its own name, so it cannot be called like one of these."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""What an agent may be called."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.*?:-]{0,127}")
_PATTERN = re.compile(r"(?P<name>[A-Za-z_][\w-]*)\((?P<inner>.*)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """`names` None: every tool. `patterns` are things like `bash(git *)`, already under our names."""

    names: tuple[str, ...] | None
    patterns: tuple[str, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()
    bad: tuple[tuple[int, str], ...] = ()


def split_names(value: YamlValue) -> list[tuple[int, str]]:
    """A comma string or a list, as names with their lines. Commas within brackets part nothing."""
    if isinstance(value.data, list):
        return [pair for item in value.data for pair in split_names(item)]
    return [(value.line, part.strip()) for part in _apart(value.raw) if part.strip()]


def _apart(text: str) -> list[str]:
    """A text at its commas, but for those whose next bracket closes: they stand within it."""
    cuts: list[int] = []
    following = ""
    for at in range(len(text) - 1, -1, -1):
        if text[at] in "()":
            following = text[at]
        elif text[at] == "," and following != ")":
            cuts.append(at)
    return [text[before + 1 : after] for before, after in pairwise([-1, *reversed(cuts), len(text)])]


def convert(value: YamlValue, *, forbidding: bool = False) -> Names:
    """The tools that a field names. `forbidding`: the list takes tools away instead of giving them."""
    names: dict[str, None] = {}
    patterns: list[str] = []
    notes: list[tuple[int, str]] = []
    bad: list[tuple[int, str]] = []
    everything = False
    for line, written in split_names(value):
        if written in ("*", "all"):
            everything = True
            continue
        match = _PATTERN.fullmatch(written)
        name, inner = (match["name"], match["inner"].strip()) if match else (written, "")
        ours = _ours(name)
        if ours is None:
            bad.append((line, written))
        elif not ours:
            notes.append((line, f"'{name}' has no counterpart here and was left out"))
        elif not inner or inner == "*":
            names.update(dict.fromkeys(ours))
            if forbidding and ours == DELEGATION:
                names.update(dict.fromkeys(("agents", "background")))
        elif ours == DELEGATION:
            # `Task(planner)`: agents are tools under their own names, so name them alone
            names.update(
                dict.fromkeys(part.strip() for part in inner.split(",") if _NAME.fullmatch(part.strip()))
            )
        else:
            rules = [f"{ours[0]}({part})" for part in _alternatives(inner)]
            patterns.extend(rules)
            if not forbidding:
                names.update(dict.fromkeys(ours))
                notes.append(
                    (
                        line,
                        f"'{written}' gives the whole tool '{ours[0]}'; approvals stay as they are",
                    )
                )
    return Names(
        names=None if everything else tuple(names),
        patterns=tuple(patterns),
        notes=tuple(notes),
        bad=tuple(bad),
    )


def _ours(name: str) -> tuple[str, ...] | None:
    if not _NAME.fullmatch(name):
        return None
    if name.startswith("mcp__") and name.count("__") == 1:
        return (f"{name}__*",)
    known = CLAUDE.get(name.lower())
    return (name,) if known is None else known


def _alternatives(inner: str) -> list[str]:
    """`git add:*, git status` as patterns of ours: `git add*`, `git status`."""
    parts = [part.strip() for part in inner.split(",")]
    return [re.sub(r":\*$", "*", part) for part in parts if part]
