"""The marks that hand a workflow to workers: on each of its runs, and what the queue goes by on its root."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from retinue.engine.hand_over import Parked, ToWorkers, marks, queue_name, unended
from retinue.engine.resume import SaidByPerson, hand_over, read
from retinue.engine.workflow import Root
from retinue.events import Event, RunFinished, RunQueued, RunStarted, ToolReturned
from retinue.fold import fold
from retinue.run_state import RunState
from retinue.tools.base import tool
from retinue.types import Report
from trees import Stage, agent, never

TO = ToWorkers(queue="here@", priority=3, answering="ask", yes=True)


def state(run_id: str, parent_id: str | None = None, status: Any = "") -> RunState:
    place: dict[str, Any] = {
        "run_id": run_id,
        "root_id": "root",
        "parent_id": parent_id,
        "depth": int(parent_id is not None),
    }
    log: list[Event] = [RunStarted(**place, seq=1, at=1.0, spec=agent(run_id), prompt="go")]
    if status:
        report = Report(run_id=run_id, status=status, text="", agent=run_id)
        log.append(RunFinished(**place, seq=2, at=2.0, report=report))
    return fold(log)


def test_every_run_is_marked_next_in_its_log_and_only_the_root_says_to_whom() -> None:
    root, child = marks([state("root"), RunState(), state("child", "root")], TO, "started", signals=4)
    assert (root.run_id, root.seq, root.parent_id, root.depth) == ("root", 2, None, 0)
    assert (child.run_id, child.seq, child.parent_id, child.depth) == ("child", 2, "root", 1)
    assert {root.root_id, child.root_id} == {"root"}
    assert {root.why, child.why} == {"started"}
    assert ToWorkers.of(root) == TO
    assert ToWorkers.of(child) == ToWorkers(queue="")
    assert (root.signals, child.signals) == (4, 0)
    assert [(one.parked, one.until) for one in (root, child)] == [(False, None)] * 2
    assert {(one.host, one.pid) for one in (root, child)} == {(socket.gethostname(), os.getpid())}


@pytest.mark.parametrize("until", [None, 77.0])
def test_what_is_parked_says_until_when_and_after_which_signal(until: float | None) -> None:
    states = [state("root"), state("child", "root")]
    root, child = marks(states, TO, "parked", parked=Parked(signals=7, until=until), signals=4)
    assert (root.parked, root.until, root.signals) == (True, until, 7)
    assert (child.parked, child.until, child.signals) == (False, None, 0)


def test_a_mark_comes_after_what_is_in_line_for_a_log() -> None:
    states = [state("root"), state("child", "root")]
    assert [mark.seq for mark in marks(states, TO, "handed_over", seqs={"child": 8})] == [2, 9]


def test_a_mark_says_no_more_than_was_said_to_whom() -> None:
    (mark,) = marks([state("root")], ToWorkers(queue="q"), "resumed")
    assert (mark.priority, mark.answering, mark.yes, mark.signals) == (0, "", False, 0)


def test_handed_over_is_what_has_begun_and_not_ended() -> None:
    working = state("working")
    over = [state(status, status=status) for status in ("completed", "error", "cancelled")]
    assert unended([RunState(), *over, working]) == [working]


def test_a_queue_is_of_those_who_have_the_folder_and_without_one_of_all() -> None:
    assert queue_name("mine", "") == "mine@"
    there = queue_name("mine", "/a")
    assert there.startswith("mine@")
    assert there == queue_name("mine", "/a")
    assert len({there, queue_name("mine", "/b"), queue_name("other", "/a"), "mine@"}) == 4


async def test_a_root_that_is_begun_for_workers_is_in_the_queue_and_nothing_of_it_is_done() -> None:
    stage = Stage({"root": ["done"]})
    reached = await stage.workflow.queue_root(TO, Root(spec=agent("root"), prompt="go"))
    began, queued = await stage.log()
    assert (type(began), type(queued)) == (RunStarted, RunQueued)
    assert reached == queued.pos == 2
    assert isinstance(queued, RunQueued)
    assert (queued.why, ToWorkers.of(queued)) == ("started", TO)
    assert (stage.model.requests, list(stage.workflow.tree.live)) == ([], [])
    other = Stage({"root": ["done"]}, store=stage.store, root_id=stage.root_id)
    assert (await (await other.resume())).text == "done"


def halfway() -> tuple[Stage, asyncio.Event]:
    """A tree whose child is at work and is never done here; its brother has ended."""
    began = asyncio.Event()

    async def slow(request: Any) -> str:
        began.set()
        return await never()

    calls = [("quick", {"prompt": "x"}), ("slow", {"prompt": "y"})]
    parts: dict[str, Any] = {"root": [calls, "done"], "quick": ["quick"], "slow": slow}
    return Stage(parts, agents=[agent("quick"), agent("slow")]), began


@pytest.mark.parametrize(("why", "until"), [("parked", 99.0), ("handed_over", None)])
async def test_what_is_handed_over_while_it_works_is_left_here_and_goes_on_elsewhere(
    why: Any, until: float | None
) -> None:
    stage, began = halfway()
    task = await stage.start()
    async with asyncio.timeout(60):
        await began.wait()
        while not any(isinstance(event, RunFinished) for event in await stage.log()):
            await asyncio.sleep(0)
        await stage.workflow.hand_over(TO, why, signals=5, until=until)
    assert task.done()
    queued = [event for event in await stage.log() if isinstance(event, RunQueued)]
    assert [(one.run_id == stage.root_id, one.why) for one in queued] == [(True, why), (False, why)]
    assert (queued[0].parked, queued[0].until, queued[0].signals) == (why == "parked", until, 5)
    assert (await stage.log())[-2:] == queued, "nothing is written after it"
    other = Stage(
        {**stage.model.parts, "slow": ["slow"]},
        agents=list(stage.config.agents.values()),
        store=stage.store,
        root_id=stage.root_id,
    )
    async with asyncio.timeout(60):
        assert (await (await other.resume())).text == "done"
    assert len(other.model.of("quick")) == 0


async def test_a_tree_that_halts_ends_the_calls_it_is_at_and_begins_nothing_more() -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Take a while."""
        asked.set()
        await gate.wait()
        return "at last"

    stage = Stage({"root": [[("slow", {})], "done"]}, tools=[slow])
    await stage.start()
    tree = stage.workflow.tree
    async with asyncio.timeout(60):
        await asked.wait()
        tree.halt()
        assert not tree.idle, "a call is at work"
        gate.set()
        while not tree.idle:
            await asyncio.sleep(0)
    await stage.workflow.hand_over(TO, "handed_over")
    *_, last, queued = await stage.log()
    assert (type(last), type(queued)) == (ToolReturned, RunQueued)
    assert len(stage.model.requests) == 1


@pytest.mark.parametrize("said", [None, SaidByPerson(text="and now?")])
async def test_a_workflow_that_is_taken_up_for_workers_is_told_and_queued_in_one(
    said: SaidByPerson | None,
) -> None:
    stage, began = halfway()
    await stage.start()
    async with asyncio.timeout(60):
        await began.wait()
        await stage.workflow.leave()
    before = len(await stage.log())
    other = Stage({}, store=stage.store, root_id=stage.root_id, agents=list(stage.config.agents.values()))
    looked: list[int] = []

    async def check(log: Any) -> None:
        looked.append(len(log))

    found = await read(stage.store, stage.root_id)
    reached = await hand_over(other.workflow.tree, found, TO, said=said, check=check)
    new = (await stage.log())[before:]
    kinds = [type(event).__name__ for event in new if event.run_id == stage.root_id]
    assert kinds == ["RunResumed", *(["MessageReceived"] if said else []), "RunQueued"]
    assert reached == max(event.pos for event in await stage.log())
    assert len(looked) == 1
    marked = [event for event in new if isinstance(event, RunQueued)]
    assert {event.why for event in marked} == {"resumed"}
    assert [ToWorkers.of(event) for event in marked if event.parent_id is None] == [TO]
