"""Who may do what without asking: rules, the authority of a run, and questions to a person.

A rule is a line like `bash(git status*)`, `write(docs/**)`, `effect:network`, `agent:planner bash`,
`risk:medium`. Deny beats ask beats allow. `Authority` is what a run may do at all; it only ever shrinks on
the way down. Called by the loop before every tool call; asks nobody itself. Commands are read by
`authority.shell`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote

from retinue.authority.hard_links import other_names
from retinue.authority.places import places
from retinue.authority.secrets import is_secret
from retinue.builtin_tools import SKILL
from retinue.errors import ConfigError
from retinue.types import ALL_EFFECTS, AgentSpec, Effect, Risk
from retinue.web.urls import PORTS, BadUrl, take_apart
from retinue.workspace import Files

if TYPE_CHECKING:
    from retinue.authority.shell import Forbids
    from retinue.settings import ApprovalSettings

Action = Literal["allow", "ask", "deny"]

RISKS: dict[Risk, int] = {"low": 1, "medium": 2, "high": 3}

TARGETS = ("path", "paths", "file_path", "url", "urls", "target", "source", "destination")
"""The arguments that patterns for paths and addresses are held against."""

MOST_SUGGESTED = 200
"""Characters of a command that are suggested as a rule."""

_STAR = "0star0"
"""Stands for a star in a host while that is taken apart: any host may have these letters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call, as rules see it. `above` are the agents over the one that makes it, from the root on."""

    tool: str
    effect: Effect
    risk: Risk
    agent: str
    arguments: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    temporary: bool = False
    """A model made this agent up, its name included: no rule allows anything by that name."""
    files: Files | None = None
    """What its paths are looked up in: rules judge where a path leads, not how it is spelled."""
    made_up: bool = False
    """It hands work to an agent that a model makes up."""
    sealed: bool = False
    """It runs in the sandbox for commands."""
    unsealed: str = ""
    """Why it cannot run in the sandbox although it is to."""

    @property
    def command(self) -> str | None:
        value = self.arguments.get("command")
        return value if isinstance(value, str) else None

    @property
    def targets(self) -> list[str]:
        """The paths and addresses it is about."""
        found: list[str] = []
        for name in TARGETS:
            value = self.arguments.get(name)
            values = cast("list[Any]", value) if isinstance(value, list) else [value]
            found += [each for each in values if isinstance(each, str) and each.strip()]
        return found


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
        return self.means(asked, action) == "yes"

    def means(self, asked: Asked, action: Action) -> Forbids:
        """Whether it speaks of this call; "maybe" if the call's command cannot be read for sure."""
        if not self.concerns(asked, action):
            return "no"
        return "yes" if self.pattern is None else self._covers(asked, action, self.pattern)

    def concerns(self, asked: Asked, action: Action) -> bool:
        """Whether it speaks of such a call at all, whatever that is about."""
        if self.agent is not None and not self._speaks_of(asked, action, self.agent):
            return False
        if self.effect is not None and asked.effect != self.effect:
            return False
        if self.risk is not None and not self._as_risky(asked, action, self.risk):
            return False
        return self.tool is None or any(
            fnmatch.fnmatchcase(name.lower(), self.tool) for name in (asked.tool, *asked.aliases)
        )

    def _speaks_of(self, asked: Asked, action: Action, agent: str) -> bool:
        """What an agent is denied, nothing below it may do either; what it is allowed is its own alone."""
        if action == "allow":
            return not asked.temporary and fnmatch.fnmatchcase(asked.agent, agent)
        return any(fnmatch.fnmatchcase(name, agent) for name in (asked.agent, *asked.above))

    def _as_risky(self, asked: Asked, action: Action, risk: Risk) -> bool:
        """Who allows a risk allows what is less; who denies one, or wants to be asked, means what is more."""
        if action == "allow":
            return RISKS[asked.risk] <= RISKS[risk]
        return RISKS[asked.risk] >= RISKS[risk]

    def _covers(self, asked: Asked, action: Action, pattern: str) -> Forbids:
        """To be allowed, all that a call is about must be in the pattern; to be denied, any of it."""
        targets = asked.targets
        if action == "allow":
            if asked.command is not None:
                return "yes" if _allowed_command(asked.command, (pattern,)) else "no"
            inside = targets and all(_target_matches(t, asked.files, pattern, action) for t in targets)
            return "yes" if inside else "no"
        if any(_target_matches(target, asked.files, pattern, action) for target in targets):
            return "yes"
        if asked.command is None:
            return "no"
        meant = _forbidden_command(asked.command, pattern)
        # `*(secrets/**)` is about paths: a command that cannot be read is no reason to ask for its sake
        return meant if meant == "yes" or self.tool or self.effect else "no"


def _allowed_command(command: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    from retinue.authority.shell import covers  # with the first command, since a grammar comes with it

    return covers(command, patterns)


def _forbidden_command(command: str, pattern: str) -> Forbids:
    from retinue.authority.shell import forbids

    return forbids(command, pattern)


def _target_matches(target: str, files: Files | None, pattern: str, action: Action) -> bool:
    if "://" in target:
        return _url_matches(target.strip(), pattern, action)
    spelled, real = places(target, files)
    covers = _glob(pattern).fullmatch
    if action != "allow":
        names = [*spelled, *real, *_in_origin((*spelled[1:2], real[0]), files)]
        return any(map(covers, names)) or any(map(covers, _linked(target, files, pattern)))
    if any(name == ".." or name.startswith("../") for name in spelled):
        return False
    leads_elsewhere = real[0] not in spelled and not any(covers(name) for name in real)
    if leads_elsewhere or not any(covers(name) for name in spelled):
        return False
    return all(covers(name) for name in other_names(target, files))


def _linked(target: str, files: Files | None, pattern: str) -> list[str]:
    """The other names of a file, of those that the pattern can mean: how it begins is a folder."""
    if files is None or files.project is None:
        return []
    plain = pattern.removeprefix("./")
    for top in (str(files.project), *(files.origin.folders if files.origin else ())):
        plain = plain.removeprefix(f"{top}/")
    if posixpath.isabs(plain):
        return []
    folder = re.split(r"[*?]", plain, maxsplit=1)[0].rpartition("/")[0]
    names = other_names(target, files, folder or ".")
    return [*names, *(f"{files.project}/{name}" for name in names), *_in_origin(names, files)]


def _in_origin(names: Iterable[str], files: Files | None) -> list[str]:
    """Paths of a copy as rules about the project may write them."""
    if files is None or files.origin is None:
        return []
    return [way for name in names if not posixpath.isabs(name) for way in files.origin.spellings(name)]


def _url_matches(url: str, pattern: str, action: Action) -> bool:
    """`*` crosses `/`, but an allowed host cannot be left by it. Every way to write an address is the same:

    to be denied it is enough that one of them is in the pattern, to be allowed all of them must be.
    """
    url = url.removeprefix("<").removesuffix(">").strip()
    host = url.partition("://")[2].partition("/")[0]
    if action == "allow" and "@" in host and "@" not in pattern:
        return False
    globs = [_url_glob(one, strict=action == "allow") for one in _patterns(pattern)]
    matched = (any(each.fullmatch(one) for each in globs) for one in _spellings(url, action))
    return all(matched) if action == "allow" else any(matched)


def _spellings(url: str, action: Action) -> list[str]:
    """An address as it is written and as it is fetched; to deny it, also as other programs would read it."""
    found = [_lower_origin(url)]
    with contextlib.suppress(BadUrl):
        found.append(take_apart(url).url)
    if action != "allow":
        scheme, _, rest = url.replace("\\", "/").partition("://")
        login = re.match(r"[^/?#]*@", rest)
        with contextlib.suppress(BadUrl):
            found.append(take_apart(f"{scheme}://{rest[login.end() if login else 0 :]}").url)
        found += [unquote(one) for one in found]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=512)
def _patterns(pattern: str) -> tuple[str, ...]:
    """A pattern as it is written, and in the form that addresses have when they are fetched."""
    written = _lower_origin(pattern)
    origin = re.match(r"([^/]*)://([^/?#]*)", written)
    if origin is None or "#" in written:
        return (written,)
    scheme, host = origin.groups()
    if any("*" in label and not label.isascii() for label in host.split(".")):
        return (written,)
    with contextlib.suppress(BadUrl):
        usual = scheme if scheme in PORTS else "http"
        target = take_apart(f"{usual}://{host.replace('*', _STAR)}{written[origin.end() :]}")
        host = target.authority.replace(_STAR, "*") if scheme in PORTS else host
        return tuple(dict.fromkeys((written, f"{scheme}://{host}{target.rest}")))
    return (written,)


def _lower_origin(url: str) -> str:
    return re.sub(r"^[^/]*://[^/?#]*", lambda origin: origin[0].lower(), url)


@lru_cache(maxsize=512)
def _url_glob(pattern: str, *, strict: bool) -> re.Pattern[str]:
    origin = re.match(r"[^/]*://[^/]*", pattern)
    until = origin.end() if origin and strict else 0
    host = ["[^/?#]*" if "*" in part else re.escape(part) for part in re.split(r"(\*+)", pattern[:until])]
    table = {"/**": "(?:/.*)?"}
    rest = [
        table.get(part, ".*" if part.startswith("*") else re.escape(part))
        for part in re.split(r"(/\*\*$|\*+)", pattern[until:])
    ]
    return re.compile("".join((*host, *rest)), re.S)


@lru_cache(maxsize=512)
def _glob(pattern: str) -> re.Pattern[str]:
    """`*` stays within a folder, `**` crosses folders. `a/` is `a/**`, and that is the folder `a` as well."""
    pattern = f"{pattern}**" if pattern.endswith("/") else pattern
    parts = re.split(r"(/\*\*$|\*\*/|\*\*|\*|\?)", pattern.removeprefix("./"))
    table = {"/**": "(?:/.*)?", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(table.get(part, re.escape(part)) for part in parts), re.S)


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
    by_rule: bool = False
    each_time: bool = False
    """Asks even where a person approved every call of the tool for the rest of the run."""
    unsealed: bool = False
    """Asks because the call cannot run in the sandbox: whoever approves lets it run without."""


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
            allowed = (_glob(rule.pattern or "**") for rule in self.opened)
            if not any(pattern.fullmatch(name) for pattern in allowed for name in spelled):
                return "files like these usually hold secrets: name the path to ask"
        for rule in (*self.deny, *self.ask):
            pattern = _glob(rule.pattern or "")
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
            return Verdict(action="allow", why="it runs in the sandbox, without network")
        return Verdict(action="ask", why=f"{asked.effect} needs a person's approval (risk {asked.risk})")

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
            why = f"the rule '{doubtful.text}' denies what this command may run: it cannot be read for sure"
            return Verdict(action="ask", why=why, by_rule=True, each_time=True)
        for rule in self.ask:
            if rule.means(asked, "ask") != "no":
                return Verdict(action="ask", why=f"the rule '{rule.text}'", by_rule=True)
        return None

    def _allowed(self, asked: Asked) -> Verdict | None:
        """What allow rules say: one of them, or several that each mean a part of a command."""
        rules = [rule for rule in self.allow if rule.concerns(asked, "allow")]
        for rule in rules:
            if rule.pattern is None or (asked.command is None and rule.matches(asked, "allow")):
                return Verdict(action="allow", why=f"the rule '{rule.text}'", by_rule=True)
        if asked.command is None or not rules:
            return None
        texts = {rule.pattern: rule.text for rule in rules if rule.pattern is not None}
        used = _allowed_command(asked.command, tuple(texts))
        if not used:
            return None
        named = ", ".join(f"'{texts[pattern]}'" for pattern in used)
        return Verdict(action="allow", why=f"the rule{'s' * (len(used) > 1)} {named}", by_rule=True)

    def closed(self, asked: Asked) -> Closed:
        """What a call that may run must leave out all the same. What a person was asked about is not."""
        deny = tuple(rule for rule in self.deny if rule.pattern and rule.concerns(asked, "deny"))
        ask = (rule for rule in self.ask if rule.pattern and rule.concerns(asked, "ask"))
        ask = tuple(rule for rule in ask if rule.means(asked, "ask") == "no")
        opened = tuple(rule for rule in self.allow if rule.risk is None and rule.concerns(asked, "allow"))
        return Closed(deny=deny, ask=ask, secrets=self.auto_risk != "high", opened=opened)

    def opens(self, asked: Asked) -> bool:
        """Whether a person has allowed this very call: by a rule that means it, or by approving everything.

        A rule about a risk says nothing about what a call is about.
        """
        if self.auto_risk == "high":
            return True
        return any(rule.risk is None and rule.matches(asked, "allow") for rule in self.allow)


def suggest_rule(asked: Asked) -> str | None:
    """The rule that would allow this call and no other about something else; None if it cannot be written.

    What a call is about is a model's choice, its stars included: no person is to allow more by them.
    """
    if asked.command is not None:
        return _suggest_command(asked.tool, asked.command)
    if not asked.targets:
        return asked.tool  # there is nothing that a rule could name
    target = _plainly(asked.targets[0], asked.files)
    exact = "*" not in target and ("://" in target or "?" not in target)
    return f"{asked.tool}({target})" if exact and len(asked.targets) == 1 else None


def _suggest_command(tool: str, command: str) -> str | None:
    """The text of the command, if a person can read on one line all that it says."""
    from retinue.authority.shell import covers, literal

    pattern = literal(command)
    readable = len(pattern) <= MOST_SUGGESTED and pattern.isprintable() and pattern.strip() == pattern
    return f"{tool}({pattern})" if readable and covers(command, (pattern,)) == (pattern,) else None


def _plainly(target: str, files: Files | None) -> str:
    if "://" in target:
        return target
    spelled, _ = places(target, files)
    return spelled[1] if len(spelled) > 1 and posixpath.isabs(target) else spelled[0]


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
    rules: Rules = Rules()
    writable: bool = True
    project: bool = True
    """Whether it sees the project's files, and not its workspace alone."""
    own: frozenset[str] | None = None
    called: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], compare=False)
    same: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], compare=False)

    def permits(self, name: str, effect: Effect) -> bool:
        return name in self.tools and effect in self.effects

    def narrow(self, spec: AgentSpec) -> Authority:
        names, own = self.tools, self.own
        if spec.tools is not None:
            wanted = (*spec.tools, *_implied(spec), SKILL)  # which skills it is offered is said elsewhere
            names = frozenset(n for n in names if _listed((n, *self.called.get(n, ())), wanted))
        elif own is not None and spec.origin == "code":
            names = names & own
        if spec.disallowed_tools:
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
            rules=self.rules.with_deny(spec.deny),
            project=self.project and spec.files == "project",
        )

    def _words(self, name: str) -> tuple[str, ...]:
        return (name, *self.called.get(name, ()), *self.same.get(name, ()))


def _implied(spec: AgentSpec) -> tuple[str, ...]:
    """Tools that an agent needs for what its file says it is, whether it lists them or not."""
    return (("memory_*",) if spec.memory else ()) + (("run_code",) if spec.mode == "code" else ())


def _listed(words: Iterable[str], patterns: Iterable[str]) -> bool:
    words = tuple(words)
    return any(
        word == pattern or fnmatch.fnmatchcase(word, pattern) for pattern in patterns for word in words
    )
