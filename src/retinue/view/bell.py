"""A sign to a person who has turned away: the terminal's bell, or a notification of the desktop.

Used by the chat, and wherever a question waits at a terminal. It rings once for each need, and only if no key
came for some seconds. It is written to the terminal alone, never to a file or a pipe.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Literal

from retinue.view.words import clean, one_line

Notify = Literal["bell", "desktop", "off"]
MOST_TEXT = 120


class Bell:
    """`write` sends to the terminal; `after` are the seconds without a key."""

    def __init__(self, kind: Notify, after: float, write: Callable[[str], None]) -> None:
        self._kind: Notify = kind
        self._after, self._write = after, write
        self._last = asyncio.get_running_loop().time()
        self._waits: asyncio.TimerHandle | None = None

    def key(self) -> None:
        """The person is there."""
        self._last = asyncio.get_running_loop().time()
        self.settled()

    def settled(self) -> None:
        """Nobody is needed any more."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def needed(self, why: str) -> None:
        """Something waits for the person: ring, as soon as there was no key for long enough."""
        if self._kind == "off" or self._waits is not None:
            return
        loop = asyncio.get_running_loop()
        left = self._after - (loop.time() - self._last)
        self._waits = loop.call_later(max(0.0, left), self._ring, why)

    def ended(self, why: str) -> None:
        """An answer is there: ring now, unless the person had the keyboard a moment ago."""
        if self._kind != "off" and asyncio.get_running_loop().time() - self._last >= self._after:
            self._ring(why)

    def _ring(self, why: str) -> None:
        self._waits = None
        self._write(sign(self._kind, why, os.environ.get("TMUX", "")))


def sign(kind: Notify, why: str, tmux: str = "") -> str:
    """What the terminal is sent. In tmux, a notification is handed through to the terminal outside."""
    if kind != "desktop":
        return "\a"
    said = f"\x1b]9;{one_line(clean(f'Retinue: {why}'), MOST_TEXT)}\x07"
    return (f"\x1bPtmux;{said.replace(chr(27), chr(27) * 2)}\x1b\\" if tmux else said) + "\a"
