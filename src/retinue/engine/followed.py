"""A workflow that workers have, as whoever handed it over sees it: its log, event by event, up to its report.

The events are published in this process as if the workflow ran here, so that views, waits and streams are
the same wherever it runs; text as it arrives is not in the log, and is not seen. Started by the app. Stopping
it stops nothing but the following.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from retinue.engine.listeners import Listeners
from retinue.engine.watch import report_of, watch
from retinue.errors import RunError, StoreError, Withdrawn
from retinue.events import ApprovalAnswered, ApprovalRequested, LiveEvent
from retinue.store.base import Store
from retinue.types import Report

log = logging.getLogger("retinue.engine")
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds until a log is read again that could not be read: at first, at most."""

Ask = Callable[[ApprovalRequested], Callable[[], None]]


async def followed(
    store: Store, root_id: str, after: int, *, publish: Callable[[LiveEvent], None], ask: Ask
) -> Report:
    """Publish what happens to a workflow after a place in its log. Its report, when it has one.

    `ask` puts a question to the program's own function, and returns how to withdraw it.
    """
    asked: dict[str, Callable[[], None]] = {}
    pause = FIRST_PAUSE
    try:
        while True:
            try:
                async with contextlib.aclosing(watch(store, Listeners(), root_id, _nobody, after)) as events:
                    async for event in events:
                        after, pause = _place(event, after), FIRST_PAUSE
                        _ask(event, asked, ask)
                        publish(event)
                return await _report(store, root_id)
            except StoreError as error:
                if not error.passing:
                    raise
                log.debug("%s cannot be followed yet: %s", root_id, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    except asyncio.CancelledError:
        raise Withdrawn(f"{root_id} is followed here no more; it goes on at its workers") from None
    finally:
        for withdraw in asked.values():
            withdraw()


def _place(event: LiveEvent, after: int) -> int:
    return max(after, getattr(event, "pos", 0))


def _ask(event: LiveEvent, asked: dict[str, Callable[[], None]], ask: Ask) -> None:
    if isinstance(event, ApprovalRequested):
        asked[event.approval_id] = ask(event)
    elif isinstance(event, ApprovalAnswered) and event.approval_id in asked:
        asked.pop(event.approval_id)()


async def _report(store: Store, root_id: str) -> Report:
    row = await store.run(root_id)
    report = None if row is None else await report_of(store, row)
    if report is None:
        raise RunError(f"{root_id} has no report: it was deleted", run_id=root_id)
    return report


def _nobody() -> None:
    """Nobody works on it here."""
