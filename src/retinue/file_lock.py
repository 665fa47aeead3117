"""A lock around a file that is read, changed and replaced as a whole, by whichever process.

Used for the user's settings and for the server's own files. The lock is a file beside it, which stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from retinue.errors import ConfigError


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Nobody else changes this file meanwhile."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
