"""A tree with every way to delegate replays: times, moments and the order of ends are played back too."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.engine import record
from retinue.events import (
    CancelRequested,
    ChildEnded,
    HistoryPruned,
    ModelReplied,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from retinue.types import ModelEvent, ModelRequest
from trees import Cast, agent, results, told, turn


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
    usual = {"tools": [look, change], "agents": AGENTS, "environ": {}, "yes": True, "settings": SETTINGS}
    return Retinue(model=cast, db=store, **{**usual, **more})


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
    took = [e.duration_ms for e in await store.events(report.run_id) if isinstance(e, ChildEnded)]
    assert any(took) or "background" in tree  # there they may be stopped within a millisecond
    assert await replayed_without(store, report.run_id) == ""


@pytest.mark.parametrize("tree", TREES)
async def test_a_fork_replays_though_what_its_model_was_told_of_was_paid_for_elsewhere(tree: str) -> None:
    store = MemoryStore()
    async with app(TREES[tree], store) as retinue:
        report = await retinue.run(agent("root"), "go")
        events = await store.events(report.run_id)
        last = [e.pos for e in events if isinstance(e, StepStarted) and e.run_id == report.run_id][-1]
        fork = await retinue.fork(report.run_id, at=last - 1)
        assert (await retinue.wait(fork)).status == "completed"
    copied = [e for e in await store.events(fork) if isinstance(e, ChildEnded)]
    assert any(e.usage.total_tokens == 0 for e in copied)
    assert await replayed_without(store, fork) == ""


async def test_a_fork_in_which_a_child_said_something_else_is_shown_to_differ() -> None:
    store = MemoryStore()
    async with app(TREES["agent as a tool"], store) as retinue:
        report = await retinue.run(agent("root"), "go")
        events = await store.events(await retinue.fork(report.run_id, message="more"))
        ended = next(e for e in events if isinstance(e, RunFinished) and e.depth == 1)
        other = replace(ended, report=replace(ended.report, text="child saw nothing"))
        assert (
            "-child saw nothing"
            in (await retinue.replay_events([other if e is ended else e for e in events])).diff
        )


async def test_a_subagent_replays() -> None:
    def play(request: Any) -> Any:
        if "delegated task" in request.system:
            return [[("look", {"what": "a"})], "found", "summed up"][turn(request)]
        task = {"label": "part", "task_prompt": "x", "allowed_tools": ["look"]}
        return [[("subagent", task)], "done"][turn(request)]

    store = MemoryStore()

    class Both(Cast):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            part = play(request)
            async for item in Cast(
                {request.system.split("\n", 1)[0].removeprefix("PLAY ").strip(): lambda r: part}
            ).stream(request):
                yield item

    tools: dict[str, Any] = {"tools": [look, change], "agents": AGENTS}
    async with Retinue(model=Both({}), db=store, environ={}, yes=True, settings=SETTINGS, **tools) as retinue:
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


BATCH = [("parallel_tasks", {"tasks": PAIR, "wait_all": False})]
WAIT = [("parallel_tasks", {"operation": "wait"})]


@pytest.mark.parametrize("steps_between", [0, 1])
async def test_a_wait_replays_though_a_child_ended_at_the_moment_of_the_call(steps_between: int) -> None:
    """Its report was there before the call, or a step before that, and its parent was told after the call."""
    says = [BATCH, *[[("look", {"what": "b"})]] * steps_between, WAIT, "done"]
    ended, looked, called, store = asyncio.Event(), asyncio.Event(), asyncio.Event(), MemoryStore()

    async def root(request: Any) -> Any:
        if turn(request) == 1:
            await looked.wait()
        return says[turn(request)]

    async def told_late(report: Any) -> str:
        await called.wait()
        return report.text

    async def late(request: Any) -> Any:
        await ended.wait()
        if turn(request) < 8:
            return [("look", {"what": str(turn(request))})]
        looked.set()
        await called.wait()
        return "found it"

    def hear(event: Any) -> None:
        if isinstance(event, RunFinished):
            ended.set()
        if isinstance(event, ToolCalled) and looked.is_set() and event.name == "parallel_tasks":
            called.set()

    agents = [agent("c", summary=told_late), agent("d", tools=("look",))]
    parts = {"root": root, "c": ["found it"], "d": late}
    async with asyncio.timeout(60), app(parts, store, agents=agents) as retinue:
        retinue.hear(hear)
        report = await retinue.run(agent("root"), "go")
    waited = [e for e in await store.events(report.run_id) if isinstance(e, ToolReturned)][-1]
    assert len(waited.children) == 2
    for _ in range(3):
        assert await replayed_without(store, report.run_id, agents=agents) == ""


async def test_a_wait_replays_though_a_child_ended_just_before_the_step_that_calls_it() -> None:
    """Between the last result and the next question, while what is dropped from the history is summed up."""
    begun, ended, asked, store = asyncio.Event(), asyncio.Event(), asyncio.Event(), MemoryStore()

    says = iter([BATCH, [("look", {"what": "b" * 4000})], WAIT, "done"])

    def root(request: Any) -> Any:
        said = next(says)
        if said is WAIT:
            asked.set()
        return said

    async def summary(request: Any) -> str:
        begun.set()
        await ended.wait()
        return "summed up"

    async def early(request: Any) -> Any:
        await begun.wait()
        return "before the step"

    async def late(request: Any) -> Any:
        await asked.wait()
        return "after it"

    def hear(event: Any) -> None:
        if isinstance(event, ChildEnded):
            ended.set()

    settings = {**SETTINGS, "context.max_tokens": 1000, "context.keep_turns": 1, "context.mode": "summarize"}
    parts = {"root": root, "c": early, "d": late, SUMMARISE: summary}
    async with asyncio.timeout(60), app(parts, store, settings=settings) as retinue:
        retinue.hear(hear)
        report = await retinue.run(agent("root"), "go" * 600)
    waited = [e for e in await store.events(report.run_id) if isinstance(e, ToolReturned)][-1]
    assert len(waited.children) == 1, "it had the report of the other one when it was asked"
    for _ in range(3):
        assert await replayed_without(store, report.run_id, settings=settings) == ""


async def test_a_child_that_ended_before_the_call_that_asked_it_came_back_replays() -> None:
    """A child asked again in the background may be faster than the call that asks it."""

    def root(request: Any) -> Any:
        if turn(request) == 0:
            return [("delegate_task", PAIR[0])]
        if turn(request) == 1:
            child = json.loads(results(request)[0].text)["child_id"]
            return [("background", {"operation": "start", "child_id": child, "prompt": "again"})]
        return "done"

    store = MemoryStore()
    async with app({"root": root, "c": lambda request: "at once"}, store) as retinue:
        report = await retinue.run(agent("root"), "go")
    kinds = [type(e) for e in await store.events(report.run_id, run_id=report.run_id)]
    assert kinds.index(ChildEnded, kinds.index(ChildEnded) + 1) < len(kinds) - 1 - kinds[::-1].index(
        ToolReturned
    ), "it was faster"
    assert await replayed_without(store, report.run_id) == ""


async def test_an_agent_that_was_changed_since_counts_and_is_shown() -> None:
    store = MemoryStore()
    async with app(TREES["delegate_task"], store) as retinue:
        report = await retinue.run(agent("root"), "go")
    now = [agent("c", tools=("look",), max_turns=1), *AGENTS[1:]]
    diff = await replayed_without(store, report.run_id, agents=now)
    lines = diff.splitlines()
    assert any(line.startswith("@@ c ") and "run started, spec.max_turns @@" in line for line in lines)
    assert "+1" in lines
    assert any("run finished, report.ended_by @@" in line for line in lines)  # it is played by it, too
    assert not any(line.startswith("@@ -") for line in lines)  # one head for each fact


async def test_agents_that_are_gone_and_another_folder_are_no_difference(tmp_path: Path) -> None:
    """Whether they did anything or not; made up children list what there was."""
    store, folders = MemoryStore(), [tmp_path / "shop", tmp_path / "elsewhere"]
    for folder in folders:
        folder.mkdir()
    made_up = {"name": "temp", "prompt": "x", "system_prompt": "PLAY c"}
    copy = ("subagent", {"label": "l", "task_prompt": "p"})
    parts = {
        "root": [[("spawn_agent", made_up), copy, ("c", {"prompt": "x"})], "done"],
        "c": ["child"],
        "You do one delegated task. Work through it with your tools, then answer.": ["copied"],
    }
    async with app(parts, store, cwd=folders[0]) as retinue:
        report = await retinue.run(agent("root"), "go")
    began = [e for e in await store.events(report.run_id) if isinstance(e, RunStarted)]
    assert all("Working folder: shop" in e.system for e in began)
    assert {"c", "d", "n", "short"} <= {*began[0].tools}
    for agents in (AGENTS[::-1], AGENTS[1:], []):
        assert await replayed_without(store, report.run_id, cwd=folders[1], agents=agents) == ""


async def test_a_changed_list_says_what_was_added_and_removed_and_once_for_all_runs() -> None:
    store = MemoryStore()
    tasks = [{"agent_id": "c", "prompt": str(n)} for n in range(3)]
    async with app({"root": [[("parallel_tasks", {"tasks": tasks})], "done"]}, store) as retinue:
        report = await retinue.run(agent("root"), "go")
    now = [agent("c", tools=("read", "look")), *AGENTS[1:]]
    heads = (await replayed_without(store, report.run_id, agents=now)).splitlines()
    at = next(n for n, line in enumerate(heads) if "run started, spec.tools" in line)
    assert heads[at].endswith("run started, spec.tools (and 2 times more in the same way) @@")
    assert heads[at + 1 : at + 3] == ["-change", "+read"]
    assert heads[at + 3].startswith("@@ ")


async def test_tools_that_are_not_there_today_are_stood_in_for() -> None:
    store = MemoryStore()
    parts = {"root": [[("delegate_task", PAIR[0]), ("look", {"what": "b"})], "done"], "c": ASKS}
    async with app(parts, store) as retinue:
        report = await retinue.run(agent("root"), "go")
    assert await replayed_without(store, report.run_id, tools=[], agents=[]) == ""


@pytest.mark.parametrize("tools", [[look, change], []], ids=["with the tools", "without them"])
@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        ("approve", {}),
        ("approve", {"arguments": '{"path": "b"}'}),
        ("reject", {"reason": "not that one"}),
    ],
    ids=["approved", "edited", "rejected"],
)
async def test_what_people_answered_in_a_child_replays(
    decision: Any, answer: dict[str, Any], tools: list[Any]
) -> None:
    store = MemoryStore()
    parts = {"root": [[("parallel_tasks", {"tasks": PAIR})], "done"], "c": ASKS}
    async with asyncio.timeout(60), app(parts, store, yes=False, answering="ask") as retinue:
        root_id = await retinue.start(agent("root"), "go")
        while not (found := await store.waiting(root_id)):
            await asyncio.sleep(0)
        await retinue.answer(found[0].approval_id, decision, **answer)
        assert (await retinue.wait(root_id)).status == "completed"
    changed = [e.text for e in await store.events(root_id) if isinstance(e, ToolReturned)]
    assert any(text.endswith("\nchanged b") for text in changed) == bool(answer.get("arguments"))
    agents = AGENTS if tools else []  # an agent of a tool that is not there would be refused
    assert await replayed_without(store, root_id, yes=False, tools=tools, agents=agents) == ""


async def test_a_message_of_a_person_while_a_child_works_replays() -> None:
    store, said = MemoryStore(), asyncio.Event()

    async def child(request: Any) -> Any:
        await said.wait()
        return LOOKS[turn(request)]

    parts = {"root": [[("delegate_task", PAIR[0])], "done", "done, and that"], "c": child}
    async with asyncio.timeout(60), app(parts, store) as retinue:
        root_id = await retinue.start(agent("root"), "go")
        while not any(isinstance(e, ModelReplied) for e in await store.events(root_id)):
            await asyncio.sleep(0)
        await retinue.message(root_id, "and that?")
        said.set()
        report = await retinue.wait(root_id)
    assert report.status == "completed"
    assert await replayed_without(store, root_id) == ""


async def test_a_workflow_that_was_followed_up_replays_up_to_its_first_end() -> None:
    store = MemoryStore()
    parts = {"root": [*TREES["parallel_tasks"]["root"], [("delegate_task", PAIR[0])], "and that"]}
    async with asyncio.timeout(60), app(parts, store) as retinue:
        first = await retinue.run(agent("root"), "go")
        await retinue.resume(first.run_id, message="and then?")
        assert (await retinue.wait(first.run_id)).text == "and that"
        replayed = await retinue.replay(first.run_id)
    assert replayed.diff == ""
    assert replayed.report == first


@pytest.mark.parametrize("who", ["the root", "the child"])
async def test_what_a_person_cancelled_replays(who: str) -> None:
    store = MemoryStore()

    async def hangs(request: Any) -> Any:
        await asyncio.Event().wait()

    parts = {"root": [[("parallel_tasks", {"tasks": PAIR})], "done"], "d": hangs}
    async with asyncio.timeout(60), app(parts, store) as retinue:
        root_id = await retinue.start(agent("root"), "go")
        while not (ended := [e for e in await store.events(root_id) if isinstance(e, ChildEnded)]):
            await asyncio.sleep(0)
        others = {e.run_id for e in await store.events(root_id)} - {root_id, ended[0].child_id}
        await retinue.cancel(root_id if who == "the root" else others.pop(), "enough")
        report = await retinue.wait(root_id)
    assert report.status == ("cancelled" if who == "the root" else "completed")
    for _ in range(3):
        assert await replayed_without(store, root_id) == ""


async def test_a_parent_that_fails_and_stops_its_children_replays() -> None:
    store = MemoryStore()

    async def hangs(request: Any) -> Any:
        await asyncio.Event().wait()

    tasks = {"tasks": PAIR, "wait_all": False}
    parts = {"root": [[("parallel_tasks", tasks)], RuntimeError("no such luck")], "c": hangs, "d": hangs}
    async with asyncio.timeout(60), app(parts, store) as retinue:
        report = await retinue.run(agent("root"), "go")
    assert report.status == "error"
    stopped = [e for e in await store.events(report.run_id) if isinstance(e, CancelRequested)]
    assert len(stopped) == 2
    assert {e.by for e in stopped} <= record.OWN_CANCELS
    for _ in range(3):
        assert await replayed_without(store, report.run_id) == ""


async def test_a_parent_that_waits_today_for_a_child_it_stopped_then_still_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "PATIENCE", 0.2)
    store = MemoryStore()

    async def hangs(request: Any) -> Any:
        await asyncio.Event().wait()

    parts = {"root": [START, "done"], "c": hangs}
    stopped = {"settings": {**SETTINGS, "delegation.parent_ends": "cancel"}}
    async with asyncio.timeout(60), app(parts, store, **stopped) as retinue:
        report = await retinue.run(agent("root"), "go")
    assert report.status == "completed"
    settings = {**SETTINGS, "delegation.parent_ends": "wait"}
    diff = await replayed_without(store, report.run_id, settings=settings)
    assert "only in the replay @@" in diff


async def test_a_tree_that_was_cut_by_time_replays_without_waiting_for_it() -> None:
    """A child that hung, its parent that summed up, and a child there was no time for any more."""

    async def hang(request: Any) -> Any:
        await asyncio.Event().wait()

    def root(request: Any) -> Any:
        if not request.tools:
            return "summed up"
        if turn(request) == 0:
            return [("parallel_tasks", {"tasks": PAIR}), ("n", {"prompt": "x"})]
        raise AssertionError("it has no time left")

    def nested(request: Any) -> Any:
        if turn(request) == 0:
            return [("d", {"prompt": "x"})]
        return "nested done" if not request.tools else [("c", {"prompt": "y"})]

    store = MemoryStore()
    timed = {"settings": {**SETTINGS, "limits.timeout": 4}}
    async with app({"root": root, "n": nested, "d": hang}, store, **timed) as retinue:
        report = await retinue.run(agent("root"), "go")
    assert (report.text, report.ended_by) == ("summed up", "time")
    ended = {
        e.report.agent: e.report.ended_by
        for e in await store.events(report.run_id)
        if isinstance(e, RunFinished)
    }
    assert ended == {"c": "answer", "d": "timeout", "n": "time", "root": "time"}
    assert await replayed_without(store, report.run_id, **timed) == ""


async def test_a_child_that_there_was_no_time_for_replays() -> None:
    async def root(request: Any) -> Any:
        if not request.tools:
            return "summed up"
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            await asyncio.sleep(0)
        return [("c", {"prompt": "x"}), ("delegate_task", PAIR[1])]

    store = MemoryStore()
    timed = {"settings": {**SETTINGS, "limits.timeout": 1}}
    async with app({"root": root}, store, **timed) as retinue:
        report = await retinue.run(agent("root"), "go")
    refused = [e.not_run for e in await store.events(report.run_id) if isinstance(e, ToolReturned)]
    assert refused == ["time", "time"]
    assert await replayed_without(store, report.run_id, **timed) == ""


SHORTEN = "You shorten reports. Keep every fact, name, path, number, URL and doubt."
SUMMARISE = "You summarise conversations of an agent with its tools."


@pytest.mark.parametrize("mode", ["prune", "summarize"])
@pytest.mark.parametrize("forks", [0, 1, 2])
async def test_a_long_tree_and_its_forks_replay_with_what_was_dropped_and_shortened(
    mode: str, forks: int
) -> None:
    """What a small model worded is played back, and what a fork was told counts as it was told."""
    store = MemoryStore()

    def root(request: Any) -> Any:
        ways: list[Any] = [
            [("c", {"prompt": "one"})],
            [("parallel_tasks", {"tasks": PAIR})],
            START,
            [("delegate_task", {"operation": "delegate", "agent_id": "c", "prompt": "two"})],
        ]
        return ways[turn(request)] if turn(request) < len(ways) else f"done {len(told(request))}"

    counted = iter(range(1000))
    parts: dict[str, Any] = {
        "root": root,
        **{name: (lambda request: "found it " * 120) for name in "cd"},
        SHORTEN: lambda request: f"in short {next(counted)}",
        SUMMARISE: lambda request: f"summed up {next(counted)}",
    }
    settings = {
        **SETTINGS,
        **({"delegation.summary": "model", "limits.report_bytes": 256} if mode == "summarize" else {}),
        "context.max_tokens": 1000,
        "context.keep_turns": 1,
        "context.mode": mode,
    }
    async with asyncio.timeout(60), app(parts, store, settings=settings) as retinue:
        run_id = (await retinue.run(agent("root"), "go" * 600)).run_id
        for number in range(forks):
            run_id = await retinue.fork(run_id, message=f"more {number}")
            await retinue.wait(run_id)
    events = await store.events(run_id)
    assert any(isinstance(e, HistoryPruned) for e in events), (
        "it was long enough for the test to mean anything"
    )
    assert await replayed_without(store, run_id, settings=settings) == ""


STOPS = {
    "background": ("background", {"operation": "cancel"}),
    "spawn_agent": ("spawn_agent", {"operation": "terminate"}),
}


@pytest.mark.parametrize("by", [*STOPS, "the end of its parent", "a person"])
async def test_a_child_that_is_stopped_between_a_reply_and_its_calls_replays(by: str) -> None:
    """It had a turn by then and no call: it is stopped again after the one and before the other, though its
    parent had said so before the child replied."""
    asked, replied, store = asyncio.Event(), asyncio.Event(), MemoryStore()

    def root(request: Any) -> Any:
        if turn(request) == 1 and by in STOPS:
            name, what = STOPS[by]
            return [(name, {**what, "child_id": started(request)})]
        return "done" if turn(request) else START

    async def child(request: Any) -> Any:
        await asked.wait()
        return LOOKS[turn(request)]

    settings = {**SETTINGS, "delegation.parent_ends": "wait" if by == "a person" else "cancel"}
    async with asyncio.timeout(60), app({"root": root, "c": child}, store, settings=settings) as retinue:
        append, late = store.append, list[asyncio.Future[None]]()

        async def of_parent(written: asyncio.Future[None]) -> None:
            await written
            asked.set()
            await replied.wait()

        async def of_child(written: asyncio.Future[None], run_id: str) -> None:
            await written
            replied.set()
            if by == "a person":
                await retinue.cancel(run_id)
            await asyncio.Event().wait()

        def slow(events: Any) -> Any:
            """What a parent replies is acted on when its child has replied, and that never."""
            written = append(events)
            found = next((e for e in events if isinstance(e, ModelReplied)), None)
            if found is None or (found.depth, found.step) == (0, 1) or found.step > 2:
                return written
            waits = of_child(written, found.run_id) if found.depth else of_parent(written)
            late.append(asyncio.ensure_future(waits))
            return late[-1]

        store.append = slow
        report = await retinue.run(agent("root"), "go")
        store.append = append
        for task in late:
            task.cancel()
    log = await store.events(report.run_id)
    (ended,) = [e.report for e in log if isinstance(e, RunFinished) and e.depth == 1]
    assert (ended.status, ended.turns, ended.tool_calls) == ("cancelled", 1, 0)
    for _ in range(3):
        assert await replayed_without(store, report.run_id, settings=settings) == ""
