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
