"""What the process of a command does to itself: it is its own, so it may.

A library must not: programs that start hundreds of children at once may call `make_room` themselves.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

OPEN_FILES = 16_384
SWITCH_SECONDS = 0.002
_YOUNG, _MIDDLE, _OLD = 50_000, 20, 10


def log_to_stderr(level: str, form: str) -> None:
    """What is logged, on stderr: names and texts from elsewhere are shown there, not obeyed."""
    import logging

    from retinue.view.words import clean

    class Clean(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return clean(super().format(record))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Clean(form))
    logging.basicConfig(level=level, handlers=[handler])


@contextmanager
def loading_code() -> Generator[None]:
    """Around what loads a person's own code. What it prints, then and later, goes to stderr: stdout holds
    what the command prints, for whoever reads it. On a terminal both are one."""
    from retinue.threads import as_others

    _keep_stdout()
    with as_others():
        yield


def _keep_stdout() -> None:
    try:
        mine = sys.stdout.fileno() == 1 and not sys.stdout.isatty()
    except (OSError, ValueError):  # a program has put something else there, or nothing
        return
    if not mine:
        return
    sys.stdout.flush()
    own = _Stdout(io.FileIO(os.dup(1), "w"), encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(2, 1)  # for the programs that a tool starts
    sys.stdout = own


class _Stdout(io.TextIOWrapper):
    """The stdout of a command. What a tool of one's own writes to it goes to stderr."""

    def __init__(self, file: io.FileIO, *, encoding: str, errors: str | None) -> None:
        super().__init__(io.BufferedWriter(file), encoding=encoding, errors=errors)

    def write(self, text: str, /) -> int:
        from retinue.threads import of_others

        return sys.stderr.write(text) if of_others() else super().write(text)

    @property
    def buffer(self) -> Any:
        from retinue.threads import of_others

        return sys.stderr.buffer if of_others() else super().buffer


def make_room() -> None:
    """For a process that runs agents: room for many of them at once. Call it once everything is loaded."""
    from retinue.sandbox.commands.hide import refuse_to_be_read

    _collect_less()
    _open_more_files()
    refuse_to_be_read()  # commands of agents run as the same user
    # The thread that writes the log waits so long for a busy event loop to let it in, at every statement.
    sys.setswitchinterval(SWITCH_SECONDS)


def _collect_less() -> None:
    """Look for garbage in cycles more seldom.

    A thousand runs are a few hundred thousand objects that live on; looking through them again and again
    takes a quarter of the time. What is loaded by now stays, so it is never looked through. Runs leave no
    cycles behind; every connection leaves a small one of asyncio's own.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


def _open_more_files() -> None:
    """A child that waits for its model holds a connection: a crowd needs more than the usual 1,024."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
