"""The time of day that parked runs wait by: `parking` asks it when to go on, and waits with it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from retinue.events import now

LONGEST_NAP = 30.0
"""Seconds until the time of day is looked at again: machines sleep, and their clocks are set."""
SPREAD, LEAST_SPREAD, MOST_SPREAD = 0.05, 1.0, 60.0
"""The part of a wait by which it may become longer, so that not all who wait ask at the same moment."""


class ParkingClock:
    """The time of day that parked runs wait by. Tests put another one in its place."""

    def __init__(
        self,
        *,
        now: Callable[[], float] = now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self.now, self._sleep, self._spread = now, sleep, spread

    def until(self, seconds: float) -> float:
        """When to ask again that is to be asked after so many seconds."""
        more = min(MOST_SPREAD, max(LEAST_SPREAD, SPREAD * seconds))
        return self.now() + seconds + more * self._spread()

    async def wait(self, until: float) -> None:
        while (rest := until - self.now()) > 0:
            await self._sleep(min(rest, LONGEST_NAP))


class PlayedParkingClock(ParkingClock):
    """In a replay: a limit that was waited for then is over now."""

    async def wait(self, until: float) -> None:
        return
