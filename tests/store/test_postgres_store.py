"""What is particular to PostgreSQL: lost connections, secrets, the schema, who listens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from runlog import Log

from faults import Wire
from pg import server
from retinue.errors import StoreError
from retinue.events import AnyEvent
from retinue.store.base import Signal
from retinue.store.follow import follow
from retinue.store.postgres import PostgresStore

pytestmark = pytest.mark.slow


def name(url: str) -> str:
    return url.rpartition("/")[2]


@contextlib.asynccontextmanager
async def opened(url: str, **options: float) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def cut(url: str) -> int:
    """End every connection to a database, as an operator or a restart would."""
    said = server().sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        f"WHERE datname = '{name(url)}' AND pid <> pg_backend_pid()"
    )
    return int(said)


async def test_appends_go_on_after_every_connection_was_cut(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        log = Log("r")
        await store.append([log.start()])
        assert await store.count("r") == 1
        for _ in range(3):
            assert await asyncio.to_thread(cut, postgres_url) >= 1
            await store.append([log.step(), log.reply()])
            assert await store.count("r") == log.seq
        assert [event.seq for event in await store.events("r")] == list(range(1, 8))


async def test_cutting_while_many_write_loses_and_repeats_nothing(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        logs = [Log(f"c{n}", root_id="r") for n in range(10)]

        async def write(log: Log) -> None:
            await store.append([log.start()])
            for _ in range(40):
                await store.append([log.step(), log.reply()])

        writing = asyncio.gather(*(write(log) for log in logs))
        while not writing.done():
            await asyncio.to_thread(cut, postgres_url)
            await asyncio.wait([writing], timeout=0.05)
        await writing
        found = await store.events("r")
        assert [event.pos for event in found] == list(range(1, 811))
        for log in logs:
            row = await store.run(log.run_id)
            assert row is not None
            assert row.turns == 40


async def test_a_batch_whose_answer_was_lost_is_not_stored_twice(postgres_url: str) -> None:
    wire = Wire(postgres_url, server().port)
    url = await wire.start()
    async with opened(url) as store:
        log, other = Log("r"), Log("s")
        await store.append([log.start()])
        wire.lose_answer_to = b"step_started"
        events = [log.step(), log.reply()]
        await asyncio.gather(store.append(events), store.append([other.start()]))
        assert wire.lost == 1
        assert [event.pos for event in events] == [2, 3]
        found = await store.events("r")
        assert [event.seq for event in found] == [1, 2, 3]
        row = await store.run("r")
        assert row is not None
        assert row.turns == 1
    await wire.stop()


async def test_a_signal_whose_answer_was_lost_still_counts_as_ours(postgres_url: str) -> None:
    wire = Wire(postgres_url, server().port)
    url = await wire.start()
    async with opened(url) as store:
        assert await store.signals("r") == []
        wire.lose_answer_to = b"COMMIT"
        signal = Signal(root_id="r", run_id="r", kind="cancel", key="k", body="stop", at=1.5)
        assert await store.send(signal) is True
        assert wire.lost == 1
        assert await store.send(signal) is False
        assert len(await store.signals("r")) == 1
    await wire.stop()


async def test_a_server_that_stays_away_is_reported_without_the_password(postgres_url: str) -> None:
    wire = Wire(postgres_url, server().port)
    url = await wire.start()
    async with opened(url, patience=0.3, hold=0.3) as store:
        log = Log("r")
        await store.append([log.start()])
        await wire.stop()
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            await store.append([log.step()])
        with pytest.raises(StoreError, match="cannot be reached"):
            await store.events("r")
    assert "throw-away" not in str(caught.value)
    assert "retinue@127.0.0.1" in str(caught.value)


async def test_a_wrong_password_is_not_repeated(postgres_url: str) -> None:
    with pytest.raises(StoreError, match="password authentication failed") as caught:
        await PostgresStore(postgres_url.replace("throw-away", "hunter2")).open()
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError, match="does not exist"):
        await PostgresStore(postgres_url + "_not").open()


async def test_a_follower_hears_again_after_its_connection_was_cut(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        log = Log("r")
        seen: list[AnyEvent] = []

        async def read() -> None:
            async with contextlib.aclosing(follow(store, "r")) as events:
                async for event in events:
                    seen.append(event)
                    if event.seq == 20:
                        return

        reader = asyncio.create_task(read())
        await other.append([log.start()])
        while not seen:
            await asyncio.sleep(0.01)
        while log.seq < 20:
            await asyncio.to_thread(cut, postgres_url)
            await other.append([log.step()])
        await asyncio.wait_for(reader, 60)
        assert [event.seq for event in seen] == list(range(1, 21))


async def test_stores_that_open_a_new_database_at_once_all_succeed(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.append([Log(f"r{n}").start()]) for n, store in enumerate(stores)))
    assert await stores[0].count("r5") == 1
    for store in stores:
        await store.close()


async def test_a_newer_or_foreign_database_is_refused(postgres_url: str) -> None:
    async with opened(postgres_url):
        pass
    for change, message in (
        ("UPDATE retinue_schema SET version = 999", "has version 999, this Retinue knows up to"),
        ("DELETE FROM retinue_schema", "does not say which version it has"),
        ("DROP TABLE retinue_schema", "belongs to another program .it has a table 'cache'."),
        (
            "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('ae1027a6acf')",
            "belongs to another program .its version is 'ae1027a6acf'.",
        ),
    ):
        server().sql(change, name(postgres_url))
        with pytest.raises(StoreError, match=message) as caught:
            await PostgresStore(postgres_url).open()
        assert "postgresql://retinue@127.0.0.1:" in str(caught.value)
