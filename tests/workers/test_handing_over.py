"""Runs that workers do: handed over in one transaction, followed from the log, whoever asked for them."""

from __future__ import annotations

import asyncio

import pytest
from staff import Staff, stop, until

from retinue import Retinue
from retinue.errors import ConfigError
from retinue.events import RunQueued, RunResumed, RunStarted
from retinue.testing import FakeProvider
from retinue.tools.base import tool


async def test_a_run_that_is_handed_over_is_done_by_a_worker_and_reported_here(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.reply(text="It is about bees.")
    await staff.worker()
    async with staff.asker() as asker:
        heard_here: list[str] = []
        asker.hear(lambda event: heard_here.append(type(event).__name__))
        report = await asker.run("general", "what is it about?")
        events = await asker.store.events(report.run_id)
    assert report.text == "It is about bees."
    assert provider.served == 1
    started, queued = events[0], events[1]
    assert isinstance(started, RunStarted)
    assert isinstance(queued, RunQueued)
    assert started.owner == queued.owner == "queue"
    taken = next(event for event in events if isinstance(event, RunResumed))
    assert taken.pid == staff.workers[0].pid
    assert heard_here == [type(event).__name__ for event in events]


async def test_a_conversation_goes_on_at_another_worker(staff: Staff, provider: FakeProvider) -> None:
    provider.reply(text="bees")
    provider.reply(text="in hives")
    first = await staff.worker()
    async with staff.asker() as asker:
        talk = asker.conversation("general")
        assert (await talk.send("what?")).text == "bees"
        assert await stop(first) == 0
        await staff.worker()
        assert (await talk.send("and where?")).text == "in hives"
        log = await asker.store.events(talk.run_id)
    taken = [event.pid for event in log if isinstance(event, RunResumed) and event.owner != "queue"]
    assert taken == [worker.pid for worker in staff.workers]
    assert "bees" in provider.requests[1].messages[-2].text


async def test_what_is_cancelled_before_a_worker_has_it_is_never_begun(
    staff: Staff, provider: FakeProvider
) -> None:
    async with staff.asker() as asker:
        run_id = await asker.start("general", "what is it about?")
        row = await asker.shown.run(run_id)
        assert row is not None
        assert row.outcome == "pending"
        assert await asker.cancel(run_id, "not needed")
        report = await asker.wait(run_id)
        await staff.worker()
        provider.reply(text="this")
        assert (await asker.run("general", "and this?")).text == "this"
    assert report.status == "cancelled"
    assert report.error == "not needed"
    assert provider.served == 1


async def test_a_cancel_reaches_a_run_at_its_worker(staff: Staff, provider: FakeProvider) -> None:
    provider.reply(text="never", gate=asyncio.Event())
    await staff.worker()
    async with staff.asker() as asker:
        run_id = await asker.start("general", "what is it about?")
        await until(lambda: provider.at_once)
        assert await asker.cancel(run_id, "enough")
        report = await asker.wait(run_id)
    assert report.status == "cancelled"
    assert report.error == "enough"


@tool
async def here() -> str:
    """Only this program has it."""
    return "here"


async def test_what_no_log_can_hold_is_refused_before_anything_is_written(staff: Staff) -> None:
    async with staff.asker() as asker:
        with pytest.raises(ConfigError, match=r"done by workers .* here, which are objects of this program"):
            await asker.start("general", "what is it about?", tools=[here])
        with pytest.raises(ConfigError, match=r"done by workers .* deps, which are objects of this program"):
            await asker.start("general", "what is it about?", deps=object())
        assert await asker.runs() == []


async def test_workers_need_postgresql(staff: Staff) -> None:
    with pytest.raises(ConfigError, match="needs a PostgreSQL database"):
        await Retinue(
            db="memory:", cwd=staff.folder, environ=staff.environ, settings={"engine": "workers"}
        ).open()
