"""The clocks of runs: how long each may take, and what of it is kept to sum up.

A child has what its parent has left, less what that keeps: whatever a child does, there is time to say what
came of it. Nothing here knows a run or a database: after a restart a clock is made with the time that was
used before.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable

from retinue.errors import Refused

PART, LEAST, LARGEST_PART, MOST = 0.1, 5.0, 0.25, 120.0
"""What a run keeps: a tenth of its time, but five seconds, but no more than a quarter, and two minutes."""

HEARD_APART = 0.05
"""Words of a model that come faster are heard as one."""


def say(seconds: float) -> str:
    """`540`, `37.4`, `0.25`"""
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.3g}"


class Clock:
    """A run's time limit, which stands still while a person is asked.

    With `patience` the limit is of silence: each word of the model gives the run its seconds again, but
    no more than the seconds of its patience in all.

    `pause` and `resume` nest, and reach every ancestor: a parent's clock does not run while a child of
    its waits for a person. Those of its other children do, and their parent has as much left for them as
    before: whenever a clock changes its pace, those below it are set anew.

    `leaves` is how much of what its parent keeps this one leaves to it: all of it, if nothing is said.
    """

    def __init__(
        self,
        seconds: float | None,
        *,
        parent: Clock | None = None,
        used: float = 0.0,
        leaves: float = 1.0,
        patience: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.parent = parent
        self._now = now
        self._leaves = leaves
        self._below: set[Clock] = set()
        """Those that run by what this one has left."""
        self._used = used
        self._before = 0.0
        self._since: float | None = None
        self._paused = 0
        self._timeout: asyncio.Timeout | None = None
        self._running = False
        self._whole: float | None = None
        self._due = False
        self._why = ""
        self._patience = patience
        self._heard = 0.0 if patience is None else used  # when it last was is not kept: after a restart, now

    @property
    def elapsed(self) -> float:
        """Seconds that counted."""
        running = 0.0 if self._since is None or self._paused else self._now() - self._since
        return self._used + running

    def renew(self) -> None:
        """A person has spoken: the time is counted from here on."""
        self._before, self._heard = self.elapsed, 0.0
        if self._timeout is not None:
            self._measure()
            self._schedule()

    @property
    def left(self) -> float | None:
        return _least(self._own, self._above)

    @property
    def _above(self) -> float | None:
        """What its parent can spare it."""
        return self.parent.beyond(self._leaves) if self.parent else None

    def beyond(self, part: float) -> float | None:
        """What is left beyond this part of what is kept."""
        left = self.left
        return None if left is None else max(0.0, left - part * self.kept)

    @property
    def _own(self) -> float | None:
        """What its own limits leave it."""
        if self.seconds is None:
            return None
        left = self.seconds - (self.counted - self._heard)
        if self._patience is not None:
            left = min(left, self._patience - self.counted)
        return max(0.0, left)

    @property
    def whole(self) -> float | None:
        """How long it may take in all, by its own limit and by what its parent has left for it: more than
        when it began, if that has stood still since."""
        left = self.left
        if self._whole is None or left is None:
            return left
        return max(self._whole, self.counted + left)

    @property
    def kept(self) -> float:
        """Seconds at the end that nothing but the report is for, by how long it had when it began."""
        whole = (self.left if self._whole is None else self._whole) or 0.0
        if self.seconds is not None:  # a patient one that goes on may have been heard for much longer
            whole = min(whole, self.seconds)
        return min(max(PART * whole, LEAST), LARGEST_PART * whole, MOST)

    @property
    def spare(self) -> float | None:
        """What those below may use, and every step but the last."""
        return self.beyond(1.0)

    def short(self) -> str | None:
        """Why the next step has to be the last, if nothing is left but what is kept."""
        if self.whole is None or self.spare != 0:
            return None
        return f"time nearly up: {say(self.counted)} of {say(self.whole)} s used"

    @property
    def counted(self) -> float:
        """Seconds that count against the limit: since it began, or a person has spoken."""
        return self.elapsed - self._before

    def admit_child(self) -> None:
        """Refuse a child that there is no time for."""
        if self.short() is not None:
            raise Refused(
                f"not started: {say(self.left or 0)} s left of {say(self.whole or 0)} s, and "
                f"{say(self.kept)} s are kept to sum up. Finish with what you have.",
                not_run="time",
            )

    def of_tool(self, seconds: float) -> Clock:
        """The clock of a tool that may take so long. It leaves time for the report, and half of what is kept
        for that where there is no more. What it has of the run's time stands still with that; its own limit
        does not, since the tool works on."""
        left, kept = self.left, self.kept
        leaves = 1.0 if left is None or kept == 0 else min(1.0, max(0.0, left / kept - 0.5))
        return Clock(seconds, parent=self, leaves=leaves, now=self._now)

    @contextlib.asynccontextmanager
    async def start(self) -> AsyncGenerator[asyncio.Timeout, None]:
        """The timeout to run under: `async with clock.start(): …`. The time counts on until `stop`."""
        self._since = self._now()
        self._measure()
        self._timeout = asyncio.timeout(self._rest())
        try:
            async with self._timeout:
                self._running = True
                if self.parent is not None:
                    self.parent._below.add(self)
                yield self._timeout
        finally:
            self._running = False
            if self.parent is not None:
                self.parent._below.discard(self)

    def _measure(self) -> None:
        left = self.left
        self._whole = None if left is None else self.counted + left

    def _rest(self) -> float | None:
        """Seconds until it expires, as things stand. None if they have to change first."""
        if self._due:
            return 0.0
        return None if self._paused else 0.0 if self.left == 0 else self._until(0.0)

    def _until(self, kept: float) -> float | None:
        """Seconds until no more than so much is left. What stands still, here or above, is not used up."""
        if self._paused:
            return None
        above = self.parent._until(self._leaves * self.parent.kept) if self.parent else None
        rest = _least(self._own, above)
        return None if rest is None else max(0.0, rest - kept)

    def _schedule(self) -> None:
        """Set the timeouts here and below by what is left now."""
        if self._running and self._timeout is not None and not self._timeout.expired():
            rest, loop = self._rest(), asyncio.get_running_loop()
            self._timeout.reschedule(None if rest is None else loop.time() + rest)
        for clock in self._below:
            clock._schedule()

    def stop(self) -> None:
        self._used, self._since, self._timeout = self.elapsed, None, None

    @property
    def expired(self) -> bool:
        return self._timeout is not None and self._timeout.expired()

    @property
    def why(self) -> str:
        """Why it has expired."""
        if self._why:
            return self._why
        own, above = self._own, self._above
        if self.seconds is None or own is None or (above is not None and round(own - above, 6) > 0):
            return f"timed out after {say(self.elapsed)} s: its parent keeps the rest to sum up"
        if self._patience is not None and self._patience <= self._heard + self.seconds:
            return f"timed out after {self._patience:g} s"
        if self._heard:
            return f"timed out after {say(self.counted)} s: its model said nothing for {self.seconds:g} s"
        return f"timed out after {self.seconds:g} s"

    def expire(self, why: str = "") -> None:
        """Time out now, or as soon as it starts. Nothing puts that off."""
        self._due, self._why = True, why
        self._schedule()

    def hear(self) -> None:
        """The model is asked, or says something: nothing for a clock without patience."""
        if self._patience is not None and self.counted - self._heard >= HEARD_APART:
            self._heard = self.counted
            self._schedule()

    def pause(self) -> None:
        if self._paused == 0:
            self._used = self.elapsed
        self._paused += 1
        if self._paused == 1:
            self._schedule()
        if self.parent is not None:
            self.parent.pause()

    def resume(self) -> None:
        self._paused -= 1
        if self._paused == 0:
            if self._since is not None:
                self._since = self._now()
            self._schedule()
        if self.parent is not None:
            self.parent.resume()


def _least(one: float | None, other: float | None) -> float | None:
    """The smaller of two limits, of which either may not be there."""
    return other if one is None else one if other is None else min(one, other)
