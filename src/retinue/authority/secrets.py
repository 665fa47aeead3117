"""Files that usually hold secrets, known by their names: they are read only after a person was asked.

A person is asked about one that a call names; tools that search folders leave them out (`approvals.Closed`).
A name is all that is looked at, in every spelling of the path and wherever its links lead: a secret in a
file of another name is not found by this.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from retinue.authority.hard_links import names_in_origin
from retinue.authority.places import places
from retinue.errors import ToolError
from retinue.jail import Jail
from retinue.secret_names import is_secret
from retinue.workspace import HOME, Files

MOST_LOOKED_AT = 100_000
"""Entries of a project that are looked through for the other names of a file with hard links."""


def secrets_in(targets: Iterable[str], files: Files, *, made: bool = False) -> list[str]:
    """Those of the paths that lead to a file of the project which usually holds secrets, each named once.

    What is in a run's own workspace was put there: by itself, or because a person named it. `made`: also
    those that are not there yet, for who writes: programs take orders from such files too.
    """
    found: dict[str, None] = {}
    for target in targets:
        spelled, real = places(target, files)
        if not any(name == HOME or name.startswith(f"{HOME}/") for name in (*spelled[1:2], real[0])):
            named = next((name for name in (real[0], *spelled) if is_secret(name)), None)
            named = named or hard_link(spelled[1] if len(spelled) > 1 else spelled[0], files)
            if named is not None and _may_be_file(target, files, made=made):
                found[named] = None
    return list(found)


def _may_be_file(target: str, files: Files, *, made: bool) -> bool:
    """Whether there is something to read or to make: nobody is asked about a folder, or about what is not
    there and is only read."""
    try:
        return not stat.S_ISDIR(files.stat(target).st_mode)
    except ToolError:
        return made


def hard_link(path: str, files: Files) -> str | None:
    """The name of a file with secrets in the project that is the same file as this one, or None."""
    return hard_links((path,), files).get(path)


def hard_links(paths: Iterable[str], files: Files) -> dict[str, str]:
    """Those of the paths that are the same file as one with secrets in the project, with its name.

    Looks through the project once, if any of them has another name at all: not for an event loop.
    """
    paths = tuple(paths)
    copied = {path: name for path in paths for name in names_in_origin(path, files) if is_secret(name)}
    return {**_linked_here(paths, files), **copied}


def _linked_here(paths: Iterable[str], files: Files) -> dict[str, str]:
    several: dict[str, os.stat_result] = {}
    for path in paths:
        try:
            here = files.stat(path)
        except ToolError:
            continue
        if here.st_nlink > 1 and stat.S_ISREG(here.st_mode):
            several[path] = here
    if not several:
        return {}
    try:
        with files.at(".") as (place, jail):
            known, otherwise = ({}, None) if place.home else _secret_files(jail)
    except ToolError:
        return {}
    found = {path: known.get((here.st_dev, here.st_ino), otherwise) for path, here in several.items()}
    return {path: name for path, name in found.items() if name is not None}


def _secret_files(jail: Jail) -> tuple[dict[tuple[int, int], str], str | None]:
    """The files with secrets, by what they are, and what every other file may be: none of them, or, where not
    all could be looked at, one of the rest."""
    found: dict[tuple[int, int], str] = {}
    for number, (name, entry) in enumerate(jail.walk()):
        if number >= MOST_LOOKED_AT:
            return found, f"one of more than {MOST_LOOKED_AT:,} files"
        if entry.kind == "file" and is_secret(name):
            try:
                other = jail.stat(name)
            except OSError:
                continue
            found.setdefault((other.st_dev, other.st_ino), name)
    return found, None
