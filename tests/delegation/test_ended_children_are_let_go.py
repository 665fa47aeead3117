"""What a child has read is not held for as long as its workflow lives: only what others may still ask of it."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from retinue.engine.build import KINDS
from retinue.engine.resources import RunResources
from retinue.engine.tree import LiveRun
from retinue.run import Run
from retinue.run_state import RunState
from retinue.store.sqlite import SqliteStore
from retinue.tools.base import tool
from retinue.types import ToolMessage
from trees import Stage, agent, told, turn

PAGE = "a page that a child has read "


@tool(effect="read")
async def page(number: int) -> str:
    """Page.

    Args:
        number: which
    """
    return f"{PAGE}{number}"


def held() -> dict[str, int]:
    """How many of the things of a run there are, in the whole process."""
    gc.collect()
    found = {"runs": 0, "live": 0, "resources": 0, "messages": 0}
    for each in gc.get_objects():
        found["runs"] += type(each) is Run
        found["live"] += type(each) is LiveRun
        found["resources"] += type(each) is RunResources
        found["messages"] += len(each.messages) if type(each) is RunState else 0
    return found


async def test_ended_children_leave_only_what_others_may_ask_of_them(tmp_path: Path) -> None:
    before, during = held(), list[dict[str, int]]()

    def worker(request: Any) -> Any:
        if turn(request) == 0:
            return [("page", {"number": int(told(request)[0])})]
        return f"read {request.messages[-1].text}" if len(told(request)) == 1 else f"knew {_pages(request)}"

    def root(request: Any) -> Any:
        if turn(request) == 0:
            return [("w", {"prompt": str(number)}) for number in range(20)]
        if turn(request) == 1:
            during.append(held())
            first = next(iter(stage.workflow.tree.run(stage.root_id).state.children))
            return [("delegate_task", {"operation": "delegate", "child_id": first, "prompt": "and what?"})]
        return request.messages[-1].text

    store = SqliteStore(str(tmp_path / "runs.db"))
    await store.open()
    try:
        stage = Stage(
            {"root": root, "w": worker},
            agents=[agent("w")],
            tools=[page],
            store=store,
            delegation__tools=["agents", "delegate_task"],
        )
        async with asyncio.timeout(60):
            report = await stage.run()
    finally:
        await store.close()
    new = {name: count - before[name] for name, count in during[0].items()}
    # The root has its question, its calls and their results.
    assert new == {"runs": 1, "live": 1, "resources": 1, "messages": 22}, "there is the root, and no child"
    assert f"knew ['{PAGE}0']" in report.text, "its log still has what it read"


def _pages(request: Any) -> list[str]:
    return [m.text for m in request.messages if isinstance(m, ToolMessage)]


@pytest.mark.parametrize("how", ["made up", "asked again"])
async def test_what_was_worked_out_for_a_kind_of_child_is_not_kept_for_each_of_them(how: str) -> None:
    """A model makes up another agent each time; one that is asked again has its agent from its log."""

    def root(request: Any) -> Any:
        number = turn(request)
        if number == KINDS + 10:
            return "done"
        if how == "made up" or number == 0:
            made_up = {"name": f"w{number}", "prompt": "x", "system_prompt": "PLAY w", "effort": "low"}
            return [("spawn_agent", made_up)]
        (child,) = stage.workflow.tree.run(stage.root_id).state.children
        return [("spawn_agent", {"operation": "continue", "child_id": child, "prompt": f"x{number}"})]

    stage = Stage(
        {"root": root, "w": lambda request: "found"},
        yes=True,
        delegation__tools=["spawn_agent"],
        delegation__max_children=KINDS + 20,
    )
    async with asyncio.timeout(60):
        report = await stage.run(agent("root", max_turns=KINDS + 20))
    assert report.outcome == "completed", report.incomplete
    kept = (stage.workflow.toolbox._known, stage.workflow.children._specs)
    assert max(map(len, kept)) <= KINDS
