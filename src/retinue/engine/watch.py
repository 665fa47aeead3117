"""A workflow's events as they come: what is stored first, then what happens.

Called by the app. Events of this process come from `Listeners`, with text as it arrives; those of another
process from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from retinue.engine.listeners import Listeners, next_of
from retinue.events import Event, LiveEvent, RunFinished
from retinue.store.base import Store
from retinue.store.follow import follow
from retinue.types import Report


async def watch(
    store: Store, listeners: Listeners, root_id: str, task: asyncio.Task[Report] | None, after: int
) -> AsyncGenerator[LiveEvent]:
    """From a cursor on, up to the root's end. `task` is the root's if it runs here."""
    queue = listeners.listen(root_id)
    try:
        if task is None or task.done():
            async with contextlib.aclosing(follow(store, root_id, after)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, RunFinished) and event.run_id == root_id:
                        return
            return
        for event in await store.events(root_id, after=after):
            after = event.pos
            yield event
        while not (task.done() and queue.empty()):
            live = await next_of(queue, task)
            if live is None:
                continue
            if isinstance(live, Event):
                if live.pos <= after:
                    continue
                after = live.pos
            yield live
    finally:
        listeners.leave(root_id, queue)
