"""Who may do what without asking: rules, the authority of a run, and questions to a person.

Deny beats ask beats allow; what one rule is about is said in `authority.rules`. `Authority` is what a run
may do at all; it only ever shrinks on the way down. Called by the loop before every tool call; asks nobody.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from retinue.authority.later import RunsLater
from retinue.authority.places import plain_folder
from retinue.authority.rules import RISKS, Action, Asked, Rule, allowed_command, parse_rule, path_glob
from retinue.authority.secrets import is_secret
from retinue.builtin_tools import SEARCH, SKILL
from retinue.types import ALL_EFFECTS, AgentSpec, Effect, Uncovered

if TYPE_CHECKING:
    from retinue.settings import ApprovalSettings

ANY = "\0"
"""Stands for the name of a tool that nobody knows yet: patterns that cover it cover every tool."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    action: Action
    why: str
    by_rule: bool = False
    each_time: bool = False
    """Asks even where a person approved every call of the tool for the rest of the run."""
    unsealed: bool = False
    """Asks because the call cannot run in the sandbox: whoever approves lets it run without."""
    uncovered: Uncovered | None = None
    """What of a command the allow rules for commands do not mean; None where these are not the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """What rules about paths keep from a call that goes through folders and does not name what is in them."""

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    secrets: bool = False
    """Whether what files with secrets say is kept from it too; that they are there is not."""
    opened: tuple[Rule, ...] = ()
    """Rules that allow some of these all the same."""

    def why(self, spelled: Iterable[str], *, text: bool = False) -> str | None:
        """Why a path, in all the ways to write it, is kept from the call, or only its `text`; else None."""
        spelled = tuple(spelled)
        if text and self.secrets and any(map(is_secret, spelled)):
            allowed = (path_glob(rule.pattern) for rule in self.opened if rule.pattern is not None)
            if not any(pattern.fullmatch(name) for pattern in allowed for name in spelled):
                return "files like these usually hold secrets: name the path to ask"
        for rule in (*self.deny, *self.ask):
            pattern = path_glob(rule.pattern or "")
            if any(pattern.fullmatch(name) for name in spelled):
                if rule in self.deny:
                    return f"denied by the rule '{rule.text}'"
                return f"the rule '{rule.text}' asks a person first: name the path to ask"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Deny beats ask beats allow; without a rule, reading runs and the rest asks."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    auto_risk: Literal["none", "low", "medium", "high"] = "none"
    auto: Literal["off", "sandboxed"] = "off"
    sandbox: Literal["off", "project"] = "off"
    sandbox_network: bool = False
    delegation: Literal["all", "made-up", "none"] = "made-up"

    @classmethod
    def of(cls, settings: ApprovalSettings, *, allow_all: bool = False) -> Rules:
        return cls(
            allow=tuple(map(parse_rule, settings.allow)),
            ask=tuple(map(parse_rule, settings.ask)),
            deny=tuple(map(parse_rule, settings.deny)),
            auto_risk="high" if allow_all else settings.auto_risk,
            auto=settings.auto,
            sandbox=settings.sandbox,
            sandbox_network=settings.sandbox_network,
            delegation=settings.delegation,
        )

    def with_deny(self, rules: Iterable[str]) -> Rules:
        """What an agent file may add: more that is denied, never more that is allowed."""
        more = tuple(map(parse_rule, rules))
        return self if not more else replace(self, deny=self.deny + more)

    def judge(self, asked: Asked) -> Verdict:
        verdict = self._forbidden(asked) or self._allowed(asked) or self._unruled(asked)
        if not asked.unsealed or verdict.action == "deny":
            return verdict
        why = f"it cannot run in the sandbox ({asked.unsealed}), but would run with all of your rights"
        if verdict.action == "ask" and verdict.by_rule:
            why = f"{verdict.why}; and {why}"
        return Verdict(action="ask", why=why, each_time=verdict.each_time, unsealed=True)

    def _unruled(self, asked: Asked) -> Verdict:
        """What holds where no rule says anything."""
        if asked.effect in ("read", "network") or (asked.effect == "delegate" and self._hands_on(asked)):
            return Verdict(action="allow", why="it changes nothing")
        if self.auto_risk != "none" and RISKS[asked.risk] <= RISKS[self.auto_risk]:
            return Verdict(action="allow", why=f"risk {asked.risk} is approved without asking")
        if self.auto == "sandboxed" and asked.sealed and not self.sandbox_network:
            if not asked.ways_out:
                return Verdict(action="allow", why="it runs in the sandbox, without network")
            what = ", ".join(asked.ways_out)
            why = f"it may change what {what} is started from, outside of the sandbox"
            return Verdict(action="ask", why=f"{why} (risk {asked.risk})")
        why = f"{asked.effect} needs a person's approval (risk {asked.risk})"
        return Verdict(action="ask", why=why, uncovered=self._uncovered(asked))

    def _hands_on(self, asked: Asked) -> bool:
        """Whether work is handed on unasked. What a child then does is asked about as ever."""
        return self.delegation == "none" or (self.delegation == "made-up" and not asked.made_up)

    def _forbidden(self, asked: Asked) -> Verdict | None:
        """What deny and ask rules say. A deny rule that may be meant asks, and no approval before counts."""
        doubtful: Rule | None = None
        for rule in self.deny:
            meant = rule.means(asked, "deny")
            if meant == "yes":
                return Verdict(action="deny", why=f"the rule '{rule.text}'", by_rule=True)
            doubtful = doubtful or (rule if meant == "maybe" else None)
        if doubtful is not None:
            what = "command may run" if asked.command is not None else "agent may be asked"
            why = f"the rule '{doubtful.text}' denies what this {what}: it cannot be read for sure"
            return Verdict(action="ask", why=why, by_rule=True, each_time=True)
        for rule in self.ask:
            if rule.means(asked, "ask") != "no":
                # What a person approves of one agent is not approved of the next one by the same tool.
                again = rule.by_start(asked)
                return Verdict(action="ask", why=f"the rule '{rule.text}'", by_rule=True, each_time=again)
        return None

    def _allowed(self, asked: Asked) -> Verdict | None:
        """What allow rules say: one of them, or several that each mean a part of a command."""
        rules = [rule for rule in self.allow if rule.concerns(asked, "allow")]
        for rule in rules:
            if rule.pattern is None or (asked.command is None and rule.matches(asked, "allow")):
                return Verdict(action="allow", why=f"the rule '{rule.text}'", by_rule=True)
        if asked.command is None or not rules:
            return None
        texts = self._for_commands(asked)
        used = allowed_command(asked.command, tuple(texts), self._enters(asked))
        if not used:
            return None
        named = ", ".join(f"'{texts[pattern]}'" for pattern in used)
        return Verdict(action="allow", why=f"the rule{'s' * (len(used) > 1)} {named}", by_rule=True)

    def _for_commands(self, asked: Asked) -> dict[str, str]:
        """The patterns of the allow rules for such a call, each with its rule as it is written."""
        rules = (rule for rule in self.allow if rule.concerns(asked, "allow"))
        return {rule.pattern: rule.text for rule in rules if rule.pattern is not None}

    def _enters(self, asked: Asked) -> Callable[[str], str | None] | None:
        """Where a `cd` leads that needs no rule: it stays in the project, and nothing there is forbidden.

        A deny or ask rule may name the folder: what is done there is also read as it would be without `cd`.
        """
        command, files = asked.command, asked.files
        if command is None or files is None:
            return None

        def enters(folder: str) -> str | None:
            from retinue.authority.shell import rebased

            within = plain_folder(folder, files)
            ways = () if within in (None, ".") else (within, f"{files.project}/{within}")
            given = ({**asked.arguments, "command": rebased(command, way)} for way in ways)
            forbidden = any(self._forbidden(replace(asked, arguments=each)) for each in given)
            return None if forbidden else within

        return enters

    def _uncovered(self, asked: Asked) -> Uncovered | None:
        texts = {} if asked.command is None else self._for_commands(asked)
        if asked.command is None or not texts:
            return None
        from retinue.authority.shell import uncovered

        found = uncovered(asked.command, tuple(texts), self._enters(asked))
        return structs.replace(found, rule=texts.get(found.rule, ""))

    def closed(self, asked: Asked) -> Closed:
        """What a call that may run must leave out all the same. What a person was asked about is not."""
        deny = tuple(rule for rule in self.deny if rule.pattern and rule.concerns(asked, "deny"))
        ask = (rule for rule in self.ask if rule.pattern and rule.concerns(asked, "ask"))
        ask = tuple(rule for rule in ask if rule.means(asked, "ask") == "no")
        opened = tuple(rule for rule in self.allow if rule.risk is None and rule.about_something(asked))
        return Closed(deny=deny, ask=ask, secrets=self.auto_risk != "high", opened=opened)

    def opens(self, asked: Asked, *, secret: bool = False) -> bool:
        """Whether a person has allowed this very call: by a rule that means it, or by approving everything.

        A rule about a risk says nothing about what a call is about; to open a `secret` it has to name it.
        """
        if self.auto_risk == "high":
            return True
        means = Rule.names if secret else partial(Rule.matches, action="allow")
        return any(rule.risk is None and means(rule, asked) for rule in self.allow)

    def opens_later(self, asked: Asked, later: RunsLater) -> bool:
        """Whether a person has allowed to change this file that runs later: by a rule that spells it out, or
        by approving everything. A rule about a folder does not mean what a model puts there to be run."""
        if self.auto_risk == "high":
            return True
        return any(rule.risk is None and rule.spells_out(asked, later.spell_out) for rule in self.allow)


@dataclass(frozen=True, kw_only=True, slots=True)
class Authority:
    """What a run may do at all: the names of its tools, their effects, MCP servers, rules.

    `narrow` is the only way to make another one from it, and can only take away. `called` are the other
    words by which a list may name a tool, and `same` the tools that do the same as it: a list that takes
    one of these away takes it away too. `own` is what an agent of the program's own holds that names no
    tools: what the program brought, and below such an agent all that this one holds. None: as any other.
    """

    tools: frozenset[str]
    effects: frozenset[Effect] = ALL_EFFECTS
    mcp_servers: frozenset[str] = frozenset()
    open_servers: frozenset[str] = frozenset()
    """Those of them of which it holds every tool, also one that comes later."""
    rules: Rules = Rules()
    writable: bool = True
    project: bool = True
    """Whether it sees the project's files, and not its workspace alone."""
    own: frozenset[str] | None = None
    called: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], compare=False)
    same: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], compare=False)

    def permits(self, name: str, effect: Effect) -> bool:
        return effect in self.effects and (name in self.tools or _server(name) in self.open_servers)

    def narrow(self, spec: AgentSpec) -> Authority:
        names, own, whole = self.tools, self.own, self.open_servers
        if spec.tools is not None:
            # Which skills it is offered, and which tools of servers it can find, is said elsewhere.
            wanted = (*spec.tools, *spec.implied, SKILL, SEARCH)
            names = frozenset(n for n in names if _listed((n, *self.called.get(n, ())), wanted))
            whole = frozenset(each for each in whole if _listed((f"mcp__{each}__{ANY}",), wanted))
        elif own is not None and spec.origin == "code":
            names, whole = names & own, frozenset[str]()
        if spec.disallowed_tools:
            some = [each for each in spec.disallowed_tools if "*" in each or each.startswith("mcp__")]
            whole = frozenset[str]() if some else whole
            names = frozenset(n for n in names if not _listed(self._words(n), spec.disallowed_tools))
        servers = self.mcp_servers
        if spec.mcp_servers is not None:
            servers = servers & frozenset(spec.mcp_servers)
            gone = self.mcp_servers - servers
            names = frozenset(n for n in names if not any(n.startswith(f"mcp__{s}__") for s in gone))
        return replace(
            self,
            tools=names,
            own=names if own is not None and spec.origin == "code" else own,
            mcp_servers=servers,
            open_servers=whole & servers,
            rules=self.rules.with_deny(spec.deny),
            project=self.project and spec.files == "project",
        )

    def _words(self, name: str) -> tuple[str, ...]:
        return (name, *self.called.get(name, ()), *self.same.get(name, ()))


def _server(name: str) -> str:
    """The MCP server that a tool's name is of, or nothing that is one."""
    return name.split("__")[1] if name.startswith("mcp__") and name.count("__") >= 2 else ""


def _listed(words: Iterable[str], patterns: Iterable[str]) -> bool:
    words = tuple(words)
    return any(
        word == pattern or fnmatch.fnmatchcase(word, pattern) for pattern in patterns for word in words
    )
