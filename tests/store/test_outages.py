"""A database that fails for a while: what runs wrote waits and is stored once, what begins is refused soon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from runlog import Log

from faults import Faults, Lock, Wire, sqlite_error
from pg import server
from retinue.errors import Fenced, StoreError
from retinue.events import Event
from retinue.store import outage
from retinue.store.base import Signal, Store
from retinue.store.outage import Outage
from retinue.store.postgres import PostgresStore
from retinue.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage is noticed soon, and its end too: no test needs to wait as long as people can."""
    monkeypatch.setattr(outage, "_NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(outage, "_LONGEST_PAUSE", 0.05)


@contextlib.asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **{"busy_seconds": 0.1, "hold": None, **options})
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Told:
    """What a store says about its database."""

    def __init__(self, store: Store) -> None:
        self.heard: list[Outage | None] = []
        self.away, self.back = asyncio.Event(), asyncio.Event()
        store.on_outage(self._hear)

    def _hear(self, now: Outage | None) -> None:
        self.heard.append(now)
        (self.back if now is None else self.away).set()


async def stored(store: Store, root_id: str) -> list[int]:
    return [event.seq for event in await store.events(root_id)]


# -- SQLite


async def test_what_a_run_wrote_waits_out_a_lock_of_any_length_and_is_stored_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as store:
        told, log = Told(store), Log("r")
        await store.append([log.start()])
        with Lock(tmp_path / "log.db"):
            first = store.append([log.step(), log.reply()])
            await told.away.wait()
            assert store.outage is not None
            assert "locked by another program" in store.outage.reason
            second = store.append([log.call(), log.result()])
            assert not first.done()
            assert await stored(store, "r") == [1], "reading goes on all the while"
        await asyncio.gather(first, second)
        await told.back.wait()
        assert store.outage is None
        assert await stored(store, "r") == [1, 2, 3, 4, 5]
        row = await store.run("r")
        assert row is not None
        assert row.turns == 1


async def test_what_only_begins_something_is_refused_soon_and_can_be_asked_for_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as store:
        log = Log("r")
        await store.append([log.start()])
        signal = Signal(root_id="r", run_id="r", kind="cancel", key="k", body="stop", at=1.5)
        with Lock(tmp_path / "log.db"):
            held = store.append([log.step()])
            for beginning in (
                store.append([Log("s").start()]),
                store.append([Log("t").resume(), Log("t").message()]),
                store.send(signal),
                store.cache("scope", "key", b"value", 60),
            ):
                with pytest.raises(StoreError, match=r"locked by another program for \d\.\d s") as caught:
                    await beginning
                assert caught.value.passing
            assert not held.done()
        await held
        await store.append([Log("s").start()])
        assert await store.send(signal) is True
        assert await stored(store, "s") == [1]


async def test_a_file_that_may_not_grow_takes_what_fits_and_the_rest_when_it_may(tmp_path: Path) -> None:
    pages, writers = [0], list[sqlite3.Connection]()

    def limit(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE" and pages[0] >= 0:
            # PRAGMA max_page_count: never less than it has, so this is "not one page more".
            most = pages[0] or 2**30
            sqlite3.Connection.execute(connection, f"PRAGMA max_page_count = {most}").fetchone()
            writers.append(connection)

    async with opened(tmp_path / "log.db", factory=Faults(before=limit).factory) as store:
        told, log, small = Told(store), Log("r"), Log("s")
        await store.append([log.start()])
        await store.append([small.start()])
        pages[0] = 1
        large = store.append([log.result("x" * 100_000)])
        follows = store.append([log.step()])
        await told.away.wait()
        assert store.outage is not None
        assert "no space left" in store.outage.reason
        await store.append([small.step()])
        assert not large.done()
        assert not follows.done()
        assert await stored(store, "r") == [1]
        pages[0] = 0
        await asyncio.gather(large, follows)
        await told.back.wait()
        assert await stored(store, "r") == [1, 2, 3]
        assert await stored(store, "s") == [1, 2]


@pytest.mark.parametrize("name", ["SQLITE_IOERR_FSYNC", "SQLITE_FULL", "SQLITE_BUSY"])
async def test_a_commit_that_took_effect_and_failed_all_the_same_is_neither_fenced_nor_repeated(
    tmp_path: Path, name: str
) -> None:
    faulty: list[str] = []

    def after(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "COMMIT" and faulty:
            raise sqlite_error(faulty.pop())

    async with opened(tmp_path / "log.db", factory=Faults(after=after).factory) as store:
        log, other = Log("r"), Log("s")
        await store.append([log.start()])
        faulty.append(name)
        events: list[Event] = [log.step(), log.reply()]
        signal = Signal(root_id="r", run_id="r", kind="cancel", key="k", body="stop", at=1.5)
        *_, posted = await asyncio.gather(
            store.append(events), store.append([other.start()]), store.send(signal)
        )
        assert posted is True, "the signal that is there is ours"
        assert [event.pos for event in events] == [2, 3]
        await store.append([log.finish()])
        assert await stored(store, "r") == [1, 2, 3, 4]
        row = await store.run("r")
        assert row is not None
        assert row.turns == 1


async def test_a_run_that_another_process_took_meanwhile_is_fenced_not_overwritten(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as store, opened(tmp_path / "log.db") as another:
        told, log = Told(store), Log("r")
        await store.append([log.start()])
        theirs = Log("r")
        theirs.seq = 1
        lock = Lock(tmp_path / "log.db")
        with lock:
            ours = store.append([log.step()])
            follows = store.append([log.reply()])
            await told.away.wait()
            lock._connection.execute("ROLLBACK")
            # Whichever is first is stored; the other one of the two is told.
            won = await asyncio.gather(another.append([theirs.resume()]), ours, return_exceptions=True)
            lock._connection.execute("BEGIN")
        assert sum(isinstance(one, Fenced) for one in won) == 1
        assert await stored(store, "r") in ([1, 2], [1, 2, 3])
        if won[1] is not None:
            with pytest.raises(Fenced):
                await follows


async def test_nothing_is_stored_behind_an_event_that_was_not(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db", hold=0.2) as store:
        log, child = Log("r"), Log("c", root_id="r", parent_id="r")
        await store.append([log.start()])
        with Lock(tmp_path / "log.db"):
            futures = [store.append([log.step(), child.start()]), store.append([log.reply()])]
            for future in futures:
                with pytest.raises(StoreError):
                    await future
            late = store.append([child.step()])  # in line before anyone could have known
        for future in (late, store.append([log.call()])):
            with pytest.raises(StoreError, match="one before it was not"):
                await future
        assert await stored(store, "r") == [1]
        log.seq = 1
        await store.append([log.resume()])
        await store.append([log.step()])
        assert await stored(store, "r") == [1, 2, 3]


async def test_what_waits_is_bounded_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.store.sqlite.MOST_HELD", 300_000)
    async with opened(tmp_path / "log.db") as store:
        told, logs = Told(store), [Log(f"r{n}") for n in range(6)]
        await asyncio.gather(*(store.append([log.start()]) for log in logs))
        with Lock(tmp_path / "log.db"):
            futures = [store.append([logs[0].result("x" * 100_000)])]
            await told.away.wait()
            futures += [store.append([log.result("x" * 100_000)]) for log in logs[1:]]
            refused = [future for future in futures if future.done()]
            assert len(refused) == 3
            for future in refused:
                with pytest.raises(StoreError, match="MB wait already for the database") as caught:
                    await future
                assert caught.value.passing
        await asyncio.gather(*futures[:3])


async def test_a_store_that_is_closed_while_its_file_is_locked_gives_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "CLOSING_SECONDS", 0.3)
    store = SqliteStore(tmp_path / "log.db", busy_seconds=0.1, hold=None)
    await store.open()
    log = Log("r")
    await store.append([log.start()])
    with Lock(tmp_path / "log.db"):
        held = store.append([log.step()])
        async with asyncio.timeout(60):
            await store.close()
        with pytest.raises(StoreError, match="locked"):
            await held


@pytest.mark.parametrize("statement", range(1, 8))
async def test_no_memory_at_any_statement_is_waited_out(tmp_path: Path, statement: int) -> None:
    counting: list[int] = []

    def before(connection: sqlite3.Connection, sql: str) -> None:
        if counting:
            counting[0] -= 1
            if counting[0] == 0:
                raise MemoryError

    async with opened(tmp_path / "log.db", factory=Faults(before=before).factory) as store:
        log, other = Log("r"), Log("s")
        await store.append([log.start()])
        counting.append(statement)
        await asyncio.gather(
            store.append([log.step(), log.reply()]),
            store.append([log.finish()]),
            store.append([other.start()]),
        )
        assert await stored(store, "r") == [1, 2, 3, 4]
        assert await stored(store, "s") == [1]


@pytest.mark.parametrize("name", ["SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN", "SQLITE_READONLY"])
async def test_a_connection_that_fails_is_made_anew(tmp_path: Path, name: str) -> None:
    broken: list[sqlite3.Connection] = []
    breaking: list[bool] = []

    def before(connection: sqlite3.Connection, sql: str) -> None:
        if breaking and sql == "BEGIN IMMEDIATE":
            broken.append(connection)
            breaking.clear()
        if connection in broken and sql in ("COMMIT", "ROLLBACK"):
            raise sqlite_error(name)

    async with opened(tmp_path / "log.db", factory=Faults(before=before).factory) as store:
        log = Log("r")
        await store.append([log.start()])
        breaking.append(True)
        await store.append([log.step()])
        assert len(broken) == 1
        assert await stored(store, "r") == [1, 2]


async def test_a_second_store_in_a_process_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """Closing a file gives up all locks that the process holds on it: another then takes its log away."""
    path = tmp_path / "log.db"
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute(\"INSERT INTO cache VALUES ('a', 'b', x'00', 1e12)\")\n"
        "connection.commit()\n"
        "connection.close()\n"
    )
    async with opened(path) as store:
        log = Log("r")
        await store.append([log.start()])
        assert await stored(store, "r") == [1]
        async with opened(path) as second:
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(path)], check=True)
            await store.append([log.step(), log.reply()])
            assert await stored(second, "r") == [1, 2, 3]
    async with opened(path) as later:
        assert await stored(later, "r") == [1, 2, 3]


@pytest.mark.parametrize("what", ["deleted", "replaced", "its log deleted"])
async def test_a_file_that_was_deleted_or_replaced_is_not_written_to(tmp_path: Path, what: str) -> None:
    path, words = tmp_path / "log.db", "replaced by another file" if what == "replaced" else "deleted"
    store = SqliteStore(path, hold=None)
    await store.open()
    told, log = Told(store), Log("r")
    await store.append([log.start()])
    await store.append([log.step()])
    if what == "its log deleted":
        path.with_name("log.db-wal").unlink()
    else:
        if what == "replaced":
            (tmp_path / "new.db").touch()
            os.replace(tmp_path / "new.db", path)
        else:
            path.unlink()
        with pytest.raises(StoreError, match=f"was {words} while it was in use"):
            await store.events("r")
    for future in (store.append([log.reply()]), store.append([Log("s").start()])):
        with pytest.raises(StoreError, match=f"was {words} while it was in use") as caught:
            await future
        assert not caught.value.passing
    await told.away.wait()
    assert store.outage is not None
    assert not store.outage.passing
    if what == "its log deleted":
        await store.close()
        return
    with pytest.raises(StoreError, match=f"was {words} while it was in use"):
        await store.close()
    assert not path.exists() or path.stat().st_size == 0, "nothing was written under the name"


async def test_a_look_that_fails_does_not_make_a_watcher_deaf(tmp_path: Path) -> None:
    failing: list[bool] = []

    def before(connection: sqlite3.Connection, sql: str) -> None:
        if failing and sql.startswith("SELECT (SELECT max(pos)"):
            failing.clear()
            raise sqlite_error("SQLITE_IOERR")

    path = tmp_path / "log.db"
    async with opened(path, factory=Faults(before=before).factory) as store, opened(path) as other:
        log, woken = Log("r"), asyncio.Event()
        await other.append([log.start()])
        failing.append(True)
        store.subscribe("r", woken.set)
        await asyncio.wait_for(woken.wait(), 60)
        assert not failing
        woken.clear()
        await other.append([log.step()])
        await asyncio.wait_for(woken.wait(), 60)


# -- PostgreSQL


@contextlib.asynccontextmanager
async def wired(url: str, **options: Any) -> AsyncIterator[tuple[PostgresStore, Wire]]:
    wire = Wire(url, server().port)
    store = PostgresStore(await wire.start(), **{"patience": 0.3, "hold": None, **options})
    await store.open()
    try:
        yield store, wire
    finally:
        await store.close()
        await wire.stop()


@pytest.mark.slow
async def test_what_a_run_wrote_waits_for_a_server_that_is_away(postgres_url: str) -> None:
    async with wired(postgres_url) as (store, wire):
        told, log = Told(store), Log("r")
        await store.append([log.start()])
        wire.take_away()
        first = store.append([log.step(), log.reply()])
        await told.away.wait()
        second = store.append([log.call()])
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            await store.append([Log("s").start()])
        assert caught.value.passing
        with pytest.raises(StoreError, match="cannot be reached"):
            await store.events("r")
        assert not first.done()
        wire.bring_back()
        await asyncio.gather(first, second)
        await told.back.wait()
        assert await stored(store, "r") == [1, 2, 3, 4]
        await store.append([Log("s").start()])


@pytest.mark.slow
async def test_a_server_that_went_away_while_it_answered_stores_nothing_twice(postgres_url: str) -> None:
    async with wired(postgres_url) as (store, wire):
        told, log = Told(store), Log("r")
        await store.append([log.start()])
        wire.sent = lambda data: b"ROLLBACK" in data  # never
        wire.lose_answer_to = b"step_started"
        writing = store.append([log.step(), log.reply()])
        while not wire.lost:
            await asyncio.sleep(0.001)
        wire.take_away()
        await told.away.wait()
        wire.bring_back()
        await writing
        assert await stored(store, "r") == [1, 2, 3]
        row = await store.run("r")
        assert row is not None
        assert row.turns == 1


@pytest.mark.slow
async def test_nothing_is_stored_in_postgresql_behind_an_event_that_was_not(postgres_url: str) -> None:
    async with wired(postgres_url, hold=0.2) as (store, wire):
        log = Log("r")
        await store.append([log.start()])
        wire.take_away()
        futures = [store.append([log.step()]), store.append([log.reply()])]
        for future in futures:
            with pytest.raises(StoreError):
                await future
        late = store.append([log.call()])
        wire.bring_back()
        with pytest.raises(StoreError, match="one before it was not"):
            await late
        assert await stored(store, "r") == [1]
        log.seq = 1
        await store.append([log.resume(), log.step()])
        assert await stored(store, "r") == [1, 2, 3]


@pytest.mark.slow
async def test_a_server_that_hangs_lets_nobody_wait_who_begins_something(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.store.postgres_writer._MARGIN_SECONDS", 0.2)
    async with wired(postgres_url) as (store, _):
        log = Log("r")
        await store.append([log.start()])
        # Another session holds the lock that every append to this workflow takes.
        hold = "SELECT pg_advisory_lock(hashtextextended('s', 0)), pg_sleep(600)"
        holder = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"import asyncio, asyncpg\nasync def main():\n    c = await asyncpg.connect({postgres_url!r})\n"
            f"    await c.execute({hold!r})\nasyncio.run(main())",
        )
        try:
            name = postgres_url.rpartition("/")[2]
            # In this database: other tests hold such locks in theirs.
            locks = (
                "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database "
                "WHERE locktype = 'advisory' AND granted AND d.datname = current_database()"
            )
            while await asyncio.to_thread(server().sql, locks, name) == "0":
                await asyncio.sleep(0.02)
            with pytest.raises(StoreError, match=r"has not answered for 0\.5 s") as caught:
                await store.append([Log("s").start()])
            assert caught.value.passing
        finally:
            holder.kill()
            await holder.wait()
        server().sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' "
            "AND pid <> pg_backend_pid()"
        )
        await store.append([log.step()])
        assert await stored(store, "r") == [1, 2]
