"""Reads a project's `AGENTS.md` for the main agent, and those of the folders that it works in.

Called by `assembly` when a run starts, and by runs for the files that they read or change: the nearest one.

It is text by strangers that goes to a model unasked, so it comes from the project's folder and from nowhere
else. A link may lead to a file in there that other programs read for the same purpose, and to no other: a
repository must not choose which of a person's files a model is shown. What a person's deny rules keep from
`read`, and files that usually hold secrets, are not read under another name either.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from retinue.agents.places import upwards
from retinue.approvals import Rules
from retinue.kept_files import kept_by
from retinue.reading import Folder, Unreadable
from retinue.secret_names import is_secret

FILE = "AGENTS.md"
MOST_CHARACTERS = 32_000
MOST_NESTED = 16_000
"""Characters of one of a folder further down."""
MOST_DEEP = 30
_OTHERS = frozenset({"node_modules", "site-packages", "vendor", "third_party", "dist", "build", "target"})
"""Folders with what others wrote, or what is made: their instructions are not for whoever works here."""
_SAME_PURPOSE = re.compile(
    r"""(?ix) (?:.*/)? (?:
      (?:agents?|claude|gemini|qwen|crush|warp|codex|jules|copilot-instructions|conventions)\.md
    | \.(?:cursor|windsurf|cline|roo)rules | \.rules | \.goosehints
    | \.cursor/rules/[^/]+\.mdc? | \.(?:windsurf|clinerules|roo|aiassistant|amazonq)/(?:rules/)?[^/]+\.md
    | \.junie/guidelines\.md | \.github/instructions/[^/]+\.instructions\.md
    )"""
)
"""Where other programs keep what `AGENTS.md` is for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructions:
    """What the main agent is shown. `notice` says to a person why there is less than there seems to be."""

    text: str = ""
    notice: str = ""


def read_instructions(project: Path, rules: Rules = Rules()) -> Instructions:
    """Those of the folder, or of the nearest above it in the same repository. Raises for none that is bad."""
    kept = kept_by(rules, project)
    for folder in upwards(project):
        found = _read(Folder(folder, kept), FILE, MOST_CHARACTERS)
        if found is not None:
            return found
    return Instructions()


class NestedInstructions:
    """The nearest `AGENTS.md` to a file of a project, for those below its own: each read once for a run."""

    def __init__(self, project: Path, rules: Rules) -> None:
        self._folder = Folder(project, kept_by(rules, project))
        self._known: dict[str, tuple[str, str] | None] = {}

    def nearest(self, path: str) -> tuple[str, str] | None:
        """Its name and text, for a path that is relative to the project. None: the project's own holds."""
        below = os.path.dirname(os.path.normpath(path))
        if os.path.isabs(below) or below in ("", ".", "..") or below.startswith("../"):
            return None
        if below not in self._known:
            self._known[below] = self._look(below)
        return self._known[below]

    def _really(self, below: str) -> str:
        """The same folder by its own name: through a link it has another, and would be told of twice."""
        top = os.path.realpath(self._folder.path)
        really = os.path.realpath(os.path.join(top, below))
        return really[len(top) + 1 :] if really.startswith(f"{top}/") else below

    def _look(self, below: str) -> tuple[str, str] | None:
        parts = self._really(below).split("/")
        asked = (*below.split("/"), *parts)
        if any(part.startswith(".") or part in _OTHERS for part in asked) or len(parts) > MOST_DEEP:
            return None  # not written by whoever writes this project
        for depth in range(len(parts), 0, -1):
            folder = "/".join(parts[:depth])
            found = _read(self._folder.anew(), f"{folder}/{FILE}", MOST_NESTED)
            if found is not None and found.text.strip():
                anothers = self._folder.is_anothers(f"{folder}/{FILE}")
                return None if anothers else (f"{folder}/{FILE}", _framed(folder, found.text))
        return None


def _framed(folder: str, text: str) -> str:
    """The instructions of a folder as a run is told of them."""
    text = text.strip().replace("</project-instructions", "</ project-instructions")
    where = re.sub(r"[\"<>\s]+", " ", folder)
    return (
        f"[The project has instructions for what is in {where}/, where you work now. They go before those of "
        f'the folders above it.]\n<project-instructions folder="{where}">\n{text}\n</project-instructions>'
    )


def _read(folder: Folder, name: str, most: int) -> Instructions | None:
    """Never raises for what the file is. None where there is none."""
    try:
        why = _why_not(name, folder.inside(name))
        found = folder.read(name, most * 4, whole=False)
        why = why or _why_not(name, found.name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        why = _words(error)
        return Instructions(notice=f"{folder.path / name} is not read: it {why}")
    if why is not None:
        return Instructions(notice=f"{folder.path / name} is not read: it {why}")
    text = found.data.decode("utf-8", "replace").removeprefix("\ufeff")
    if not found.cut and len(text) <= most:
        return Instructions(text=text)
    note = f"[{name} is longer; only its first {most:,} characters are here]"
    return Instructions(text=f"{text[:most]}\n{note}")


def _why_not(asked: str, really: str) -> str | None:
    """Why what was read is not shown all the same, in words that follow its name."""
    if really != asked and (is_secret(really) or not _SAME_PURPOSE.fullmatch(really)):
        return f"is a link to {really!r}, and may be one only to a file like CLAUDE.md or GEMINI.md"
    return None


def _words(error: OSError) -> str:
    return error.why if isinstance(error, Unreadable) else f"cannot be opened ({error.strerror})"
