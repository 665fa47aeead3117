"""The store in one SQLite file: the default, and enough for one machine.

One thread writes (`sqlite_writer`), one answers short questions and one the long ones; none of them makes
the event loop wait. Several processes may use the same file.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from retinue.errors import StoreError
from retinue.events import AnyEvent, ApprovalRequested, Event
from retinue.store import queries, sqlite_file
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
from retinue.store.lane import Lane
from retinue.store.outage import HOLD_SECONDS, MOST_HELD, Outage, Outages, Waiting, too_much
from retinue.store.owner_lock import LockFile
from retinue.store.queries import Query
from retinue.store.rows import ROOT, encoded, no_memory, placed
from retinue.store.sqlite_writer import SqliteAppend, SqliteWriter, WriterJob

T = TypeVar("T")

_POLL_SECONDS = 0.02
_FORGET_EVERY = 100
_CACHED, _CACHE, _FORGET, _SIGNALS, _SIGNAL, _SEND, _BEAT, _RELEASE, _KEPT, _KEEP, _UNKEEP, _STRAYS = (
    sql.replace("$", "?")
    for sql in (
        queries.CACHED,
        queries.CACHE,
        queries.FORGET,
        queries.SIGNALS,
        queries.SIGNAL,
        queries.SEND,
        queries.beat("sqlite"),
        queries.RELEASE,
        queries.KEPT,
        queries.KEEP,
        queries.UNKEEP,
        queries.STRAYS,
    )
)
_DELETE = tuple(sql.replace("$", "?") for sql in queries.DELETE)


class SqliteReader:
    """A thread with a connection of its own, for questions."""

    def __init__(
        self,
        path: Path,
        name: str,
        busy_seconds: float,
        connect: Callable[[], sqlite3.Connection],
        check: Callable[[], None],
    ) -> None:
        self._path, self._busy_seconds, self._connect, self._check = path, busy_seconds, connect, check
        self._connection: sqlite3.Connection | None = None
        self._lane = Lane[WriterJob](name, work=self._work)

    async def ask(self, do: Callable[[sqlite3.Connection], T]) -> T:
        job = WriterJob(do, asyncio.get_running_loop().create_future())
        self._lane.put(job)
        return await job.future

    async def close(self) -> None:
        await self._lane.stop()
        if self._connection is not None:
            self._connection.close()

    def _work(self, batch: list[WriterJob]) -> list[WriterJob]:
        for job in batch:
            try:
                self._check()
                if self._connection is None:
                    self._connection = self._connect()
                job.result = job.do(self._connection)
            except (sqlite3.Error, OSError, MemoryError) as error:
                job.error = sqlite_file.explain(error, self._path, waited=self._busy_seconds)
                if isinstance(error, sqlite3.Error) and sqlite_file.is_unusable(error):
                    self._give_up_connection()
            except Exception as error:  # it is raised where the question was asked
                job.error = error
        return batch

    def _give_up_connection(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


class SqliteStore:
    """`busy_seconds` is how long to wait for a file that another program holds, `hold` how long what runs
    have written waits for it (None: for as long as it takes). `factory` makes the connections."""

    def __init__(
        self,
        path: str | Path,
        *,
        busy_seconds: float = 10,
        hold: float | None = HOLD_SECONDS,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self._busy_seconds, self._factory = busy_seconds, factory
        self._outages = Outages()
        self._waiting = Waiting(patience=busy_seconds, hold=hold, tell=self._tell)
        self._subscribers: dict[str, list[tuple[Callable[[], None], bool]]] = {}
        self._cache_writes = 0
        self._in_line = 0
        self._open = False

    async def open(self) -> None:
        if self._open and self._loop is asyncio.get_running_loop():
            return
        self._loop = asyncio.get_running_loop()
        self._writer = SqliteWriter(
            self.path, waiting=self._waiting, woken=self._woken, connect=self._connect_to_write
        )
        await asyncio.to_thread(self._writer.open)
        self._lane = Lane[SqliteAppend | WriterJob](
            "retinue-writer",
            work=self._writer.work,
            done=self._done,
            patience=self._patience,
            stopping=self._writer.stop,
        )
        self._short = self._reader("retinue-reader")
        self._long: SqliteReader | None = None
        self._open = True

    def _connect_to_write(self, busy_seconds: float) -> sqlite3.Connection:
        return sqlite_file.open_for_writing(self.path, busy_seconds=busy_seconds, factory=self._factory)

    def _reader(self, name: str) -> SqliteReader:
        def connect() -> sqlite3.Connection:
            return sqlite_file.open_for_reading(
                self.path, busy_seconds=self._busy_seconds, factory=self._factory
            )

        return SqliteReader(self.path, name, self._busy_seconds, connect, self._writer.identity.check_file)

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        await self._lane.stop()
        await self._short.close()
        if self._long is not None:
            await self._long.close()
        # The last connection to close cleans up after all of them, which can take a while.
        await asyncio.to_thread(self._writer.close)

    # -- a file that fails

    def hold_for(self, seconds: float | None) -> None:
        self._waiting.hold = seconds

    @property
    def outage(self) -> Outage | None:
        return self._outages.now

    def on_outage(self, hear: Callable[[Outage | None], None]) -> Callable[[], None]:
        return self._outages.hear(hear)

    def _tell(self, outage: Outage | None) -> None:
        """From the writer's thread."""
        self._lane.call(self._outages.tell, outage)

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
                self._put(SqliteAppend(events, encoded(events), future))
            except StoreError as error:
                future.set_exception(error)
            except MemoryError:
                future.set_exception(no_memory(events))
        return future

    def _put(self, item: SqliteAppend) -> None:
        if self._outages.now is not None and self._in_line > MOST_HELD:
            raise too_much(item.events[0].run_id, self.path)
        self._in_line += item.size
        self._lane.put(item)

    async def _write(self, do: Callable[[sqlite3.Connection], T], *, root_id: str | None = None) -> T:
        return await self._job(do, root_id=root_id).future

    def _job(self, do: Callable[[sqlite3.Connection], Any], *, root_id: str | None) -> WriterJob:
        if not self._open:
            raise self._closed()
        job = WriterJob(do, self._loop.create_future(), root_id=root_id)
        self._lane.put(job)
        return job

    def _closed(self) -> StoreError:
        return StoreError(f"the database {self.path} is closed: open the store first")

    async def send(self, signal: Signal) -> bool:
        values = (signal.root_id, signal.run_id, signal.kind, signal.key, signal.body, signal.at)

        def do(connection: sqlite3.Connection) -> bool:
            if connection.execute(_SEND, values).rowcount == 1:
                return True
            # The one that is there may be ours, from a try of which nobody knows how it ended.
            query = Query(_SIGNAL, (signal.root_id, signal.key))
            stored = [queries.signal(row) for row in _rows(connection, query)] if job.unsure else []
            return bool(stored) and msgspec.structs.replace(stored[0], id=signal.id) == signal

        job = self._job(do, root_id=signal.root_id)
        return await job.future

    async def delete(self, root_id: str) -> None:
        def do(connection: sqlite3.Connection) -> None:
            for sql in _DELETE:
                connection.execute(sql, (root_id,))
            self._writer.forget(root_id)

        await self._write(do, root_id=root_id)

    async def keep(self, file: KeptFile) -> None:
        values = msgspec.structs.astuple(file)
        await self._write(lambda connection: connection.execute(_KEEP, values), root_id=file.root_id)

    async def unkeep(self, root_id: str, run_id: str, path: str, seq: int) -> None:
        place = (root_id, run_id, path, seq)
        await self._write(lambda connection: connection.execute(_UNKEEP, place), root_id=root_id)

    async def cache(self, scope: str, key: str, value: bytes, ttl: float) -> None:
        now = time.time()
        stale = self._cache_writes % _FORGET_EVERY == 0
        self._cache_writes += 1

        def do(connection: sqlite3.Connection) -> None:
            if stale:
                connection.execute(_FORGET, (now,))
            connection.execute(_CACHE, (scope, key, value, now + ttl))

        await self._write(do)

    async def recache(
        self, scope: str, key: str, change: Callable[[bytes | None], bytes], ttl: float
    ) -> None:
        def do(connection: sqlite3.Connection) -> None:
            now = time.time()
            found = connection.execute(_CACHED, (scope, key, now)).fetchone()
            connection.execute(_CACHE, (scope, key, change(found[0] if found else None), now + ttl))

        await self._write(do)

    @property
    def lock_file(self) -> LockFile | None:
        return LockFile(path=self.path.with_name(f"{self.path.name}-owners"), like=self.path)

    async def beat(self, owner: str, place: str) -> None:
        def do(connection: sqlite3.Connection) -> None:
            connection.execute(_BEAT, (owner, place))

        await self._write(do)

    async def release(self, owner: str) -> None:
        def do(connection: sqlite3.Connection) -> None:
            connection.execute(_RELEASE, (owner,))

        await self._write(do)

    async def compact(self) -> None:
        job = WriterJob(_compact, self._loop.create_future(), writes=False)
        self._lane.put(job)
        await job.future

    # -- reading

    async def events(
        self, root_id: str, *, after: int = 0, run_id: str | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        return await self._events(queries.events(root_id, after=after, run_id=run_id, limit=limit))

    async def tail(self, root_id: str, *, limit: int, run_id: str | None = None) -> list[AnyEvent]:
        found = await self._events(queries.tail(root_id, limit=limit, run_id=run_id))
        return found[::-1]

    async def _events(self, query: Query) -> list[AnyEvent]:
        where = str(self.path)
        return await self._short.ask(lambda c: [placed(pos, data, where) for pos, data in _rows(c, query)])

    async def count(self, root_id: str, *, run_id: str | None = None) -> int:
        query = queries.count(root_id, run_id=run_id)
        return await self._short.ask(lambda c: int(_rows(c, query)[0][0]))

    async def owners(self) -> list[OwnerRow]:
        query = Query(queries.OWNERS["sqlite"])
        return await self._short.ask(lambda c: [queries.owner(row) for row in _rows(c, query)])

    async def taken(self, root_id: str) -> Taken | None:
        found = await self._events(queries.taken(root_id))
        return cast("Taken", found[0]) if found else None

    async def run(self, run_id: str) -> RunRow | None:
        query = queries.run(run_id)
        found = await self._short.ask(lambda c: [queries.record(row) for row in _rows(c, query)])
        return found[0] if found else None

    async def runs(self, which: RunFilter) -> list[RunRow]:
        query = queries.runs("sqlite", which)
        # A search through texts may have to read every row; it must not hold up a run that goes on.
        reader = self._slow() if which.text or which.min_cost or which.metadata else self._short
        return await reader.ask(lambda c: [queries.record(row) for row in _rows(c, query)])

    async def tree(self, root_id: str) -> list[RunRow]:
        query = queries.tree(root_id)
        return await self._short.ask(lambda c: [queries.record(row) for row in _rows(c, query)])

    async def waiting(self, root_id: str | None = None) -> list[ApprovalRequested]:
        found = await self._events(queries.waiting("sqlite", root_id))
        return cast("list[ApprovalRequested]", found)

    async def signals(self, root_id: str, *, after: int = 0) -> list[Signal]:
        query = Query(_SIGNALS, (root_id, after))
        return await self._short.ask(lambda c: [queries.signal(row) for row in _rows(c, query)])

    async def signal(self, root_id: str, key: str) -> Signal | None:
        query = Query(_SIGNAL, (root_id, key))
        found = await self._short.ask(lambda c: [queries.signal(row) for row in _rows(c, query)])
        return found[0] if found else None

    async def kept(self, root_id: str, run_id: str | None = None) -> list[KeptFile]:
        query = Query(_KEPT, (root_id, run_id or ""))
        return await self._slow().ask(lambda c: [queries.kept_file(row) for row in _rows(c, query)])

    async def cached(self, scope: str, key: str) -> tuple[bytes, float] | None:
        query = Query(_CACHED, (scope, key, time.time()))
        found = await self._short.ask(lambda c: _rows(c, query))
        return found[0] if found else None

    async def totals(
        self, by: TotalsBy, *, since: float | None = None, utc_offset: float = 0, left: Left = EVERYONE
    ) -> list[Totals]:
        query = queries.totals("sqlite", by, since=since, utc_offset=utc_offset, left=left)
        return await self._slow().ask(lambda c: [queries.total(row) for row in _rows(c, query)])

    async def open_owners(self) -> list[str]:
        query = queries.open_owners()
        return await self._short.ask(lambda c: [row[0] for row in _rows(c, query)])

    async def last_at(self, root_ids: Collection[str]) -> dict[str, float]:
        query = queries.last_at("sqlite", root_ids)
        return await self._short.ask(lambda c: {root: at for root, at in _rows(c, query) if at is not None})

    async def old_roots(self, before: float, *, limit: int | None = None) -> list[OldRoot]:
        query = queries.old_roots(before, limit=limit)
        return await self._slow().ask(lambda c: [queries.old_root(row) for row in _rows(c, query)])

    async def strays(self, before: float, *, silent_since: float = FOREVER) -> list[str]:
        query = Query(_STRAYS, (before, silent_since))
        return await self._slow().ask(lambda c: [row[0] for row in _rows(c, query)])

    async def size(self) -> int:
        return await self._slow().ask(_size)

    def _slow(self) -> SqliteReader:
        if self._long is None:
            self._long = self._reader("retinue-long-reader")
        return self._long

    # -- watching

    def subscribe(
        self, root_id: str, wake: Callable[[], None], *, signals: bool = False
    ) -> Callable[[], None]:
        wakes = self._subscribers.setdefault(root_id, [])
        wakes.append((wake, signals))
        if len(wakes) == 1:
            self._control(lambda _: self._writer.watch(root_id))

        def end() -> None:
            if (wake, signals) in wakes:
                wakes.remove((wake, signals))
            if not wakes and self._subscribers.get(root_id) is wakes:
                del self._subscribers[root_id]
                self._control(lambda _: self._writer.watched.pop(root_id, None))

        return end

    def _control(self, do: Callable[[sqlite3.Connection], Any]) -> None:
        if self._open:
            future: asyncio.Future[Any] = self._loop.create_future()
            future.add_done_callback(_taken)
            self._lane.put(WriterJob(do, future, writes=False))

    def _patience(self) -> float | None:
        wanted = self._writer.patience()
        return _POLL_SECONDS if wanted is None and self._writer.watched else wanted

    def _woken(self, root_ids: list[str]) -> None:
        """From the writer's thread: others have written."""
        self._lane.call(self._wake, root_ids)

    def _done(self, batch: list[SqliteAppend | WriterJob]) -> None:
        for item in batch:
            if isinstance(item, SqliteAppend):
                self._in_line -= item.size
        if self._subscribers:
            roots: dict[str, None] = {}
            others: dict[str, None] = {}
            for item in batch:
                if item.error is not None:
                    continue
                if isinstance(item, SqliteAppend):
                    roots.update((row[ROOT], None) for row in item.rows)
                elif item.root_id is not None:
                    others[item.root_id] = None
            self._wake(roots, events=True)
            self._wake(others)

    def _wake(self, root_ids: Sequence[str] | dict[str, None], *, events: bool = False) -> None:
        """`events`: only our own events are new, which a subscriber to signals need not know."""
        for root_id in root_ids:
            for wake, signals in tuple(self._subscribers.get(root_id, ())):
                if not (events and signals):
                    wake()


def _taken(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # a failed look is told to whoever reads next


def _rows(connection: sqlite3.Connection, query: Query) -> list[Any]:
    return connection.execute(query.sql.replace("$", "?"), query.params).fetchall()


def _size(connection: sqlite3.Connection) -> int:
    pages, free, page = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * page


def _compact(connection: sqlite3.Connection) -> None:
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
