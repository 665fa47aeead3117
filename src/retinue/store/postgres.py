"""The store in PostgreSQL: for workers on many machines.

Appends go through one writer (`postgres_writer`), everything else through a small pool. Every commit sends a
notice that names its workflow, and one listening connection per process wakes whoever follows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from retinue.errors import StoreError
from retinue.events import AnyEvent, ApprovalRequested, Event
from retinue.store import postgres_queue, queries
from retinue.store.base import (
    EVERYONE,
    FOREVER,
    KeptFile,
    Left,
    OldRoot,
    OwnerRow,
    RunFilter,
    RunRow,
    Signal,
    Taken,
    Totals,
    TotalsBy,
)
from retinue.store.outage import HOLD_SECONDS, MOST_HELD, Outage, Outages, Waiting, too_much
from retinue.store.owner_lock import LockFile
from retinue.store.postgres_link import Address, Link, is_lost, is_refused, prepare, until_back
from retinue.store.postgres_writer import PostgresAppend, PostgresWriter
from retinue.store.queries import Query
from retinue.store.rows import encoded, no_memory, placed

T = TypeVar("T")

CHANNEL = "retinue"
_POOL = 4
_FORGET_EVERY = 100
_LISTEN_AGAIN_SECONDS = 0.5
_BEAT = queries.beat("postgresql")
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', $1)"
_SIZE = (
    "SELECT ((SELECT coalesce(sum(pg_column_size(data)), 0) + 150 * count(*) FROM events) "
    "+ (SELECT coalesce(sum(pg_column_size(data)), 0) FROM retinue_files))::bigint"
)


class PostgresStore:
    """`patience` is how many seconds a lost connection is tried again before calls fail, `hold` how long what
    runs have written waits for it (None: for as long as it takes)."""

    def __init__(self, url: str, *, patience: float = 20, hold: float | None = HOLD_SECONDS) -> None:
        self.address = Address(url)
        self._patience = patience
        self._outages = Outages()
        self._waiting = Waiting(patience=patience, hold=hold, tell=self._outages.tell)
        self._subscribers: dict[str, list[tuple[Callable[[], None], bool]]] = {}
        self._cache_writes = 0
        self._open = False
        self._queue = False
        """Whether the database has a queue of workers, as far as is known."""

    async def open(self) -> None:
        if self._open and self._loop is asyncio.get_running_loop():
            return
        self._loop = asyncio.get_running_loop()
        link = await self.address.connect()
        try:
            await prepare(link, self.address)
        except BaseException:
            link.terminate()
            raise
        self._writer = PostgresWriter(self.address, link, waiting=self._waiting, stored=self._stored)
        self._idle: list[Link] = []
        self._places = asyncio.Semaphore(_POOL)
        self._listening: asyncio.Task[None] | None = None
        self._open = True

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._writer.close()
        for link in self._idle:
            await link.close(timeout=5)
        self._idle.clear()

    # -- a server that is away

    def hold_for(self, seconds: float | None) -> None:
        self._waiting.hold = seconds

    @property
    def outage(self) -> Outage | None:
        return self._outages.now

    def on_outage(self, hear: Callable[[Outage | None], None]) -> Callable[[], None]:
        return self._outages.hear(hear)

    # -- the pool

    async def use(self, do: Callable[[Link], Awaitable[T]]) -> T:
        """Do something on a connection of this store, for whoever keeps more in its database."""
        return await self._use(do)

    async def _use(self, do: Callable[[Link], Awaitable[T]]) -> T:
        """Do something on a connection of the pool. Done again if the connection is lost on the way."""
        if not self._open:
            raise self._closed()

        async def attempt() -> T:
            async with self._places:
                while self._idle and self._idle[-1].is_closed():
                    self._idle.pop()
                link = self._idle.pop() if self._idle else await self.address.connect()
                try:
                    result = await do(link)
                except BaseException:
                    link.terminate()
                    raise
                self._idle.append(link)
                return result

        # Where it is known to be away for so long already, nobody is made to wait once more.
        away = self._waiting.overdue(held=False)
        try:
            return await until_back(attempt, seconds=0 if away else self._patience)
        except Exception as error:
            if is_lost(error) or is_refused(error) or isinstance(error, MemoryError):
                raise self.address.explain(error) from None
            raise

    async def _rows(self, query: Query) -> list[Any]:
        return await self._use(lambda link: link.fetch(query.sql, *query.params))

    def _closed(self) -> StoreError:
        return StoreError(f"the database {self.address} is closed: open the store first")

    # -- writing

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        if not self._open:
            future.set_exception(self._closed())
        elif not events:
            future.set_result(None)
        else:
            events = tuple(events)  # the caller may go on using its list
            try:
                if self._outages.now is not None and self._writer.in_line > MOST_HELD:
                    raise too_much(events[0].run_id, self.address)
                self._writer.put(PostgresAppend(events, encoded(events), future))
            except StoreError as error:
                future.set_exception(error)
            except MemoryError:
                future.set_exception(no_memory(events))
        return future

    async def send(self, signal: Signal) -> bool:
        values = (signal.root_id, signal.run_id, signal.kind, signal.key, signal.body, signal.at)

        tries = 0

        async def do(link: Link) -> bool:
            nonlocal tries
            tries += 1
            async with link.transaction():
                # The lock first: a reader must never see a signal with a lower number appear later.
                await link.execute(_LOCK, signal.root_id)
                done = await link.execute(queries.SEND, *values)
                if done.endswith(" 1") and await self._has_queue(link):
                    await link.execute(postgres_queue.WAKE, signal.root_id)
                await link.execute(_NOTIFY, signal.root_id)
            return done.endswith(" 1")

        first = await self._use(do)
        if not first and tries > 1:  # the one that is there may be ours, from a try whose answer never came
            stored = await self.signal(signal.root_id, signal.key)
            first = stored is not None and msgspec.structs.replace(stored, id=signal.id) == signal
        if first:
            self._wake([signal.root_id])
        return first

    async def _has_queue(self, link: Link) -> bool:
        self._queue = self._queue or await postgres_queue.is_there(link)
        return self._queue

    async def open_queue(self) -> None:
        """Make sure that what is handed to workers has a queue to wait in."""

        async def do(link: Link) -> None:
            if not await self._has_queue(link):
                await postgres_queue.install(link)

        await self._use(do)

    async def delete(self, root_id: str) -> None:
        async def do(link: Link) -> None:
            async with link.transaction():
                await link.execute(_LOCK, root_id)
                for sql in queries.DELETE:
                    await link.execute(sql, root_id)
                await link.execute(_NOTIFY, root_id)

        await self._use(do)
        self._wake([root_id])

    async def keep(self, file: KeptFile) -> None:
        await self._use(lambda link: link.execute(queries.KEEP, *msgspec.structs.astuple(file)))

    async def unkeep(self, root_id: str, run_id: str, path: str, seq: int) -> None:
        await self._use(lambda link: link.execute(queries.UNKEEP, root_id, run_id, path, seq))

    async def cache(self, scope: str, key: str, value: bytes, ttl: float) -> None:
        now = time.time()
        stale = self._cache_writes % _FORGET_EVERY == 0
        self._cache_writes += 1

        async def do(link: Link) -> None:
            if stale:
                await link.execute(queries.FORGET, now)
            await link.execute(queries.CACHE, scope, key, value, now + ttl)

        await self._use(do)

    async def recache(
        self, scope: str, key: str, change: Callable[[bytes | None], bytes], ttl: float
    ) -> None:
        async def do(link: Link) -> None:
            async with link.transaction():
                await link.execute(_LOCK, f"cache/{scope}/{key}")
                now = time.time()
                found = await link.fetch(queries.CACHED, scope, key, now)
                value = change(found[0][0] if found else None)
                await link.execute(queries.CACHE, scope, key, value, now + ttl)

        await self._use(do)

    @property
    def lock_file(self) -> LockFile | None:
        return LockFile.of_this_user()

    async def beat(self, owner: str, place: str) -> None:
        await self._use(lambda link: link.execute(_BEAT, owner, place))

    async def release(self, owner: str) -> None:
        await self._use(lambda link: link.execute(queries.RELEASE, owner))

    async def compact(self) -> None:
        async def do(link: Link) -> None:
            for table in ("events", "runs", "letters", "cache", "retinue_files"):
                await link.execute(f"VACUUM ANALYZE {table}")

        await self._use(do)

    # -- reading

    async def events(
        self, root_id: str, *, after: int = 0, run_id: str | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        return await self._events(queries.events(root_id, after=after, run_id=run_id, limit=limit))

    async def tail(self, root_id: str, *, limit: int, run_id: str | None = None) -> list[AnyEvent]:
        found = await self._events(queries.tail(root_id, limit=limit, run_id=run_id))
        return found[::-1]

    async def _events(self, query: Query) -> list[AnyEvent]:
        where = str(self.address)
        return [placed(pos, data, where) for pos, data in await self._rows(query)]

    async def count(self, root_id: str, *, run_id: str | None = None) -> int:
        return int((await self._rows(queries.count(root_id, run_id=run_id)))[0][0])

    async def owners(self) -> list[OwnerRow]:
        return [queries.owner(row) for row in await self._rows(Query(queries.OWNERS["postgresql"]))]

    async def taken(self, root_id: str) -> Taken | None:
        found = await self._events(queries.taken(root_id))
        return cast("Taken", found[0]) if found else None

    async def run(self, run_id: str) -> RunRow | None:
        found = await self._rows(queries.run(run_id))
        return queries.record(found[0]) if found else None

    async def runs(self, which: RunFilter) -> list[RunRow]:
        return [queries.record(row) for row in await self._rows(queries.runs("postgresql", which))]

    async def tree(self, root_id: str) -> list[RunRow]:
        return [queries.record(row) for row in await self._rows(queries.tree(root_id))]

    async def waiting(self, root_id: str | None = None) -> list[ApprovalRequested]:
        return cast("list[ApprovalRequested]", await self._events(queries.waiting("postgresql", root_id)))

    async def signals(self, root_id: str, *, after: int = 0) -> list[Signal]:
        return [queries.signal(row) for row in await self._rows(Query(queries.SIGNALS, (root_id, after)))]

    async def signal(self, root_id: str, key: str) -> Signal | None:
        found = await self._rows(Query(queries.SIGNAL, (root_id, key)))
        return queries.signal(found[0]) if found else None

    async def kept(self, root_id: str, run_id: str | None = None) -> list[KeptFile]:
        found = await self._rows(Query(queries.KEPT, (root_id, run_id or "")))
        return [queries.kept_file(row) for row in found]

    async def cached(self, scope: str, key: str) -> tuple[bytes, float] | None:
        found = await self._rows(Query(queries.CACHED, (scope, key, time.time())))
        return (found[0][0], found[0][1]) if found else None

    async def totals(
        self, by: TotalsBy, *, since: float | None = None, utc_offset: float = 0, left: Left = EVERYONE
    ) -> list[Totals]:
        query = queries.totals("postgresql", by, since=since, utc_offset=utc_offset, left=left)
        return [queries.total(row) for row in await self._rows(query)]

    async def open_owners(self) -> list[str]:
        return [row[0] for row in await self._rows(queries.open_owners())]

    async def last_at(self, root_ids: Collection[str]) -> dict[str, float]:
        rows = await self._rows(queries.last_at("postgresql", root_ids))
        return {root: at for root, at in rows if at is not None}

    async def old_roots(self, before: float, *, limit: int | None = None) -> list[OldRoot]:
        return [queries.old_root(row) for row in await self._rows(queries.old_roots(before, limit=limit))]

    async def strays(self, before: float, *, silent_since: float = FOREVER) -> list[str]:
        return [row[0] for row in await self._rows(Query(queries.STRAYS, (before, silent_since)))]

    async def size(self) -> int:
        return int((await self._rows(Query(_SIZE)))[0][0])

    # -- watching

    def subscribe(
        self, root_id: str, wake: Callable[[], None], *, signals: bool = False
    ) -> Callable[[], None]:
        self._subscribers.setdefault(root_id, []).append((wake, signals))
        if self._listening is None and self._open:
            self._listening = self._loop.create_task(self._listen(), name="retinue-listener")

        def end() -> None:
            wakes = self._subscribers.get(root_id, [])
            if (wake, signals) in wakes:
                wakes.remove((wake, signals))
            if not wakes:
                self._subscribers.pop(root_id, None)

        return end

    async def _listen(self) -> None:
        """Keep one listening connection for as long as the store is open."""
        while True:
            try:
                await self._hear()
            except Exception as error:
                if not (isinstance(error, StoreError) or is_lost(error) or is_refused(error)):
                    raise
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)

    async def _hear(self) -> None:
        """Listen until the connection is lost."""
        lost = asyncio.Event()
        link = await self.address.connect()
        try:
            link.add_termination_listener(lambda *_: lost.set())
            await link.add_listener(CHANNEL, self._heard)
            self._wake(tuple(self._subscribers))  # whatever was said before we listened, nobody heard
            await lost.wait()
        finally:
            link.terminate()

    def _heard(self, link: object, pid: int, channel: str, root_id: str) -> None:
        if pid != self._writer.pid:  # what we wrote ourselves was told at once
            self._wake((root_id,))

    def _stored(self, root_ids: Iterable[str]) -> None:
        self._wake(root_ids, events=True)

    def _wake(self, root_ids: Iterable[str], *, events: bool = False) -> None:
        """`events`: only our own events are new, which a subscriber to signals need not know."""
        for root_id in root_ids:
            for wake, signals in tuple(self._subscribers.get(root_id, ())):
                if not (events and signals):
                    wake()
