"""The rules that settings hold, looked over when they are read. Called by the app and by `doctor`.

A rule that cannot be read is told with the file and the line that it stands in, and not when the first call
is judged. One about a tool that is not there denies nothing, and nobody would know: if its name is nearly
that of another tool, that is told too. It decides nothing, and no rule is changed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from difflib import get_close_matches

from retinue.agents.toolnames import CLAUDE, RESERVED
from retinue.authority.rules import parse_rule
from retinue.errors import ConfigError
from retinue.settings import LoadedSettings, place_of

NEAR = 0.75
"""How much alike two names have to be for one of them to be a slip."""


def check_rules(loaded: LoadedSettings) -> None:
    """Raise for the first rule that cannot be read, about calls or about hosts, with its place."""
    for name, rule in _rules(loaded):
        try:
            parse_rule(rule)
        except ConfigError as error:
            place = place_of(loaded, name, rule)
            said = error.message if place["file"] else f"{name}: {error.message}"
            raise ConfigError(said, **place, fix=error.fix) from None
    for host in loaded.settings.web.allow_hosts:
        from retinue.web.guard import parse_rule as parse_host

        try:
            parse_host(host)
        except ConfigError as error:
            place = place_of(loaded, "web.allow_hosts", host)
            raise ConfigError(error.message, **place, fix=error.fix) from None


def with_slips(loaded: LoadedSettings, known: Collection[str]) -> LoadedSettings:
    """The settings, with a warning for each rule about a tool that is nearly one of those there are."""
    tools = {*known, *RESERVED}
    warnings: list[str] = []
    for name, rule in _rules(loaded):
        tool = parse_rule(rule).tool
        if tool is None or tool in {each.lower() for each in tools} | CLAUDE.keys():
            continue
        if "*" in tool or tool.startswith("mcp__"):
            continue
        if near := get_close_matches(tool, tools, 1, NEAR):
            place = place_of(loaded, name, rule)
            where = f"{place['file']}:{place['line']}: " if place["line"] else ""
            warnings.append(
                f"{where}{name}: there is no tool '{tool}' in the rule '{rule}'; did you mean '{near[0]}'?"
            )
    new = [warning for warning in warnings if warning not in loaded.warnings]
    return replace(loaded, warnings=(*loaded.warnings, *new)) if new else loaded


def _rules(loaded: LoadedSettings) -> Iterator[tuple[str, str]]:
    approvals = loaded.settings.approvals
    for name, rules in (("allow", approvals.allow), ("ask", approvals.ask), ("deny", approvals.deny)):
        for rule in rules:
            yield f"approvals.{name}", rule
