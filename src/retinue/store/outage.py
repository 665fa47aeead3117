"""A database that fails for a while: what waits for it, how long, how much, and who is told.

Both writers keep to this. What a run has written while its database is locked, full or away stays in line,
in order, and is written when the database is back: a reply that was paid for is not paid for again. What
only begins something (a new run, a signal, a value to keep) is refused soon instead, since whoever asked
for it is still there and can ask again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from retinue.errors import StoreError
from retinue.events import Event, MessageReceived, RunResumed, RunStarted

log = logging.getLogger("retinue.store")
HOLD_SECONDS = 60.0
"""How long what runs have written waits, unless the store is told otherwise."""
MOST_HELD = 256 * 1024 * 1024
"""Bytes that may wait. A run that would write more is stopped, and goes on from its log later."""
CLOSING_SECONDS = 5.0
"""What waits when the store is closed has so long."""
_NOTICE_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_BEGINNINGS = (RunStarted, RunResumed, MessageReceived)


class Outage(Struct, frozen=True, kw_only=True):
    """What is wrong with a database. `passing`: it is tried again; else nothing more is written to it."""

    reason: str
    since: float
    passing: bool = True


class Outages:
    """What is wrong with a database right now, and who wants to know. Lives in the event loop."""

    def __init__(self) -> None:
        self.now: Outage | None = None
        self._listeners: list[Callable[[Outage | None], None]] = []

    def hear(self, hear: Callable[[Outage | None], None]) -> Callable[[], None]:
        self._listeners.append(hear)

        def end() -> None:
            if hear in self._listeners:
                self._listeners.remove(hear)

        return end

    def tell(self, now: Outage | None) -> None:
        before, self.now = self.now, now
        if now is not None:
            then = "What runs have written waits for it" if now.passing else "Nothing more is written to it"
            log.warning("%s. %s", now.reason, then)
        elif before is not None:
            log.warning("the database is back after %.0f s", time.time() - before.since)
        for hear in tuple(self._listeners):
            hear(now)


class Waiting:
    """How long a writer's items wait, and when to try again. Used by that writer alone, in its thread.

    `patience` is for whatever begins something, `hold` for what runs have written; None: for ever.
    """

    def __init__(self, *, patience: float, hold: float | None, tell: Callable[[Outage | None], None]) -> None:
        self.patience, self.hold = patience, hold
        self.again = 0.0
        """When to try again, by the monotonic clock."""
        self._tell = tell
        self._outage: Outage | None = None
        self.why = StoreError("", passing=True)
        """What the last try failed from."""
        self._failing_since = 0.0
        self._pause = _FIRST_PAUSE
        self._closed_at: float | None = None

    @property
    def failing(self) -> bool:
        """Whether the last try failed for a reason that can pass."""
        return self.again > 0

    @property
    def seconds(self) -> float:
        """For how long it has failed, this try included."""
        return time.monotonic() - self._failing_since

    def trying(self) -> None:
        """A try begins."""
        if not self.failing:
            self._failing_since = time.monotonic()

    def failed(self, error: StoreError) -> None:
        """A try failed, and may succeed later."""
        now = time.monotonic()
        self.why = error
        self.again = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._say(error)

    def broke(self, error: StoreError) -> None:
        """A try failed, and none will succeed until a person does something."""
        self.again, self._pause = 0.0, _FIRST_PAUSE
        self._say(error)

    def _say(self, error: StoreError) -> None:
        known = self._outage
        if error.passing and self.seconds < _NOTICE_SECONDS:
            return  # a moment that nobody needs to hear of
        if known is None or known.passing != error.passing:
            since = time.time() - self.seconds if known is None else known.since
            self._outage = Outage(reason=str(error), since=since, passing=error.passing)
            self._tell(self._outage)

    def worked(self) -> None:
        """A try succeeded."""
        self.again, self._pause = 0.0, _FIRST_PAUSE
        if self._outage is not None:
            self._outage = None
            self._tell(None)

    def close(self) -> None:
        """From now on everything has a few seconds only."""
        self._closed_at = time.monotonic()
        self.again = min(self.again, self._closed_at)

    def overdue(self, *, held: bool) -> bool:
        """Whether an item has waited long enough. It counts from when the database began to fail."""
        if not self.failing:
            return False
        now = time.monotonic()
        if self._closed_at is not None and now - self._closed_at > CLOSING_SECONDS:
            return True
        most = self.hold if held else self.patience
        return most is not None and now - self._failing_since >= most


def is_held(events: Sequence[Event]) -> bool:
    """Whether events wait for a database that fails: all but those that only begin something."""
    return not all(isinstance(event, _BEGINNINGS) for event in events)


def too_much(run_id: str, where: object) -> StoreError:
    return StoreError(
        f"run {run_id} is stopped: {MOST_HELD // 1024 // 1024} MB wait already for the database {where}, "
        "which takes nothing at the moment. It goes on from its log when the database is back",
        passing=True,
    )
