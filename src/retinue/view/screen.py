"""A few lines at the bottom of the terminal that are drawn again and again, in place.

Only the live view uses it. Frames are written by a thread: a terminal that does not read (scroll lock, a
stopped multiplexer, a slow line) must not hold up the agents. A frame that comes while the last one is
still being written is dropped. It never prints what should stay: clear it, print, draw again.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

from retinue.view.paint import Line, columns, paint, width_of

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
# Terminals that know these show a frame at once; others ignore them.
_BEGIN_FRAME, _END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


class Screen:
    def __init__(self, stream: TextIO, *, colour: bool) -> None:
        self._stream, self._fd, self._colour = stream, stream.fileno(), colour
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="retinue screen")
        self._writing: asyncio.Future[None] | None = None
        self._widths: list[int] = []
        self._drawn = ""

    @property
    def busy(self) -> bool:
        """Whether the last frame is still on its way."""
        return self._writing is not None and not self._writing.done()

    def draw(self, lines: list[Line]) -> None:
        """Show these lines in place of the last ones."""
        body = "".join(f"{_CLEAR_LINE}{paint(line, colour=self._colour)}\n" for line in lines)
        if self.busy or body == self._drawn:
            return
        frame = f"{_BEGIN_FRAME}{_HIDE_CURSOR}{_NO_WRAP}{self._up()}{body}{_CLEAR_BELOW}{_WRAP}{_END_FRAME}"
        self._drawn = body
        self._widths = [width_of(line) for line in lines]
        self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, frame)

    async def clear(self) -> None:
        """Take the lines away, and leave the cursor where they began."""
        if self._writing is not None:
            await self._writing
            self._writing = None
        if self._widths or self._drawn:
            frame = self._up() + _CLEAR_BELOW + _SHOW_CURSOR
            self._widths, self._drawn = [], ""
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, frame)

    def restore(self) -> None:
        """The cursor and wrapping as they were, whatever state the screen is in. For a sudden end."""
        self._write(_WRAP + _SHOW_CURSOR)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _up(self) -> str:
        """Back to the first line that was drawn. A narrower window has folded the lines meanwhile."""
        width = columns(self._stream)
        height = sum(max(1, -(-drawn // width)) for drawn in self._widths)
        return f"\r\x1b[{height}A" if height else "\r"

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            return  # nobody looks any more: the run itself must not suffer
