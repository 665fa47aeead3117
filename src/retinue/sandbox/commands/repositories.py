"""Where repositories lie in a project, and whether git would run a program for one of them.

For `view`, which has those that are there guarded, and for `leftovers`, which looks at those that a sealed
command has left. All of it reads what a command may have written: nothing is believed, no link is followed.
"""

from __future__ import annotations

import math
import os
import re
import stat
import struct
import time
from collections.abc import Container

BEGAN = 1_000_000_000
"""The date of a stand-in (`guards`), in seconds: nothing else is of that second, and whatever is put in
changes it."""
MOST_STAND_IN = 2
"""Bytes of a file that stands in."""
ASIDE = ".from-sandbox"
"""The ending of what was put aside (`leftovers`)."""
MOST_FOLDERS = 4000
"""Folders that are looked into before a command; twice as many after it."""
MOST_LAST = 1000
"""Folders more that are looked into, of those that come last."""
LAST = frozenset(
    {
        *(".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *("node_modules", "__pycache__", "site-packages", "target", "build", "dist"),
    }
)
"""Large, and hardly anybody uses git in there. Where git itself looks, its index tells: see `gitlinks`."""
PARTS_OF_GIT = frozenset({"objects", "refs", "logs", "hooks", "info"})
"""Folders of a bare repository: they come last too."""
SETTLED = 100_000_000
"""Nanoseconds after which a change cannot have the date of the one before."""
MOST_INDEX = 256 * 1024 * 1024
MOST_CONFIG = 65536
_SHA256 = re.compile(rb"^[ \t]*objectformat[ \t]*=[ \t]*\"?sha256", re.MULTILINE | re.IGNORECASE)
_SAYS_NOTHING = re.compile(
    rb"""(?ix) \s*+ (?:
      \[(?:core|user|init)\] | \[(?:remote|branch)[ ]"[\w./-]+"\]
    | (?:repositoryformatversion|bare|filemode|logallrefupdates|ignorecase|precomposeunicode|symlinks)
      \s*=\s*(?:true|false|[01])
    | (?:name|email) \s*=\s*+ [\w .@+-]*
    | url \s*=\s* (?:https?://|\.{0,2}/)[\w./@~%+-]*
    | fetch \s*=\s* [\w+/*:.-]*
    | (?:remote|merge) \s*=\s* [\w./-]*
    )? \s*+"""
)
"""A line of git's settings as `git init` and `git clone` write it. No setting among them runs a program."""
_LEADS_ELSEWHERE = ("config.worktree", "commondir", "modules", "worktrees", "remotes")


class Folders:
    """The folders of a project, each as it was when it was last looked into.

    What has the date of its last change still is as it was: so a look at a folder is as a rule one call of
    the system. `kept` goes from Retinue to the supervisor and holds plain values.
    """

    def __init__(self, kept: dict[str, tuple[int, bool, list[str]]] | None = None) -> None:
        self.kept = kept or {}
        """By path below the project: when it changed, whether git would take it for a repository, and the
        folders in it."""
        self.opens_since = math.inf
        """Folders that changed since then are opened to their owner first: a command may have closed them."""

    def inner(self, project: str, most: int, *, most_last: int = MOST_LAST) -> tuple[list[str], bool]:
        """Repositories below the project, bare ones too, outer ones first. No more than so many folders are

        looked into; whether those are all comes with them, but for the folders that come last (`is_last`).
        """
        found: list[str] = []
        now: dict[str, tuple[int, bool, list[str]]] = {}
        last: list[str] = []
        complete = self._walk(project, [""], most, (found, now, last))
        self._walk(project, last, most_last, (found, now, last))
        self.kept = now
        return found, complete

    def _walk(
        self,
        project: str,
        ahead: list[str],
        most: int,
        into: tuple[list[str], dict[str, tuple[int, bool, list[str]]], list[str]],
    ) -> bool:
        found, now, last = into
        for looked, folder in enumerate(ahead):  # grows while it is gone through
            if looked >= most:
                return False
            seen = self._looked_into(project, folder)
            if seen is None:
                continue
            now[folder] = seen
            found += [folder] if seen[1] and folder else []
            later = LAST | PARTS_OF_GIT if seen[1] else LAST
            for name in seen[2]:
                (last if name in later else ahead).append(f"{folder}/{name}" if folder else name)
        return True

    def _looked_into(self, project: str, folder: str) -> tuple[int, bool, list[str]] | None:
        path = f"{project}/{folder}" if folder else project
        try:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                return None
            changed = status.st_ctime_ns
            kept = self.kept.get(folder)
            if kept is not None and kept[0] == changed:
                return kept
            if status.st_ctime >= self.opens_since and status.st_mode & 0o500 != 0o500:
                make_accessible(path)
            with os.scandir(path) as entries:
                listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:
            return None
        settled = changed < time.time_ns() - SETTLED  # else it may change again and keep that date
        aside = f".git{ASIDE}"
        folders = [
            name for name, is_folder in listed if is_folder and name != ".git" and not name.startswith(aside)
        ]
        names = {name for name, _ in listed}
        return changed if settled else 0, ".git" in names or _is_bare(names), folders


def make_accessible(folder: str) -> bool:
    """Give its owner all rights to a folder, unless a link leads there."""
    try:
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        place = f"/proc/self/fd/{handle}"
        if os.readlink(place) != folder:
            return False
        os.chmod(place, stat.S_IMODE(os.fstat(handle).st_mode) | 0o700)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def is_last(name: str) -> bool:
    """Whether a folder may be one that comes last, and so was perhaps not looked into."""
    return not (LAST | PARTS_OF_GIT).isdisjoint(name.split("/"))


def is_bare(folder: str, coming: Container[str] = ()) -> bool:
    """Whether git could take this folder for one of its own: it looks there before it looks further up.
    `coming`: paths that will be there too."""
    paths = {name: f"{folder}/{name}" for name in ("HEAD", "objects", "refs", "commondir")}
    return _is_bare({name for name, path in paths.items() if path in coming or os.path.lexists(path)})


def _is_bare(names: set[str]) -> bool:
    return "HEAD" in names and ({"objects", "refs"} <= names or "commondir" in names)


def is_stand_in(path: str) -> bool:
    try:
        return _of_that_date(os.lstat(path))
    except OSError:
        return False


def stands_in(found: os.stat_result) -> bool:
    """Whether something is a stand-in and nothing else: whatever is put in it gives it another date."""
    return _of_that_date(found) and (not stat.S_ISREG(found.st_mode) or found.st_size <= MOST_STAND_IN)


def _of_that_date(found: os.stat_result) -> bool:
    return found.st_mtime_ns == BEGAN * 10**9


def gitlinks(git: str) -> set[str] | None:
    """The folders that the index of a repository calls repositories; None if it cannot be read for sure.

    `git status` runs git in each of them.
    """
    size = 32 if _SHA256.search(text_of(f"{git}/config", MOST_CONFIG)) else 20
    try:
        names = ["index", *(name for name in os.listdir(git) if name.startswith("sharedindex."))]
    except OSError:
        return set()
    found: set[str] = set()
    for name in names:
        data = text_of(f"{git}/{name}", MOST_INDEX)
        try:
            found |= _gitlinks_in(data, size) if data else set()
        except (struct.error, IndexError, ValueError):
            return None
    return found


def _gitlinks_in(data: bytes, size: int) -> set[str]:
    """As git reads it: what holds the mode of a link to a repository, whatever its other bits say."""
    mark, version, count = struct.unpack_from("!4sII", data)
    if mark != b"DIRC" or version not in (2, 3, 4):
        raise ValueError
    found: set[str] = set()
    at, name = 12, b""
    for _ in range(count):
        (mode,) = struct.unpack_from("!I", data, at + 24)
        (flags,) = struct.unpack_from("!H", data, at + 40 + size)
        start = at + 42 + size + (2 if flags & 0x4000 and version > 2 else 0)
        if version == 4:
            dropped, start = _number(data, start)
            end = data.index(b"\0", start)
            name = name[: len(name) - dropped] + data[start:end]
            at = end + 1
        else:
            length = flags & 0xFFF
            end = data.index(b"\0", start) if length == 0xFFF else start + length
            name = data[start:end]
            at += (end - at + 8) & ~7
        if mode & 0xF000 == 0xE000:
            found.add(os.fsdecode(name.partition(b"\0")[0]))
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 127)
    return value, at + 1


def is_harmless(git: str) -> bool:
    """Whether this is a folder as `git init` and `git clone` make it: no hooks, nothing of its own set."""
    try:
        if not stat.S_ISDIR(os.lstat(git).st_mode) or not set(_LEADS_ELSEWHERE).isdisjoint(os.listdir(git)):
            return False
        hooks = os.listdir(f"{git}/hooks") if os.path.lexists(f"{git}/hooks") else []
        if any(not name.endswith(".sample") for name in hooks):
            return False
        if not os.path.lexists(f"{git}/config"):
            return True
        found = os.lstat(f"{git}/config")
    except OSError:
        return False
    if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_CONFIG:
        return False
    if not os.access(f"{git}/config", os.R_OK):  # others may be able to read it
        return False
    return all(_SAYS_NOTHING.fullmatch(line) for line in text_of(f"{git}/config", MOST_CONFIG).split(b"\n"))


def text_of(path: str, most: int) -> bytes:
    """What a regular file holds, so much of it; empty for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # a folder too can be opened that far
        os.close(handle)
        return b""
    try:
        with open(handle, "rb") as file:
            return file.read(most)
    except OSError:
        return b""
