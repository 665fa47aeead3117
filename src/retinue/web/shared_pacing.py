"""One pace for all processes that share a store: who may start a request to a server, and when.

The state of a server's lane is one entry of the store, changed in one transaction (`Store.recache`): when the
last requests were sent, and who is at it. A process that is killed leaves its place until its lease ends.
Times are those of the wall, since no other clock is shared; what lies in the future because a clock was set
back counts as sent now, so nobody waits longer than the limit itself says. Called by the knowledge client and
by `fetch`, inside the turn of their own `ServerQueue`. Where the store fails, that queue alone holds.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec import Struct

from retinue.errors import StoreError
from retinue.web.pacing import Busy, Clock, Limit, Sleep

Change = Callable[[bytes | None], bytes]
Recache = Callable[[str, str, Change, float], Awaitable[None]]
"""The store's way to change one entry in one transaction: scope, key, change, seconds to keep it."""

SCOPE = "pace"
LOOK_AGAIN = 0.1
"""Seconds between two looks at a lane whose places are all taken."""
GRACE = 5.0
"""Seconds that a lease lasts beyond the time the request may take."""


class LaneState(Struct, frozen=True, kw_only=True):
    """`sent`: when requests began, or ended where only one may be under way. `busy`: who is at it, until
    when."""

    sent: tuple[float, ...] = ()
    busy: dict[str, float] = {}


class Claim:
    """One wish to send, as a change of the lane. `wait` is 0 once it is granted."""

    def __init__(self, limit: Limit, *, name: str, now: Callable[[], float], lease: float) -> None:
        self._limit, self._name, self._now, self._lease = limit, name, now, lease
        self.wait = 0.0

    def __call__(self, before: bytes | None) -> bytes:
        now = self._now()
        state = _read(before, now)
        busy = {name: until for name, until in state.busy.items() if now < until <= now + self._lease}
        self.wait = self._pause(state.sent, now)
        if not self.wait and len(busy) >= self._limit.concurrency:
            self.wait = LOOK_AGAIN
        if self.wait:
            return msgspec.msgpack.encode(LaneState(sent=state.sent, busy=busy))
        most = max((count for count, _ in self._limit.windows), default=1)
        busy[self._name] = now + self._lease
        return msgspec.msgpack.encode(LaneState(sent=(*state.sent, now)[-most:], busy=busy))

    def _pause(self, sent: tuple[float, ...], now: float) -> float:
        until = sent[-1] + self._limit.interval if sent else 0.0
        for count, seconds in self._limit.windows:
            if len(sent) >= count:
                until = max(until, sent[-count] + seconds)
        return max(0.0, until - now)

    def done(self, before: bytes | None) -> bytes:
        """The place is free again. Where one at a time may ask, the next counts from this end."""
        now = self._now()
        state = _read(before, now)
        sent = (*state.sent[:-1], now) if self._limit.concurrency == 1 and state.sent else state.sent
        busy = {name: until for name, until in state.busy.items() if name != self._name}
        return msgspec.msgpack.encode(LaneState(sent=sent, busy=busy))


def _read(before: bytes | None, now: float) -> LaneState:
    try:
        state = msgspec.msgpack.decode(before, type=LaneState) if before else LaneState()
    except msgspec.DecodeError:
        state = LaneState(sent=(now,))  # of another version: wait once, then go on
    return msgspec.structs.replace(state, sent=tuple(min(at, now) for at in state.sent))


class SharedPace:
    """The lanes of a store. Without `recache` there is nobody to share with."""

    def __init__(self, recache: Recache | None, *, wall: Clock, clock: Clock, sleep: Sleep) -> None:
        self._recache, self._wall, self._clock, self._sleep = recache, wall, clock, sleep

    @asynccontextmanager
    async def turn(self, lane: str, limit: Limit, *, seconds: float, deadline: float) -> AsyncGenerator[None]:
        """Wait until no process keeps this one back; raises `Busy` where that comes too late.

        `seconds` is how long the request may take.
        """
        claim = Claim(limit, name=secrets.token_hex(8), now=self._wall, lease=seconds + GRACE)
        keep = max((span for _, span in limit.windows), default=0.0) + seconds + GRACE + limit.interval
        while await self._change(lane, claim, keep) and claim.wait:
            if self._clock() + claim.wait > deadline:
                raise Busy(claim.wait)
            await self._sleep(claim.wait)
        try:
            yield
        finally:
            await self._change(lane, claim.done, keep)

    async def _change(self, lane: str, change: Change, keep: float) -> bool:
        """Whether the store could be asked."""
        if self._recache is None:
            return False
        with suppress(StoreError):
            await self._recache(SCOPE, lane, change, keep)
            return True
        return False
