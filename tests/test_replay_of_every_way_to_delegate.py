"""A tree with every way to delegate replays: times, moments and the order of ends are played back too."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.events import ChildEnded, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from trees import Cast, agent, results, turn


async def takes_time() -> None:
    """Some milliseconds by the clock: a replay is faster."""
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        await asyncio.sleep(0)


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    await takes_time()
    return f"saw {what}"


@tool(name="change", effect="write")
async def change(path: str) -> str:
    """Change a file."""
    return f"changed {path}"


LOOKS = [[("look", {"what": "a"})], "child saw it"]
ASKS = [[("change", {"path": "a"})], "child changed it"]
PAIR = [{"agent_id": "c", "prompt": "x"}, {"agent_id": "d", "prompt": "y"}]
SPAWN = {"name": "temp", "prompt": "x", "system_prompt": "PLAY c", "tools": ["look"]}
TREES: dict[str, dict[str, Any]] = {
    "agent as a tool": {"root": [[("c", {"prompt": "x"})], "done"]},
    "spawn_agent": {"root": [[("spawn_agent", SPAWN)], "done"]},
    "delegate_task": {"root": [[("delegate_task", PAIR[0])], "done"]},
    "parallel_tasks": {"root": [[("parallel_tasks", {"tasks": PAIR})], "done"]},
    "parallel_tasks in the background": {
        "root": [
            [("parallel_tasks", {"tasks": PAIR, "wait_all": False})],
            "meanwhile",
            "done",
            "done",
            "done",
        ]
    },
    "all at once": {
        "root": [
            [
                ("c", {"prompt": "x"}),
                ("spawn_agent", SPAWN),
                ("delegate_task", PAIR[1]),
                ("parallel_tasks", {"tasks": PAIR}),
                ("look", {"what": "b"}),
                ("background", {"operation": "start", **PAIR[0]}),
            ],
            [("spawn_agent", {"operation": "list_children"})],
            "done",
            "done",
        ]
    },
    "nested": {
        "root": [[("delegate_task", {"agent_id": "n", "prompt": "x"})], "done"],
        "n": [[("parallel_tasks", {"tasks": PAIR}), ("delegate_task", PAIR[0])], "nested done"],
    },
    "unfinished": {
        "root": [[("delegate_task", {"agent_id": "short", "prompt": "x"})], "done"],
        "short": [[("look", {"what": str(n)})] for n in range(3)] + ["cut short"],
    },
    "failed": {"root": [[("parallel_tasks", {"tasks": PAIR})], "done"], "d": [RuntimeError("no such luck")]},
}
AGENTS = [
    agent("c", tools=("look", "change")),
    agent("d", tools=("look",)),
    agent("n"),
    agent("short", tools=("look",), max_turns=2),
]


WAYS = ["agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background"]
SETTINGS: dict[str, Any] = {"delegation.policy": "nested", "delegation.tools": WAYS}


def app(parts: dict[str, Any], store: MemoryStore, **more: Any) -> Retinue:
    cast = Cast({"c": LOOKS, "d": LOOKS, "subagent": LOOKS, **parts})
    more = {"tools": [look, change], "agents": AGENTS, "environ": {}, "yes": True, **more}
    return Retinue(model=cast, db=store, settings=SETTINGS, **more)


async def replayed_without(store: MemoryStore, root_id: str, **more: Any) -> str:
    """The difference where there is no model to ask."""
    async with asyncio.timeout(60), app({"c": [], "d": []}, store, **more) as retinue:
        return (await retinue.replay(root_id)).diff


@pytest.mark.parametrize("tree", TREES)
async def test_every_way_to_delegate_replays(tree: str) -> None:
    store = MemoryStore()
    async with app(TREES[tree], store) as retinue:
        report = await retinue.run(agent("root"), "go")
    assert report.status == "completed"
    assert any(isinstance(e, ChildEnded) and e.duration_ms for e in await store.events(report.run_id))
    assert await replayed_without(store, report.run_id) == ""


async def test_a_subagent_replays() -> None:
    def play(request: Any) -> Any:
        if "delegated task" in request.system:
            return [[("look", {"what": "a"})], "found", "summed up"][turn(request)]
        task = {"label": "part", "task_prompt": "x", "allowed_tools": ["look"]}
        return [[("subagent", task)], "done"][turn(request)]

    store = MemoryStore()

    class Both(Cast):
        async def stream(self, request: Any) -> Any:
            part = play(request)
            async for item in Cast(
                {request.system.split("\n", 1)[0].removeprefix("PLAY ").strip(): lambda r: part}
            ).stream(request):
                yield item

    async with Retinue(
        model=Both({}), db=store, tools=[look], environ={}, yes=True, settings=SETTINGS
    ) as retinue:
        report = await retinue.run(agent("root"), "go")
    result = next(
        e for e in await store.events(report.run_id) if isinstance(e, ToolReturned) and e.name == "subagent"
    )
    assert json.loads(result.text)["metrics"]["duration_ms"] > 0
    assert await replayed_without(store, report.run_id) == ""


def started(request: Any) -> str:
    return json.loads(results(request)[0].text)["child_id"]


START = [("background", {"operation": "start", **PAIR[0]})]


def background(*operations: str, gate: Callable[[int], Awaitable[None]]) -> Callable[[Any], Awaitable[Any]]:
    async def root(request: Any) -> Any:
        at = turn(request)
        await gate(at)
        if at == 0:
            return START
        if at <= len(operations):
            asked = {"operation": operations[at - 1], "child_id": started(request), "text": "hurry"}
            return [("background", asked)]
        return "done"

    return root


@pytest.mark.parametrize("ended_before", [True, False])
@pytest.mark.parametrize("operation", ["check", "wait", "cancel", "message"])
async def test_a_background_child_replays_whether_it_ended_before_or_after(
    operation: str, ended_before: bool
) -> None:
    ended, asked_for, store = asyncio.Event(), asyncio.Event(), MemoryStore()

    async def gate(at: int) -> None:
        if at == 1 and ended_before:
            await ended.wait()
        if at == 2:
            asked_for.set()

    async def child(request: Any) -> Any:
        if not ended_before and operation != "wait":
            await asked_for.wait()
        return [*LOOKS, "and again", "and again"][turn(request)]

    def hear(event: Any) -> None:
        if isinstance(event, ChildEnded):
            ended.set()

    parts = {"root": background(operation, gate=gate), "c": child}
    async with asyncio.timeout(60), app(parts, store) as retinue:
        retinue.hear(hear)
        report = await retinue.run(agent("root"), "go")
    assert report.status == "completed"
    for _ in range(3):
        assert await replayed_without(store, report.run_id) == ""
