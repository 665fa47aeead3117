"""Trees that would grow without end, and children without a place."""

from __future__ import annotations

import asyncio
from typing import Any

from delegating import echo

from retinue.events import (
    ChildEnded,
    RunFinished,
    RunStarted,
    Streamed,
)
from retinue.types import Limits
from trees import Stage, agent, never, results, told, turn


async def test_a_child_that_only_delegates_is_ended_with_a_report_that_says_why() -> None:
    def play(request):
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        if me == "root":
            return [("boss", {"prompt": "x"})] if turn(request) == 0 else "done"
        if me == "boss":
            return [("helper", {"prompt": str(turn(request))})] if request.tools else "I passed it on"
        return "hm"

    stage = Stage(
        {"root": play, "boss": play, "helper": play},
        agents=[agent("boss", max_turns=20), agent("helper")],
        delegation__policy="nested",
    )
    await stage.run()
    text = results(stage.model.of("root")[1])[0].text
    assert "[incomplete: only delegating: 6 steps in a row passed the work on and did none]" in text


async def test_child_text_streams_to_whoever_watches_the_tree() -> None:
    stage = Stage({"root": [[("c", {"prompt": "x"})], "done"], "c": ["from below"]}, agents=[agent("c")])
    await stage.run()
    assert [(e.depth, e.text) for e in stage.live if isinstance(e, Streamed)] == [
        (1, "from below"),
        (0, "done"),
    ]


async def test_a_child_that_is_cancelled_before_it_got_a_slot_still_has_an_end() -> None:
    running = asyncio.Event()

    async def hang(request):
        running.set()
        await never()

    tasks = [{"agent_id": "w", "prompt": str(n)} for n in range(3)]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "w": hang},
        agents=[agent("w")],
        delegation__concurrency=1,
    )
    task = await stage.start()
    await running.wait()
    stage.workflow.cancel(stage.root_id, "enough")
    async with asyncio.timeout(60):
        assert (await task).status == "cancelled"
    finished = [e.report.status for e in await stage.log() if isinstance(e, RunFinished)]
    assert finished == ["cancelled"] * 4
    rows = await stage.store.tree(stage.root_id)
    assert {row.status for row in rows} == {"cancelled"}


async def test_a_tree_cancelled_at_any_moment_leaves_no_run_without_an_end() -> None:
    def play(request):
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        if me == "leaf":
            return [("echo", {"text": "x"})] if turn(request) == 0 else "ok"
        if turn(request):
            return "ok"
        below = {"root": "mid", "mid": "leaf"}[me]
        return [("parallel_tasks", {"tasks": [{"agent_id": below, "prompt": str(n)} for n in range(3)]})]

    for moment in range(0, 120, 3):
        stage = Stage(
            {"root": play, "mid": play, "leaf": play},
            agents=[agent("mid"), agent("leaf")],
            tools=[echo],
            delegation__policy="nested",
            delegation__concurrency=2,
        )
        task = await stage.start()
        for _ in range(moment):
            await asyncio.sleep(0)
        stage.workflow.cancel(stage.root_id, "enough")
        async with asyncio.timeout(60):
            await task
        events = await stage.log()
        begun = {e.run_id for e in events if isinstance(e, RunStarted)}
        assert {e.run_id for e in events if isinstance(e, RunFinished)} == begun
        assert stage.workflow.tree.live[stage.root_id].run.budget.held["turns"] == 0


async def test_an_agents_own_concurrency_limit_holds() -> None:
    running, most = 0, 0

    async def worker(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return "ok"

    tasks = [{"agent_id": "w", "prompt": str(n)} for n in range(6)]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "w": worker},
        agents=[agent("w")],
        delegation__max_children=6,
    )
    await stage.run(agent("root", limits=Limits(concurrency=2)))
    assert most == 2


async def test_a_childs_own_concurrency_limit_holds_for_all_that_is_below_it() -> None:
    running: dict[str, int] = {"narrow": 0, "wide": 0}
    most = dict(running)

    async def play(request):
        me, task = request.system.split("\n")[0].removeprefix("PLAY "), told(request)[0]
        if me == "leaf":
            running[task] += 1
            most[task] = max(most[task], running[task])
            await asyncio.sleep(0.001)
            running[task] -= 1
            return "ok"
        if turn(request):
            return "ok"
        if me == "root":
            return [("narrow", {"prompt": "x"}), ("wide", {"prompt": "x"})]
        return [("parallel_tasks", {"tasks": [{"agent_id": "leaf", "prompt": me}] * 6})]

    stage = Stage(
        dict.fromkeys(("root", "narrow", "wide", "leaf"), play),
        agents=[agent("narrow", limits=Limits(concurrency=2)), agent("wide"), agent("leaf")],
        delegation__policy="nested",
        delegation__concurrency=5,
    )
    report = await stage.run()
    assert report.status == "completed"
    assert most["narrow"] == 2
    assert 3 <= most["wide"] <= 5


async def test_fifty_children_that_end_in_every_way_leave_every_slot_and_all_of_the_budget() -> None:
    def fate(run_id: str) -> int:
        began = stage.workflow.tree.live[run_id].run.state.started
        return int(began.prompt) % 5 if began else 0

    async def worker(request):
        number = int(told(request)[0])
        if number % 5 == 0:
            return ValueError("broken")
        if number % 5 == 1:
            await asyncio.Event().wait()  # until it is cancelled
        await asyncio.sleep(0.001 * (number % 3))
        return "ok"

    tasks = [{"agent_id": "w", "prompt": str(number)} for number in range(50)]
    batches: list[tuple[str, dict[str, Any] | str]] = [
        ("parallel_tasks", {"tasks": tasks[n::10]}) for n in range(10)
    ]
    stage = Stage(
        {"root": [batches, [("w", {"prompt": "7"})], "done"], "w": worker},
        agents=[agent("w")],
        delegation__max_children=51,
        delegation__concurrency=6,
        limits__tool_concurrency=10,
    )
    task = await stage.start()
    async with asyncio.timeout(60):
        while not task.done():
            await asyncio.sleep(0.001)
            for run_id, live in list(stage.workflow.tree.live.items()):
                if live.run.depth and live.run.state.asking and fate(run_id) == 1:
                    stage.workflow.cancel(run_id, "not needed")
    ended = [e.status for e in await stage.log() if isinstance(e, ChildEnded)]
    assert {status: ended.count(status) for status in set(ended)} == {
        "completed": 31,
        "error": 10,
        "cancelled": 10,
    }
    assert set(stage.workflow.tree.live[stage.root_id].run.budget.held.values()) == {0}
    for number in range(6):  # whoever comes next finds every slot
        async with asyncio.timeout(60):
            await stage.workflow.tree.slots.take(str(number))
