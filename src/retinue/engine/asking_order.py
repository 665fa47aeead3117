"""In which order the questions of a run are put: that of its calls, however long it takes to know who asks.

Called where a call begins and where its question is written. Asks nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from retinue.run import Run


class AskingOrder:
    """The calls of each run that may still put a question, in the order in which they began."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, asyncio.Event]] = {}
        """By run and call: set once the call has asked, or will not."""

    @contextmanager
    def in_line(self, run: Run, call_id: str) -> Generator[None]:
        """A call that may ask in here, and after that no more, whatever becomes of it."""
        self._lines.setdefault(run.id, {})[call_id] = asyncio.Event()
        try:
            yield
        finally:
            self.leave(run, call_id)

    def leave(self, run: Run, call_id: str) -> None:
        """Nobody waits for the question of this call any longer."""
        line = self._lines.get(run.id, {})
        place = line.pop(call_id, None)
        if place is not None:
            place.set()
        if not line:
            self._lines.pop(run.id, None)

    async def turn(self, run: Run, call_id: str) -> None:
        """Wait for the calls before this one. One that has left the line waits for nobody."""
        line = self._lines.get(run.id, {})
        if call_id not in line:
            return
        for other, place in list(line.items()):
            if other == call_id:
                return
            await place.wait()
