"""A tree that is cancelled or left in the very moment in which it is taken up: all of it stops, none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from retinue.app import Retinue
from retinue.events import AnyEvent, ChildEnded, ChildStarted, Event, RunFinished, RunStarted
from retinue.store.memory import MemoryStore
from retinue.types import Report
from trees import Cast, Stage, agent, never, turn

START = ("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})
CHILDREN = 3


def staged(store: MemoryStore, root_id: str | None = None) -> Stage:
    return Stage(
        {"root": lambda r: [START] * CHILDREN if turn(r) == 0 else never(), "w": lambda r: never()},
        agents=[agent("w")],
        store=store,
        root_id=root_id,
        delegation__tools=["background"],
        delegation__concurrency=1,
    )


async def left_at_work() -> tuple[str, list[AnyEvent]]:
    """A tree whose children were at work in the background when its process died, and its log."""
    stage = staged(MemoryStore())
    await stage.start()
    async with asyncio.timeout(60):
        while len(stage.model.requests) < 3:
            await asyncio.sleep(0)
    await stage.workflow.leave()
    return stage.root_id, await stage.log()


async def stored(log: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    await store.append(log)
    return store


def at_work() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("retinue ")]


async def test_a_tree_that_is_cancelled_while_it_is_taken_up_ends_with_all_that_is_below() -> None:
    root_id, log = await left_at_work()
    for moment in range(30):
        stage = staged(await stored(log), root_id)
        taking = asyncio.create_task(stage.resume())
        for _ in range(moment):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            stage.workflow.cancel(root_id, "enough")
            report = await (await taking)
        events = await stage.log()
        began = {e.run_id for e in events if isinstance(e, RunStarted)}
        assert len(began) == 1 + CHILDREN
        assert {e.run_id for e in events if isinstance(e, RunFinished)} == began, moment
        told = {e.child_id for e in events if isinstance(e, ChildEnded)}
        assert told == {e.child_id for e in events if isinstance(e, ChildStarted)}, moment
        assert (report.status, events[-1].run_id) == ("cancelled", root_id), moment
        assert not at_work(), moment


async def test_a_tree_that_is_left_while_it_is_taken_up_works_on_nowhere() -> None:
    root_id, log = await left_at_work()
    for moment in range(30):
        stage = staged(await stored(log), root_id)
        taking = asyncio.create_task(stage.resume())
        for _ in range(moment):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await stage.workflow.leave()
            await asyncio.wait([taking])
            for name in at_work():
                assert name == "retinue " + root_id, moment
        asked = len(stage.model.requests)
        for _ in range(30):
            await asyncio.sleep(0)
        assert len(stage.model.requests) == asked, moment
        assert not [e for e in await stage.log() if isinstance(e, RunFinished)], moment
        assert not at_work(), moment


async def lost(store: MemoryStore) -> tuple[str, str]:
    """A root that was interrupted while a child worked, and that child."""
    async with Retinue(
        model=Cast({"root": [[("w", {"prompt": "dig"})]], "w": lambda r: never()}),
        db=store,
        agents=[agent("w"), agent("root")],
        environ={},
    ) as retinue:
        root_id = await retinue.start("root", "go")
        async with asyncio.timeout(60):
            while not (begun := [e for e in await store.events(root_id) if isinstance(e, ChildStarted)]):
                await asyncio.sleep(0.001)
        await retinue.leave()
    return root_id, begun[0].child_id


@pytest.mark.parametrize("parent_ends", ["wait", "cancel", "leave"])
async def test_a_child_whose_agent_is_gone_ends_with_its_parent(parent_ends: str) -> None:
    store = MemoryStore()
    root_id, child = await lost(store)
    async with Retinue(
        model=Cast({"root": lambda r: "without it"}),
        db=store,
        agents=[agent("root")],
        environ={},
        settings={"delegation.parent_ends": parent_ends},
    ) as retinue:
        await retinue.resume(root_id)
        assert (await retinue.wait(root_id)).outcome == "completed"
        assert {row.run_id: row.outcome for row in await retinue.runs()} == {
            root_id: "completed",
            child: "cancelled",
        }
        assert await retinue.cancel(child) is False
    events = await store.events(root_id)
    assert [e.child_id for e in events if isinstance(e, ChildEnded)] == [child]


async def test_a_child_that_was_left_open_below_an_ended_root_can_be_cancelled() -> None:
    """As logs of earlier versions have it."""
    store = MemoryStore()
    root_id, child = await lost(store)
    root = [e for e in await store.events(root_id) if e.run_id == root_id]
    end = RunFinished(
        run_id=root_id,
        root_id=root_id,
        parent_id=None,
        depth=0,
        seq=root[-1].seq + 1,
        at=root[-1].at,
        report=Report(run_id=root_id, status="completed", text="without it", agent="root"),
    )
    await store.append([end])
    async with Retinue(model=Cast({}), db=store, environ={}) as retinue:
        assert await retinue.cancel(child, "enough")
        row = await store.run(child)
        assert row is not None
        assert row.status == "cancelled"
        assert await retinue.cancel(child) is False
