"""A small JSON file that several processes of one user keep together: tokens, sessions.

It is always replaced as a whole, for its owner's eyes alone. Whoever changes it holds a lock from reading it
to replacing it, so that what one process takes away is not put back by another. Used by `tokens` and
`sessions`; knows nothing of either.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from retinue.errors import ConfigError
from retinue.reading import MOST_SETTINGS, read_own

LOOK_SECONDS = 0.5


def read(path: Path, what: str) -> list[dict[str, Any]]:
    """The rows of a file, none if there is no such file. Raises `ConfigError` for anything else in it."""
    try:
        _require_ours(path.stat(), path)
        found: Any = json.loads(read_own(path, MOST_SETTINGS))
        rows: list[dict[str, Any]] = found[what]
        if not all(isinstance(row, dict) for row in rows):  # pyright: ignore[reportUnnecessaryIsInstance] # so it says
            raise TypeError
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"cannot be read as a list of {what}", file=str(path), fix=f"remove it; {what} can be made again"
        ) from None
    return rows


def write(path: Path, what: str, rows: list[dict[str, Any]]) -> None:
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({what: rows}, file, indent=1)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None


def blank_out(path: Path, text: str) -> None:
    """Take a text out of a file where it cannot be written anew: a full disk has room for what is there.

    Where not even that can be done, the file is emptied, and then whoever reads it finds nothing.
    """
    sought = text.encode()
    try:
        with open(path, "r+b") as file:
            at = file.read().find(sought)
            if at >= 0:
                file.seek(at)
                file.write(b"0" * len(sought))
                file.flush()
                os.fsync(file.fileno())
    except FileNotFoundError:
        return
    except OSError:
        try:
            os.truncate(path, 0)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None


def _require_ours(found: os.stat_result, path: Path) -> None:
    """Whoever else can write here could let themselves in."""
    if not hasattr(os, "geteuid"):
        return
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
        raise ConfigError(
            "is not taken: others than you can write to it",
            file=str(path),
            fix=f"look at what it holds, then 'chmod 600 {path}'",
        )


class FileChanges:
    """Tells whether a file has changed. Looks twice a second at most: it is asked often."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._looked = time.monotonic()
        self._state = self._stat()

    def __call__(self, now: float | None = None) -> bool:
        now = time.monotonic() if now is None else now
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        state = self._stat()
        changed, self._state = state != self._state, state
        return changed

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
