"""Reads a project's `AGENTS.md` for the main agent. Called by `app` when a run starts.

It is text by strangers that goes to a model unasked, so it comes from the project's folder and from nowhere
else: a link may lead to another Markdown file in there, as people do it for the files of other programs, and
not out of it, nor to a file that could hold secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from retinue.reading import Folder, Unreadable

FILE = "AGENTS.md"
MOST_CHARACTERS = 32_000
_SUFFIXES = (".md", ".mdc", ".markdown")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructions:
    """What the main agent is shown. `notice` says to a person why there is less than there seems to be."""

    text: str = ""
    notice: str = ""


def read_instructions(project: Path) -> Instructions:
    """Never raises for what the file is: a project without readable instructions has none."""
    try:
        found = Folder(project).read(FILE, MOST_CHARACTERS * 4, whole=False)
    except (FileNotFoundError, NotADirectoryError):
        return Instructions()
    except OSError as error:
        return Instructions(notice=f"{project / FILE} is not read: it {_words(error)}")
    if not found.name.lower().endswith(_SUFFIXES):
        return Instructions(
            notice=f"{project / FILE} is not read: it is a link to {found.name!r}, no Markdown file"
        )
    text = found.data.decode("utf-8", "replace").removeprefix("\ufeff")
    if not found.cut and len(text) <= MOST_CHARACTERS:
        return Instructions(text=text)
    note = f"[{FILE} is longer; only its first {MOST_CHARACTERS:,} characters are here]"
    return Instructions(text=f"{text[:MOST_CHARACTERS]}\n{note}")


def _words(error: OSError) -> str:
    return error.why if isinstance(error, Unreadable) else f"cannot be opened ({error.strerror})"
