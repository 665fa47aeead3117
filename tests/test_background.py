"""Children that their parent does not wait for: looked at, waited for, read before the parent's end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.app import Retinue
from retinue.events import ChildEnded, ChildStarted, ModelReplied, RunFinished, ToolReturned, now
from retinue.store.base import Signal
from retinue.store.connect import connect
from retinue.store.memory import MemoryStore
from trees import Cast, Stage, agent, results, told, turn

ALL = ("agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background")
START = [("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})]
PAIR = [{"agent_id": name, "prompt": "x"} for name in ("a", "b")]
BATCH = [("parallel_tasks", {"tasks": PAIR, "wait_all": False})]


async def hang(request: Any) -> Any:
    await asyncio.Event().wait()


def child_of(request: Any) -> str:
    begun = json.loads(results(request)[0].text)
    assert (begun["success"], begun["note"]) == (True, "you will be told when it ends")
    return begun["child_id"]


def children_of(request: Any) -> list[str]:
    return [row["child_id"] for row in json.loads(results(request)[0].text)["results"]]


LOOKS = {
    "background": lambda child: ("background", {"operation": "check", "child_id": child}),
    "spawn_agent": lambda child: ("spawn_agent", {"operation": "list_children"}),
}


@pytest.mark.parametrize("way", LOOKS)
@pytest.mark.parametrize("depth", [0, 1])
async def test_looking_at_a_child_that_works_is_no_circle(way: str, depth: int) -> None:
    """However often, and in a child too, which must not do nothing but delegate."""
    done = asyncio.Event()

    async def worker(request: Any) -> str:
        await done.wait()
        return "the result"

    def parent(request: Any) -> Any:
        if turn(request) == 0:
            return START
        if turn(request) < 9:
            return [LOOKS[way](child_of(request))]
        done.set()
        return "done"

    stage = Stage(
        {"root": [[("middle", {"prompt": "x"})], "over"] if depth else parent, "middle": parent, "w": worker},
        agents=[agent("w"), agent("middle", max_turns=20)],
        delegation__tools=ALL,
        delegation__policy="nested",
    )
    report = await stage.run()
    ends = {e.report.agent: e.report.ended_by for e in await stage.log() if isinstance(e, RunFinished)}
    assert set(ends.values()) == {"answer"}
    assert report.outcome == "completed"


async def test_looking_again_and_again_at_a_child_that_has_ended_is_a_circle() -> None:
    ended = asyncio.Event()

    def worker(request: Any) -> str:
        ended.set()
        return "the result"

    async def root(request: Any) -> Any:
        if turn(request) == 0:
            return START
        await ended.wait()
        while not any(isinstance(event, ChildEnded) for event in await stage.log()):
            await asyncio.sleep(0)
        return [LOOKS["background"](child_of(request))] if request.tools else "done"

    stage = Stage({"root": root, "w": worker}, agents=[agent("w")], delegation__tools=ALL)
    assert (await stage.run()).ended_by == "circle"


async def test_a_parent_reads_its_background_children_before_its_answer_counts() -> None:
    go = asyncio.Event()

    async def worker(request: Any) -> str:
        await go.wait()
        return "found 42"

    def root(request: Any) -> Any:
        if turn(request) == 0:
            return BATCH
        go.set()
        return f"answer {turn(request)}: " + str(sum("found 42" in text for text in told(request)))

    stage = Stage({"root": root, "a": worker, "b": worker}, agents=[agent("a"), agent("b")])
    report = await stage.run()
    assert report.text == "answer 2: 2"
    assert report.outcome == "completed"


async def test_a_background_child_that_hangs_holds_its_parent_no_longer_than_its_time() -> None:
    stage = Stage(
        {"root": [START, "done", "done without it"], "w": hang},
        agents=[agent("w")],
        delegation__tools=ALL,
        limits__timeout=4,
    )
    report = await stage.run()
    assert (report.text, report.ended_by, report.outcome) == ("done without it", "time", "incomplete")
    assert report.shortfall.failed == 1
    assert "has ended: error.]" in told(stage.model.of("root")[-1])[-2]


async def test_a_parent_without_turns_left_reads_its_background_children_too() -> None:
    go = asyncio.Event()

    async def worker(request: Any) -> str:
        await go.wait()
        return "found 42"

    def root(request: Any) -> Any:
        if request.tools:
            asyncio.get_running_loop().call_soon(go.set)
            return START
        return f"summed up: {any('found 42' in text for text in told(request))}"

    stage = Stage({"root": root, "w": worker}, agents=[agent("w")], delegation__tools=ALL)
    report = await stage.run(agent("root", max_turns=1))
    assert (report.text, report.ended_by) == ("summed up: True", "max_turns")


# -- parallel_tasks, operation wait --------------------------------------------------------------------------------


def waits(**more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [("parallel_tasks", {"operation": "wait", **more})]


async def test_a_batch_in_the_background_is_waited_for_in_parts() -> None:
    def root(request: Any) -> Any:
        match turn(request):
            case 0:
                return BATCH
            case 1:
                return waits(child_ids=[children_of(request)[1]])
            case 2:
                return waits()
            case 3:
                return waits(child_ids=children_of(request))
            case _:
                return "done"

    stage = Stage({"root": root, "a": ["found 1"], "b": ["found 2"]}, agents=[agent("a"), agent("b")])
    report = await stage.run()
    last = stage.model.of("root")[-1]
    read = "\n".join([*told(last), *(result.text for result in results(last))])
    assert (read.count("found 1"), read.count("found 2")) == (1, 1), "in a notice or in a result, once each"
    assert json.loads(results(last)[3].text)["completed"] == 2
    assert report.outcome == "completed"


@pytest.mark.parametrize("ended", [1, 2])
async def test_a_wait_counts_children_that_ended_while_the_model_was_asking_for_it(ended: int) -> None:
    """It did not know of their ends when it called: a moment more or less makes no other result."""
    go = asyncio.Event()

    def ends() -> int:
        return sum(isinstance(event, ChildEnded) for event in stage.live)

    async def root(request: Any) -> Any:
        if turn(request) == 0:
            return BATCH
        while turn(request) == 1 and ends() < ended:
            await asyncio.sleep(0)
        go.set()
        return waits() if turn(request) < 3 else "done"

    async def late(request: Any) -> str:
        if ended == 1:
            await go.wait()
        return "found 2"

    stage = Stage({"root": root, "a": ["found 1"], "b": late}, agents=[agent("a"), agent("b")])
    await stage.run()
    last = stage.model.of("root")[-1]
    _, waited, again = results(last)
    assert json.loads(waited.text)["completed"] == 2
    assert again.text == "nothing runs in the background whose report you do not have already"
    read = "\n".join([*told(last), waited.text])
    assert (read.count("found 1"), read.count("found 2")) == (1, 1)


@pytest.mark.parametrize(
    ("asked", "told_so"),
    [
        ({"child_ids": ["nope"]}, "there is no child 'nope' of yours. Your children: none"),
        ({}, "nothing runs in the background whose report you do not have already"),
    ],
)
async def test_waiting_for_nothing_says_so(asked: dict[str, Any], told_so: str) -> None:
    stage = Stage({"root": [waits(**asked), "done"]}, agents=[agent("a")])
    await stage.run()
    assert results(stage.model.of("root")[-1])[0].text == told_so


async def test_a_wait_for_a_batch_goes_on_after_a_restart(tmp_path: Path) -> None:
    def root(request: Any) -> Any:
        return [BATCH, waits(), "done"][turn(request)]

    agents = [agent("a"), agent("b")]
    first = Stage({"root": root, "a": ["found 1"], "b": hang}, agents=agents)
    task = await first.start()
    while sum(isinstance(event, ChildEnded) for event in await first.log()) < 1:
        await asyncio.sleep(0)
    while not any(isinstance(event, ToolReturned) for event in await first.log()):
        await asyncio.sleep(0)
    store = connect(f"sqlite:///{tmp_path}/runs.db")
    await store.open()
    await store.append([msgspec.structs.replace(event, pos=0) for event in await first.log()])
    await first.workflow.leave()
    task.cancel()

    again = Stage({"root": root, "b": ["found 2"]}, agents=agents, store=store, root_id=first.root_id)
    report = await (await again.resume())
    last = again.model.of("root")[-1]
    read = "\n".join([*told(last), *(result.text for result in results(last))])
    assert (report.text, report.outcome) == ("done", "completed")
    assert (read.count("found 1"), read.count("found 2")) == (1, 1)
    assert sum(isinstance(event, ChildStarted) for event in await again.log()) == 2
    await store.close()


# -- a conversation ------------------------------------------------------------------------------------------------


async def say(stage: Stage, text: str, run_id: str = "") -> None:
    body = json.dumps({"text": text})
    signal = Signal(
        root_id=stage.root_id, run_id=run_id or stage.root_id, kind="message", key=text, body=body, at=now()
    )
    assert await stage.store.send(signal)


async def test_who_speaks_to_a_parent_that_waits_is_answered_while_its_children_go_on() -> None:
    """They outlive the turn of the conversation in which they were started, and their report opens another."""
    go, answered = asyncio.Event(), asyncio.Event()

    async def worker(request: Any) -> str:
        await go.wait()
        return "found 42"

    def root(request: Any) -> Any:
        if turn(request) == 0:
            return START
        last = told(request)[-1]
        if last == "and the other thing?":
            answered.set()
            return "the other thing is done"
        return "all is there" if "found 42" in last else "it works on that"

    stage = Stage({"root": root, "w": worker}, agents=[agent("w")], delegation__tools=ALL)
    task = await stage.start()
    while turn(stage.model.of("root")[-1]) < 1 if stage.model.of("root") else True:
        await asyncio.sleep(0)
    await say(stage, "and the other thing?")
    await answered.wait()
    assert not any(isinstance(event, ChildEnded) for event in await stage.log()), "it still works"
    go.set()
    report = await task
    assert (report.text, report.outcome) == ("all is there", "completed")


async def test_a_conversation_with_a_parent_that_waits_replays() -> None:
    go = asyncio.Event()

    async def worker(request: Any) -> str:
        await go.wait()
        return "found 42"

    def root(request: Any) -> Any:
        if turn(request) == 0:
            return START
        if told(request)[-1] == "more?":
            asyncio.get_running_loop().call_soon(go.set)
        return f"answer {turn(request)}"

    store = MemoryStore()
    app: dict[str, Any] = {"db": store, "environ": {}, "agents": [agent("w")]}
    app["settings"] = {"delegation.tools": list(ALL)}
    async with Retinue(model=Cast({"root": root, "w": worker}), **app) as retinue:
        run_id = await retinue.start(agent("root"), "go")
        while sum(isinstance(event, ModelReplied) for event in await store.events(run_id)) < 2:
            await asyncio.sleep(0.001)
        assert await retinue.message(run_id, "more?")
        report = await retinue.wait(run_id)
        assert report.text == "answer 3"
        assert (await retinue.replay(run_id)).diff == ""
