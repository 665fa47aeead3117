"""Runs of one process, through the front door: kept while they run, listened to, and told apart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.engine import outbox, workflows
from retinue.errors import ConfigError, ModelError, RunError, StoreError
from retinue.events import ChildEnded, ChildStarted, Event, RunFinished, RunResumed
from retinue.fold import fold
from retinue.models.listing import listed_models
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, Step, call
from retinue.types import ModelRequest, ToolMessage
from trees import agent

BOSS = agent("boss", tools=("*",))


class FillingDisk(MemoryStore):
    """A store whose disk is full from some moment on."""

    full = False

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        if not self.full:
            return super().append(events)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreError("the disk is full"))
        return failed


def opened(model: ScriptedModel, folder: Path, **options: Any) -> Retinue:
    options.setdefault("db", MemoryStore())
    return Retinue(model=model, cwd=folder, environ={}, **options)


async def test_a_run_taken_up_again_soon_after_its_end_is_not_forgotten_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "REMEMBERED", 0.2)
    gate = asyncio.Event()
    async with opened(ScriptedModel(["first", Step(text="second", gate=gate)]), tmp_path) as retinue:
        root = (await retinue.run(BOSS, "go")).run_id
        await retinue.resume(root, message="more")
        time_is_up = asyncio.Event()
        asyncio.get_running_loop().call_later(workflows.REMEMBERED, time_is_up.set)
        await time_is_up.wait()  # the timer of the first end has gone off by now
        assert retinue.is_running(root)
        row = await retinue.store.run(root)
        assert row is not None
        assert not await retinue.abandoned(root)
        with pytest.raises(RunError, match="already running here"):
            await retinue.resume(root, message="a third")
        gate.set()
        assert (await retinue.wait(root)).text == "second"


async def test_who_listens_to_a_run_that_the_store_has_failed_is_told_why(tmp_path: Path) -> None:
    store = FillingDisk()

    def fill(request: object) -> str:
        store.full = True
        return "an answer that cannot be kept"

    async with opened(ScriptedModel([fill]), tmp_path, db=store) as retinue:
        heard: list[object] = []

        async def listen() -> None:
            async for event in retinue.stream(BOSS, "go"):
                heard.append(event)

        with pytest.raises(StoreError, match="the disk is full"):
            await asyncio.wait_for(listen(), 60)
        assert heard
        assert not any(isinstance(event, RunFinished) for event in heard)


class Forgetful(MemoryStore):
    """A store that fails once, when a child is to be started, and works again afterwards."""

    failed = False

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        if self.failed or not any(isinstance(event, ChildStarted) for event in events):
            return super().append(events)
        self.failed = True
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(written.set_exception, StoreError("the disk was full"))
        return written


async def test_a_child_whose_start_was_not_stored_asks_no_model_and_writes_nothing(tmp_path: Path) -> None:
    store = Forgetful()
    model = ScriptedModel({"PLAY boss": [call("worker", prompt="p"), "done"], "PLAY worker": ["paid for"]})
    async with opened(model, tmp_path, db=store, agents=[agent("worker")]) as retinue:
        root = await retinue.start(BOSS, "go")
        with pytest.raises(StoreError, match="the disk was full"):
            await retinue.wait(root)
        assert not any("PLAY worker" in request.system for request in model.requests)
        assert {event.run_id for event in await store.events(root)} == {root}
        # It was never started, so it is started when the run is taken up.
        await retinue.resume(root)
        assert (await retinue.wait(root)).text == "done"
    assert [row.status for row in await store.tree(root)] == ["completed", "completed"]
    model.assert_done()


async def left_behind(folder: Path, store: MemoryStore, **options: Any) -> str:
    """A tree whose process stopped working on it: a root, a child, and a grandchild that asks a person."""
    model = ScriptedModel(
        {
            "PLAY boss": [call("mid", prompt="p")],
            "PLAY mid": [[call("worker", prompt="p"), call("ls", path=".")]],
            "PLAY worker": [Step(text="so far", calls=(call("bash", command="ls"),))],
        }
    )
    agents = [agent("mid"), agent("worker")]
    settings = {"delegation.policy": "nested"}
    async with opened(
        model, folder, db=store, agents=agents, settings=settings, answering="ask", **options
    ) as retinue:
        root = await retinue.start(BOSS, "go")
        async with asyncio.timeout(60):
            while not await store.waiting(root):
                await asyncio.sleep(0.002)
        await retinue.leave()
    return root


@pytest.mark.parametrize("dead", [True, False], ids=["of a dead process", "that was left here"])
async def test_a_run_that_nobody_works_on_can_be_cancelled(
    dead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "NOTICE", 0.05)
    store = MemoryStore()
    with monkeypatch.context() as other:
        if dead:
            other.setattr(os, "getpid", lambda: 2**22 + 1)  # above every process id there can be
        root = await left_behind(tmp_path, store)
    async with opened(ScriptedModel(["went on"]), tmp_path, db=store) as retinue:
        assert await retinue.cancel(root, "not any more")
        rows = await store.tree(root)
        assert [(row.status, row.error) for row in rows] == [("cancelled", "not any more")] * 3
        assert not await retinue.approvals()
        assert not await retinue.cancel(root), "it has ended"
        logs: dict[str, list[Any]] = {}
        for event in await store.events(root):
            logs.setdefault(event.run_id, []).append(event)
        for log in logs.values():
            assert [event.seq for event in log] == list(range(1, len(log) + 1))
            assert isinstance(log[-1], RunFinished)
        reports = [fold(log).report for log in logs.values()]
        assert reports[-1] is not None
        assert reports[-1].text == "so far", "partial work is kept"
        assert reports[0] is not None
        assert reports[0].usage.input_tokens == 30, "what its children cost is in its report"
        ended = [event for event in await store.events(root) if isinstance(event, ChildEnded)]
        assert len(ended) == 2


async def test_a_child_that_nobody_works_on_is_cancelled_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "NOTICE", 0.05)
    store = MemoryStore()
    root = await left_behind(tmp_path, store)
    worker = (await store.tree(root))[-1].run_id
    said: list[str] = []

    def mid(request: ModelRequest) -> str:
        said.append(next(m.text for m in request.messages if isinstance(m, ToolMessage)))
        return "mid is done"

    model = ScriptedModel({"PLAY boss": ["done"], "PLAY mid": [mid], "PLAY worker": []})
    async with opened(
        model,
        tmp_path,
        db=store,
        agents=[agent("mid"), agent("worker")],
        settings={"delegation.policy": "nested"},
    ) as retinue:
        assert await retinue.cancel(worker, "not this one")
        assert [row.status for row in await store.tree(root)] == ["running", "running", "cancelled"]
        await retinue.resume(root)
        assert (await asyncio.wait_for(retinue.wait(root), 60)).text == "done"
    assert "not this one" in said[0], "it was cancelled by a person, so it is not taken up with the others"


async def test_a_cancel_reaches_a_run_of_another_part_of_the_same_program(tmp_path: Path) -> None:
    store, gate = MemoryStore(), asyncio.Event()
    async with (
        opened(ScriptedModel([Step(text="x", gate=gate)]), tmp_path, db=store) as one,
        opened(ScriptedModel([]), tmp_path, db=store) as other,
    ):
        root = await one.start(BOSS, "go")
        assert await other.cancel(root, "from over there")
        report = await asyncio.wait_for(one.wait(root), 60)
        assert (report.status, report.error) == ("cancelled", "from over there")


async def test_whoever_takes_a_run_up_says_anew_whether_everything_is_approved(tmp_path: Path) -> None:
    store = MemoryStore()
    calls = [call("bash", command="echo ran > ran.txt"), "done"]
    async with opened(ScriptedModel([ModelError("no", kind="auth")]), tmp_path, db=store, yes=True) as first:
        root = (await first.run(BOSS, "go")).run_id
    async with opened(ScriptedModel(calls), tmp_path, db=store) as retinue:
        await retinue.resume(root)
        await retinue.wait(root)
        assert not (tmp_path / "ran.txt").exists(), "the --yes of its start is not that of its resume"
    async with opened(ScriptedModel(calls), tmp_path, db=store) as retinue:
        await retinue.resume(root, message="again", yes=True)
        await retinue.wait(root)
        assert (tmp_path / "ran.txt").exists()
        resumed = [e.yes for e in await store.events(root) if isinstance(e, RunResumed)]
        assert resumed == [False, True]


async def test_an_answer_counts_only_for_a_question_that_waits(tmp_path: Path) -> None:
    model = ScriptedModel([call("bash", command="ls"), "done"])
    async with opened(model, tmp_path, answering="ask") as retinue:
        root = await retinue.start(BOSS, "go")
        async with asyncio.timeout(60):
            while not (asked := await retinue.approvals()):
                await asyncio.sleep(0.002)
        with pytest.raises(ConfigError, match="there is no question"):
            await retinue.answer(f"{root}:never", "approve")
        await retinue.cancel(root, "enough")
        await retinue.wait(root)
        assert not await retinue.answer(asked[0].approval_id, "approve"), "the run that asked has ended"


async def test_a_run_whose_log_takes_nothing_more_can_still_be_stopped(tmp_path: Path) -> None:
    store, gate = FillingDisk(), asyncio.Event()
    model = ScriptedModel(
        {
            "PLAY boss": [[call("worker", prompt="p"), call("ls", path=".")], "x"],
            "PLAY worker": [Step(text="w", last_gate=gate)],
        }
    )
    async with opened(model, tmp_path, db=store, agents=[agent("worker")]) as retinue:
        root = await retinue.start(BOSS, "go")
        async with asyncio.timeout(60):
            while not any("PLAY worker" in request.system for request in model.requests):
                await asyncio.sleep(0.002)
        store.full = True
        waiting = asyncio.create_task(retinue.wait(root))
        await asyncio.sleep(0)
        waiting.cancel()  # which stops the run
        await asyncio.wait([waiting], timeout=60)
        assert waiting.done()
        assert not retinue.is_running(root)


async def test_one_part_that_cannot_be_closed_does_not_keep_the_others_open(tmp_path: Path) -> None:
    class Closing(MemoryStore):
        closed = False

        async def close(self) -> None:
            self.closed = True

    async def broken() -> None:
        raise OSError("it is stuck")

    store = Closing()
    retinue = opened(ScriptedModel([]), tmp_path, db=store)
    await retinue.__aenter__()
    retinue.services.closers.insert(0, broken)
    with pytest.raises(OSError, match="it is stuck"):
        await retinue.__aexit__()
    assert store.closed


async def test_of_two_who_wait_for_a_run_one_may_be_cancelled(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with opened(ScriptedModel([Step(text="fine", gate=gate)]), tmp_path) as retinue:
        root = await retinue.start(BOSS, "go")
        waiting = [asyncio.create_task(retinue.wait(root)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait([waiting[0]])
        gate.set()
        assert (await waiting[1]).text == "fine"
        assert waiting[0].cancelled()


async def test_whoever_waits_last_takes_the_run_with_them(tmp_path: Path) -> None:
    async with opened(ScriptedModel([Step(text="never", gate=asyncio.Event())]), tmp_path) as retinue:
        root = await retinue.start(BOSS, "go")
        waiting = [asyncio.create_task(retinue.wait(root)) for _ in range(2)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert not retinue.is_running(root)
        row = await retinue.store.run(root)
        assert row is not None
        assert row.status == "cancelled"


async def test_who_stops_following_a_run_that_somebody_waits_for_does_not_end_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with opened(ScriptedModel([Step(text="fine", gate=gate)]), tmp_path) as retinue:
        events = retinue.stream(BOSS, "go")
        root = (await anext(events)).root_id
        waiting = asyncio.create_task(retinue.wait(root))
        await asyncio.sleep(0)
        await events.aclose()
        gate.set()
        assert (await waiting).text == "fine"


async def test_a_server_that_does_not_say_its_model_is_asked_in_the_runs_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listed_models.__kwdefaults__ is not None
    monkeypatch.setitem(listed_models.__kwdefaults__, "seconds", 3600.0)
    taken: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    environ = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "k"}
    async with asyncio.timeout(60), Retinue(db="memory:", cwd=tmp_path, environ=environ) as retinue:
        report = await retinue.run("general", "go", settings={"limits.timeout": 1})
    server.close()
    for writer in taken:
        writer.close()
    assert (report.status, report.ended_by) == ("error", "timeout")
