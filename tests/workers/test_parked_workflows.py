"""Workflows that only wait hold no worker, and are woken by what they wait for, wherever there is one."""

from __future__ import annotations

from typing import Any

from staff import Staff, heard, stop

from retinue import Retinue
from retinue.events import ApprovalRequested, LimitPassed, MessageReceived, RunQueued, RunResumed
from retinue.testing import FakeProvider, Script, SeenRequest, call

SOON = {"RETINUE_WORKERS_PARK_AFTER": "0.1"}


def writes(request: SeenRequest) -> Script:
    return (
        Script(text="written") if request.turn else Script(calls=(call("write", path="a.txt", content="a"),))
    )


async def parked(asker: Retinue[Any], run_id: str) -> RunQueued:
    return await heard(asker, run_id, RunQueued, why="parked")


async def takers(asker: Retinue[Any], run_id: str) -> list[int]:
    log = await asker.store.events(run_id, run_id=run_id)
    return [event.pid for event in log if isinstance(event, RunResumed)]


async def test_an_answer_wakes_a_parked_run_on_another_worker(staff: Staff, provider: FakeProvider) -> None:
    provider.handler = writes
    first = await staff.worker(environ=SOON)
    async with staff.asker() as asker:
        run_id = await asker.start("general", "write it")
        asked = await heard(asker, run_id, ApprovalRequested)
        mark = await parked(asker, run_id)
        assert (mark.parked, mark.until) == (True, None)
        row = await asker.shown.run(run_id)
        assert row is not None
        assert row.outcome == "waiting"
        assert await stop(first) == 0
        second = await staff.worker(environ=SOON)
        assert await asker.answer(asked.approval_id, "approve")
        assert (await asker.wait(run_id)).text == "written"
        assert await takers(asker, run_id) == [first.pid, second.pid]
    assert (staff.folder / "a.txt").read_text() == "a"
    assert provider.served == 2


async def test_a_message_and_a_cancel_reach_parked_runs(staff: Staff, provider: FakeProvider) -> None:
    provider.handler = writes
    await staff.worker(environ=SOON)
    async with staff.asker() as asker:
        told, stopped = [await asker.start("general", "write it") for _ in range(2)]
        for run_id in (told, stopped):
            await parked(asker, run_id)
        assert await asker.message(told, "in upper case")
        message = await heard(asker, told, MessageReceived)
        assert message.text == "in upper case"
        assert await asker.cancel(stopped, "not needed")
        assert (await asker.wait(stopped)).error == "not needed"
    assert provider.served == 2


async def test_a_limit_of_a_provider_wakes_a_parked_run_by_itself(
    staff: Staff, provider: FakeProvider
) -> None:
    limited = Script(status=429, message="slow down", retry_after=62, error="rate_limit_exceeded")
    provider.handler = lambda request: limited
    await staff.worker(environ=SOON)
    async with staff.asker() as asker:
        run_id = await asker.start("general", "what is it about?")
        mark = await parked(asker, run_id)
        assert mark.until is not None
        # The time until then is over: what is due is due by the clock of the database.
        due = "UPDATE retinue_pgqueuer SET execute_after = now() WHERE dedupe_key = $1"
        provider.handler = lambda request: Script(text="bees")
        store: Any = asker.store
        await store.use(lambda link: link.execute(due, f"{run_id}/{mark.seq}"))
        await heard(asker, run_id, RunResumed)
        assert await asker.cancel(run_id)
        assert not any(isinstance(event, LimitPassed) for event in await asker.store.events(run_id))


async def test_a_child_that_asks_parks_the_whole_tree(staff: Staff, provider: FakeProvider) -> None:
    def answer(request: SeenRequest) -> Script:
        asked = "WRITE" in request.messages[0].text
        if request.turn:
            return Script(text="written" if asked else "all is done")
        if asked:
            return Script(calls=(call("write", path="a.txt", content="a"),))
        return Script(calls=(call("delegate_task", agent_id="helper", prompt="WRITE it"),))

    provider.handler = answer
    staff.write_agent("helper")
    await staff.worker(environ=SOON | {"RETINUE_DELEGATION_TOOLS": '["delegate_task"]'})
    async with staff.asker(**{"delegation.tools": ["delegate_task"]}) as asker:
        run_id = await asker.start("general", "have it written")
        asked = await heard(asker, run_id, ApprovalRequested)
        assert asked.run_id != run_id
        await parked(asker, run_id)
        marks = [event for event in await asker.store.events(run_id) if isinstance(event, RunQueued)]
        assert {event.run_id for event in marks if event.why == "parked"} == {run_id, asked.run_id}
        assert await asker.answer(asked.approval_id, "approve")
        assert (await asker.wait(run_id)).text == "all is done"
    assert provider.served == 4
