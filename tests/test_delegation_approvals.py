"""Who is asked before work is handed on, and what becomes of a question that nobody answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.app import Retinue
from retinue.engine.answers import Answer
from retinue.events import ApprovalAnswered, ApprovalRequested, RunFinished, now
from retinue.store.base import Signal
from retinue.store.connect import connect
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from trees import Cast, Stage, agent, results, turn

ALL = ("agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background")
TASKS = [{"agent_id": "c", "prompt": "first part"}, {"agent_id": "d", "prompt": "second part"}]
CALLS: dict[str, dict[str, Any]] = {
    "c": {"prompt": "x"},
    "delegate_task": TASKS[0],
    "parallel_tasks": {"tasks": TASKS},
    "background": {"operation": "start", **TASKS[0]},
    "spawn_agent": {"name": "made", "prompt": "x", "system_prompt": "PLAY c"},
    "subagent": {"label": "copy", "task_prompt": "x"},
}
LOOKS: dict[str, dict[str, Any]] = {
    "delegate_task": {"operation": "list_agents"},
    "spawn_agent": {"operation": "list_children"},
}
COPY = "You do one delegated task. Work through it with your tools, then answer."
ASKED = {
    "all": {"c", "delegate_task", "parallel_tasks", "background", "spawn_agent", "subagent"},
    "made-up": {"spawn_agent", "subagent"},
    "none": set[str](),
}


@pytest.mark.parametrize("way", CALLS)
@pytest.mark.parametrize("asks", ASKED)
async def test_who_is_asked_before_work_is_handed_on_is_a_setting(asks: str, way: str) -> None:
    stage = Stage(
        {"root": [[(way, CALLS[way])], "done", "done"], "c": ["ok"], "d": ["ok"], COPY: ["ok", "in short"]},
        agents=[agent("c"), agent("d")],
        delegation__tools=ALL,
        approvals__delegation=asks,
    )
    report = await stage.run()
    assert report.shortfall.refused == int(way in ASKED[asks])


@pytest.mark.parametrize("way", LOOKS)
async def test_nobody_is_asked_before_a_look(way: str) -> None:
    stage = Stage(
        {"root": [[(way, LOOKS[way])], "done"]},
        agents=[agent("c")],
        delegation__tools=ALL,
        approvals__delegation="all",
    )
    assert (await stage.run()).outcome == "completed"


async def test_a_child_that_runs_is_looked_at_and_waited_for_unasked() -> None:
    def root(request: Any) -> Any:
        if turn(request) == 0:
            return [("background", CALLS["background"])]
        child = json.loads(results(request)[0].text)["child_id"]
        return [
            [("background", {"operation": "check", "child_id": child})],
            [("parallel_tasks", {"operation": "wait", "child_ids": [child]})],
            "done",
        ][turn(request) - 1]

    stage = Stage(
        {"root": root, "c": ["ok"]},
        agents=[agent("c")],
        delegation__tools=ALL,
        approvals__delegation="all",
        approvals__allow=["background(*)", "background"],
    )
    report = await stage.run()
    assert (report.text, report.shortfall.refused) == ("done", 0)


async def test_a_batch_is_asked_about_once_with_all_its_parts_and_their_risk_together() -> None:
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": TASKS})], "done"], "c": ["ok"], "d": ["ok"]},
        agents=[agent("c"), agent("d")],
        answering="ask",
        approvals__delegation="all",
    )
    task = await stage.start()
    (asked,) = await waiting(stage)
    assert asked.risk == "medium", "each of them alone is low"
    assert asked.preview == "2 agents at the same time:\n\n1. c\nfirst part\n\n2. d\nsecond part"
    await answer(stage, asked)
    assert (await task).outcome == "completed"
    assert sum(isinstance(event, ApprovalRequested) for event in await stage.log()) == 1


async def test_a_batch_of_one_has_the_risk_of_that_one() -> None:
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": TASKS[:1]})], "done"], "c": ["ok"]},
        agents=[agent("c")],
        approvals__delegation="all",
        approvals__auto_risk="low",
    )
    assert (await stage.run()).outcome == "completed"


# -- a question that nobody answers --------------------------------------------------------------------------------


@tool(name="change", effect="write")
async def change(path: str) -> str:
    """Change a file."""
    return f"changed {path}"


PARTS: dict[str, Any] = {"root": [[("change", {"path": "a"})], "done"]}


async def waiting(stage: Stage) -> list[ApprovalRequested]:
    while not (found := await stage.store.waiting(stage.root_id)):
        await asyncio.sleep(0.001)
    return found


async def answer(stage: Stage, asked: ApprovalRequested) -> bool:
    signal = Signal(
        root_id=asked.root_id,
        run_id=asked.run_id,
        kind="answer",
        key=asked.approval_id,
        body='{"decision": "approve"}',
        at=now(),
    )
    return await stage.store.send(signal)


async def test_a_question_that_nobody_answers_in_time_is_rejected() -> None:
    stage = Stage(PARTS, tools=[change], answering="ask", approvals__answer_within=0.05)
    report = await stage.run()
    assert results(stage.model.of("root")[-1])[0].text == (
        "not run: nobody answered within 0.05 s whether change may run (approvals.answer_within). Find another way."
    )
    assert (report.text, report.outcome) == ("done", "rejected")
    (given,) = [event for event in await stage.log() if isinstance(event, ApprovalAnswered)]
    assert (given.decision, given.by) == ("reject", "nobody")


async def test_a_question_that_nobody_answers_in_time_stops_the_run_if_so_set() -> None:
    stage = Stage(
        {"root": [[("child", {"prompt": "x"})], "done"], "child": PARTS["root"]},
        agents=[agent("child")],
        tools=[change],
        answering="ask",
        approvals__answer_within=0.05,
        approvals__unanswered="stop",
    )
    report = await stage.run()
    assert (report.status, report.error) == (
        "cancelled",
        "nobody answered within 0.05 s whether change may run (approvals.answer_within)",
    )
    ended = [event.report.agent for event in await stage.log() if isinstance(event, RunFinished)]
    assert ended == ["child", "root"]


async def test_who_takes_up_a_run_that_was_stopped_so_has_the_whole_time_again() -> None:
    settings: dict[str, Any] = {"approvals__answer_within": 0.05, "approvals__unanswered": "stop"}
    first = Stage(PARTS, tools=[change], answering="ask", **settings)
    assert (await first.run()).status == "cancelled"
    later = {**settings, "approvals__answer_within": 3600.0}
    again = Stage(PARTS, tools=[change], answering="ask", store=first.store, root_id=first.root_id, **later)
    task = await again.resume()
    (asked,) = await waiting(again)
    await answer(again, asked)
    report = await task
    assert (report.text, report.outcome) == ("done", "completed")


async def test_an_answer_in_time_counts() -> None:
    stage = Stage(PARTS, tools=[change], answering="ask", approvals__answer_within=3600)
    task = await stage.start()
    (asked,) = await waiting(stage)
    assert asked.answer_by is not None
    assert asked.answer_by - asked.at == pytest.approx(3600, abs=1)
    await answer(stage, asked)
    assert (await task).outcome == "completed"


@pytest.mark.parametrize("answered", [False, True])
async def test_the_time_to_answer_is_of_the_question_and_not_of_the_process(
    tmp_path: Path, answered: bool
) -> None:
    """It passes while nothing runs. An answer that came meanwhile counts, whenever it came."""
    first = Stage(PARTS, tools=[change], answering="ask", approvals__answer_within=3600)
    task = await first.start()
    (asked,) = await waiting(first)
    store = connect(f"sqlite:///{tmp_path}/runs.db")
    await store.open()
    then = now() - 7200
    old = [msgspec.structs.replace(event, pos=0) for event in await first.log()]
    old = [
        msgspec.structs.replace(event, at=then, answer_by=then + 3600)
        if isinstance(event, ApprovalRequested)
        else event
        for event in old
    ]
    await store.append(old)
    await first.workflow.leave()
    task.cancel()

    again = Stage(PARTS, tools=[change], answering="ask", store=store, root_id=first.root_id)
    if answered:
        assert await answer(again, asked)
    report = await (await again.resume())
    assert report.outcome == ("completed" if answered else "rejected")
    await store.close()


async def test_an_approve_function_that_does_not_answer_in_time_is_let_go() -> None:
    asked_of: list[str] = []

    async def approve(asked: ApprovalRequested) -> Answer:
        asked_of.append(asked.tool)
        await asyncio.Event().wait()
        return Answer(decision="approve")

    store = MemoryStore()
    settings = {"approvals.answer_within": 0.05}
    async with Retinue(
        model=Cast(PARTS), db=store, tools=[change], environ={}, approve=approve, settings=settings
    ) as retinue:
        report = await retinue.run(agent("root"), "go")
        assert (asked_of, report.outcome) == (["change"], "rejected")
        assert (await retinue.replay(report.run_id)).diff == ""


async def test_a_fork_has_the_whole_time_to_answer_a_question_that_nobody_answered_in_the_old_one() -> None:
    store, spec = MemoryStore(), agent("root")
    settings = {"approvals.answer_within": 0.05}
    async with Retinue(
        model=Cast(PARTS), db=store, tools=[change], environ={}, answering="ask", settings=settings
    ) as retinue:
        old = await retinue.run(spec, "go")
    assert old.outcome == "rejected"
    (at,) = [event.pos for event in await store.events(old.run_id) if isinstance(event, ApprovalRequested)]
    settings = {"approvals.answer_within": 3600}
    async with Retinue(
        model=Cast(PARTS), db=store, tools=[change], environ={}, answering="ask", settings=settings
    ) as retinue:
        fork = await retinue.fork(old.run_id, at=at)
        (asked,) = [event for event in await store.events(fork) if isinstance(event, ApprovalRequested)]
        assert asked.answer_by is None, "that of the old one has passed"
        await retinue.answer(asked.approval_id, "approve")
        assert (await retinue.wait(fork)).outcome == "completed"


async def test_nobody_has_more_than_that_time_to_answer_in_a_fork() -> None:
    store, spec = MemoryStore(), agent("root")
    settings = {"approvals.answer_within": 0.05}
    async with Retinue(
        model=Cast(PARTS), db=store, tools=[change], environ={}, answering="ask", settings=settings
    ) as retinue:
        old = await retinue.run(spec, "go")
        (at,) = [e.pos for e in await store.events(old.run_id) if isinstance(e, ApprovalRequested)]
        fork = await retinue.fork(old.run_id, at=at)
        assert (await retinue.wait(fork)).outcome == "rejected"
        (said,) = [event for event in await store.events(fork) if isinstance(event, ApprovalAnswered)]
    assert said.reason.startswith("nobody answered within 0.05 s whether change may run")
