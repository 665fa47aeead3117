"""Programs that a person has set for themselves, given the terminal: the editor, the pager.

Used by questions and by the chat. Whoever calls has made room on the terminal.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import tempfile
from pathlib import Path

from retinue.programs import find_program
from retinue.reading import read_own, text_of

MOST_EDITED = 64_000_000
EDITORS = ("editor", "nano", "pico", "vi", "emacs")
"""Looked for where none is set."""


def own_editor(project: Path) -> str | None:
    """The command of the person's editor, or the first one that is there."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    return named or next((name for name in EDITORS if find_program(name, project)), None)


async def edited(editor: str, text: str, name: str, project: Path) -> str:
    """A text as it comes back from the editor. OSError if that cannot be started, or fails."""
    with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
        path = Path(folder) / name
        path.write_text(text, "utf-8")
        await run_program(editor, path, project)
        return text_of(read_own(path, MOST_EDITED), path.name)


async def run_program(command: str, path: Path, project: Path) -> None:
    """Run a command of the person's on a file. A name alone is no program of the folder agents work in."""
    name, *arguments = shlex.split(command)
    found = name if "/" in name else find_program(name, project)
    if found is None:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    process = await asyncio.create_subprocess_exec(found, *arguments, str(path))
    code = await process.wait()
    if code != 0:
        raise OSError(f"{name} ended with code {code}")
