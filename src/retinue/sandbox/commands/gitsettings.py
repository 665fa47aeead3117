"""Which files git would run, or take settings from, when a person uses it in a project: git itself is asked.

For `view`, before a command is sealed off, so that `guards` closes those that the command could write to.
Only `git config` is run, which reads settings and runs nothing that they name; and no git in the project.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from retinue.git import waits_for
from retinue.programs import find_program
from retinue.sandbox.commands.repositories import MOST_CONFIG, SETTLED, is_bare, is_stand_in, text_of

PATIENCE = 10.0
"""Seconds that git may take to list its settings."""
MOST_INCLUDED = 50
"""Files of settings that those of one repository may name."""
MOST_LINKS = 40
HANDED_ON = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
"""Variables that say where a person's settings are. No others are given to the git that is asked."""
MOST_IN_VARIABLES = 1000
_FOLDERS = frozenset({"core.hookspath", "init.templatedir"})
_RUN = frozenset(
    {
        *("fsmonitor", "editor", "pager", "sshcommand", "askpass", "gitproxy", "alternaterefscommand"),
        *("program", "defaultkeycommand", "helper", "external", "command", "cmd", "textconv", "difffilter"),
        *("clean", "smudge", "process", "driver", "packobjectshook", "recentobjectshook"),
        *("uploadpack", "receivepack", "update", "tunnel", "authorsprog"),
    }
)
"""Last parts of keys whose values git runs by itself, as a command of the shell."""
_CALLED = frozenset({"alias", "difftool", "mergetool", "guitool", "browser", "man", "sendemail"})
"""Sections of commands that a person calls by their names."""
_RUN_WHEN_CALLED = frozenset({"cmd", "path", "smtpserver", "sendmailcmd", "tocmd", "cccmd", "headercmd"})
_BY_PROGRAM = "ext::"
_NO_PROGRAM = frozenset({"", "true", "false", "yes", "no", "on", "off", "0", "1"})
_WORD = re.compile(r"[^\s'\"`;&|<>(){}=,$]+")
_OPTIONAL = ":(optional)"
_LIST = ("--no-pager", "-c", "safe.directory=*", "config", "--list", "--show-origin", "-z", "--no-includes")
"""Included files are looked for here: git would wait for one that is a pipe."""
_NO_REPOSITORY = "not a git repository"
FOLDER, FILE, GIT = "folder", "file", "git"
"""What a path is for git: `GIT` is the folder of a repository that is kept elsewhere."""


class GitDoesNotSay(Exception):
    """Why not."""


class NoGit(GitDoesNotSay):
    """There is none on this machine."""


@dataclass(frozen=True, kw_only=True)
class _Setting:
    origin: str
    key: str
    value: str

    @property
    def includes(self) -> bool:
        return self.key.startswith(("include.", "includeif.")) and self.key.endswith(".path")


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """What git said of one repository, and of which files, each with how it was then."""

    settings: list[_Setting]
    stamps: dict[str, tuple[int, int, int] | None]

    def holds(self) -> bool:
        return all(_stamp(path) == stamp for path, stamp in self.stamps.items())


@dataclass(frozen=True, kw_only=True)
class Named:
    """What git would run, or take settings from."""

    paths: list[tuple[str, str]]
    """Where it really is, in the project or not, and what it is. A link counts as the folder it is in."""
    everywhere: list[str]
    """What a person's own settings name in every repository, a new one too: relative paths."""
    commands: list[tuple[str, str, str]]
    """What it would hand to a shell: the setting, the command, and the folder that it would run in."""


NOTHING_NAMED = Named(paths=[], everywhere=[], commands=[])


@dataclass(kw_only=True)
class GitSettings:
    """Asks git about the repositories of projects; about inner ones again when something has changed."""

    _kept: dict[tuple[str, ...], _Listing] = field(default_factory=dict[tuple[str, ...], _Listing])

    def named(self, project: str, nested: Sequence[str], environ: Mapping[str, str]) -> Named:
        """Raises `GitDoesNotSay` of the project itself."""
        program = find_program("git", project, path=environ.get("PATH", os.defpath))
        top = _top(project)
        if program is None:
            if top is None and not nested:
                return NOTHING_NAMED
            raise NoGit("git is not there to say what it would run for this repository")
        given = {name: environ[name] for name in HANDED_ON if name in environ}
        git = _Git(program=program, environ=given, more=tuple(_in_variables(environ)))
        listing = git.listing(top or project)
        found = dict.fromkeys(_paths(listing, top or project, environ))
        commands = dict.fromkeys(_commands(listing, top or project))
        if top not in (None, project) and _gits(project):  # a bare one that lacks something
            bare = git.listing(project)
            found |= dict.fromkeys(_paths(bare, project, environ))
            commands |= dict.fromkeys(_commands(bare, project))
        own = (each for each in _kept_elsewhere(project) if f"{each[0]}/".startswith(f"{project}/"))
        found |= dict.fromkeys(own)
        for inner in nested:
            folder = f"{project}/{inner}"
            try:
                own_settings = self._inner(git, folder)
                found |= dict.fromkeys(_paths(own_settings, folder, environ))
                commands |= dict.fromkeys(_commands(own_settings, folder))
            except GitDoesNotSay:  # so nobody's git does anything in there: nothing in it may change
                found[folder, FOLDER] = None
            found |= dict.fromkeys(_kept_elsewhere(folder))
        everywhere = dict.fromkeys(_everywhere(listing, top or project, environ))
        return Named(paths=list(found), everywhere=list(everywhere), commands=list(commands))

    def _inner(self, git: _Git, folder: str) -> _Listing:
        key = (folder, git.program, *git.environ, *git.environ.values(), str(git.more))
        kept = self._kept.get(key)
        if kept is not None and kept.holds():
            return kept
        listing = git.listing(folder)
        now = time.time_ns() - SETTLED
        if all(stamp is None or stamp[1] < now for stamp in listing.stamps.values()):
            self._kept[key] = listing  # else one may change again and keep that date
        return listing


@dataclass(frozen=True, kw_only=True)
class _Git:
    program: str
    environ: Mapping[str, str]
    more: tuple[_Setting, ...]
    """Settings that no file says."""

    def listing(self, top: str) -> _Listing:
        """All settings of a repository, also those that hold under a condition only (`includeIf`).

        Those of its own are read even where git takes it for none: a command may have moved `HEAD` away.
        """
        settings = [*self._listed(top), *self.more]
        listed = {os.path.realpath(os.path.join(top, each.origin)) for each in settings if each.origin}
        files = [f"{git}/{name}" for git in _gits(top) for name in ("config", "config.worktree")]
        for file in files:
            if os.path.realpath(file) not in listed and os.path.isfile(file):
                settings += self._listed("/", "--file", file)
        home, elsewhere = self.environ.get("HOME", "/nonexistent"), self.environ.get("XDG_CONFIG_HOME")
        looked = dict.fromkeys(os.path.join(top, each.origin) for each in settings if each.origin)
        looked |= dict.fromkeys((f"{top}/.git", *files, *(f"{git}/commondir" for git in _gits(top))))
        looked |= dict.fromkeys(
            ("/etc/gitconfig", f"{home}/.gitconfig", f"{elsewhere or home + '/.config'}/git/config")
        )
        included = 0
        for setting in settings:  # grows while it is gone through
            if not setting.includes or (path := _included(setting, top, home)) in looked:
                continue
            looked[path] = None
            included += 1
            if included > MOST_INCLUDED:
                raise GitDoesNotSay(f"settings of git name more than {MOST_INCLUDED} files of settings")
            if os.path.isfile(path) and os.access(path, os.R_OK):
                settings += self._listed(top, "--file", path)
        return _Listing(settings=settings, stamps={path: _stamp(path) for path in looked})

    def _listed(self, top: str, *which: str) -> list[_Setting]:
        if why := waits_for(Path(top)):
            raise GitDoesNotSay(f"git does not say what it would run, it would wait: {why}")
        try:
            done = subprocess.run(
                (self.program, *_LIST, *which),
                cwd=top,
                env={
                    **self.environ,
                    "PATH": os.path.dirname(self.program),
                    "LC_ALL": "C",
                    "GIT_CEILING_DIRECTORIES": os.path.dirname(top),  # it would list those of one above
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GitDoesNotSay(f"git does not say what it would run: {error}") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
            if _NO_REPOSITORY in said and top != "/":
                return self._listed("/", *which)  # its folder of git is not there; if it comes, it is guarded
            raise GitDoesNotSay(f"git does not say what it would run: {said}")
        parts = os.fsdecode(done.stdout).split("\0")
        return [
            _Setting(origin=origin.removeprefix("file:"), key=key, value=value)
            for origin, (key, _, value) in zip(
                parts[0::2], (text.partition("\n") for text in parts[1::2]), strict=False
            )
            if origin.startswith("file:")
        ]


def _in_variables(environ: Mapping[str, str]) -> Iterator[_Setting]:
    """Settings may be passwords too: read here, so that no other process has them in its environment."""
    count = environ.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count), MOST_IN_VARIABLES) if count.isdecimal() else 0):
        section, _, rest = environ.get(f"GIT_CONFIG_KEY_{number}", "").partition(".")
        inner, dot, last = rest.rpartition(".")
        key = f"{section.lower()}.{inner}{dot}{last.lower()}"
        yield _Setting(origin="", key=key, value=environ.get(f"GIT_CONFIG_VALUE_{number}", ""))


def _top(folder: str) -> str | None:
    """The repository that a folder is in."""
    while True:
        git = f"{folder}/.git"
        if (os.path.lexists(git) and not is_stand_in(git)) or is_bare(folder):
            return folder
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)


def is_in_repository(folder: str) -> bool:
    return _top(folder) is not None


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    if stat.S_ISDIR(found.st_mode):  # what comes and goes in it says nothing
        return found.st_ino, 0, 0
    return found.st_ino, found.st_ctime_ns, found.st_size


def _included(setting: _Setting, top: str, home: str) -> str:
    origin = os.path.join(top, setting.origin)
    return os.path.join(os.path.dirname(origin), _expanded(setting.value, home))


def _expanded(value: str, home: str) -> str:
    value = value.removeprefix(_OPTIONAL)
    return home + value[1:] if value == "~" or value.startswith("~/") else os.path.expanduser(value)


def _gits(top: str) -> list[str]:
    """The folders that git takes settings of a repository from, whatever else is missing in them."""
    git = f"{top}/.git"
    mark, _, place = text_of(git, MOST_CONFIG).partition(b":")
    if mark == b"gitdir":
        git = os.path.join(top, os.fsdecode(place.strip()))
    elif not os.path.isdir(git):
        git = top
        if sum(os.path.lexists(f"{top}/{name}") for name in ("HEAD", "objects", "refs")) < 2:
            return []
    common = os.fsdecode(text_of(f"{git}/commondir", MOST_CONFIG).strip())
    return list(dict.fromkeys((git, os.path.normpath(os.path.join(git, common)))))


def _kept_elsewhere(folder: str) -> Iterator[tuple[str, str]]:
    """The folder of git that a file `.git` leads to, there or not."""
    mark, _, place = text_of(f"{folder}/.git", MOST_CONFIG).partition(b":")
    if mark == b"gitdir":
        yield from _closed(os.path.join(folder, os.fsdecode(place.strip())), GIT)


def _paths(listing: _Listing, top: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    home = environ.get("HOME", "/nonexistent")
    gits = dict.fromkeys(_gits(top)) | dict.fromkeys(
        os.path.dirname(origin)
        for origin in (os.path.join(top, each.origin) for each in listing.settings)
        if os.path.basename(origin) == "config"
        and os.path.lexists(os.path.join(os.path.dirname(origin), "HEAD"))
    )
    trees = [top]
    for setting in listing.settings:
        if setting.key == "core.worktree":
            trees += [os.path.join(git, setting.value) for git in gits]
    for setting in listing.settings:
        if setting.includes:
            yield from _closed(_included(setting, top, home), FILE)
        elif setting.key in _FOLDERS and setting.value:
            for base in (*trees, *gits):  # what a push brings about runs in the folder of git
                yield from _closed(os.path.join(base, _expanded(setting.value, home)), FOLDER)
        elif _is_run(setting.key):
            for base in trees:
                for path in _programs(setting.value, base, home):
                    yield from _closed(path, FILE)


def _is_run(key: str) -> bool:
    section, last = key.partition(".")[0], key.rpartition(".")[2]
    return section not in _CALLED and (section == "pager" or last in _RUN)


def _commands(listing: _Listing, top: str) -> Iterator[tuple[str, str, str]]:
    for setting in listing.settings:
        section, last = setting.key.partition(".")[0], setting.key.rpartition(".")[2]
        if remote := _by_program(setting):
            yield setting.key, remote, top
        elif _is_run(setting.key) or (section in _CALLED and last in _RUN_WHEN_CALLED) or section == "alias":
            command = _command(section, last, setting.value.strip())
            if command.lower() not in _NO_PROGRAM:
                yield setting.key, command, top


def _by_program(setting: _Setting) -> str:
    """The command by which a remote is reached, where that is one: `ext::COMMAND`."""
    section, _, rest = setting.key.partition(".")
    last = setting.key.rpartition(".")[2]
    address = rest.rpartition(".")[0] if section == "url" else setting.value if last.endswith("url") else ""
    return address.strip().removeprefix(_BY_PROGRAM) if address.strip().startswith(_BY_PROGRAM) else ""


def _command(section: str, last: str, value: str) -> str:
    """What a shell is given for a setting; nothing where it names no program."""
    if value.startswith("!"):
        return value[1:].strip()
    if section == "alias" or last == "update":  # a command of git's own, a way to update
        return ""
    if section == "credential" and value and not os.path.isabs(value):
        return f"git-credential-{value}"
    if last == "smtpserver" and not os.path.isabs(value):  # a host
        return ""
    if last == "path":
        return shlex.quote(value)
    return value.partition(" for ")[0] if last == "gitproxy" else value


def _everywhere(listing: _Listing, top: str, environ: Mapping[str, str]) -> Iterator[str]:
    home = environ.get("HOME", "/nonexistent")
    for setting in listing.settings:
        if os.path.join(top, setting.origin).startswith(f"{top}/.git/"):
            continue
        named = [setting.value] if setting.key in _FOLDERS else []
        words = _words(setting.value) if _is_run(setting.key) else ()
        named += [word for word, _ in words if "/" in word or "." in word]  # and not "clean", "--" or "%f"
        for place in (_expanded(name, home) for name in named):
            if place and not os.path.isabs(place):
                yield place


def _programs(value: str, base: str, home: str) -> Iterator[str]:
    """The files that a command names: those that are there, and those that are sure to be meant."""
    for word, certain in _words(value):
        path = os.path.join(base, _expanded(word, home))
        if word.startswith("/") and os.path.isfile(base + word):  # "$(git rev-parse --show-toplevel)/run"
            yield base + word
        elif os.path.isfile(path) or (certain and not os.path.exists(path)):
            yield path


def _words(value: str) -> Iterator[tuple[str, bool]]:
    """The words of a command of the shell that may be files, and whether each is sure to be meant as one."""
    command = value.lstrip("!").strip()
    words = dict.fromkeys(_WORD.findall(command))
    with contextlib.suppress(ValueError):  # a quote without an end
        words |= dict.fromkeys(shlex.split(command))
    for place, word in enumerate(words):
        if place > 0 or "/" in word:  # else it is looked for in PATH
            yield word, place == 0 or word.startswith(("./", "../", "/", "~/"))


def _closed(path: str, kind: str) -> Iterator[tuple[str, str]]:
    """What must not change so that a path leads where it leads, and to what is there now."""
    real, links = "/", 0
    ahead = path.split("/")[::-1]
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            real = os.path.dirname(real)
            continue
        here = os.path.join(real, part)
        try:
            target = os.readlink(here)
        except OSError:
            real = here
            continue
        links += 1
        if links > MOST_LINKS:
            raise GitDoesNotSay(f"{path}, which the settings of git name, leads in a circle")
        yield real, FOLDER
        real = "/" if target.startswith("/") else real
        ahead += target.split("/")[::-1]
    yield real, kind
