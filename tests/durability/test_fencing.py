"""Two processes on one workflow: one goes on, the other stops with a clear message, the log stays whole."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import killing
import pytest

from retinue.app import Retinue
from retinue.errors import Fenced, RunError
from retinue.events import RunFinished, RunResumed, now
from retinue.fold import fold
from retinue.store.base import Letter, Store
from retinue.store.connect import connect
from retinue.testing.provider import FakeProvider
from retinue.testing.script import Script, SeenRequest


def app(url: str, folder: Path, provider: FakeProvider) -> Retinue:
    return Retinue(
        db=url,
        model="openai:fake-model",
        cwd=folder,
        agents=killing.AGENTS,
        tools=killing.tools(folder),
        yes=True,
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
        async with asyncio.timeout(30):
            while len(questions := await store.waiting("r0alive")) < 2:
                await asyncio.sleep(0.02)
        async with app(durable_url, tmp_path, provider) as other:
            with pytest.raises(RunError, match=f"still running in process {process.pid}"):
                await other.resume("r0alive")
        for asked in questions:  # answered from this process, they reach that one
            letter = Letter(
                root_id="r0alive",
                run_id=asked.run_id,
                kind="answer",
                key=asked.approval_id,
                body=json.dumps({"decision": "reject", "reason": "no"}),
                at=now(),
            )
            assert await store.post(letter)
        await asyncio.to_thread(process.join, 30)
        assert process.exitcode == 0
        assert (tmp_path / "report").read_text() == "approvals finished"
        await store.close()
