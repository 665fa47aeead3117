"""Which names of a project git ignores: by the rules of the project, and by those of its person.

What git tracks is never ignored, whatever the rules say. Called by `shadow`, in threads. It runs nothing of
the project: the rules are given to git as files, with a repository of our own; only what is tracked is asked
of the project's.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from pathlib import Path

from retinue.git import GitFailed, empty_repository, git, global_excludes, has_git
from retinue.reading import MOST_SETTINGS, read_own

REGENERATED = frozenset(
    {"node_modules", ".venv", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
"""Folders that tools fill by themselves; left out also where nothing says that they are ignored."""

MOST_INDEX = 1_000_000_000
"""Bytes of git's own lists of files and branches."""


class IgnoredNames:
    """What git ignores in one project. `folder` is a place for files of ours."""

    def __init__(self, folder: Path, project: Path) -> None:
        self._folder, self._project = folder, project
        self._stamps: tuple[object, ...] | None = None
        self._tracked: frozenset[str] = frozenset()
        self._excludes: Path | None = None
        self._persons: Path | None = None
        self.in_the_way: tuple[str, ...] = ()
        """Why git did not say what it tracks or ignores, in words: then nothing is taken for ignored."""

    def changed(self) -> bool:
        """Whether the rules outside the project's files, or what is tracked, are otherwise than last time."""
        if not has_git(self._project):
            return False
        own = self._project / ".git" / "info" / "exclude"
        if self._stamps is None:
            self._persons = global_excludes(self._project)
        stamps = (_stamp(_index(self._project)), _stamp(own), _stamp(self._persons))
        if stamps == self._stamps and not self.in_the_way:
            return False
        self.in_the_way = _in_the_way(self._project)
        self._tracked = frozenset() if self.in_the_way else self._asked_tracked()
        self._excludes = self._written(b"\n".join(_read(path) for path in (self._persons, own)))
        self._stamps = stamps
        return True

    def of(self, paths: list[str]) -> set[str]:
        """Which of these names are ignored. `changed` was called before."""
        paths = [path for path in paths if path not in self._tracked]
        plain = {path for path in paths if posixpath.basename(path) in REGENERATED}
        rest = [path for path in paths if path not in plain]
        if not rest or not has_git(self._project) or self.in_the_way:
            return plain
        try:
            asked = git(
                self._project,
                "-c",
                f"core.excludesFile={self._excludes or os.devnull}",
                *("check-ignore", "-z", "--stdin", "--no-index"),
                feed="\0".join(f"./{path}" for path in rest).encode(),  # a name is no pattern
                codes=(0, 1, 128),
                env={
                    "GIT_DIR": str(empty_repository(self._folder / "git")),
                    "GIT_WORK_TREE": str(self._project),
                },
            )
        except GitFailed as error:  # somebody has put a pipe there just now
            self.in_the_way = (f"what git ignores is not known: {error}",)
            return plain
        return plain | {os.fsdecode(path[2:]) for path in asked.stdout.split(b"\0") if path}

    def _asked_tracked(self) -> frozenset[str]:
        """What git tracks, and the folders that it is in."""
        found: set[str] = set()
        try:
            listed = git(self._project, "ls-files", "-z", codes=(0, 128)).stdout
        except GitFailed as error:
            self.in_the_way = (f"what git tracks is not known: {error}",)
            return frozenset()
        for path in map(os.fsdecode, filter(None, listed.split(b"\0"))):
            while path and path not in found:
                found.add(path)
                path = posixpath.dirname(path)
        return frozenset(found)

    def _written(self, rules: bytes) -> Path | None:
        """The rules as one file: git takes one, and a later rule counts for more."""
        if not rules.strip():
            return None
        path, made = self._folder / "excludes", self._folder / f"excludes-{os.getpid()}"
        made.write_bytes(rules)
        made.chmod(0o600)
        os.replace(made, path)  # another process may read it at this moment
        return path


def _read(path: Path | None) -> bytes:
    if path is not None:
        with contextlib.suppress(OSError):  # there is none, or no file that anybody has written
            return read_own(path, MOST_SETTINGS)
    return b""


def why_unread(path: str, there: os.stat_result | None = None, most: int = MOST_SETTINGS) -> str:
    """Why git must not read a file, in words: it would wait, or read without an end. Empty if it may."""
    try:
        there = os.stat(path) if there is None or stat.S_ISLNK(there.st_mode) else there
    except OSError:
        return ""  # git does not wait for what is not there
    if stat.S_ISDIR(there.st_mode) or (stat.S_ISREG(there.st_mode) and there.st_size <= most):
        return ""
    if stat.S_ISREG(there.st_mode):
        return f"larger than {most:,} bytes"
    return "a pipe" if stat.S_ISFIFO(there.st_mode) else "not a regular file"


def _in_the_way(project: Path) -> tuple[str, ...]:
    """What of a folder of git it would wait for, in words."""
    index = _index(project)
    if index is None:
        return ()
    sizes = {"index": MOST_INDEX, "packed-refs": MOST_INDEX}
    found: list[str] = []
    for name in ("HEAD", "config", "config.worktree", "commondir", "index", "packed-refs", "shallow"):
        path = index.parent / name
        if why := why_unread(str(path), most=sizes.get(name, MOST_SETTINGS)):
            found.append(f"{path}: {why}, so what git ignores and tracks is not known")
    return tuple(found)


def _stamp(path: Path | None) -> tuple[int, ...] | None:
    if path is None:
        return None
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_mtime_ns, there.st_ctime_ns, there.st_size, there.st_ino


def _index(project: Path) -> Path | None:
    """The file in which git notes what it tracks; it is only looked at, to see whether it was changed."""
    for folder in (project, *project.parents):
        place = folder / ".git"
        if os.path.isdir(place):
            return place / "index"
        if os.path.isfile(place):  # of a linked worktree, or a submodule
            line = _read(place).strip().removeprefix(b"gitdir:").strip()
            return folder / os.fsdecode(line) / "index"
    return None
