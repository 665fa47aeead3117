"""Runs that were accepted go on by themselves: all of them, whoever dropped them, while a server lives."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import msgspec
import pytest
from process import Serving

from faults import Lock, Wire
from pg import postgres_url as postgres_url
from pg import server
from retinue.app import Retinue
from retinue.engine import take_up
from retinue.events import ModelReplied, RunResumed, RunStarted, now
from retinue.store.base import OwnerRow, RunFilter, RunRow, Signal, Store
from retinue.store.connect import connect
from retinue.store.memory import MemoryStore
from retinue.store.sqlite import SqliteStore
from retinue.testing import FakeProvider, Script, ScriptedModel, SeenRequest
from trees import agent

MANY = 1200


async def left_behind(store: Store, folder: Path, count: int) -> None:
    """Workflows that somebody had begun who is gone."""
    async with Retinue(model=ScriptedModel(["x"]), cwd=folder, environ={}, db="memory:") as retinue:
        root = (await retinue.run("general", "go")).run_id
        began = (await retinue.store.events(root))[0]
    assert isinstance(began, RunStarted)
    for n in range(count):
        mine = f"r0left{n}"
        copy = msgspec.structs.replace(
            began, run_id=mine, root_id=mine, pos=0, at=now(), owner="0" * 32, model="openai:fake-model"
        )
        await store.append([copy])


async def statuses(store: Store) -> Counter[str]:
    return Counter(row.status for row in await store.runs(RunFilter(roots_only=True, limit=10 * MANY)))


async def all_completed(store: Store, count: int) -> None:
    async with asyncio.timeout(240):
        while (await statuses(store))["completed"] < count:
            await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_server_that_starts_takes_up_every_run_that_was_left_behind(tmp_path: Path) -> None:
    async with FakeProvider(lambda request: Script(text="done")) as provider:
        serving = Serving(tmp_path, provider)
        store = connect(serving.db)
        await store.open()
        await left_behind(store, serving.folder, MANY)
        async with serving:
            await serving.start()
            await all_completed(store, MANY)
        assert provider.served == MANY, "and each of them once"
        await store.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_runs_under_way_while_postgresql_is_away_end_by_themselves_when_it_is_back(
    tmp_path: Path, postgres_url: str
) -> None:
    go = asyncio.Event()

    async def answer(request: SeenRequest) -> Script:
        await go.wait()
        return Script(text="done")

    wire = Wire(postgres_url, server().port)
    async with FakeProvider(answer) as provider, Serving(tmp_path, provider) as serving:
        serving.db = await wire.start()
        await serving.start()
        async with aiohttp.ClientSession() as session:
            for n in range(20):
                body = {"prompt": str(n)}
                async with session.post(f"{serving.url}/api/v1/runs", json=body) as answered:
                    assert answered.status == 201
        async with asyncio.timeout(60):
            while len(provider.requests) < 20:
                await asyncio.sleep(0.02)
        wire.take_away()
        go.set()
        async with asyncio.timeout(60):
            while not any("waits for it" in line for line in serving.said):
                await asyncio.sleep(0.05)
        wire.bring_back()
        store = connect(postgres_url)
        await store.open()
        await all_completed(store, 20)
        assert provider.served == 20, "no reply is paid for twice"
        await store.close()
    await wire.stop()


async def test_a_run_that_a_failing_database_has_dropped_is_taken_up_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_up, "LOOK_SECONDS", 0.05)
    asked, go = asyncio.Event(), asyncio.Event()

    async def play(request: object) -> str:
        asked.set()
        await go.wait()
        return "done"

    store = SqliteStore(tmp_path / "log.db", busy_seconds=0.1, hold=0.1)
    async with Retinue(model=ScriptedModel(play), db=store, cwd=tmp_path, environ={}) as retinue:
        keeping = asyncio.create_task(retinue.take_up.keep())
        root = await retinue.start(agent("root"), "go")
        await asked.wait()
        with Lock(tmp_path / "log.db"):
            go.set()
            async with asyncio.timeout(60):
                while retinue.is_running(root):
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while (await statuses(store))["completed"] < 1:
                await asyncio.sleep(0.02)
        events = await store.events(root)
        assert sum(isinstance(event, RunResumed) for event in events) == 1
        assert sum(isinstance(event, ModelReplied) for event in events) == 1
        keeping.cancel()
        await asyncio.wait([keeping])


async def test_what_cannot_be_taken_up_is_told_of_once_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(take_up, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(take_up, "LONGEST_PAUSE", 0.0)
    async with Retinue(model=ScriptedModel(["went on"]), db="memory:", cwd=tmp_path, environ={}) as retinue:
        await left_behind(retinue.store, tmp_path, 2)  # of a model that there is no key for
        good = await retinue.store.events("r0left1", run_id="r0left1")
        assert isinstance(good[0], RunStarted)
        copy = msgspec.structs.replace(
            good[0], run_id="r0good", root_id="r0good", pos=0, model=retinue.model_name
        )
        await retinue.store.append([copy])
        assert await retinue.resume_abandoned() == ["r0good"]
        assert (await retinue.wait("r0good")).text == "went on"
        for _ in range(3):
            assert await retinue.resume_abandoned() == []
        told = [record.message for record in caplog.records if "cannot be taken up" in record.message]
        assert len(told) == 2


class Counting(MemoryStore):
    """Knows how often it was asked for runs, and for owners."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = self.looks = 0

    async def runs(self, which: RunFilter) -> list[RunRow]:
        self.lists += 1
        return await super().runs(which)

    async def owners(self) -> list[OwnerRow]:
        self.looks += 1
        return await super().owners()


async def never(request: object) -> str:
    await asyncio.Event().wait()
    return ""


async def test_what_was_dropped_here_and_goes_on_elsewhere_is_not_looked_for_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_up, "LOOK_SECONDS", 0.01)
    store = Counting()
    async with (
        Retinue(model=ScriptedModel(never), db=store, cwd=tmp_path, environ={}) as here,
        Retinue(model=ScriptedModel(never), db=store, cwd=tmp_path, environ={}) as elsewhere,
    ):
        for works_on_it in (elsewhere, here):
            root = await works_on_it.start(agent("root"), "go")
            here.take_up.dropped(root)
            store.lists = store.looks = 0
            keeping = asyncio.create_task(here.take_up.keep())
            async with asyncio.timeout(60):
                while store.looks < 30:
                    await asyncio.sleep(0.01)
            assert store.lists <= 6, "all that is unfinished is three lists"
            keeping.cancel()
            await asyncio.wait([keeping])


class Odd(MemoryStore):
    """Has something that nobody can read, at first."""

    odd = True

    async def runs(self, which: RunFilter) -> list[RunRow]:
        if self.odd:
            self.odd = False
            raise ValueError("a row of a later version")
        return await super().runs(which)


async def test_whatever_goes_wrong_with_a_look_the_next_one_takes_up_what_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(take_up, "LOOK_SECONDS", 0.01)
    store = Odd()
    async with (
        Retinue(model=ScriptedModel(never), db=store, cwd=tmp_path, environ={}) as gone,
        Retinue(model=ScriptedModel(["went on"]), db=store, cwd=tmp_path, environ={}) as here,
    ):
        root = await gone.start(agent("root"), "go")
        await gone.leave()
        keeping = asyncio.create_task(here.take_up.keep())
        async with asyncio.timeout(60):
            while (row := await store.run(root)) is not None and row.status != "completed":
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.wait([keeping])
    assert not store.odd
    assert "a row of a later version" in caplog.text


class Slow(MemoryStore):
    """Lists runs as they were, and gives the list out only when somebody lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.listed, self.go = asyncio.Event(), asyncio.Event()

    async def runs(self, which: RunFilter) -> list[RunRow]:
        rows = await super().runs(which)
        if rows:
            self.listed.set()
            await self.go.wait()
        return rows


async def test_a_run_that_ends_while_the_list_is_read_is_not_called_left_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answering = asyncio.Event()

    async def answer(request: object) -> str:
        await answering.wait()
        return "done"

    store = Slow()
    async with Retinue(model=ScriptedModel(answer), db=store, cwd=tmp_path, environ={}) as retinue:
        root = await retinue.start(agent("root"), "go")
        looking = asyncio.create_task(retinue.resume_abandoned())
        await store.listed.wait()
        answering.set()
        assert (await retinue.wait(root)).text == "done"
        async with asyncio.timeout(60):
            while retinue.is_running(root):
                await asyncio.sleep(0.01)
        store.go.set()
        assert await looking == []
    assert "cannot be taken up" not in caplog.text


async def test_what_was_taken_up_here_and_then_taken_away_is_taken_up_again(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 'log.db'}"
    async with (
        Retinue(model=ScriptedModel(never), db=db, cwd=tmp_path, environ={}) as one,
        Retinue(model=ScriptedModel(never), db=db, cwd=tmp_path, environ={}) as other,
    ):
        root = await other.start(agent("root"), "go")
        await other.leave()
        one.take_up.dropped(root)  # as after a failure
        assert await one.resume_abandoned() == [root]
        await other.resume(root, take_over=True)
        async with asyncio.timeout(60):
            while one.is_running(root):
                await asyncio.sleep(0.01)
        await other.leave()
        assert await one.resume_abandoned() == [root]


@pytest.mark.parametrize("clock", [-86_400.0, 86_400.0])
async def test_a_cancel_counts_if_it_came_since_the_run_was_taken_up_whatever_clocks_say(
    tmp_path: Path, clock: float
) -> None:
    store = MemoryStore()
    async with (
        Retinue(model=ScriptedModel(never), db=store, cwd=tmp_path, environ={}) as one,
        Retinue(model=ScriptedModel(never), db=store, cwd=tmp_path, environ={}) as other,
    ):

        async def tell_to_stop(root: str, key: str) -> None:
            signal = Signal(root_id=root, run_id=root, kind="cancel", key=key, body="{}", at=now() + clock)
            assert await store.send(signal)

        root = await other.start(agent("root"), "go")
        await other.leave()
        await tell_to_stop(root, "cancel-1")
        await other.resume(root)  # on purpose, after that
        await other.leave()
        assert await one.resume_abandoned() == [root], "the old cancel is done with"
        await one.leave()
        await tell_to_stop(root, "cancel-2")
        assert await other.resume_abandoned() == []
        assert (await statuses(store)) == {"cancelled": 1}
