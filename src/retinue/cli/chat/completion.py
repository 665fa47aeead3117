"""What can be typed next in a chat: commands after `/`, files and agents after `@`, and values."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from retinue.types import Level

if TYPE_CHECKING:
    from retinue.cli.chat.talk import Talk

MOST = 40
FRESH = 20.0
"""Seconds for which the list of the project's files is good."""


class ChatCompleter(Completer):
    def __init__(self) -> None:
        self.talk: Talk | None = None
        self._paths = PathCompleter(expanduser=True, get_paths=self._folder)
        self._files: list[str] = []
        self._read_at = 0.0

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        word = before.split()[-1] if before and not before[-1].isspace() else ""
        if before.startswith("/") and "\n" not in before:
            yield from self._slash(before, document, complete_event)
        elif word.startswith("@"):
            yield from self._mentions(word[1:])

    def _slash(self, before: str, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        from retinue.cli.chat.slash import SLASHES

        name, space, rest = before[1:].partition(" ")
        if not space:
            for each in SLASHES:
                if each.name.startswith(name):
                    about = f"{each.takes}  {each.says}" if each.takes else each.says
                    yield Completion(each.name, start_position=-len(name), display_meta=about)
            return
        if name == "attach":
            yield from self._paths.get_completions(Document(rest, len(rest)), event)
            return
        for value in self._values(name):
            if value.startswith(rest):
                yield Completion(value, start_position=-len(rest))

    def _folder(self) -> list[str]:
        """Where a path that is typed begins: the project, wherever the process is."""
        return [str(self.talk.project)] if self.talk is not None else ["."]

    def _values(self, name: str) -> Iterable[str]:
        if self.talk is None:
            return ()
        retinue = self.talk.session.retinue
        return {
            "agent": sorted(retinue.agents.agents),
            "effort": get_args(Level),
            "plan": ("on", "off"),
            "undo": ("rest",),
        }.get(name, ())

    def _mentions(self, part: str) -> Iterable[Completion]:
        if self.talk is None:
            return
        retinue = self.talk.session.retinue
        for name in sorted(retinue.agents.agents):
            if name.startswith(part):
                yield Completion(name, start_position=-len(part), display_meta="agent")
        found = [path for path in self._project(retinue.cwd) if part.lower() in path.lower()]
        found.sort(key=lambda path: (not Path(path).name.lower().startswith(part.lower()), len(path)))
        for path in found[:MOST]:
            yield Completion(path, start_position=-len(part), display_meta="file")

    def _project(self, folder: Path) -> list[str]:
        if time.monotonic() - self._read_at > FRESH:
            self._files, self._read_at = _files_of(folder), time.monotonic()
        return self._files


def _files_of(folder: Path) -> list[str]:
    """The files of a project that are not ignored, as far as that is known quickly."""
    from retinue.tools.ripgrep import find_rg

    program = find_rg(folder)
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "--files", "--no-messages"], cwd=folder, capture_output=True, timeout=2, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines()[:20_000]
