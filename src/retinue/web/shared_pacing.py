"""One pace for all processes that share a store: who may start a request to a server, and when.

The state of a server's lane is one entry of the store, changed in one transaction (`Store.recache`): when the
last requests were sent, and who is at it. A process that is killed leaves its place until its lease ends.
Times are those of the wall, since no other clock is shared; what lies in the future because a clock was set
back counts as sent now, so nobody waits longer than the limit itself says. Called by the knowledge client and
by `fetch`, inside the turn of their own `ServerQueue`. Where the store fails, that queue alone holds.
"""

from __future__ import annotations

import asyncio
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
KEPT = 3600.0
"""Seconds that an entry is kept at least: who may take a short time must not end the lease of another."""


class PacedPlace(Struct, frozen=True, array_like=True):
    """Taken until then at most, for so many seconds: what ends later than that was taken in the future."""

    until: float
    lease: float

    def holds(self, now: float) -> bool:
        return now < self.until <= now + self.lease


class LaneState(Struct, frozen=True, kw_only=True):
    """`sent`: when requests began, or ended where only one may be under way. `busy`: who is at it."""

    sent: tuple[float, ...] = ()
    busy: dict[str, PacedPlace] = {}


class PaceClaim:
    """One wish to send, as a change of the lane. `wait` is 0 once it is granted."""

    def __init__(self, limit: Limit, *, name: str, now: Callable[[], float], lease: float) -> None:
        self._limit, self._name, self._now, self._lease = limit, name, now, lease
        self.wait = 0.0

    def __call__(self, before: bytes | None) -> bytes:
        now = self._now()
        state = _read(before, now)
        busy = {name: place for name, place in state.busy.items() if place.holds(now)}
        if self._name in busy:  # a store may apply a change twice: it must not wait for itself
            self.wait = 0.0
            return msgspec.msgpack.encode(LaneState(sent=state.sent, busy=busy))
        self.wait = self._pause(state.sent, now)
        if not self.wait and len(busy) >= self._limit.concurrency:
            self.wait = LOOK_AGAIN
        if self.wait:
            return msgspec.msgpack.encode(LaneState(sent=state.sent, busy=busy))
        most = max((count for count, _ in self._limit.windows), default=1)
        busy[self._name] = PacedPlace(now + self._lease, self._lease)
        return msgspec.msgpack.encode(LaneState(sent=(*state.sent, now)[-most:], busy=busy))

    def _pause(self, sent: tuple[float, ...], now: float) -> float:
        until = sent[-1] + self._limit.interval if sent else 0.0
        for count, seconds in self._limit.windows:
            if len(sent) >= count:
                until = max(until, sent[-count] + seconds)
        return max(0.0, until - now)

    def done(self, before: bytes | None) -> bytes:
        """The place is free again, if it was taken. Where one at a time may ask, the next counts from this
        end."""
        now = self._now()
        state = _read(before, now)
        if self._name not in state.busy:
            return msgspec.msgpack.encode(state)
        sent = (*state.sent[:-1], now) if self._limit.concurrency == 1 else state.sent
        busy = {name: place for name, place in state.busy.items() if name != self._name}
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
        self._leaving: set[asyncio.Task[bool]] = set()

    @asynccontextmanager
    async def turn(self, lane: str, limit: Limit, *, seconds: float, deadline: float) -> AsyncGenerator[None]:
        """Wait until no process keeps this one back; raises `Busy` where that comes too late.

        `seconds` is how long the request may take.
        """
        claim = PaceClaim(limit, name=secrets.token_hex(8), now=self._wall, lease=seconds + GRACE)
        windows = max((span for _, span in limit.windows), default=0.0)
        keep = windows + limit.interval + max(seconds + GRACE, KEPT)
        try:
            while await self._change(lane, claim, keep) and claim.wait:
                if self._clock() + claim.wait > deadline:
                    raise Busy(claim.wait)
                await self._sleep(claim.wait)
            yield
        finally:
            # Also where it was cancelled before it knew: the store may have granted it all the same.
            await self._leave(lane, claim, keep)

    async def _leave(self, lane: str, claim: PaceClaim, keep: float) -> None:
        """Give the place back, even if whoever waits for that is cancelled."""
        if self._recache is None:
            return
        leaving = asyncio.create_task(self._change(lane, claim.done, keep))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        await asyncio.shield(leaving)

    async def _change(self, lane: str, change: Change, keep: float) -> bool:
        """Whether the store could be asked."""
        if self._recache is None:
            return False
        with suppress(StoreError):
            await self._recache(SCOPE, lane, change, keep)
            return True
        return False
