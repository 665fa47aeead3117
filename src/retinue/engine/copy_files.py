"""The files of a copy of the project: how it is filled, and what in it git does not see."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from retinue.authority.secrets import MOST_LOOKED_AT
from retinue.engine.undo import state_of
from retinue.ignored import REGENERATED
from retinue.jail import Jail
from retinue.shadow import Shadow
from retinue.snapshots import Snapshot
from retinue.workspace import UNKNOWN

MOST_MADE = 30
"""Ignored files of one folder that are named."""
CACHE_TAG = "CACHEDIR.TAG"
"""A file that says of its folder that it is a cache: https://bford.info/cachedir/"""


def _is_below(path: str, tops: set[str]) -> bool:
    """Whether a path is one of these, or anywhere below one."""
    while path:
        if path in tops:
            return True
        path = path.rpartition("/")[0]
    return False


def outside(files: Snapshot, tops: set[str]) -> Snapshot:
    return {path: seen for path, seen in files.items() if not _is_below(path, tops)}


def hidden_changes(folder: Path, base: Snapshot, now: Snapshot, tops: set[str]) -> list[str]:
    """In words, what was changed where git ignores files on one side only: it is not merged."""
    found: list[str] = []
    with Jail(folder) as jail:
        for path, seen in sorted(base.items()):
            if seen.kind in ("file", "link", "folder") and _is_below(path, tops):
                there = state_of(jail, path)
                if (there.kind, there.sha256) != (seen.kind, seen.sha):
                    found.append(f"{path}: changed, and ignored by git now")
            elif seen.kind == "large" and _is_below(path, tops):
                found.append(f"{path}: too large to be looked after, and ignored by git now")
    new = [path for path, seen in sorted(now.items()) if seen.kind in ("file", "link", "large")]
    return [*found, *(f"{path}: ignored by git before" for path in new if _is_below(path, tops))]


def made_ignored(folder: Path, source: Path, now: Snapshot) -> list[str]:
    """In words, the files that git ignores in a copy and that the project has not, or has otherwise: they are
    not merged. Not those of folders that tools fill by themselves, by their names or by the tag of a cache.
    """
    found: list[str] = []
    for top in sorted(path for path, seen in now.items() if seen.kind == "ignored"):
        some = list(islice(_files_below(folder, top, source), MOST_MADE + 1))
        if len(some) > MOST_MADE:
            found.append(f"{top}/: more than {MOST_MADE} new or other files, ignored by git")
        else:
            found += [
                f"{path}: {'other than the project has it' if os.path.lexists(source / path) else 'new'}, "
                "and ignored by git"
                for path in some
            ]
    return found


def _is_the_same(one: Path, other: Path) -> bool:
    """Whether a file of a copy is as the project has it: what it holds, whatever its time says."""
    try:
        if one.is_symlink() or other.is_symlink():
            return one.is_symlink() and other.is_symlink() and os.readlink(one) == os.readlink(other)
        with open(one, "rb", opener=_opened) as mine, open(other, "rb", opener=_opened) as theirs:
            first, second = os.fstat(mine.fileno()), os.fstat(theirs.fileno())
            if not (stat.S_ISREG(first.st_mode) and stat.S_ISREG(second.st_mode)):
                return False
            if first.st_size != second.st_size:
                return False
            while (part := mine.read(1 << 20)) == theirs.read(1 << 20):
                if not part:
                    return True
    except OSError:  # not there, or not to be read
        pass
    return False


def _opened(path: str, flags: int) -> int:
    """A pipe that an agent left is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _files_below(folder: Path, top: str, source: Path) -> Iterator[str]:
    if posixpath.basename(top) in REGENERATED:
        return
    if not os.path.isdir(folder / top) or os.path.islink(folder / top):
        yield from () if _is_the_same(folder / top, source / top) else (top,)
        return
    for here, folders, files in os.walk(folder / top):
        if CACHE_TAG in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in REGENERATED)
        inside = os.path.relpath(here, folder)
        yield from (
            f"{inside}/{name}"
            for name in sorted(files)
            if not _is_the_same(folder / inside / name, source / inside / name)
        )


def shared_with(source: Path, base: Snapshot, *, all_files: bool) -> dict[str, tuple[str, ...]]:
    """The other names of files with hard links, those that git ignores among them."""
    several: dict[str, os.stat_result] = {}
    for path, seen in base.items():
        if seen.kind in ("file", "large"):
            with contextlib.suppress(OSError):  # gone meanwhile
                found = os.lstat(source / path)
                if found.st_nlink > 1:
                    several[path] = found
    if not several and not all_files:
        return {}
    names: dict[tuple[int, int], list[str]] = {}
    with Jail(source) as jail:
        entries = list(islice(jail.walk(), MOST_LOOKED_AT))
    for name, entry in entries:
        if entry.kind == "file" and entry.links > 1:
            names.setdefault(entry.file, []).append(name)
    shared = {name: (*same[:at], *same[at + 1 :]) for same in names.values() for at, name in enumerate(same)}
    if len(entries) >= MOST_LOOKED_AT:
        for path, found in several.items():
            if len(names.get((found.st_dev, found.st_ino), ())) < found.st_nlink:
                shared[path] = (*shared.get(path, ()), UNKNOWN)
    return {name: others for name, others in shared.items() if others}


def fill(shadow: Shadow, base: Snapshot, target: Path, *, ignored: bool) -> None:
    """Write the project into an empty folder, as its shadow knows it at one moment."""
    modes: list[tuple[Path, int]] = []
    for path, seen in sorted(base.items()):
        here, there = target / path, shadow.project / path
        if seen.kind == "folder":
            here.mkdir(exist_ok=True)
            modes.append((here, seen.mode))
        elif seen.kind == "link":
            os.symlink(os.fsdecode(_kept(shadow, path, seen.sha)), here)
        elif seen.kind == "file":
            here.write_bytes(_kept(shadow, path, seen.sha))
            here.chmod(seen.mode)
        elif seen.kind == "large" or (ignored and seen.kind == "ignored"):
            with contextlib.suppress(OSError):
                if there.is_dir() and not there.is_symlink():
                    shutil.copytree(there, here, symlinks=True)
                else:
                    shutil.copy2(there, here, follow_symlinks=False)
    for folder, mode in reversed(modes):
        folder.chmod(mode)


def _kept(shadow: Shadow, path: str, sha: str) -> bytes:
    data = shadow.content(sha)
    if data is None:
        raise OSError(f"what is in {path} was not kept")
    return data
