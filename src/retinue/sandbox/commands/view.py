"""What a sealed command may see and write, worked out on Retinue's side: the request to its supervisor.

A list of what can be read, since nobody can list all that is secret: the system's programs, a few files of
`/etc`, toolchains, the project. The rest of the home, other people's files, sockets, the database and the
tokens of Retinue are not there at all. `why_not` tries it out, once for each project.
"""

from __future__ import annotations

import configparser
import contextlib
import marshal
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from retinue.sandbox.commands.gitsettings import (
    NOTHING_NAMED,
    GitDoesNotSay,
    GitSettings,
    Named,
    NoGit,
    is_in_repository,
)
from retinue.sandbox.commands.guards import FOLDERS
from retinue.sandbox.commands.repositories import MOST_FOLDERS, Folders, gitlinks, is_bare
from retinue.sandbox.commands.toolchains import (
    HOME,
    SYSTEM,
    links_to,
    on_the_path,
    real_home,
    site_settings,
    within,
)
from retinue.secret_names import is_secret
from retinue.settings.files import read_user_file, user_file

ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf"),
    *("hosts", "host.conf", "resolv.conf", "gai.conf", "protocols", "services", "localtime", "timezone"),
    *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates", "ca-certificates.conf"),
    *(
        "pki/tls/certs",
        "pki/tls/openssl.cnf",
        "pki/ca-trust",
        "crypto-policies",
        "os-release",
        "debian_version",
    ),
    *(
        "locale.alias",
        "locale.conf",
        "mime.types",
        "magic",
        "inputrc",
        "terminfo",
        "fonts",
        "shells",
        "login.defs",
    ),
    *("java", "java-8-openjdk", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "perl"),
    *("python3", "python3.11", "python3.12", "python3.13", "python3.14", "R", "texmf", "xml", "sgml"),
)
WORK_AT = "/home/agent"
MOST_GUARDED = 400
TRIED_AGAIN = 5.0
"""Seconds after which a trial that failed is repeated."""
LEAST_MEMORY = 256 * 1024 * 1024
LIMITS_OF_A_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_known: dict[str, dict[str, None]] = {}
"""Repositories that were found inside projects."""
_secrets: dict[str, tuple[int, list[str]]] = {}
"""Names of secrets in folders that commands may read, with the time of each folder's last change."""
_settings = GitSettings()
_folders: dict[str, dict[str, tuple[int, bool, list[str]]]] = {}
"""The folders of projects as they were looked into last."""

_TRIAL = """\
import sys
sys.path.append({path!r})
from retinue.sandbox.commands.trial import main
main()
"""


@dataclass(frozen=True, kw_only=True)
class CommandPlace:
    """Where a sealed command works: what Retinue knows of the run it belongs to."""

    project: Path | None
    workspace: Path | None
    writable: bool
    network: bool
    hidden: Sequence[str] = ()
    """Files of ours that may be in the project."""
    readable: Sequence[str] = ()
    """Folders elsewhere that it sees: the user's skills that its run is offered."""
    guarded: Sequence[str] = ()
    """Files that programs are started from which nobody asks about again: not changed by a command."""


def view_of(place: CommandPlace, environ: Mapping[str, str]) -> dict[str, Any]:
    """The view as a supervisor takes it. Paths are where things really are."""
    project = None if place.project is None else os.path.realpath(place.project)
    home = _home(environ)
    work = None if place.workspace is None else os.path.realpath(place.workspace)
    if (project is not None and within(project, WORK_AT)) or within(home, WORK_AT):
        work = work if project is None else None
        home = WORK_AT if project is None else home
    elif project is None:
        home = WORK_AT + "/.home" if work is None else home
    readable, links = _readable(home, project, environ, place.readable)
    guarded = project is not None and place.writable
    nested, complete, folders = _guarded(project) if project and guarded else ([], True, Folders())
    named, unknown = _named(project, nested, environ) if project and guarded else (NOTHING_NAMED, "")
    return {
        "project": project,
        "writable": place.writable,
        "work": work,
        "work_at": WORK_AT,
        "temp_lasts": not any(within(path, "/tmp") for path in (project or "", home)),  # noqa: S108
        "cwd": project or WORK_AT,
        "home": home,
        "readable": readable,
        "links": links,
        "ways": links_to(environ, project),
        "hidden": [
            *(path for path in map(os.path.realpath, place.hidden) if project and within(path, project)),
            *_secrets_in(readable),
            *site_settings(readable),
        ],
        "nested": nested,
        "nested_complete": complete,
        "named": [
            *named.paths,
            *_of_trusted(project),
            *((path, "file") for path in place.guarded if os.path.isfile(path)),
        ],
        "everywhere": named.everywhere,
        "unknown": unknown,
        "folders": folders.kept,
        "own": [] if project is None else [path for path in _own() if path.startswith(project + "/")],
        "network": place.network,
        "memory": most_memory(),
        "identity": _identity(home),
    }


def most_memory() -> int:
    """Bytes that a command may have with all it starts: three quarters of what is there."""
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in LIMITS_OF_A_CONTAINER:
        with contextlib.suppress(OSError, ValueError), open(name, encoding="ascii") as file:
            has = min(has, int(file.read()))
    return max(has * 3 // 4, LEAST_MEMORY)


def sealed_environment(env: Mapping[str, str], view: Mapping[str, Any]) -> dict[str, str]:
    return {**env, "HOME": str(view["home"]), "TMPDIR": "/tmp"}  # noqa: S108


def _home(environ: Mapping[str, str]) -> str:
    """The folder that is the home inside: where it really is, or one that is nobody's."""
    home = real_home(environ) or "/nonexistent"
    taken = ("/usr", "/etc", "/proc", "/dev", "/sys", "/bin", "/sbin", "/lib", "/run", "/var/tmp")  # noqa: S108
    return "/home/user" if home == "/" or any(within(home, each) for each in taken) else home


def _readable(
    home: str, project: str | None, environ: Mapping[str, str], more: Sequence[str] = ()
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    links = [(path, os.readlink(path)) for path in SYSTEM if os.path.islink(path)]
    given = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    given += [f"/etc/{name}" for name in ETC]
    given += [f"{home}/{name}" for name in HOME]
    given += on_the_path(home, project, environ)
    given += more
    pairs: dict[str, str] = {}
    for target in given:
        source = os.path.realpath(target)
        covered = any(within(source, each) and within(target, pairs[each]) for each in pairs)
        if os.path.exists(source) and not covered and source not in pairs:
            pairs[source] = target
    return list(pairs.items()), links


def _secrets_in(readable: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Files that usually hold secrets and lie directly in a folder that is readable: `~/bin/id_rsa`."""
    for source, target in readable:
        if any(within(source, top) for top in (*SYSTEM, "/etc")):
            continue
        with contextlib.suppress(OSError):
            changed = os.stat(source).st_mtime_ns
            known = _secrets.get(source)
            if known is None or known[0] != changed:
                with os.scandir(source) as entries:
                    files = [each.name for each in entries if each.is_file(follow_symlinks=False)]
                known = _secrets[source] = changed, [name for name in files if is_secret(name)]
            yield from (f"{target}/{name}" for name in known[1])


def _identity(home: str) -> str:
    """Who the person is to git, and nothing else of their settings: those may hold passwords."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    for name in (f"{home}/.config/git/config", f"{home}/.gitconfig"):
        try:
            parser.read(name, encoding="utf-8")
        except (OSError, ValueError, configparser.Error):
            continue
    if not parser.has_section("user"):
        return ""
    found = {key: parser.get("user", key, fallback="") or "" for key in ("name", "email")}
    kept = {
        key: value.strip('"') for key, value in found.items() if value.isprintable() and "\\" not in value
    }
    return "[user]\n" + "".join(f'\t{key} = "{value}"\n' for key, value in kept.items() if '"' not in value)


def _own() -> list[str]:
    """Where the programs are that Retinue itself runs, not sealed: its interpreter and what is beside it."""
    return [os.path.realpath(sys.prefix), str(Path(__file__).resolve().parents[2])]


def _guarded(project: str) -> tuple[list[str], bool, Folders]:
    """Repositories to guard, with all found before: a command may make more folders than are looked into.

    Whether those are all comes with them, and all folders that were looked into.
    """
    known = _known.setdefault(project, {})
    folders = Folders(_folders.get(project))
    found, complete = folders.inner(project, MOST_FOLDERS)
    _folders[project] = folders.kept
    for name in (*sorted(gitlinks(f"{project}/.git") or ()), *found):
        path = os.path.normpath(name)
        if len(known) >= MOST_GUARDED:
            return list(known), False, folders
        if not path.startswith(("..", "/")) and path != "." and _is_repository(f"{project}/{path}"):
            known[path] = None
    return list(known), complete, folders


def git_names(project: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """What git runs or reads because of its settings, of the project and of repositories in it: where that
    really is, and what it is; nothing where there is no git. Raises `GitDoesNotSay`."""
    nested, _, _ = _guarded(project)
    if not nested and not is_in_repository(project):
        return []
    try:
        return _settings.named(project, _still_there(project, nested), environ).paths
    except NoGit:
        return []


def git_commands(project: str, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What git hands to a shell because of its settings, where it says so (else nothing is sealed off)."""
    nested, _, _ = _guarded(project)
    return _named(project, nested, environ)[0].commands


def _of_trusted(project: str | None) -> list[tuple[str, str]]:
    """What the folders inside a project that the person trusts take settings and agents from."""
    entries = () if project is None else read_user_file().trusted.entries
    folders = dict.fromkeys(os.path.realpath(each.folder) for each in entries)
    inner = [each for each in folders if each != project and within(each, project or "")]
    return [(f"{folder}/{name}", "folder") for folder in inner for name in FOLDERS]


def _is_repository(folder: str) -> bool:
    return os.path.lexists(f"{folder}/.git") or is_bare(folder)


def _still_there(project: str, nested: Sequence[str]) -> list[str]:
    return [path for path in nested if _is_repository(f"{project}/{path}")]


def _named(project: str, nested: Sequence[str], environ: Mapping[str, str]) -> tuple[Named, str]:
    """What the settings of git name, or why nobody knows."""
    try:
        return _settings.named(project, _still_there(project, nested), environ), ""
    except GitDoesNotSay as error:
        return NOTHING_NAMED, str(error)


def missing(place: CommandPlace, environ: Mapping[str, str]) -> str | None:
    """What this machine or folder lacks for certain, in words, or None."""
    if sys.platform != "linux":
        return f"it needs Linux, this is {sys.platform}"
    machine, release = os.uname().machine, os.uname().release
    if machine not in ("x86_64", "aarch64"):
        return f"it knows x86_64 and aarch64, this is {machine}"
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if version < (5, 12):
        return f"it needs Linux 5.12 or newer, this is {release}"
    project = None if place.project is None else os.path.realpath(place.project)
    if project is not None and within(os.path.realpath(environ.get("HOME") or "/nonexistent"), project):
        return f"{project} holds your home folder, and all in it would be open: start in a folder of its own"
    if project is not None and within(os.path.realpath(user_file().parent), project):
        return f"{project} holds your settings for Retinue, which would be open: start in a folder of its own"
    if project in _own():
        return f"{project} is where Retinue runs from: start in a folder of its own"
    return None


@dataclass(kw_only=True)
class Trials:
    """Whether commands can be sealed off here, tried out for each project and kind of seal.

    That it works is kept. That it does not may have been a moment without memory or processes: whoever can
    wait has it tried again.
    """

    _found: dict[tuple[Any, ...], tuple[str | None, float]] = field(
        default_factory=dict[tuple[Any, ...], tuple[str | None, float]]
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def why_not(self, place: CommandPlace, environ: Mapping[str, str], *, again: bool = False) -> str | None:
        """Takes some time, the first time and `again`: not for an event loop."""
        key = (place.project, place.writable, place.network)
        if not self._is_due(key, again):  # without waiting for another's trial
            return self._found[key][0]
        with self._lock:
            if self._is_due(key, again):
                why = missing(place, environ) or _tried(place, environ)
                self._found[key] = why, time.monotonic()
            return self._found[key][0]

    def _is_due(self, key: tuple[Any, ...], again: bool) -> bool:
        if key not in self._found:
            return True
        why, when = self._found[key]
        return again and why is not None and time.monotonic() - when >= TRIED_AGAIN


def _tried(place: CommandPlace, environ: Mapping[str, str]) -> str | None:
    if place.project is None:
        with tempfile.TemporaryDirectory(prefix="retinue-trial-") as folder:
            return _tried_in(Path(folder), view_of(replace(place, workspace=Path(folder)), environ))
    return _tried_in(place.project, {**view_of(place, environ), "work": None})


def _tried_in(folder: Path, view: dict[str, Any]) -> str | None:
    program = _TRIAL.format(path=str(Path(__file__).resolve().parents[3]))
    try:
        done = subprocess.run(
            (sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", program),
            input=marshal.dumps(view),
            capture_output=True,
            env={},
            cwd=folder,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a try did not come to an end: {error}"
    if done.returncode == 0 and not done.stdout:
        return None
    return done.stdout.decode("utf-8", "replace").strip() or "a try ended without a word"
