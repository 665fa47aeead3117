"""Cancelling a tree, and children in the background."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from delegating import ALL, echo, inner

from retinue.events import (
    ChildEnded,
    MessageReceived,
    RunFinished,
    ToolReturned,
)
from retinue.tools.base import tool
from retinue.types import ModelRequest, Shortfall
from trees import Stage, agent, never, reply, results, told, turn


@tool(effect="read", private=lambda arguments, files: ("a diary",))
async def diary() -> str:
    """Read it."""
    return "dear diary"


async def test_cancel_stops_the_whole_tree_at_once_and_keeps_partial_work() -> None:
    deep = asyncio.Event()
    ended: list[str] = []

    async def play(request):
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        below = {"root": "mid", "mid": "leaf"}.get(me)
        if below and turn(request) == 0:
            return reply(f"{me} found something", [(below, {"prompt": "x"})])
        deep.set()
        try:
            await never()
        finally:
            ended.append(me)

    stage = Stage(
        {"root": play, "mid": play, "leaf": play},
        agents=[agent("mid"), agent("leaf")],
        delegation__policy="nested",
    )
    task = await stage.start()
    await deep.wait()
    stage.workflow.cancel(stage.root_id, "enough")
    async with asyncio.timeout(60):
        report = await task
    assert (report.status, report.error) == ("cancelled", "enough")
    assert report.text == "No answer was written. Found so far:\n- mid: mid found something"
    assert ended == ["leaf"]
    finished = {e.report.agent: e.report.status for e in await stage.log() if isinstance(e, RunFinished)}
    assert finished == {"root": "cancelled", "mid": "cancelled", "leaf": "cancelled"}
    order = [e.report.agent for e in await stage.log() if isinstance(e, RunFinished)]
    assert order == ["leaf", "mid", "root"], "nothing runs on after its parent"


async def test_a_parent_that_times_out_takes_its_children_along() -> None:
    async def hang(request):
        stage.workflow.tree.live[stage.root_id].run.clock.expire()
        await never()

    stage = Stage(
        {"root": [[("child", {"prompt": "x"})], "done"], "child": hang},
        agents=[agent("child")],
        limits__timeout=3600,
    )
    report = await stage.run()
    assert report.error == "timed out after 3600 s"
    finished = [e.report for e in await stage.log() if isinstance(e, RunFinished)]
    assert [r.agent for r in finished] == ["child", "root"]
    assert all(live.task.done() for live in stage.workflow.tree.live.values())


async def test_a_background_child_is_started_looked_at_messaged_and_waited_for() -> None:
    hello = asyncio.Event()

    async def worker(request):
        if turn(request) == 0:
            await hello.wait()
            return [("echo", {"text": "step"})]
        return f"told: {told(request)[1:]}"

    def play(request):
        n = turn(request)
        child = json.loads(results(request)[0].text)["child_id"] if n else ""
        if n == 0:
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})]
        if n == 1:
            return [("background", {"operation": "check", "child_id": child})]
        if n == 2:
            return [("background", {"operation": "message", "child_id": child, "text": "look left"})]
        if n == 3:
            hello.set()
            return [("background", {"operation": "wait", "child_id": child})]
        return "done"

    stage = Stage({"root": play, "w": worker}, agents=[agent("w")], tools=[echo], delegation__tools=ALL)
    await stage.run()
    _, checked, sent, waited = results(stage.model.of("root")[-1])
    assert json.loads(checked.text)["children"][0]["doing"] == "step 1"
    assert sent.text == "delivered: it reads this before its next step"
    assert json.loads(waited.text)["report"] == (
        "you have it: it came with the notice that this child has ended"
    )
    last = stage.model.of("root")[-1].messages
    assert sum("told: ['look left']" in message.text for message in last) == 1, "it is not there twice"
    assert inner(told(stage.model.of("root")[-1])[-1].split("\n", 1)[1]) == "told: ['look left']"


@pytest.mark.parametrize(
    "look", [("background", {"operation": "check"}), ("spawn_agent", {"operation": "list_children"})]
)
async def test_who_looks_at_a_child_that_has_read_private_data_has_read_some_too(
    look: tuple[str, Any],
) -> None:
    has_read, looked = asyncio.Event(), asyncio.Event()

    async def worker(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("diary", {})]
        has_read.set()
        await looked.wait()
        return "done"

    async def play(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})]
        if turn(request) == 1:
            await has_read.wait()
            return [look]
        looked.set()
        return "done"

    stage = Stage({"root": play, "w": worker}, agents=[agent("w")], tools=[diary], delegation__tools=ALL)
    await stage.run()
    (result,) = [
        event for event in await stage.log() if isinstance(event, ToolReturned) and event.name == look[0]
    ][-1:]
    assert "step 2" in result.text
    assert "private" not in result.text
    assert result.private == ("a diary",)


async def test_a_parent_is_told_when_a_background_child_ends_and_does_not_poll() -> None:
    finished = asyncio.Event()

    def worker(request):
        finished.set()
        return "the result"

    async def play(request):
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})]
        if turn(request) == 1:
            await finished.wait()
            return [("echo", {"text": "meanwhile"})]
        return f"heard: {told(request)[-1]}"

    stage = Stage({"root": play, "w": worker}, agents=[agent("w")], tools=[echo], delegation__tools=ALL)
    report = await stage.run()
    assert report.text.startswith("heard: [The background agent w (c")
    first, framed = report.text.split("\n", 1)
    assert first.endswith("has ended: completed.]")
    assert inner(framed) == "the result"


async def test_background_children_of_a_parent_that_finishes_first_are_cancelled_and_missed() -> None:
    async def worker(request):
        await never()

    stage = Stage(
        {
            "root": [[("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})], "done"],
            "w": worker,
        },
        agents=[agent("w")],
        delegation__tools=ALL,
        delegation__parent_ends="cancel",
    )
    report = await stage.run()
    assert report.text == "done"
    ended = [e for e in await stage.log() if isinstance(e, ChildEnded)]
    assert [e.status for e in ended] == ["cancelled"]
    assert (report.outcome, report.shortfall) == ("incomplete", Shortfall(incomplete=1))


async def test_a_message_from_outside_reaches_a_running_child_before_its_next_step() -> None:
    there = asyncio.Event()
    go = asyncio.Event()

    async def worker(request):
        if turn(request) == 0:
            there.set()
            await go.wait()
            return [("echo", {"text": "x"})]
        return told(request)[-1]

    stage = Stage(
        {"root": [[("w", {"prompt": "dig"})], "done"], "w": worker}, agents=[agent("w")], tools=[echo]
    )
    task = await stage.start()
    await there.wait()
    child = next(run_id for run_id in stage.workflow.tree.live if run_id != stage.root_id)
    from retinue.store.base import Signal

    signal = Signal(
        root_id=stage.root_id, run_id=child, kind="message", key="m1", body='{"text": "hurry"}', at=0
    )
    assert await stage.store.send(signal)
    while not any(isinstance(e, MessageReceived) for e in await stage.log(child)):
        await asyncio.sleep(0)
    go.set()
    await task
    assert "hurry" in results(stage.model.of("root")[1])[0].text
