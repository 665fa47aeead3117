"""Following a workflow: its events in order, from a cursor on, for as long as somebody wants them.

What terminals, pages and the API are built on. Nothing is missed and nothing comes twice, since a store's
places have no gaps and appear in order; a wake-up only says that it is worth looking again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from retinue.events import AnyEvent
from retinue.store.base import Store

_CHUNK = 500


async def follow(store: Store, root_id: str, after: int = 0) -> AsyncGenerator[AnyEvent, None]:
    """Every event after a place, then each new one as it is stored. Never ends by itself.

    Close it (`contextlib.aclosing`) when done, so that the store stops looking for you.
    """
    news = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.callback(store.subscribe(root_id, news.set))
        while True:
            news.clear()  # before looking: what is stored from now on wakes us
            found = await store.events(root_id, after=after, limit=_CHUNK)
            for event in found:
                after = event.pos
                yield event
            if len(found) < _CHUNK:
                await news.wait()
