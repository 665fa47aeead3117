"""Two processes on one workflow: one goes on, the other stops with a clear message, the log stays whole."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import killing
import msgspec
import pytest

from retinue.app import Retinue
from retinue.errors import Fenced, RunError
from retinue.events import RunFinished, RunResumed, now
from retinue.fold import fold
from retinue.store.base import Signal, Store
from retinue.store.connect import connect
from retinue.testing.provider import FakeProvider
from retinue.testing.script import Script, SeenRequest, call
from retinue.types import ENDED, AssistantMessage


def app(url: str, folder: Path, provider: FakeProvider) -> Retinue:
    return Retinue(
        db=url,
        model="openai:fake-model",
        cwd=folder,
        agents=killing.AGENTS,
        tools=killing.tools(folder),
        yes=True,
        settings={"delegation.tools": ["agents", "parallel_tasks"]},
        environ={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": provider.openai_url, "HOME": str(folder)},
    )


async def whole(store: Store, root_id: str) -> None:
    """No gap, no repeat: every log folds."""
    events = await store.events(root_id)
    assert [e.pos for e in events] == list(range(1, len(events) + 1))
    for run_id in {e.run_id for e in events}:
        log = [e for e in events if e.run_id == run_id]
        assert [e.seq for e in log] == list(range(1, len(log) + 1))
        assert fold(log).report is not None


async def test_a_run_that_is_taken_over_stops_where_it_was_and_the_new_owner_finishes(
    durable_url: str, tmp_path: Path
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(request: SeenRequest) -> Script:
        if not asked.is_set():
            asked.set()
            await go.wait()
        return killing.answer(request)

    async with (
        FakeProvider(slow) as provider,
        app(durable_url, tmp_path, provider) as old,
        app(durable_url, tmp_path, provider) as new,
    ):
        root = await old.start(killing.agent("root"), "sequential")
        await asked.wait()
        waiting = asyncio.create_task(old.wait(root))
        await new.resume(root, take_over=True)
        report = await new.wait(root)
        go.set()
        with pytest.raises(Fenced, match="another process"):
            await waiting
        assert report.text == "sequential finished"
        await whole(new.store, root)


async def test_two_processes_that_resume_the_same_run_leave_one_winner(
    durable_url: str, tmp_path: Path
) -> None:
    async with FakeProvider(killing.answer) as provider:
        for round_ in range(4):
            root, folder = f"r0fence{round_}", tmp_path / str(round_)
            folder.mkdir()
            code = await killing.in_process(
                durable_url, str(folder), provider.openai_url, "nested", root, 5 + 7 * round_
            )
            assert code == -9
            arguments = (durable_url, str(folder), provider.openai_url, "nested", root, None)
            codes = await asyncio.gather(*(killing.in_process(*arguments) for _ in range(2)))
            assert 0 in codes, f"neither finished: {codes}"
            assert (folder / "report").read_text() == "nested finished"
            store = connect(durable_url)
            await store.open()
            await whole(store, root)
            events = await store.events(root)
            assert sum(isinstance(e, RunFinished) and e.run_id == root for e in events) == 1
            assert any(isinstance(e, RunResumed) for e in events)
            await store.close()


async def test_a_run_whose_process_still_lives_is_not_taken_away_by_accident(
    durable_url: str, tmp_path: Path
) -> None:
    arguments = (durable_url, str(tmp_path), "", "approvals", "r0alive", None)
    async with FakeProvider(killing.answer) as provider:
        arguments = (*arguments[:2], provider.openai_url, *arguments[3:])
        process = killing.context.Process(target=killing.main, args=arguments)
        await asyncio.to_thread(process.start)
        store = connect(durable_url)
        await store.open()
        async with asyncio.timeout(60):
            while len(questions := await store.waiting("r0alive")) < 2:
                await asyncio.sleep(0.02)
        async with app(durable_url, tmp_path, provider) as other:
            with pytest.raises(RunError, match=f"still running in process {process.pid}"):
                await other.resume("r0alive")
        for asked in questions:  # answered from this process, they reach that one
            signal = Signal(
                root_id="r0alive",
                run_id=asked.run_id,
                kind="answer",
                key=asked.approval_id,
                body=json.dumps({"decision": "reject", "reason": "no"}),
                at=now(),
            )
            assert await store.send(signal)
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == 0
        assert (tmp_path / "report").read_text() == "approvals finished"
        await store.close()


async def test_a_tree_that_is_taken_over_while_a_child_works_has_one_owner_who_finishes_it(
    durable_url: str, tmp_path: Path
) -> None:
    asked: asyncio.Queue[None] = asyncio.Queue()
    go = asyncio.Event()

    async def slow(request: SeenRequest) -> Script:
        if "PLAY leaf" in request.system and not go.is_set():
            asked.put_nowait(None)
            await go.wait()
        return killing.answer(request)

    async with (
        FakeProvider(slow) as provider,
        app(durable_url, tmp_path, provider) as old,
        app(durable_url, tmp_path, provider) as new,
    ):
        root = await old.start(killing.agent("root"), "parallel")
        for _ in range(3):
            await asyncio.wait_for(asked.get(), 60)
        waiting = asyncio.create_task(old.wait(root))
        await new.resume(root, take_over=True)
        with pytest.raises(Fenced, match="another process"):
            await asyncio.wait_for(waiting, 60)  # it leaves by itself, though it had nothing to write
        assert not old.is_running(root)
        go.set()
        report = await asyncio.wait_for(new.wait(root), 60)
        assert report.text == "parallel finished"
        assert {row.status for row in await new.store.tree(root)} == {"completed"}
        await whole(new.store, root)


async def test_a_busy_tree_can_be_taken_over_at_any_moment(durable_url: str, tmp_path: Path) -> None:
    replies, taken = 0, asyncio.Event()

    async def busy(request: SeenRequest) -> Script:
        nonlocal replies
        replies += 1
        turns = sum(isinstance(m, AssistantMessage) for m in request.messages)
        if "PLAY leaf" in request.system:
            if turns < 6:
                return Script(calls=(call("look", what=str(turns)),))
            await taken.wait()  # the old owner works, and does not get to the end
        return killing.answer(request)

    async with (
        FakeProvider(busy) as provider,
        app(durable_url, tmp_path, provider) as old,
        app(durable_url, tmp_path, provider) as new,
    ):
        for round_ in range(5):
            replies = 0
            taken.clear()
            root = await old.start(killing.agent("root"), "parallel")
            waiting = asyncio.create_task(old.wait(root))
            async with asyncio.timeout(60):
                while replies < 2 + 4 * round_:
                    await asyncio.sleep(0.001)
            await new.resume(root, take_over=True)
            taken.set()
            report = await asyncio.wait_for(new.wait(root), 60)
            assert report.text == "parallel finished"
            with pytest.raises(Fenced, match="another process"):
                await asyncio.wait_for(waiting, 60)
            await whole(new.store, root)


async def test_a_run_without_an_owner_of_another_machine_is_only_taken_over_on_purpose(
    durable_url: str, tmp_path: Path
) -> None:
    async with FakeProvider(killing.answer) as provider, app(durable_url, tmp_path, provider) as retinue:
        root = (await retinue.run(killing.agent("root"), "sequential")).run_id
        events = (await retinue.store.events(root))[:3]
        moved = [msgspec.structs.replace(e, pos=0, run_id="r0moved", root_id="r0moved") for e in events]
        moved[0] = msgspec.structs.replace(moved[0], host="elsewhere", pid=17, owner="")
        await retinue.store.append(moved)
        with pytest.raises(RunError, match="older Retinue in process 17 on elsewhere"):
            await retinue.resume("r0moved")
        await retinue.resume("r0moved", take_over=True)
        assert (await retinue.wait("r0moved")).text == "sequential finished"


async def test_a_tree_of_a_dead_process_is_cancelled_whole_and_can_be_taken_up_later(
    durable_url: str, tmp_path: Path
) -> None:
    async with FakeProvider(killing.answer) as provider:
        arguments = (durable_url, str(tmp_path), provider.openai_url, "nested", "r0dead")
        assert await killing.in_process(*arguments, 14) == -9
        async with app(durable_url, tmp_path, provider) as retinue:
            unended = [row for row in await retinue.store.tree("r0dead") if row.status not in ENDED]
            assert len(unended) > 1
            asked = len(provider.requests)
            assert await retinue.cancel("r0dead", "not now")
            assert len(provider.requests) == asked, "nothing is asked to end a run"
            rows = {row.run_id: row for row in await retinue.store.tree("r0dead")}
            assert all(rows[row.run_id].error == "not now" for row in unended)
            await whole(retinue.store, "r0dead")
        assert await killing.in_process(*arguments, None) == 0
        assert (tmp_path / "report").read_text() == "nested finished"
        async with app(durable_url, tmp_path, provider) as retinue:
            assert {row.status for row in await retinue.store.tree("r0dead")} == {"completed"}
            await whole(retinue.store, "r0dead")
