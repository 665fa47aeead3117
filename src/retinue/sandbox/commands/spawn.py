"""Starts a program with three handles and no others. For a supervisor, and inside a seal."""

from __future__ import annotations

import os
import signal

NOT_IGNORED = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTTOU, signal.SIGTTIN),
    *(signal.SIGPIPE, signal.SIGXFSZ),
)
"""What a supervisor, the spawner or the interpreter ignores or catches, and a command does not."""


def spawn(argv: list[str], env: dict[str, str], standard: tuple[int, int, int]) -> int:
    """Start a program in the working folder: in a session of its own, with three handles and no others.

    Every other handle of this process closes by itself when another program takes over.
    """
    return os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, handle, place) for place, handle in enumerate(standard)],
        setsid=True,
        setsigmask=(),
        setsigdef=NOT_IGNORED,
    )
