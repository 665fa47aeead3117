"""Rules: lines like `bash(git status*)`, `write(docs/**)`, `effect:network`, `agent:planner bash`.

What a rule says, which calls it is about, and which one to suggest for a call. What follows from all rules
together is said in `approvals`. Commands are read by `authority.shell`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote

from retinue.authority.hard_links import other_names
from retinue.authority.places import places
from retinue.errors import ConfigError
from retinue.types import ALL_EFFECTS, Effect, Risk
from retinue.web.urls import PORTS, BadUrl, take_apart
from retinue.workspace import Files

if TYPE_CHECKING:
    from retinue.authority.shell import Forbids

Action = Literal["allow", "ask", "deny"]

RISKS: dict[Risk, int] = {"low": 1, "medium": 2, "high": 3}

PATHS, ADDRESSES = ("path", "paths", "file_path"), ("url", "urls")
TARGETS = (*PATHS, *ADDRESSES, "target", "source", "destination")
"""The arguments that patterns for paths and addresses are held against. The last three may be either."""
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]*://(?!.*(?<![^/\\])\.\.(?:[/\\]|$))", re.S)
"""An address, and not one that leads elsewhere if it is opened as a path."""

MOST_SUGGESTED = 200
"""Characters of a command that are suggested as a rule."""

_STAR = "0star0"
"""Stands for a star in a host while that is taken apart: any host may have these letters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTarget:
    """A path or an address of a call: by the name of its argument, for `a://../b` is a path too."""

    text: str
    argument: str

    @property
    def may_be_address(self) -> bool:
        return "://" in self.text and self.argument not in PATHS

    @property
    def may_be_path(self) -> bool:
        return "://" not in self.text or self.argument not in ADDRESSES

    @property
    def is_address(self) -> bool:
        """What it is taken for where only one can be meant."""
        return self.may_be_address and (not self.may_be_path or bool(_ADDRESS.match(self.text.strip())))


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
    starts: tuple[str, ...] = ()
    """The registered agents that it hands work to: rules that deny these, or ask, are about this call too."""
    sealed: bool = False
    """It runs in the sandbox for commands."""
    unsealed: str = ""
    """Why it cannot run in the sandbox although it is to."""
    ways_out: tuple[str, ...] = ()
    """What runs outside of the sandbox and is started from files that it may change there."""

    @property
    def command(self) -> str | None:
        value = self.arguments.get("command")
        return value if isinstance(value, str) else None

    @property
    def targets(self) -> list[CallTarget]:
        """The paths and addresses it is about."""
        found: list[CallTarget] = []
        for name in TARGETS:
            value = self.arguments.get(name)
            values = cast("list[Any]", value) if isinstance(value, list) else [value]
            found += [
                CallTarget(text=each, argument=name)
                for each in values
                if isinstance(each, str) and each.strip()
            ]
        return found

    @property
    def paths(self) -> list[str]:
        """What it may open as a file, whatever it looks like."""
        return [each.text for each in self.targets if each.may_be_path]

    @property
    def unclear(self) -> bool:
        """Whether it is about more than its targets say: a blank, what is no text, or one written oddly."""
        given = [self.arguments.get(name) for name in TARGETS]
        several = [cast("list[Any]", each) if isinstance(each, list) else [each] for each in given]
        values = [each for one in several for each in one if each is not None]
        return any(not isinstance(each, str) or not each or each != each.strip() for each in values)


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
        if self.pattern is not None and self.by_start(asked):
            return "maybe"  # what the agent is asked is plain text here
        return "yes" if self.pattern is None else self._covers(asked, action, self.pattern)

    def concerns(self, asked: Asked, action: Action) -> bool:
        """Whether it speaks of such a call at all, whatever that is about."""
        if self.agent is not None and not self._speaks_of(asked, action, self.agent):
            return False
        if self.effect is not None and asked.effect != self.effect:
            return False
        if self.risk is not None and not self._as_risky(asked, action, self.risk):
            return False
        if self.tool is None or self._is_one_of((asked.tool, *asked.aliases), self.tool):
            return True
        return action != "allow" and self._is_one_of(asked.starts, self.tool)

    def by_start(self, asked: Asked) -> bool:
        """Whether it speaks of this call only for the sake of an agent that the call hands work to."""
        return self.tool is not None and not self._is_one_of((asked.tool, *asked.aliases), self.tool)

    def _is_one_of(self, names: Iterable[str], tool: str) -> bool:
        return any(fnmatch.fnmatchcase(name.lower(), tool) for name in names)

    def names(self, asked: Asked) -> bool:
        """Whether it allows this call by what that is about."""
        return self.about_something(asked) and self.matches(asked, "allow")

    def spells_out(self, asked: Asked, paths: Iterable[str]) -> bool:
        """Whether it allows this call and says the last part of each of these paths, without a star."""
        top = f"{asked.files.project}/" if asked.files is not None and asked.files.project else ""
        pattern = self.pattern or ""
        said = all(_spells_out(pattern, path) or _spells_out(pattern, top + path) for path in paths)
        return said and self.names(asked)

    def about_something(self, asked: Asked) -> bool:
        """Whether it allows such calls for what they are about: not every one of a tool, nor every path."""
        said = self.pattern is not None and re.sub(r"[*?/.\s]", "", self.pattern)
        return bool(said) and self.concerns(asked, "allow")

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
                return "yes" if allowed_command(asked.command, (pattern,)) else "no"
            inside = targets and all(_target_matches(t, asked.files, pattern, action) for t in targets)
            return "yes" if inside else "no"
        if any(_target_matches(target, asked.files, pattern, action) for target in targets):
            return "yes"
        if asked.command is None:
            return "no"
        meant = _forbidden_command(asked.command, pattern)
        # `*(secrets/**)` is about paths: a command that cannot be read is no reason to ask for its sake
        return meant if meant == "yes" or self.tool or self.effect else "no"


def allowed_command(
    command: str, patterns: tuple[str, ...], enters: Callable[[str], str | None] | None = None
) -> tuple[str, ...]:
    from retinue.authority.shell import covers  # with the first command, since a grammar comes with it

    return covers(command, patterns, enters)


def _forbidden_command(command: str, pattern: str) -> Forbids:
    from retinue.authority.shell import forbids

    return forbids(command, pattern)


def _target_matches(target: CallTarget, files: Files | None, pattern: str, action: Action) -> bool:
    """To be allowed it has to be what it is taken for; to be denied, anything that it may be."""
    address = target.is_address if action == "allow" else target.may_be_address
    path = not address if action == "allow" else target.may_be_path
    return (address and _url_matches(target.text.strip(), pattern, action)) or (
        path and _path_matches(target.text, files, pattern, action)
    )


def _path_matches(target: str, files: Files | None, pattern: str, action: Action) -> bool:
    spelled, real = places(target, files)
    covers = path_glob(pattern).fullmatch
    if action != "allow":
        names = [*spelled, *real, *_in_origin((*spelled[1:2], real[0]), files)]
        return any(map(covers, names)) or any(map(covers, _linked(target, files, pattern)))
    if any(name == ".." or name.startswith("../") for name in spelled):
        return False
    leads_elsewhere = real[0] not in spelled and not any(covers(name) for name in real)
    if leads_elsewhere or not any(covers(name) for name in spelled):
        return False
    return all(covers(name) for name in other_names(target, files))


def _spells_out(pattern: str, path: str) -> bool:
    name, parts = posixpath.basename(path), pattern.split("/")
    ends = [n for n, part in enumerate(parts, 1) if part == name and not re.search(r"[*?]", part)]
    return any(path_glob("/".join(parts[:n])).fullmatch(path) for n in ends)


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
def path_glob(pattern: str) -> re.Pattern[str]:
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


def suggest_rule(asked: Asked) -> str | None:
    """The rule that would allow this call and no other about something else; None if it cannot be written.

    What a call is about is a model's choice, its stars included: no person is to allow more by them.
    """
    if asked.command is not None:
        return _suggest_command(asked.tool, asked.command)
    if all(asked.arguments.get(name) is None for name in TARGETS):
        return asked.tool  # there is nothing that a rule could name
    if len(asked.targets) != 1 or asked.unclear:
        return None
    (target,) = asked.targets
    rule = exact_rule(asked.tool, target.text if target.is_address else _plainly(target.text, asked.files))
    return rule if rule is not None and parse_rule(rule).matches(asked, "allow") else None


def exact_rule(tool: str, target: str) -> str | None:
    """The rule about this one path or address; None where what is written would be read as more, or as
    something else: stars, the end of a folder, blanks around it, what a person cannot see."""
    address = "://" in target
    plain = target.isprintable() and target == target.strip() and len(target) <= MOST_SUGGESTED
    exact = "*" not in target and (address or not ("?" in target or target.endswith("/")))
    return f"{tool}({target})" if target and plain and exact else None


def _suggest_command(tool: str, command: str) -> str | None:
    """The text of the command, if a person can read on one line all that it says."""
    from retinue.authority.shell import covers, literal

    pattern = literal(command)
    if pattern is None:
        return None
    readable = len(pattern) <= MOST_SUGGESTED and pattern.isprintable() and pattern.strip() == pattern
    return f"{tool}({pattern})" if readable and covers(command, (pattern,)) == (pattern,) else None


def _plainly(target: str, files: Files | None) -> str:
    spelled, _ = places(target, files)
    return spelled[1] if len(spelled) > 1 and posixpath.isabs(target) else spelled[0]
