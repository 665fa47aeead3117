"""Whoever asks for a child by a way, or an agent, that it does not hold has not had it, and the report says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Report, Retinue
from retinue.testing import ScriptedModel, call

KID = AgentSpec(name="kid", description="does it", prompt="You are the kid.", tools=[])
BOSS = AgentSpec(name="boss", description="leads", prompt="You are the boss.", tools=[KID])
TASKS = [{"agent_id": "kid", "prompt": "one"}, {"agent_id": "kid", "prompt": "two"}]


async def told(folder: Path, *steps: Any, kids: int = 0) -> Report:
    model = ScriptedModel({"You are the kid.": ["did it"] * kids, "You are the boss.": [*steps, "fine"]})
    async with Retinue(model=model, db="memory:", cwd=folder, environ={}, agents=[BOSS]) as retinue:
        report = await retinue.run("boss", "go")
        assert (await retinue.replay(report.run_id)).diff == ""
        return report


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        (call("parallel_tasks", tasks=TASKS), 2),
        (call("delegate_task", agent_id="kid", prompt="one"), 1),
        (call("spawn_agent", operation="spawn", name="z", prompt="z"), 1),
        (call("subagent", prompt="z"), 1),
        (call("background", operation="start", agent_id="kid", prompt="one"), 1),
        (call("planner", prompt="plan it"), 1),
        (call("background", operation="check"), 0),
        (call("made_up", prompt="x"), 0),
        (call("bash", command="true"), 0),
    ],
)
async def test_what_was_asked_for_by_a_way_that_is_not_held_is_missing(
    tmp_path: Path, asked: Any, missing: int
) -> None:
    report = await told(tmp_path, asked)
    assert report.shortfall.not_started == missing
    assert report.outcome == ("incomplete" if missing else "completed")


async def test_whoever_then_asks_by_a_way_that_it_holds_has_had_it(tmp_path: Path) -> None:
    batch = call("parallel_tasks", tasks=TASKS)
    one, two = call("kid", prompt="one"), call("kid", prompt="two")
    assert (await told(tmp_path, batch, [one, two], kids=2)).outcome == "completed"
    half = await told(tmp_path, batch, one, kids=1)
    assert (half.outcome, half.shortfall.not_started) == ("incomplete", 1)
    assert (await told(tmp_path, call("planner", prompt="plan"), one, kids=1)).outcome == "completed"


async def test_a_mistyped_way_is_missing_too_until_something_is_started(tmp_path: Path) -> None:
    lead = AgentSpec(name="lead", description="leads", prompt="You lead.", tools=[KID, "parallel_tasks"])
    for steps, kids, missing in (
        ([call("parallel_task", tasks=TASKS)], 0, 2),
        ([call("parallel_task", tasks=TASKS), call("parallel_tasks", tasks=TASKS)], 2, 0),
        ([call("parallel_task", wrong="x")], 0, 0),
    ):
        played = ScriptedModel({"You are the kid.": ["did it"] * kids, "You lead.": [*steps, "fine"]})
        async with Retinue(model=played, db="memory:", cwd=tmp_path, environ={}, agents=[lead]) as retinue:
            report = await retinue.run("lead", "go")
            assert report.shortfall.not_started == missing
            assert (await retinue.replay(report.run_id)).diff == ""


async def test_asking_in_vain_twice_is_missing_once(tmp_path: Path) -> None:
    report = await told(tmp_path, call("planner", prompt="a"), call("planner", prompt="a again"))
    assert report.shortfall.not_started == 1


@pytest.mark.parametrize(("operation", "missing"), [("start", 1), ("check", 0), ("wait", 0), ("cancel", 0)])
async def test_whoever_only_looks_by_a_way_that_is_not_offered_misses_nobody(
    tmp_path: Path, operation: str, missing: int
) -> None:
    asked = call("background", operation=operation, agent_id="planner", prompt="plan")
    model = ScriptedModel([asked, "fine"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, environ={}) as retinue:
        report = await retinue.run("general", "go")
    assert report.shortfall.not_started == missing
