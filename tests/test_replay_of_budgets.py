"""A tree whose budget ran out among siblings replays: for whom nothing was left then, nothing is left again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Retinue
from retinue.models.base import Model
from retinue.testing import ScriptedModel, Step, call
from retinue.types import ModelEvent, ModelRequest, Usage

FIRST = AgentSpec(name="first", description="spends", prompt="You spend.", tools=[])
DEAR = Usage(input_tokens=10, output_tokens=10, cost=1.0)
SECOND = {"agent_id": "second", "prompt": "y"}


class Late:
    """A model that says its name only after another has spent what there is."""

    name = "late"

    def __init__(self, spent: asyncio.Event) -> None:
        self.spent = spent
        self.model = ScriptedModel(lambda _: "never")

    async def identify(self) -> None:
        await self.spent.wait()
        for _ in range(200):  # until its cost is charged
            await asyncio.sleep(0)

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        return self.model.stream(request)


@pytest.mark.parametrize("late", [call("second", prompt="y"), call("parallel_tasks", tasks=[SECOND] * 2)])
async def test_a_child_for_which_nothing_was_left_is_not_started_by_a_replay(
    tmp_path: Path, late: Any
) -> None:
    spent = asyncio.Event()

    def spend(_: Any) -> Step:
        spent.set()
        return Step(text="spent", usage=DEAR)

    model: Model = Late(spent)
    second = AgentSpec(name="second", description="late", prompt="You are late.", tools=[], model=model)
    boss = AgentSpec(
        name="boss", description="asks", prompt="You are the boss.", tools=[FIRST, second, "parallel_tasks"]
    )
    script = {"You spend": spend, "You are the boss": [[call("first", prompt="x"), late], "never"]}
    async with Retinue(
        model=ScriptedModel(script), db="memory:", agents=[boss], cwd=tmp_path, environ={}
    ) as retinue:
        report = await retinue.run("boss", "go", settings={"limits.max_cost": 0.5})
        assert report.shortfall.not_started == (1 if late.name == "second" else 2)
        assert (await retinue.replay(report.run_id)).diff == ""
