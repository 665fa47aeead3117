"""An agent that is asked the same again and again, and answers the same, is a circle: its reports are compared."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.fold_results import CIRCLE
from retinue.testing import ScriptedModel, call
from retinue.types import AgentSpec, Report

CLERK = AgentSpec(name="clerk", description="facts", prompt="You are the clerk.", tools=())
TASK = {"agent_id": "clerk", "prompt": "the same question"}
SPAWN = {"name": "temp", "prompt": "the same question", "system_prompt": "You are the clerk."}
WAYS = {
    "as a tool": call("clerk", prompt="the same question"),
    "delegate_task": call("delegate_task", **TASK),
    "spawn_agent": call("spawn_agent", **SPAWN),
    "parallel_tasks": call("parallel_tasks", tasks=[TASK, TASK]),
}


async def asked(tmp_path: Path, asks: Any, clerk: Any) -> Report:
    def root(request: Any) -> Any:
        return asks if request.tools else "sum"

    tools = ["agents", "delegate_task", "spawn_agent", "parallel_tasks"]
    async with Retinue(
        model=ScriptedModel({"You are the clerk": clerk, "": root}),
        db=str(tmp_path / "runs.db"),
        cwd=tmp_path,
        agents=[CLERK],
        yes=True,
        settings={"delegation.tools": tools, "limits.max_turns": 8, "delegation.max_children": 20},
        environ={},
    ) as retinue:
        report = await retinue.run("general", "go")
        assert (await retinue.replay(report.run_id)).same
        return report


@pytest.mark.parametrize("way", WAYS)
async def test_the_same_question_with_the_same_answer_is_a_circle(tmp_path: Path, way: str) -> None:
    report = await asked(tmp_path, WAYS[way], lambda request: "always the same")
    assert (report.ended_by, report.turns) == ("circle", CIRCLE + 1)


async def test_the_same_question_with_another_answer_each_time_is_none(tmp_path: Path) -> None:
    answers = count()
    report = await asked(tmp_path, WAYS["as a tool"], lambda request: f"answer {next(answers)}")
    assert report.ended_by == "max_turns"


async def test_several_opinions_asked_for_in_one_reply_are_none(tmp_path: Path) -> None:
    asks = iter([[WAYS["as a tool"]] * CIRCLE])

    def root(request: Any) -> Any:
        return next(asks, "done")

    model = ScriptedModel({"You are the clerk": lambda request: "always the same", "": root})
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[CLERK], environ={}) as retinue:
        report = await retinue.run("general", "go")
    assert (report.ended_by, report.text) == ("answer", "done")
