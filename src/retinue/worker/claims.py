"""A worker's side of the queue: jobs are claimed, kept alive and given back by PgQueuer, on one connection.

PgQueuer's `run` ends with its connection. It is run again here for as long as the worker lives, with longer
and longer pauses; workflows in flight go on meanwhile and write when the database is back. The only module
that runs PgQueuer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from retinue.errors import StoreError
from retinue.store.postgres import PostgresStore
from retinue.store.postgres_link import Link, can_pass, is_lost
from retinue.store.postgres_queue import CALL, CHANNEL, LOG, SEARCH, TABLE, install, queries_of
from retinue.worker.legs import LegOver

log = logging.getLogger("retinue.worker")
HEARTBEAT = timedelta(seconds=30)
"""A job whose worker has not been heard of for so long is given to another, which then looks whether the
worker is really gone."""
POLL = timedelta(seconds=5)
"""How often it is looked for jobs although nobody told of one."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
BATCH = 4
"""Jobs that are claimed at once: with more, one worker would have what others could begin already."""

_GIVE_BACK = f"""
UPDATE {TABLE} SET status = 'queued', execute_after = now(), updated = now(), queue_manager_id = NULL
WHERE status = 'picked' AND queue_manager_id = ANY($1::uuid[])
"""  # noqa: S608  # constants
_HOLDERS = (
    f"SELECT DISTINCT queue_manager_id FROM {TABLE} WHERE status = 'picked' AND queue_manager_id IS NOT NULL"  # noqa: S608
)
_FORGET = f"DELETE FROM {LOG} WHERE created < now() - interval '1 day'"  # noqa: S608  # constants


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedJob:
    """One job: which workflow, and by which event of its log it came into the queue."""

    root_id: str
    place: int
    tries: int


Do = Callable[[ClaimedJob], Awaitable[LegOver]]


class QueueClaims:
    """`do` works on a job until its leg is over. It may be called again for one that it is still at."""

    def __init__(self, store: PostgresStore, queues: Sequence[str], *, slots: int, do: Do) -> None:
        self._store, self._queues, self._slots, self._do = store, queues, slots, do
        self._stopping = asyncio.Event()
        self._manager: Any = None
        self.connected = False

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Claim nothing more. `keep` returns when what was claimed is given back."""
        self._stopping.set()
        if self._manager is not None:
            self._manager.shutdown.set()

    async def stopped(self, claiming: asyncio.Task[None]) -> None:
        """Wait until it is told to stop, or cannot go on."""
        told = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({told, claiming}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()

    async def keep(self, owner: str) -> None:
        """Claim jobs as this owner until it is told to stop, however often the database goes away."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self._claim(owner)
            except Exception as error:
                if not _passes(error):
                    raise
                log.warning("the queue cannot be reached, and is tried again: %s", error)
            if asyncio.get_running_loop().time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _claim(self, owner: str) -> None:
        """Until the connection is lost, or it is told to stop."""
        from pgqueuer.core.qm import QueueManager
        from pgqueuer.domain.types import Channel

        logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)  # each failure is told here, and once
        link = await self._store.address.connect()
        try:
            await install(link)
            queries = queries_of(link)
            lost = asyncio.Event()
            manager = self._manager = QueueManager(queries, channel=Channel(CHANNEL))
            manager.queue_manager_id = uuid.UUID(hex=owner)  # pyright: ignore[reportAttributeAccessIssue] # a NewType of it

            def ended(*_: object) -> None:
                lost.set()
                manager.shutdown.set()

            link.add_termination_listener(ended)
            for queue in self._queues:
                manager.entrypoint(queue, accepts_context=False)(self._handler(lost))
            if self._stopping.is_set():
                return
            self.connected = True
            await manager.run(
                dequeue_timeout=POLL,
                batch_size=max(1, min(BATCH, self._slots // 2)),
                max_concurrent_tasks=self._slots,
                heartbeat_timeout=HEARTBEAT,
                shutdown_on_listener_failure=True,
            )
        finally:
            self.connected, self._manager = False, None
            link.terminate()

    def _handler(self, lost: asyncio.Event) -> Callable[[Any], Awaitable[None]]:
        from pgqueuer.domain.errors import RetryRequested

        async def handle(job: Any) -> None:
            root_id, _, place = bytes(job.payload or b"").decode().rpartition("/")
            claimed = ClaimedJob(root_id=root_id, place=int(place), tries=job.attempts)
            doing = asyncio.ensure_future(self._do(claimed))
            gone = asyncio.ensure_future(lost.wait())
            try:
                await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
            if not doing.done():  # the workflow goes on; whoever gets this job next finds it at work
                doing.cancel()
                raise ConnectionError("the connection to the queue is lost")
            again = doing.result().again
            if again is not None:
                raise RetryRequested(delay=timedelta(seconds=again))

        return handle

    async def give_back(self, is_gone: Callable[[Sequence[str]], Awaitable[Sequence[str]]]) -> None:
        """Put the jobs of workers that are gone back into the queue, without waiting for their heartbeat."""

        async def do(link: Link) -> None:
            holders = [row[0].hex for row in await link.fetch(_HOLDERS)]
            gone = await is_gone(holders) if holders else ()
            if gone:
                await link.execute(_GIVE_BACK, [uuid.UUID(hex=one) for one in gone])
                await link.execute(CALL)

        await self._store.use(do)

    async def search(self) -> None:
        """Put every workflow into the queue that waits for a worker and has no job."""
        found = await self._store.use(lambda link: link.fetchval(SEARCH))
        if found:
            log.warning("%d workflows waited for a worker and were in no queue; they are now", found)

    async def forget(self) -> None:
        """Remove what the queue has noted of jobs that are long over."""
        await self._store.use(lambda link: link.execute(_FORGET))


def _passes(error: Exception) -> bool:
    if isinstance(error, StoreError):
        return error.passing
    from pgqueuer.domain.errors import FailingListenerError

    return isinstance(error, FailingListenerError) or is_lost(error) or can_pass(error)
