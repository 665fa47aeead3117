"""Observers: functions of a program that are told what happens, and can neither break, block nor slow a run.

    async def note(event: LiveEvent) -> None: ...

    Retinue(observers=[note])

Each has a queue of its own and is told one event after the other. One that is not async runs in a thread.
What it raises is logged; what it cannot keep up with is dropped, and the log says how much.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from retinue.engine.listeners import Listeners
from retinue.errors import told
from retinue.events import LiveEvent
from retinue.threads import contained

log = logging.getLogger("retinue")

Observer = Callable[[LiveEvent], Awaitable[None] | None]
MOST_WAITING = 10_000
"""Events that wait for an observer."""
GRACE = 5.0
"""Seconds that observers have at the end for what still waits."""


class _Told:
    """One observer with its queue."""

    def __init__(self, observe: Observer) -> None:
        self.observe = observe
        self.name = str(getattr(observe, "__name__", "") or type(observe).__name__)
        self.queue: asyncio.Queue[LiveEvent] = asyncio.Queue(MOST_WAITING)
        self.dropped = 0

    def hear(self, event: LiveEvent) -> None:
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            if not self.dropped:
                log.warning("the observer %s is too slow: events are dropped for it", self.name)
            self.dropped += 1

    async def work(self) -> None:
        while True:
            event = await self.queue.get()
            try:
                await contained(self.observe, event)
            except Exception as error:
                log.error("the observer %s failed on %s: %s", self.name, type(event).__name__, told(error))
            finally:
                self.queue.task_done()


class Observers:
    """All observers of an instance, from when it opens to when it closes."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        for each in self._observers:
            if not callable(each):
                raise TypeError(f"observers holds {type(each).__name__}: give functions of an event")
        self._told: list[_Told] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._deaf: list[Callable[[], None]] = []

    def open(self, listeners: Listeners) -> None:
        self._told = [_Told(each) for each in self._observers]
        self._deaf = [listeners.hear(each.hear) for each in self._told]
        self._tasks = [asyncio.create_task(each.work(), name=f"observer {each.name}") for each in self._told]

    async def close(self) -> None:
        """Tell them what still waits, for a moment, and let them go."""
        for stop in self._deaf:
            stop()
        waiting = asyncio.gather(*(each.queue.join() for each in self._told))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(waiting, GRACE)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)
        for each in self._told:
            if lost := each.dropped + each.queue.qsize():
                log.warning("the observer %s was not told of %d events", each.name, lost)
        self._told, self._tasks, self._deaf = [], [], []
