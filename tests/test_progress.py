"""What a tool shows while it works: in the loop's own thread, at once, and never before its call or after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue import AgentSpec, Retinue, ToolContext, tool
from retinue.events import AccessDenied, LiveEvent, Progressed, ToolCalled, ToolReturned
from retinue.testing import ScriptedModel, call
from retinue.tools.base import Tool

PATIENCE = 30.0


def worker(name: str = "work") -> AgentSpec:
    return AgentSpec(name="worker", description="works", prompt="You work.", tools=(name,))


def opened(folder: Path, made: Tool, calls: int = 1) -> Retinue:
    steps = [[call(made.name) for _ in range(calls)], "done"]
    return Retinue(model=ScriptedModel(steps), db="memory:", cwd=folder, environ={}, tools=[made])


async def test_a_listener_is_called_in_the_loop_while_a_plain_tool_still_works(tmp_path: Path) -> None:
    heard = threading.Event()
    threads: list[int] = []

    @tool
    def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress("half")
        return f"heard: {heard.wait(PATIENCE)}"

    def listen(event: LiveEvent) -> None:
        threads.append(threading.get_ident())
        if isinstance(event, Progressed):
            heard.set()

    async with opened(tmp_path, work) as retinue:
        retinue.hear(listen)
        returned = [e.text async for e in retinue.stream(worker(), "go") if isinstance(e, ToolReturned)]
    assert returned == ["heard: True"]
    assert set(threads) == {threading.get_ident()}


async def test_a_follower_gets_progress_of_a_plain_tool_while_it_works(tmp_path: Path) -> None:
    followed = threading.Event()

    @tool
    def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress("half")
        return f"followed: {followed.wait(PATIENCE)}"

    returned: list[str] = []
    async with opened(tmp_path, work) as retinue:
        async for event in retinue.stream(worker(), "go"):
            if isinstance(event, Progressed):
                followed.set()
            if isinstance(event, ToolReturned):
                returned.append(event.text)
    assert returned == ["followed: True"]


def plain() -> Tool:
    @tool(name="work")
    def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress("half")
        return "done"

    return work


def waiting() -> Tool:
    @tool(name="work")
    async def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress("half")
        return "done"

    return work


@pytest.mark.parametrize("made", [plain, waiting])
@pytest.mark.parametrize("db", ["memory:", "file"])
async def test_progress_comes_after_its_call_and_before_its_result(
    tmp_path: Path, made: Callable[[], Tool], db: str
) -> None:
    order: list[tuple[str, str]] = []
    steps = [[call("work"), call("work")], "done"]
    where = db if db == "memory:" else f"sqlite:///{tmp_path}/log.db"
    async with Retinue(
        model=ScriptedModel(steps), db=where, cwd=tmp_path, environ={}, tools=[made()]
    ) as retinue:
        async for event in retinue.stream(worker(), "go"):
            if isinstance(event, ToolCalled | Progressed | ToolReturned):
                order.append((event.call_id, type(event).__name__))
    for one in {call_id for call_id, _ in order}:
        assert [kind for call_id, kind in order if call_id == one] == [
            "ToolCalled",
            "Progressed",
            "ToolReturned",
        ]


async def test_a_tool_that_was_left_behind_shows_nothing_more(tmp_path: Path) -> None:
    go_on, told = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def work(ctx: ToolContext) -> str:
        """Work."""
        go_on.wait(PATIENCE)
        ctx.progress("too late")
        told.set()
        return "done"

    heard: list[str] = []
    async with opened(tmp_path, work) as retinue:
        retinue.hear(lambda event: heard.append(type(event).__name__))
        await retinue.run(worker(), "go")
        go_on.set()
        await asyncio.to_thread(told.wait, PATIENCE)
        await asyncio.sleep(0)  # whatever it handed over has had its turn
    assert "ToolReturned" in heard
    assert "Progressed" not in heard


async def test_what_a_plain_tool_logs_as_denied_is_written_by_the_loop(tmp_path: Path) -> None:
    threads: list[int] = []

    @tool
    def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.denied("door", "it is locked")
        return "done"

    def listen(event: LiveEvent) -> None:
        if isinstance(event, AccessDenied):
            threads.append(threading.get_ident())

    async with opened(tmp_path, work) as retinue:
        retinue.hear(listen)
        report = await retinue.run(worker(), "go")
        logged = [e for e in await retinue.store.events(report.run_id) if isinstance(e, AccessDenied)]
    assert [one.detail for one in logged] == ["it is locked"]
    assert threads == [threading.get_ident()]
