"""The clocks of runs: how long each may take, and what of it is kept to sum up.

A child has what its parent has left, less what that keeps: whatever a child does, there is time to say what
came of it. Nothing here knows a run or a database: after a restart a clock is made with the time that was
used before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from retinue.errors import Refused

PART, LEAST, LARGEST_PART, MOST = 0.1, 5.0, 0.25, 120.0
"""What a run keeps: a tenth of its time, but five seconds, but no more than a quarter, and two minutes."""


def say(seconds: float) -> str:
    """`540`, `37.4`, `0.25`"""
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.3g}"


class Clock:
    """A run's time limit, which stands still while a person is asked.

    `pause` and `resume` nest, and reach every ancestor: a parent's clock does not run while a child of
    its waits for a person.
    """

    def __init__(
        self,
        seconds: float | None,
        *,
        parent: Clock | None = None,
        used: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.parent = parent
        self._now = now
        self._used = used
        self._before = 0.0
        self._since: float | None = None
        self._paused = 0
        self._timeout: asyncio.Timeout | None = None
        self._whole: float | None = None
        self._why = ""

    @property
    def elapsed(self) -> float:
        """Seconds that counted."""
        running = 0.0 if self._since is None or self._paused else self._now() - self._since
        return self._used + running

    def renew(self) -> None:
        """A person has spoken: the time is counted from here on."""
        self._before = self.elapsed
        if self._timeout is not None and not self._paused:
            if self._since is not None:
                self._used, self._since = self.elapsed, self._now()
            self._schedule()

    @property
    def left(self) -> float | None:
        own = None if self.seconds is None else max(0.0, self.seconds - (self.elapsed - self._before))
        above = self.parent.spare if self.parent else None
        return own if above is None else above if own is None else min(own, above)

    @property
    def whole(self) -> float | None:
        """How long it may take in all, by its own limit and by what its parent had left when it began."""
        return self.left if self._whole is None else self._whole

    @property
    def kept(self) -> float:
        """Seconds at the end that nothing but the report is for."""
        whole = self.whole or 0.0
        return min(max(PART * whole, LEAST), LARGEST_PART * whole, MOST)

    @property
    def spare(self) -> float | None:
        """What those below may use, and every step but the last."""
        left = self.left
        return None if left is None else max(0.0, left - self.kept)

    def short(self) -> str | None:
        """Why the next step has to be the last, if nothing is left but what is kept."""
        if self.whole is None or self.spare != 0:
            return None
        return f"time nearly up: {say(self._counted)} of {say(self.whole)} s used"

    @property
    def _counted(self) -> float:
        return self.elapsed - self._before

    def admit_child(self) -> None:
        """Refuse a child that there is no time for."""
        if self.short() is not None:
            raise Refused(
                f"not started: {say(self.left or 0)} s left of {say(self.whole or 0)} s, and "
                f"{say(self.kept)} s are kept to sum up. Finish with what you have.",
                not_run="time",
            )

    def within(self, seconds: float) -> float:
        """How long a tool may take that may take so long: it leaves time for the report."""
        spare = self.spare
        return seconds if spare is None else min(seconds, max(spare, self.kept / 2))

    def start(self) -> asyncio.Timeout:
        """The timeout to run under: `async with clock.start(): …`."""
        self._since = self._now()
        self._timeout = asyncio.timeout(self._rest())
        return self._timeout

    def _rest(self) -> float | None:
        """Seconds until the time runs out, here or as far as the parent can spare it."""
        left = self.left
        self._whole = None if left is None else self._counted + left
        return None if self._paused else left

    def _schedule(self) -> None:
        rest = self._rest()
        if self._timeout is not None and not self._timeout.expired():
            loop = asyncio.get_running_loop()
            self._timeout.reschedule(None if rest is None else loop.time() + rest)

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
        if self.seconds is not None and (self._whole is None or self._whole >= self.seconds):
            return f"timed out after {self.seconds:g} s"
        return f"timed out after {say(self.elapsed)} s: its parent keeps the rest to sum up"

    def expire(self, why: str = "") -> None:
        """Time out now."""
        self._why = why
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def pause(self) -> None:
        if self._paused == 0:
            self._used = self.elapsed
            if self._timeout is not None and not self._timeout.expired():
                self._timeout.reschedule(None)
        self._paused += 1
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
