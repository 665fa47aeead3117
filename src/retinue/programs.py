"""Where a program lies that Retinue, or a person's own settings, start by its name alone.

Never one that a project brings: commands and repositories can put anything there, also where `PATH` names a
folder of the project (an activated environment, `./node_modules/.bin`). Runs nothing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def find_program(name: str, *projects: Path | str | None, path: str | None = None) -> str | None:
    """The first program of this name on the `PATH` that does not lie in one of these folders."""
    tops = _tops(projects)
    for folder in path_outside(*projects, path=path).split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        if found is not None and not _is_in(os.path.realpath(found), tops):
            return found
    return None


def path_outside(*projects: Path | str | None, path: str | None = None) -> str:
    """A `PATH` without relative folders and without those that lie in one of these."""
    tops = _tops(projects)
    listed = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    return os.pathsep.join(
        folder
        for folder in listed
        if os.path.isabs(folder)
        and not _is_in(os.path.normpath(folder), tops)
        and not _is_in(os.path.realpath(folder), tops)
    )


def _tops(projects: tuple[Path | str | None, ...]) -> list[str]:
    """As written, and where they are. A folder that holds the home has the person's programs in it."""
    written = [os.path.abspath(each) for each in projects if each is not None]
    home = os.path.realpath(os.environ.get("HOME") or "/nonexistent")
    tops = dict.fromkeys((*written, *map(os.path.realpath, written)))
    return [top for top in tops if top != "/" and not _is_in(home, [os.path.realpath(top)])]


def _is_in(path: str, tops: list[str]) -> bool:
    return any(f"{path}/".startswith(f"{top}/") for top in tops)
