"""The lines that were typed in chats, in a file for this person alone. Bounded: a long paste is not kept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory

from retinue.cli.chat.pasting import Pastes

MOST_ENTRY = 20_000
"""Characters of an entry, with what was pasted. A larger one is there as long as the chat is."""
MOST_BYTES = 2_000_000
"""Of the file. What is older than half of it goes when a chat finds it larger."""


def history_file() -> Path | None:
    """Where they are kept."""
    from platformdirs import user_state_path

    path = user_state_path("retinue") / "chat-history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        _shorten(path)
    except OSError:
        return None
    return path


def _shorten(path: Path) -> None:
    if path.stat().st_size <= MOST_BYTES:
        return
    with path.open("rb") as file:
        file.seek(-MOST_BYTES // 2, os.SEEK_END)
        kept = file.read()
    whole = kept.find(b"\n# ")  # the beginning of an entry
    shorter = path.with_name(f"{path.name}.{os.getpid()}")
    shorter.touch(mode=0o600)
    shorter.write_bytes(kept[whole:] if whole >= 0 else b"")
    shorter.replace(path)


class ChatHistory(FileHistory):
    """Lines as they stood in the input line: what was pasted is one word there, and stays pasted."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        self._pastes = pastes
        super().__init__(str(path))

    def load_history_strings(self) -> Iterable[str]:
        return (self._pastes.unmarked(written) for written in super().load_history_strings())

    def store_string(self, string: str) -> None:
        written = self._pastes.marked(string)
        if len(written) <= MOST_ENTRY:
            super().store_string(written)
