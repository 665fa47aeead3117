"""Who listens to what happens in this process: followers of one workflow, and those who hear everything.

Runs publish what is durable, and text as it arrives. Used by the app alone; whoever follows a run of another
process reads the log (`store.follow`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from retinue.events import Event, LiveEvent
from retinue.threads import by_signal
from retinue.types import Report

log = logging.getLogger("retinue.engine")

MOST_QUEUED = 20_000
"""Text as it arrives is dropped for a follower that is so far behind. Events never are."""


class Listeners:
    def __init__(self) -> None:
        self._followers: dict[str, set[asyncio.Queue[LiveEvent]]] = {}
        self._hearers: list[Callable[[LiveEvent], None]] = []

    def hear(self, hear: Callable[[LiveEvent], None]) -> Callable[[], None]:
        """Call `hear` with whatever happens. Returns how to stop that."""
        self._hearers.append(hear)

        def stop() -> None:
            if hear in self._hearers:
                self._hearers.remove(hear)

        return stop

    def listen(self, root_id: str) -> asyncio.Queue[LiveEvent]:
        """What happens in a workflow from now on, until `leave`."""
        queue: asyncio.Queue[LiveEvent] = asyncio.Queue()
        self._followers.setdefault(root_id, set()).add(queue)
        return queue

    def leave(self, root_id: str, queue: asyncio.Queue[LiveEvent]) -> None:
        listening = self._followers.get(root_id, set())
        listening.discard(queue)
        if not listening:
            self._followers.pop(root_id, None)

    @property
    def followed(self) -> set[str]:
        """The workflows that somebody listens to."""
        return set(self._followers)

    def publish(self, event: LiveEvent) -> None:
        for hear in tuple(self._hearers):
            try:
                hear(event)
            except BaseException as error:  # who only listens must not stop what is listened to
                if by_signal(error):
                    raise
                log.error("a listener failed on %s: %r", type(event).__name__, error)
        for queue in self._followers.get(event.root_id, ()):
            if queue.qsize() < MOST_QUEUED or isinstance(event, Event):
                queue.put_nowait(event)


async def next_of(queue: asyncio.Queue[LiveEvent], task: asyncio.Task[Report]) -> LiveEvent | None:
    """The next event, or None once the run has ended."""
    if queue.empty() and not task.done():
        getting = asyncio.ensure_future(queue.get())
        await asyncio.wait({getting, task}, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        getting.cancel()
    await asyncio.sleep(0)  # what the last commit published is queued by now
    return None if queue.empty() else queue.get_nowait()
