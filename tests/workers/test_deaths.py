"""Workers that die or are told to stop: their runs go on elsewhere, and nothing that was paid for is repeated."""

from __future__ import annotations

import asyncio
from typing import Any

from staff import Staff, heard, stop, until

from retinue import Retinue
from retinue.events import ModelReplied, RunQueued, RunResumed, ToolReturned
from retinue.testing import FakeProvider, Script, SeenRequest, call


def looks_twice(gates: dict[int, asyncio.Event]) -> Any:
    """A model that calls `ls` twice and then answers; what has a gate waits for it, the first time alone."""

    def answer(request: SeenRequest) -> Script:
        gate = gates.pop(request.turn, None)
        if request.turn < 2:
            return Script(calls=(call("ls"),), gate=gate)
        return Script(text="done", gate=gate)

    return answer


async def pids(asker: Retinue[Any], run_id: str) -> list[int]:
    """Which workers took a run up, in order."""
    log = await asker.store.events(run_id)
    return [event.pid for event in log if isinstance(event, RunResumed) and event.owner != "queue"]


async def test_a_run_of_a_worker_that_is_killed_goes_on_elsewhere_without_paying_twice(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.handler = looks_twice({1: asyncio.Event()})
    first = await staff.worker()
    async with staff.asker() as asker:
        run_id = await asker.start("general", "look twice")
        await until(lambda: provider.served == 1 and provider.at_once)
        second = await staff.worker()
        first.kill()
        report = await asker.wait(run_id)
        log = await asker.store.events(run_id)
        assert await pids(asker, run_id) == [first.pid, second.pid]
    assert report.text == "done"
    assert sum(isinstance(event, ModelReplied) for event in log) == 3
    assert sum(isinstance(event, ToolReturned) for event in log) == 2
    assert len(provider.requests) == 4, "the one in flight is asked again, and no other"


async def test_a_worker_of_another_machine_that_is_killed_is_missed_by_its_heartbeat(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.handler = looks_twice({1: asyncio.Event()})
    first = await staff.worker(apart=True)
    async with staff.asker() as asker:
        run_id = await asker.start("general", "look twice")
        await until(lambda: provider.served == 1 and provider.at_once)
        second = await staff.worker(apart=True)
        first.kill()
        assert (await asker.wait(run_id)).text == "done"
        assert await pids(asker, run_id) == [first.pid, second.pid]
    assert len(provider.requests) == 4


async def test_a_worker_that_is_told_to_stop_finishes_its_step_and_hands_over_with_a_mark(
    staff: Staff, provider: FakeProvider
) -> None:
    gate = asyncio.Event()
    provider.handler = looks_twice({1: gate})
    first = await staff.worker()
    async with staff.asker() as asker:
        run_id = await asker.start("general", "look twice")
        await until(lambda: provider.served == 1 and provider.at_once)
        stopping = asyncio.ensure_future(stop(first))
        gate.set()
        assert await stopping == 0
        mark = await heard(asker, run_id, RunQueued, why="handed_over")
        assert mark.pid == first.pid
        second = await staff.worker()
        assert (await asker.wait(run_id)).text == "done"
        assert await pids(asker, run_id) == [first.pid, second.pid]
    assert len(provider.requests) == 3, "the step in flight was finished, and is not paid for again"


async def test_a_step_that_does_not_end_in_time_is_left_and_asked_again_elsewhere(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.handler = looks_twice({1: asyncio.Event()})
    first = await staff.worker(environ={"RETINUE_WORKERS_GRACE": "0.1"})
    async with staff.asker() as asker:
        run_id = await asker.start("general", "look twice")
        await until(lambda: provider.served == 1 and provider.at_once)
        assert await stop(first) == 0
        await staff.worker()
        assert (await asker.wait(run_id)).text == "done"
    assert len(provider.requests) == 4


async def test_a_worker_leaves_alone_what_a_newer_version_wrote_and_goes_on_with_the_rest(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.reply(text="done")
    newer = "INSERT INTO events VALUES ($1, 3, $1, 3, 'of_tomorrow', 0, '{\"type\": \"of_tomorrow\"}')"
    tries = "SELECT attempts FROM retinue_pgqueuer WHERE dedupe_key = $1 || '/2'"
    async with staff.asker() as asker:
        store: Any = asker.store
        run_id = await asker.start("general", "what is it about?")
        await store.use(lambda link: link.execute(newer, run_id))
        await staff.worker()
        assert (await asker.run("general", "and this?")).text == "done"
        while not await store.use(lambda link: link.fetchval(tries, run_id)):
            await asyncio.sleep(0.05)
        assert await store.count(run_id) == 3
    assert "cannot be taken up: event 3" in staff.said(0)
    assert "written by a newer Retinue" in staff.said(0)
