"""The person's keys, read without holding up the event loop.

Used while a run is shown and approvals are asked. Keys typed before a question was on the screen do not
count: nobody approves by accident. The terminal's own settings come back at the end, however it comes.
POSIX only: where there is no termios, approvals are answered elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from typing import Any, Literal

Mode = Literal["keys", "lines"]


class Keyboard:
    """Keys are silent and come one by one; `line` reads a whole line, with the terminal's own editing."""

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd, self._owned = fd, owned
        self._saved: list[Any] = termios.tcgetattr(fd)
        self._mode: Mode = "lines"

    @classmethod
    def open(cls) -> Keyboard | None:
        """The keyboard of whoever started this process, if somebody is there."""
        if not sys.stderr.isatty():
            return None
        fd, owned = 0, False
        try:
            if not os.isatty(0):  # the prompt came through a pipe; the person is still at the terminal
                fd, owned = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC), True
            if os.tcgetpgrp(fd) == os.getpgrp():  # in the background a read would stop the process
                return cls(fd, owned=owned)
        except OSError:
            pass
        if owned:
            os.close(fd)
        return None

    def use(self, mode: Mode) -> None:
        self._mode = mode
        settings = [*self._saved]
        if mode == "keys":
            settings[3] &= ~(termios.ICANON | termios.ECHO)
            settings[6] = [*settings[6]]
            settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSANOW, settings)  # waits for no output: it may be held

    def again(self) -> None:
        """The current mode once more: somebody else may have changed it."""
        self.use(self._mode)

    def forget(self) -> None:
        """Drop what was typed so far."""
        termios.tcflush(self._fd, termios.TCIFLUSH)

    def restore(self) -> None:
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)
        except termios.error:
            return  # the terminal is gone

    def close(self) -> None:
        self.restore()
        if self._owned:
            os.close(self._fd)

    async def key(self) -> str:
        """The next key. Empty at the end of input."""
        if self._mode != "keys":
            self.use("keys")
        data = await self._read(64)
        return data.decode("utf-8", "replace")[:1]

    async def line(self) -> str | None:
        """A line as it was typed. None at the end of input."""
        self.use("lines")
        try:
            data = await self._read(65536)
        finally:
            self.use("keys")
        return data.decode("utf-8", "replace").rstrip("\r\n") if data else None

    async def _read(self, most: int) -> bytes:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            try:
                data = os.read(self._fd, most)
            except OSError:
                data = b""
            if not ready.done():
                ready.set_result(data)

        loop.add_reader(self._fd, read)
        try:
            return await ready
        finally:
            loop.remove_reader(self._fd)
