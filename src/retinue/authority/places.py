"""Where a path of a call leads: in all the ways to write it, and when every link in it is followed.

Rules and the watch over secrets judge by these. Opens nothing: what is really opened is the jail's to decide.
"""

from __future__ import annotations

import os
import posixpath

from retinue.errors import ToolError
from retinue.workspace import HOME, Files


def places(path: str, files: Files | None) -> tuple[list[str], list[str]]:
    """The ways to write a path, and to write where it leads when every link in it is followed."""
    plain = posixpath.normpath(path.strip())
    if files is None:
        return [plain], [plain]
    try:
        place = files.locate(path)
    except ToolError:  # outside: whoever opens it will say so
        return [plain], [plain]
    top = (files.workspace.folder if files.workspace else None) if place.home else files.project
    if top is None:
        return [plain, place.display], [place.display]
    within = os.path.relpath(os.path.realpath(top / place.name), os.path.realpath(top))
    if within == ".." or within.startswith("../"):  # it leads out, so nobody opens it
        within = place.name
    if place.home:
        return [plain, place.display], [posixpath.normpath(f"{HOME}/{within}")]
    return [plain, place.display, str(top / place.name)], [within, str(top / within)]


def plain_folder(folder: str, files: Files) -> str | None:
    """A folder of the project that is what it is called, since no link stands in its name; else None.

    It need not be there: whoever goes there then stays where they are.
    """
    if files.project is None:
        return None
    top = os.path.realpath(files.project)
    if folder == str(files.project) or folder.startswith(f"{files.project}/"):
        folder = os.path.relpath(folder, files.project)
    whole = os.path.normpath(os.path.join(top, folder))
    inside = whole == top or whole.startswith(f"{top}/")
    return os.path.relpath(whole, top) if inside and os.path.realpath(whole) == whole else None
