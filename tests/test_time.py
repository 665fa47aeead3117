"""Time that a parent keeps: a child that hangs takes neither its parent nor its siblings' work with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.clock import Clock
from retinue.events import ChildEnded, RunFinished
from retinue.store.connect import connect
from retinue.tools.base import tool
from retinue.types import (
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    Reply,
    Report,
    TextDelta,
    ToolCall,
    Usage,
)
from trees import Stage, agent, results, told, turn

ALL = ("agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background")
SECONDS = 4
"""Of a run whose child hangs: a quarter of it is kept."""


async def hang(request: Any) -> Any:
    await asyncio.Event().wait()


def reports(log: list[Any]) -> dict[str, Report]:
    return {event.report.agent: event.report for event in log if isinstance(event, RunFinished)}


# -- the clock ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "kept"), [(3600, 120), (600, 60), (60, 6), (30, 5), (10, 2.5), (1, 0.25), (0.001, 0.00025)]
)
def test_a_clock_keeps_a_part_of_its_time_however_short_it_is(seconds: float, kept: float) -> None:
    clock = Clock(seconds)
    assert clock.kept == pytest.approx(kept)
    assert clock.spare == pytest.approx(seconds - kept)


async def test_a_child_has_what_its_parent_has_left_less_what_that_keeps() -> None:
    time = [0.0]
    parent = Clock(600, now=lambda: time[0])
    child = Clock(3600, parent=parent, now=lambda: time[0])
    grandchild = Clock(30, parent=child, now=lambda: time[0])
    async with parent.start(), child.start(), grandchild.start():
        assert (parent.left, child.left, grandchild.left) == (600, 540, 30)
        assert (parent.kept, child.kept) == (60, 54), "each keeps a part of what it really has"
        time[0] = 500
        assert (parent.left, child.left) == (100, 40)
        assert (parent.short(), child.short()) == (None, "time nearly up: 500 of 540 s used")
        time[0] = 560
        assert parent.short() == "time nearly up: 560 of 600 s used"
        assert (parent.spare, child.left) == (0, 0)


async def test_a_child_that_waited_for_its_turn_has_what_is_left_then() -> None:
    time = [0.0]
    parent = Clock(600, now=lambda: time[0])
    child = Clock(600, parent=parent, now=lambda: time[0])
    async with parent.start():
        time[0] = 500
        async with child.start():
            assert child.left == 40


async def test_a_run_without_a_limit_keeps_nothing_and_is_never_short() -> None:
    clock = Clock(None)
    async with clock.start():
        assert (clock.left, clock.spare, clock.kept, clock.short()) == (None, None, 0, None)


# -- trees --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "arguments"),
    [
        ("slow", {"prompt": "x"}),
        ("delegate_task", {"agent_id": "slow", "prompt": "x"}),
        ("spawn_agent", {"name": "made", "prompt": "x", "system_prompt": "PLAY slow"}),
        ("subagent", {"label": "copy", "task_prompt": "x"}),
    ],
)
async def test_a_parent_sums_up_when_its_child_hangs(way: str, arguments: dict[str, Any]) -> None:
    def root(request: Any) -> Any:
        if not request.tools:
            return f"summed up: {told(request)[-1]}"
        return [("quick", {"prompt": "q"}), (way, arguments)]

    parts = {"root": root, "quick": ["found 42"], "slow": hang}
    parts["You do one delegated task. Work through it with your tools, then answer."] = hang
    stage = Stage(
        parts,
        agents=[agent("quick"), agent("slow")],
        yes=True,
        delegation__tools=ALL,
        limits__timeout=SECONDS,
    )
    report = await stage.run()
    assert report.text.startswith("summed up: You cannot use tools any more (time nearly up: ")
    assert (report.status, report.outcome, report.ended_by) == ("completed", "incomplete", "time")
    assert report.shortfall.failed == 1
    assert "found 42" in results(stage.model.of("root")[-1])[0].text
    assert results(stage.model.of("root")[-1])[1].is_error


async def test_a_batch_keeps_every_finished_row_when_a_task_of_it_hangs() -> None:
    def root(request: Any) -> Any:
        if turn(request):
            return "summed up"
        tasks = [{"agent_id": name, "prompt": "x"} for name in ("quick", "slow", "other")]
        return [("parallel_tasks", {"tasks": tasks})]

    stage = Stage(
        {"root": root, "quick": ["found 42"], "other": ["found 43"], "slow": hang},
        agents=[agent("quick"), agent("slow"), agent("other")],
        delegation__tools=ALL,
        limits__timeout=SECONDS,
    )
    report = await stage.run()
    assert report.text == "summed up"
    batch = json.loads(results(stage.model.of("root")[-1])[0].text)
    assert [row["success"] for row in batch["results"]] == [True, False, True]
    assert (batch["completed"], batch["failed"]) == (2, 1)
    assert "found 42" in batch["results"][0]["report"]
    assert "found 43" in batch["results"][2]["report"]
    assert batch["results"][1]["ended_by"] == "timeout"


async def test_a_grandchild_that_hangs_takes_neither_its_parent_nor_the_root_with_it() -> None:
    def middle(request: Any) -> Any:
        return (
            "the middle has 42" if turn(request) else [("quick", {"prompt": "q"}), ("slow", {"prompt": "x"})]
        )

    def root(request: Any) -> Any:
        return "the root has it all" if turn(request) else [("middle", {"prompt": "x"})]

    stage = Stage(
        {"root": root, "middle": middle, "quick": ["found 42"], "slow": hang},
        agents=[agent("quick"), agent("slow"), agent("middle")],
        delegation__policy="nested",
        limits__timeout=SECONDS,
    )
    report = await stage.run()
    ended = reports(await stage.log())
    assert (ended["slow"].ended_by, ended["middle"].ended_by) == ("timeout", "time")
    assert ended["middle"].text == "the middle has 42"
    assert "the middle has 42" in results(stage.model.of("root")[-1])[0].text
    assert report.text == "the root has it all"


async def test_children_that_wait_for_a_slot_do_not_outlast_their_parent() -> None:
    def root(request: Any) -> Any:
        if turn(request):
            return "summed up"
        return [("parallel_tasks", {"tasks": [{"agent_id": "slow", "prompt": str(n)} for n in range(3)]})]

    stage = Stage(
        {"root": root, "slow": hang},
        agents=[agent("slow")],
        delegation__tools=ALL,
        delegation__concurrency=1,
        limits__timeout=SECONDS,
    )
    report = await stage.run()
    assert (report.text, report.ended_by) == ("summed up", "time")
    rows = json.loads(results(stage.model.of("root")[-1])[0].text)["results"]
    assert [row["ended_by"] for row in rows] == ["timeout"] * 3


async def test_a_child_is_not_started_in_the_time_that_is_kept() -> None:
    def root(request: Any) -> Any:
        if turn(request):
            return "summed up"
        clock = stage.workflow.tree.run(stage.root_id).clock
        assert clock._since is not None
        now = clock._since + 95
        clock._now = lambda: now
        return [("quick", {"prompt": "q"})]

    stage = Stage({"root": root}, agents=[agent("quick")], limits__timeout=100)
    report = await stage.run()
    told = results(stage.model.of("root")[-1])[0].text
    assert told.startswith("not started: ")
    assert told.endswith(" s left of 100 s, and 10 s are kept to sum up. Finish with what you have.")
    assert (report.text, report.ended_by, report.outcome) == ("summed up", "time", "incomplete")
    assert report.shortfall.not_started == 1


async def test_a_parent_that_is_stopped_in_a_batch_reports_what_its_children_found() -> None:
    """A batch has no result until its last task has ended: its first ones are not lost with it."""
    waiting = asyncio.Event()

    async def slow(request: Any) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    def root(request: Any) -> Any:
        tasks = [{"agent_id": name, "prompt": "x"} for name in ("quick", "slow")]
        return [("parallel_tasks", {"tasks": tasks})]

    stage = Stage(
        {"root": root, "quick": ["found 42 in a.py"], "slow": slow},
        agents=[agent("quick"), agent("slow")],
        delegation__tools=ALL,
        limits__timeout=3600,
    )
    task = await stage.start()
    await waiting.wait()
    while not any(isinstance(event, ChildEnded) for event in await stage.log()):
        await asyncio.sleep(0)
    stage.workflow.tree.run(stage.root_id).clock.expire()
    report = await task
    assert report.ended_by == "timeout"
    assert "found 42 in a.py" in report.text


async def test_a_tool_leaves_time_for_the_report() -> None:
    @tool(effect="read", timeout=3600)
    async def look() -> str:
        """Look."""
        await asyncio.Event().wait()
        return ""

    stage = Stage({"root": [[("look", {})], "summed up"]}, tools=[look], limits__timeout=SECONDS)
    report = await stage.run()
    assert "look did not finish within " in results(stage.model.of("root")[-1])[0].text
    assert (report.text, report.ended_by) == ("summed up", "time")


async def test_a_run_of_a_moment_has_a_child_and_an_end() -> None:
    """However little time there is: no reserve is negative, and nothing hangs."""
    stage = Stage({"root": hang, "child": hang}, agents=[agent("child")], limits__timeout=0.001)
    report = await stage.run()
    assert (report.status, report.ended_by, report.error) == ("error", "timeout", "timed out after 0.001 s")


class Slow:
    """The model of a child that writes a word and then nothing more; its parent gets what there is."""

    name = "cast:slow"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        if "PLAY child" in request.system:
            yield TextDelta("the first of many words")
            await asyncio.Event().wait()
        text = "" if len(self.requests) == 1 else "summed up"
        calls = (ToolCall(id="c1", name="child", arguments='{"prompt": "x"}'),) if not text else ()
        yield Reply(
            message=AssistantMessage(text=text, calls=calls),
            usage=Usage(input_tokens=1, output_tokens=1),
            stop="end",
            model="slow",
        )


async def test_what_a_child_was_writing_when_its_time_was_up_reaches_its_parent() -> None:
    stage = Stage(Slow(), agents=[agent("child")], limits__timeout=SECONDS)
    report = await stage.run()
    assert report.text == "summed up"
    assert "the first of many words" in results(stage.model.requests[-1])[0].text


# -- afterwards ---------------------------------------------------------------------------------------------------


def root_of_a_batch(request: Any) -> Any:
    if told(request)[-1] == "and now?":
        return "the second turn"
    if turn(request):
        return "summed up"
    return [("parallel_tasks", {"tasks": [{"agent_id": name, "prompt": "x"} for name in ("quick", "slow")]})]


BATCH: dict[str, Any] = {
    "agents": [agent("quick"), agent("slow")],
    "delegation__tools": ALL,
    "limits__timeout": SECONDS,
}


async def test_a_batch_that_was_killed_with_its_process_is_cut_by_time_all_the_same(tmp_path: Path) -> None:
    first = Stage({"root": root_of_a_batch, "quick": ["found 42"], "slow": hang}, **BATCH)
    task = await first.start()
    while not any(isinstance(event, ChildEnded) for event in await first.log()):
        await asyncio.sleep(0)
    store = connect(f"sqlite:///{tmp_path}/runs.db")
    await store.open()
    await store.append([msgspec.structs.replace(event, pos=0) for event in await first.log()])
    await first.workflow.leave()
    task.cancel()

    again = Stage({"root": root_of_a_batch, "slow": hang}, store=store, root_id=first.root_id, **BATCH)
    report = await (await again.resume())
    batch = json.loads(results(again.model.of("root")[-1])[0].text)
    assert (batch["completed"], batch["failed"]) == (1, 1)
    assert "found 42" in batch["results"][0]["report"]
    assert (report.text, report.ended_by) == ("summed up", "time")
    await store.close()


async def test_a_conversation_goes_on_after_a_turn_that_was_cut_by_time() -> None:
    parts = {"root": root_of_a_batch, "quick": ["found 42"], "slow": hang}
    first = Stage(parts, **BATCH)
    assert (await first.run()).ended_by == "time"
    again = Stage(parts, store=first.store, root_id=first.root_id, **BATCH)
    report = await (await again.resume("and now?"))
    assert (report.text, report.ended_by, report.outcome) == ("the second turn", "answer", "completed")
    assert again.model.of("root")[0].tools, "it has all its time again"
