"""A parent that answers while children work in the background replays: what came in between comes again there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.events import ChildEnded, RunFinished
from retinue.testing import ScriptedModel, Step, call
from retinue.types import AgentSpec

CLERK = AgentSpec(name="clerk", description="facts", prompt="You are the clerk.", tools=())
BATCH = call(
    "parallel_tasks",
    wait_all=False,
    tasks=[{"agent_id": "clerk", "prompt": "kidfast"}, {"agent_id": "clerk", "prompt": "kidslow"}],
)
SINGLY = [
    call("background", operation="start", agent_id="clerk", prompt="kidfast"),
    call("background", operation="start", agent_id="clerk", prompt="kidslow"),
]


@pytest.mark.parametrize("conversations", [False, True], ids=["waits", "leaves"])
@pytest.mark.parametrize("way", [BATCH, SINGLY], ids=["batch", "singly"])
async def test_a_parent_that_answers_while_a_batch_works_replays(
    tmp_path: Path, conversations: bool, way: Any
) -> None:
    slow = asyncio.Event()

    script = {
        "kidfast": ["fast"],
        "kidslow": [Step(text="slow", gate=slow)],
        "": [way, "early", "later", "later still", "at last"],
    }
    settings = {"delegation.tools": ["parallel_tasks", "background"]}
    async with Retinue(
        model=ScriptedModel(script),
        db=str(tmp_path / "runs.db"),
        cwd=tmp_path,
        agents=[CLERK],
        conversations=conversations,
        settings=settings,
        environ={},
    ) as retinue:
        run_id = await retinue.start("general", "go")
        async with asyncio.timeout(30):
            async for event in retinue.watch(run_id):
                if isinstance(event, ChildEnded):
                    slow.set()  # the second child reports once the first has been heard of
                if event.depth == 0 and isinstance(event, RunFinished) and not event.report.at_work:
                    break
        log = await retinue.store.events(run_id)
        assert sum(isinstance(e, ChildEnded) for e in log) == 2
        again = await retinue.replay(run_id)
        assert again.diff == ""
        assert order(again.events) == order(log)


def order(log: Any) -> list[Any]:
    """What a root was told and said, one after the other."""
    told = (RunFinished, ChildEnded)
    return [(type(e), getattr(e, "child_id", "")) for e in log if e.depth == 0 and isinstance(e, told)]
