"""What somebody else has where changes are to be made: files in a folder that is to go, a file or a link
where a folder is needed.

Asked by `undo` and `worktrees` before they touch anything. It only looks.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from retinue.jail import Jail


class Becoming(NamedTuple):
    """What is at a path now, and what is to be there: file, folder, link, or nothing."""

    now: str
    wanted: str


def held_folders(jail: Jail, going: Mapping[str, Becoming]) -> dict[str, str]:
    """The folders that are to go, or to become something else, and hold what does not go: each with that."""
    held: dict[str, str] = {}
    leaving = {path for path, each in going.items() if each.now and each.now != each.wanted}
    folders = [path for path in leaving if going[path].now == "folder"]
    for path in sorted(folders, key=lambda path: path.count("/"), reverse=True):
        try:
            inside = [f"{path}/{entry.name}" for entry in jail.listdir(path)]
        except OSError:
            continue  # gone meanwhile, or not ours to read: whoever removes it is told
        stays = next((name for name in inside if name not in leaving or name in held), "")
        if stays:
            held[path] = stays
    return held


def in_place_of_folders(jail: Jail, going: Mapping[str, Becoming]) -> dict[str, tuple[str, str]]:
    """What is to be made below something that is no folder and does not become one: for each the path of
    that, and what it is."""
    known: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    for path, each in going.items():
        for above in above_of(path) if each.wanted else ():
            if above not in known:
                known[above] = going[above].wanted if above in going else _no_folder(jail, above)
            if known[above] in ("file", "link"):
                found[path] = above, known[above]
    return found


def _no_folder(jail: Jail, path: str) -> str:
    """`file` or `link`, if that is at a path. Whatever else there is hinders nobody here."""
    parent, name = posixpath.split(path)
    try:
        with jail.folder(parent or ".") as folder:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return ""
    return "link" if stat.S_ISLNK(mode) else "" if stat.S_ISDIR(mode) else "file"


def above_of(path: str) -> Iterator[str]:
    """The folders that a path is in, the nearest first."""
    while path := posixpath.dirname(path):
        yield path
