"""A command of the person's, in their own shell, with its output both on the terminal and kept.

Called by `Talk`. Nothing of it is asked about, and no agent is told before the person says something.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
from pathlib import Path

from retinue.view import words

LAST_WORDS = 0.3
"""Seconds in which a command that has ended may still be heard: what it left behind may hold its output."""


async def run_shell(command: str, folder: Path, most: int) -> str:
    """What it printed until it ended, at most so many characters. Ctrl-C is for it. What it leaves in the
    background goes on for as long as the chat does; what that prints is read, and shown nowhere."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    reading, writing = os.pipe()  # of our own: asyncio would wait for whoever else holds it
    heard = _Heard(reading, 4 * most)
    try:
        process = await asyncio.create_subprocess_exec(
            shell, "-c", command, cwd=folder, stdout=writing, stderr=writing
        )
    except BaseException:
        heard.close()
        raise
    finally:
        os.close(writing)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        await process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(heard.over.wait(), LAST_WORDS)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        heard.shown = False
    printed = heard.printed.decode("utf-8", "replace").rstrip("\n")
    return printed if len(printed) <= most else f"{printed[:most]}\n[cut here]"


class _Heard:
    """Reads a pipe until nobody writes to it any more. Whoever does never finds it closed or full."""

    def __init__(self, reading: int, most: int) -> None:
        self.printed, self.over, self.shown = bytearray(), asyncio.Event(), True
        self._fd, self._most = reading, most
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(reading, self._read)

    def _read(self) -> None:
        chunk = os.read(self._fd, 65536)
        if not chunk:
            self.close()
        elif self.shown:
            os.write(1, words.clean(self._decoder.decode(chunk)).encode())  # files may be a stranger's
            self.printed += chunk[: self._most - len(self.printed)]

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self.over.set()
