"""The other names of a file: a hard link is the same file, and a rule about one of its names is about all.

Used by the rules, for a path that a call names, and by the tools that search folders. Looks at names alone,
within the project, and at no more than `MOST_LOOKED_AT` of them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice

from retinue.authority.places import places
from retinue.errors import ToolError
from retinue.jail import Jail
from retinue.workspace import Files

MOST_LOOKED_AT = 50_000
"""Entries of a folder that are looked through for the other names of a file."""


def other_names(path: str, files: Files | None, below: str = ".") -> list[str]:
    """The names in the project, below a folder of it, of the very file that a path leads to, but for its own.

    None for a file that has one name only, and in a workspace, where no file with several is opened. In a
    copy of a project, also the names that it had there.
    """
    if files is None or files.project is None:
        return []
    before = names_in_origin(path, files)
    try:
        found = files.stat(path)
        if found.st_nlink < 2 or not stat.S_ISREG(found.st_mode):
            return before
        with files.at(".") as (_, jail):
            own = files.locate(path).name
            return [*before, *(name for name in _same(jail, found, below) if name != own)]
    except (ToolError, OSError):
        return before


def names_in_origin(path: str, files: Files) -> list[str]:
    """The other names that a file had in the project which this one is a copy of."""
    if files.origin is None:
        return []
    spelled, real = places(path, files)
    names = dict.fromkeys((*spelled[:2], real[0]))
    return [other for name in names for other in files.origin.shared.get(name, ())]


def _same(jail: Jail, found: os.stat_result, below: str) -> Iterator[str]:
    for name, entry in islice(jail.walk(below), MOST_LOOKED_AT):
        if entry.kind == "file" and entry.file == (found.st_dev, found.st_ino):
            yield name


class SharedFiles:
    """Which names below the project are the same file; looked up once, when the first is asked for."""

    def __init__(self, jail: Jail) -> None:
        self._jail = jail
        self._names: dict[tuple[int, int], list[str]] | None = None

    def names(self, name: str) -> list[str]:
        """The other names of a file, none if it has just one."""
        try:
            found = self._jail.stat(name)
        except OSError:
            return []
        if found.st_nlink < 2 or not stat.S_ISREG(found.st_mode):
            return []
        same = self._known().get((found.st_dev, found.st_ino), [])
        return [other for other in same if other != name]

    def _known(self) -> dict[tuple[int, int], list[str]]:
        if self._names is None:
            self._names = {}
            for name, entry in islice(self._jail.walk(), MOST_LOOKED_AT):
                if entry.links > 1 and entry.kind == "file":
                    self._names.setdefault(entry.file, []).append(name)
        return self._names
