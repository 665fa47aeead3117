"""Who may do what without asking: rules, the authority of a run, and questions to a person.

A rule is a line like `bash(git status*)`, `write(docs/**)`, `effect:network`, `agent:planner bash`,
`risk:medium`. Deny beats ask beats allow. `Authority` is what a run may do at all; it only ever shrinks on
the way down. Called by the loop before every tool call; asks nobody itself.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from retinue.errors import ConfigError
from retinue.settings import ApprovalSettings
from retinue.types import ALL_EFFECTS, AgentSpec, Effect, Risk

Action = Literal["allow", "ask", "deny"]

RISKS: dict[Risk, int] = {"low": 1, "medium": 2, "high": 3}

# What a command may not contain when a rule is to allow it, unless the rule itself contains it: each of
# these would let a second command ride along with the one that was allowed.
_SHELL = (";", "&", "|", "`", "$(", ">", "<", "\n", "\r", "${")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call, as rules see it."""

    tool: str
    effect: Effect
    risk: Risk
    agent: str
    arguments: Mapping[str, Any]
    aliases: tuple[str, ...] = ()

    @property
    def command(self) -> str | None:
        value = self.arguments.get("command")
        return value if isinstance(value, str) else None

    @property
    def path(self) -> str | None:
        for name in ("path", "file_path", "url", "target"):
            value = self.arguments.get(name)
            if isinstance(value, str):
                return value
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """One parsed rule. `text` is how it was written."""

    text: str
    tool: str | None = None
    effect: str | None = None
    risk: Risk | None = None
    agent: str | None = None
    pattern: str | None = None

    def matches(self, asked: Asked, action: Action) -> bool:
        if self.agent is not None and not fnmatch.fnmatchcase(asked.agent, self.agent):
            return False
        if self.effect is not None and asked.effect != self.effect:
            return False
        if self.risk is not None and RISKS[asked.risk] > RISKS[self.risk]:
            return False
        if self.tool is not None and not any(
            fnmatch.fnmatchcase(name.lower(), self.tool) for name in (asked.tool, *asked.aliases)
        ):
            return False
        return self.pattern is None or self._covers(asked, action, self.pattern)

    def _covers(self, asked: Asked, action: Action, pattern: str) -> bool:
        if asked.command is not None:
            return _command_matches(asked.command, pattern, action)
        if asked.path is not None:
            return _path_matches(asked.path, pattern, action)
        return False


def _command_matches(command: str, pattern: str, action: Action) -> bool:
    command = command.strip()
    if action == "allow":
        extra = [mark for mark in _SHELL if mark in command and mark not in pattern]
        return not extra and fnmatch.fnmatchcase(command, pattern)
    parts = [command, *re.split(r"&&|\|\||[;&|\n`()]", command)]
    return any(fnmatch.fnmatchcase(part.strip(), pattern) for part in parts)


def _path_matches(path: str, pattern: str, action: Action) -> bool:
    plain = path if "://" in path else posixpath.normpath(path)
    if action == "allow" and (plain == ".." or plain.startswith("../")):
        return False
    return _glob(pattern).fullmatch(plain) is not None


@lru_cache(maxsize=512)
def _glob(pattern: str) -> re.Pattern[str]:
    """`*` stays within a folder, `**` crosses folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.removeprefix("./"))
    table = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(table.get(part, re.escape(part)) for part in parts))


_RULE = re.compile(r"^(?:agent:(?P<agent>\S+)\s*)?(?P<what>[^\s(]+)?\s*(?:\((?P<pattern>.*)\))?$", re.S)


@lru_cache(maxsize=1024)
def parse_rule(text: str) -> Rule:
    match = _RULE.match(text.strip())
    if match is None or not text.strip():
        raise ConfigError(
            f"cannot read the rule {text!r}",
            fix="write it like 'bash(git status*)', 'write(docs/**)', 'effect:write' or 'agent:planner'",
        )
    what = match["what"]
    kind, _, value = (what or "").partition(":")
    if kind == "effect" and value:
        if value not in ALL_EFFECTS:
            raise ConfigError(
                f"unknown effect in the rule {text!r}", fix="one of " + ", ".join(sorted(ALL_EFFECTS))
            )
        return Rule(text, effect=value, agent=match["agent"], pattern=match["pattern"])
    if kind == "risk" and value:
        if value not in RISKS:
            raise ConfigError(f"unknown risk in the rule {text!r}", fix="one of low, medium, high")
        return Rule(text, risk=value, agent=match["agent"], pattern=match["pattern"])
    tool = None if what in (None, "*") else what.lower()
    return Rule(text, tool=tool, agent=match["agent"], pattern=match["pattern"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    action: Action
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Deny beats ask beats allow; without a rule, reading runs and the rest asks."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    auto_risk: Literal["none", "low", "medium", "high"] = "none"

    @classmethod
    def of(cls, settings: ApprovalSettings, *, allow_all: bool = False) -> Rules:
        return cls(
            allow=tuple(map(parse_rule, settings.allow)),
            ask=tuple(map(parse_rule, settings.ask)),
            deny=tuple(map(parse_rule, settings.deny)),
            auto_risk="high" if allow_all else settings.auto_risk,
        )

    def with_deny(self, rules: Iterable[str]) -> Rules:
        """What an agent file may add: more that is denied, never more that is allowed."""
        more = tuple(map(parse_rule, rules))
        return (
            self
            if not more
            else Rules(allow=self.allow, ask=self.ask, deny=self.deny + more, auto_risk=self.auto_risk)
        )

    def judge(self, asked: Asked) -> Verdict:
        ranked: tuple[tuple[Action, tuple[Rule, ...]], ...] = (
            ("deny", self.deny),
            ("ask", self.ask),
            ("allow", self.allow),
        )
        for action, rules in ranked:
            for rule in rules:
                if rule.matches(asked, action):
                    return Verdict(action=action, why=f"the rule '{rule.text}'")
        if asked.effect in ("read", "network") or (asked.effect == "delegate" and asked.risk == "low"):
            return Verdict(action="allow", why="it changes nothing")
        if self.auto_risk != "none" and RISKS[asked.risk] <= RISKS[self.auto_risk]:
            return Verdict(action="allow", why=f"risk {asked.risk} is approved without asking")
        return Verdict(action="ask", why=f"{asked.effect} needs a person's approval (risk {asked.risk})")


def suggest_rule(asked: Asked) -> str:
    """The rule that would allow this call, for messages."""
    if asked.command is not None:
        return f"{asked.tool}({asked.command.strip()})" if len(asked.command) <= 60 else asked.tool
    if asked.path is not None:
        return f"{asked.tool}({posixpath.normpath(asked.path) if '://' not in asked.path else asked.path})"
    return asked.tool


@dataclass(frozen=True, kw_only=True, slots=True)
class Authority:
    """What a run may do at all: the names of its tools, their effects, MCP servers, rules.

    `narrow` is the only way to make another one from it, and can only take away.
    """

    tools: frozenset[str]
    effects: frozenset[Effect] = ALL_EFFECTS
    mcp_servers: frozenset[str] = frozenset()
    rules: Rules = Rules()
    writable: bool = True

    def permits(self, name: str, effect: Effect) -> bool:
        return name in self.tools and effect in self.effects

    def narrow(self, spec: AgentSpec) -> Authority:
        names = self.tools
        if spec.tools is not None:
            names = frozenset(n for n in names if any(_named(n, p) for p in spec.tools))
        names = frozenset(n for n in names if not any(_named(n, p) for p in spec.disallowed_tools))
        servers = self.mcp_servers
        if spec.mcp_servers is not None:
            servers = servers & frozenset(spec.mcp_servers)
            gone = self.mcp_servers - servers
            names = frozenset(n for n in names if not any(n.startswith(f"mcp__{s}__") for s in gone))
        return Authority(
            tools=names,
            effects=self.effects,
            mcp_servers=servers,
            rules=self.rules.with_deny(spec.deny),
            writable=self.writable,
        )

    def without(self, names: Iterable[str]) -> Authority:
        return Authority(
            tools=self.tools - frozenset(names),
            effects=self.effects,
            mcp_servers=self.mcp_servers,
            rules=self.rules,
            writable=self.writable,
        )


def _named(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)
