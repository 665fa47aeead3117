"""Not all at once: how fast one host is asked for pages, by every agent and every process of a database.

Called by `fetch` around each request. Searches have limits of their own, and robots.txt is asked for once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from retinue.errors import ToolError
from retinue.web.guard import shown
from retinue.web.pacing import Busy, Clock, Limit, ServerQueue
from retinue.web.shared_pacing import Recache, SharedPace
from retinue.web.urls import Target

AT_ONCE = 2
MOST_HOSTS = 500
"""Hosts that are remembered; those that nobody waits for go first."""


class HostPace:
    """`interval` is in seconds between two requests to one host; with 0 there is no pace."""

    def __init__(self, interval: float, recache: Recache | None, *, wall: Clock, clock: Clock) -> None:
        self._limit = Limit(interval=interval, concurrency=AT_ONCE)
        self._clock = clock
        self._shared = SharedPace(recache, wall=wall, clock=clock, sleep=asyncio.sleep)
        self._queues: dict[str, ServerQueue] = {}

    @asynccontextmanager
    async def turn(self, target: Target, seconds: float) -> AsyncGenerator[None]:
        """Wait for the turn of this request. Raises `ToolError` where it would come too late."""
        if not self._limit.interval:
            yield
            return
        host = f"{target.host}:{target.port}"
        deadline = self._clock() + seconds
        try:
            async with (
                self._queue(host).turn("", deadline),
                self._shared.turn(f"host {host}", self._limit, seconds=seconds, deadline=deadline),
            ):
                yield
        except Busy as busy:
            raise ToolError(
                f"{shown(target.url)} was not fetched: too many requests to {shown(host)} wait already, "
                f"and the next is possible in {busy.wait:.1f} seconds. Fetch fewer pages of it at once."
            ) from None

    def _queue(self, host: str) -> ServerQueue:
        if host not in self._queues:
            if len(self._queues) >= MOST_HOSTS:
                self._queues = {name: queue for name, queue in self._queues.items() if not queue.idle}
            self._queues[host] = ServerQueue(self._limit, clock=self._clock, sleep=asyncio.sleep)
        return self._queues[host]
