"""A terminal for tests: runs a command on a real pseudo-terminal and keeps what its screen shows.

`Terminal.text` is the screen as a person sees it, scrollback included; `raw` is every byte that came.
Only the control codes that the command line uses are understood; an unknown one fails the test.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b(.)|([\r\n\b])|([^\x1b\r\n\b]+)", re.S)


class Screen:
    """Lines and a cursor. Scrolling keeps what leaves at the top."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self.cursor_shown = True
        self.wrapping = True
        self._rest = ""

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")

    def feed(self, text: str) -> None:
        text = self._rest + text
        whole = re.sub(r"\x1b(\[[?\d;]*)?$", "", text)  # the rest of a control code is still on its way
        self._rest = text[len(whole) :]
        for match in TOKEN.finditer(whole):
            if match[2]:
                self._control(match[1], match[2])
            elif match[4]:
                self._move(match[4])
            elif match[5]:
                for character in match[5]:
                    self._put(character)

    def _move(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        else:
            self.row += 1
            while self.row >= len(self.lines):
                self.lines.append([])

    def _put(self, character: str) -> None:
        if ord(character) < 32:
            return
        if self.column >= self.columns:
            if self.wrapping:
                self._move("\r")
                self._move("\n")
            else:
                self.column = self.columns - 1
        line = self.lines[self.row]
        line.extend(" " * (self.column + 1 - len(line)))
        line[self.column] = character
        self.column += 1

    def _control(self, parameters: str, kind: str) -> None:
        number = int(parameters) if parameters.isdigit() else 1
        if kind == "A":
            top = max(0, len(self.lines) - self.rows)
            self.row = max(top, self.row - number)
        elif kind == "K":
            del self.lines[self.row][self.column :]
        elif kind == "J":
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]
        elif parameters in ("?25", "?7"):
            setattr(self, "cursor_shown" if parameters == "?25" else "wrapping", kind == "h")
        elif kind != "m" and parameters not in ("?2026", "?2004"):
            raise AssertionError(f"unknown control code ESC[{parameters}{kind}")


class Terminal:
    """A command on a pseudo-terminal of a given size."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.screen = Screen(columns, rows)
        self.raw = ""
        self.process: asyncio.subprocess.Process | None = None
        self._changed = asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._master = -1
        self._open = False

    async def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Any) -> None:
        self._master, slave = pty.openpty()
        size = struct.pack("HHHH", self.screen.rows, self.screen.columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.slave = slave  # kept open: its settings are looked at after the end
        self._open = True
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
            self._open = False
        text = self._decoder.decode(data)
        self.raw += text
        self.screen.feed(text)
        self._changed.set()

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    @property
    def text(self) -> str:
        return self.screen.text

    async def until(self, wanted: str | Callable[[], bool], seconds: float = 60) -> None:
        """Wait until the screen shows something, or fail with what it shows."""
        holds = (lambda: wanted in self.text) if isinstance(wanted, str) else wanted
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never on the screen: {wanted!r}. The screen:\n{self.text}") from None

    async def press(self, key: str, wanted: str, seconds: float = 60) -> None:
        """Press a key until the screen answers: a key too soon after a question does not count."""
        try:
            async with asyncio.timeout(seconds):
                while wanted not in self.text:
                    self.send(key)
                    self._changed.clear()
                    try:
                        async with asyncio.timeout(1):
                            while wanted not in self.text:
                                self._changed.clear()
                                await self._changed.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            raise AssertionError(f"{key!r} never led to {wanted!r}. The screen:\n{self.text}") from None

    async def wait(self, seconds: float = 60) -> int:
        assert self.process is not None
        try:
            async with asyncio.timeout(seconds):
                code = await self.process.wait()
        except TimeoutError:
            self.send("\x11")  # in case the terminal is held
            self.process.send_signal(signal.SIGABRT)  # the fault handler says where it hangs
            await asyncio.wait([asyncio.ensure_future(self.process.wait())], timeout=20)
            raise AssertionError(f"still running after {seconds} s. The screen:\n{self.text}") from None
        while self._open:  # what was written last is still on its way
            self._changed.clear()
            try:
                async with asyncio.timeout(0.2):
                    await self._changed.wait()
            except TimeoutError:
                break
        return code

    async def close(self) -> None:
        if self._master < 0:
            return
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        os.close(self.slave)
