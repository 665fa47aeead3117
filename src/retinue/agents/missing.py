"""What an agent names and that is not there: one finding, for the check of a file and for a run.

Called by `check` and by `engine.config`. Reads a file again only to say in which line of it a name stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from retinue.agents.document import Finding, Invalid, Level, YamlValue, canonical, parse, read_text
from retinue.agents.fields import KNOWN
from retinue.agents.loader import Catalogue, place_of
from retinue.agents.toolnames import RESERVED, convert, split_names
from retinue.errors import ConfigError
from retinue.types import AgentSpec


def unusable(
    catalogue: Catalogue,
    known: Collection[str],
    missing: Callable[[AgentSpec], Iterable[tuple[str, ConfigError]]],
    withheld: Mapping[str, str],
) -> list[Finding]:
    """The files whose agents cannot begin: not readable, or naming what is not there. One reading, for lists,
    warnings and checks. `known` are the tools there are, `missing` says what else an agent lacks."""
    found = list(catalogue.problems)
    for loaded in catalogue.agents.values():
        if loaded.scope != "builtin":
            found += keeping_back(loaded.spec, {*known, *catalogue.agents}, missing, withheld)
    return found


def keeping_back(
    spec: AgentSpec,
    known: Collection[str],
    missing: Callable[[AgentSpec], Iterable[tuple[str, ConfigError]]],
    withheld: Mapping[str, str],
) -> list[Finding]:
    """What keeps an agent that could be read from beginning."""
    lacks = [*missing_tools(spec, known, withheld), *missing_parts(spec, missing(spec))]
    return [each for each in lacks if each.level == "error"]


def missing_tools(
    spec: AgentSpec, known: Collection[str], withheld: Mapping[str, str] | None = None
) -> list[Finding]:
    """Every name in `tools` and `disallowed_tools` that no tool and no agent has.

    A plain name in `tools` is an error: the agent does not begin. A pattern that fits nothing, and a name
    that is forbidden, are warnings. `withheld`: why a tool that was declared is not there.
    """
    there = {*known, *RESERVED}
    found: list[Finding] = []
    named = {"tools": spec.tools or (), "disallowed_tools": spec.disallowed_tools}
    for field, names in named.items():
        for name in dict.fromkeys(names):
            if name in there or name.startswith("mcp__") or any(fnmatchcase(each, name) for each in there):
                continue
            pattern = any(sign in name for sign in "*?[")
            level: Level = "warning" if pattern or field != "tools" else "error"
            near = get_close_matches(name.lower(), there, 1)
            fix = f"did you mean {near[0]!r}?" if near else "'retinue tools list' shows what there is"
            found.append(
                Finding(
                    file=spec.origin,
                    line=_line_of(name, field, spec.origin),
                    level=level,
                    message=f"there is no tool and no agent {name[:60]!r} ({field} of {spec.name})",
                    fix=(withheld or {}).get(name, fix),
                )
            )
    return found


def only_agents(spec: AgentSpec, agents: Collection[str], *, nested: bool) -> list[Finding]:
    """An agent whose tools are all agents has none as a child, where only a root delegates: a warning, since
    it may be meant to be run by itself."""
    names = spec.tools or ()
    if nested or not names or not all(name in agents for name in names):
        return []
    return [
        Finding(
            file=spec.origin,
            line=_line_of_field("tools", spec.origin),
            level="warning",
            message='all its tools are agents: with delegation.policy = "flat" no agent can start it',
            fix='run it by itself, give it a tool of its own, or set delegation.policy = "nested"',
        )
    ]


def missing_parts(spec: AgentSpec, missing: Iterable[tuple[str, ConfigError]]) -> list[Finding]:
    """The same for what else an agent names. Without an MCP server it begins all the same."""
    return [
        Finding(
            file=spec.origin,
            line=error.line if error.file == spec.origin else _line_of_field(field, spec.origin),
            level="warning" if field == "mcp_servers" else "error",
            message=f"{error.message} ({field} of {spec.name})",
            fix=error.fix or "",
        )
        for field, error in missing
    ]


def _fields_of(file: str) -> dict[str, YamlValue]:
    path = Path(file)
    try:
        text, _ = read_text(path, place_of(path).owner)
        return dict(parse(text, file, KNOWN).fields)
    except Invalid:
        return {}


def _line_of_field(field: str, file: str) -> int | None:
    found = (value.line for key, value in _fields_of(file).items() if canonical(key) == field)
    return next(found, None)


def _line_of(name: str, field: str, file: str) -> int | None:
    """The line of a file that names this tool. None if it is no file, or has changed since it was read."""
    for key, value in _fields_of(file).items():
        if canonical(key) != field:
            continue
        for line, written in split_names(value):
            if name == written or name in (
                convert(YamlValue(data=written, line=line, raw=written)).names or ()
            ):
                return line
    return None
