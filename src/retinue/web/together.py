"""Equal work at the same time becomes one task, for as long as anybody waits for it.

Called by `fetch` and by the knowledge sources, each with one `Together` of its own. It keeps no result:
whoever comes after the end starts anew. Who gives up never takes the others along, nor those who come later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class _Shared:
    task: asyncio.Task[Any]
    waiters: int = 0


class Together:
    def __init__(self) -> None:
        self._running: dict[str, _Shared] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `start` gives, or what the task under way for this key gives."""
        shared = self._running.get(key)
        if shared is None:
            shared = self._running[key] = _Shared(task=asyncio.create_task(start()))
            self._tasks.add(shared.task)
            shared.task.add_done_callback(self._ended)
        shared.waiters += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.waiters -= 1
            if not shared.waiters:
                # Out of the table before it is cancelled: whoever comes now starts anew.
                if self._running.get(key) is shared:
                    del self._running[key]
                shared.task.cancel()

    async def close(self) -> None:
        """Cancel what is under way, and wait until it has ended, also what was cancelled before."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, since nobody may be left who would be told
