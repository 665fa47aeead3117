"""When the next request to a server may start, for everyone who shares this process.

A `ServerQueue` stands in front of one server: first come, first served, strictly spaced, never more at a
time than allowed, and held back when the server says so. The client puts every request through one.
It never talks to the network and never decides what to do about a refusal.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """What a server allows. `windows` are quotas: at most a count of requests in so many seconds."""

    interval: float = 0.0
    concurrency: int = 1
    windows: tuple[tuple[int, float], ...] = ()
    after_error: float = 0.0
    """Extra pause after a query the server rejected, where errors have a quota of their own."""


class Busy(Exception):
    """The turn would come after the caller's deadline. `wait` is the least number of seconds until then."""

    def __init__(self, wait: float) -> None:
        super().__init__(wait)
        self.wait = wait


class ServerQueue:
    """The queue in front of one server."""

    def __init__(self, limit: Limit, *, clock: Clock, sleep: Sleep) -> None:
        self.limit = limit
        self._clock = clock
        self._sleep = sleep
        self._slots = asyncio.Semaphore(limit.concurrency)
        self._gate = asyncio.Lock()
        self._waiting = 0
        self._under_way = 0
        self._next = 0.0
        self._held: dict[str, float] = {}
        self._sent: deque[float] = deque(maxlen=max((count for count, _ in limit.windows), default=1))

    @property
    def idle(self) -> bool:
        """Whether nobody waits, nobody is at it and the next may start at once."""
        return not self._waiting and not self.wait() and not self._under_way

    def hold(self, seconds: float, method: str = "") -> None:
        """Let nothing start for so long: of one method of the server, or of all."""
        self._held[method] = max(self._held.get(method, 0.0), self._clock() + seconds)

    def wait(self, method: str = "") -> float:
        """The least time until a request that comes now may start, behind those that wait already."""
        queue = self._waiting * self.limit.interval
        return max(self._hold_left(method), self._pause() + queue)

    @asynccontextmanager
    async def turn(self, method: str, deadline: float) -> AsyncGenerator[None]:
        """Wait for this request's turn; raises `Busy` as soon as it is clear that it comes too late."""
        if self._clock() + (wait := self.wait(method)) > deadline:
            raise Busy(wait)
        self._waiting += 1
        try:
            await self._enter(method, deadline)
        finally:
            self._waiting -= 1
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if self.limit.concurrency == 1:
                # Counted from the end: whatever the network's delays, the server sees no shorter gap.
                self._next = max(self._next, self._clock() + self.limit.interval)
            self._slots.release()

    async def _enter(self, method: str, deadline: float) -> None:
        """Return with a slot taken, and the start of this request counted."""
        while True:
            await self._until(self._hold_left(method), deadline)
            await self._slots.acquire()
            try:
                async with self._gate:
                    while (pause := self._pause()) > 0:
                        await self._until(pause, deadline)
                    if self._hold_left(method) <= 0:
                        now = self._clock()
                        self._next = now + self.limit.interval
                        self._sent.append(now)
                        return
            except BaseException:
                self._slots.release()
                raise
            self._slots.release()  # held back meanwhile: queue again, so that other methods may go

    async def _until(self, wait: float, deadline: float) -> None:
        if wait <= 0:
            return
        if self._clock() + wait > deadline:
            raise Busy(wait)
        await self._sleep(wait)

    def _hold_left(self, method: str) -> float:
        until = max(self._held.get("", 0.0), self._held.get(method, 0.0))
        return max(0.0, until - self._clock())

    def _pause(self) -> float:
        """How long spacing and quotas keep the next request back."""
        now = self._clock()
        until = self._next
        for count, seconds in self.limit.windows:
            if len(self._sent) >= count:
                until = max(until, self._sent[-count] + seconds)
        return max(0.0, until - now)
