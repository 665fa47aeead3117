"""A workflow's events as they come: what is stored first, then what happens.

Called by the app. Events of this process come from `Listeners`, with text as it arrives; those of another
process from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from retinue.engine.listeners import Listeners, next_of
from retinue.errors import Fenced, Withdrawn
from retinue.events import Event, LiveEvent, RunFinished
from retinue.store.base import RunRow, Store
from retinue.types import Report

CHUNK = 500


async def watch(
    store: Store,
    listeners: Listeners,
    root_id: str,
    task: Callable[[], asyncio.Task[Report] | None],
    after: int,
) -> AsyncGenerator[LiveEvent]:
    """From a cursor on, up to the last event of a workflow that has ended. `task` is the root's here.

    A conversation has an end after each turn: where the next one has begun, it goes on. What nobody works on
    any more is waited for until somebody takes it up; what has just died here without an end is not.
    """
    queue, news = listeners.listen(root_id), asyncio.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(listeners.leave, root_id, queue)
        stack.callback(store.subscribe(root_id, news.set))
        while True:
            news.clear()  # before looking: what is stored from now on wakes us
            working = task()  # as well: what it wrote before its end is found below
            found = await store.events(root_id, after=after, limit=CHUNK)
            for event in found:
                after = event.pos
                yield event
            if len(found) == CHUNK:
                continue
            if working is None or working.done():
                if died(working) or await is_over(store, root_id, after):
                    return
                await news.wait()
                continue
            while not (working.done() and queue.empty()):
                live = await next_of(queue, working)
                if isinstance(live, Event):
                    if live.pos > after + 1:
                        break  # another process wrote between: the log has it all
                    if live.pos <= after:
                        continue
                    after = live.pos
                if live is not None:
                    yield live


async def is_over(store: Store, root_id: str, reached: int) -> bool:
    """Whether a workflow has ended, and whoever has got so far knows all of it. One that is deleted has."""
    row = await store.run(root_id)  # before the count: whatever begins after this is counted
    if row is None or row.completed_at is None:
        return row is None
    return reached >= await store.count(root_id)


async def report_of(store: Store, row: RunRow) -> Report | None:
    """The report of a run as it was stored, unless the run goes on: what it said last is then no end.

    One that has answered goes on with the next turn, and not while it only waits for its children.
    """
    tail = await store.tail(row.root_id, run_id=row.run_id, limit=20 if row.completed_at is not None else 1)
    return next((event.report for event in reversed(tail) if isinstance(event, RunFinished)), None)


def died(task: asyncio.Task[Report] | None) -> bool:
    """Whether it stopped here without a report, and goes on nowhere else as far as is known here."""
    if task is None or task.cancelled():
        return task is not None
    error = task.exception()
    return error is not None and (not isinstance(error, Fenced) or isinstance(error, Withdrawn))
