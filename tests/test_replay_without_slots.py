"""Who worked at the same time then works at the same time in a replay: the order of the record says who comes when.

After a kill the runs of a tree take their slots in another order than they were started in, and settings of today
may allow fewer of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from retinue.app import Retinue
from retinue.events import AnyEvent, ChildEnded, StepStarted
from retinue.testing import ScriptedModel, Step, call
from retinue.types import AgentSpec

CLERK = AgentSpec(name="clerk", description="facts", prompt="You are the clerk.", tools=())
BOTH = [
    call("background", operation="start", agent_id="clerk", prompt="kidone"),
    call("background", operation="start", agent_id="clerk", prompt="kidtwo"),
]


def _instance(folder: Path, model: ScriptedModel, at_once: int) -> Retinue:
    settings = {"delegation.tools": ["background"], "delegation.concurrency": at_once}
    return Retinue(
        model=model, db=str(folder / "runs.db"), cwd=folder, agents=[CLERK], settings=settings, environ={}
    )


async def test_two_children_that_worked_side_by_side_end_before_their_parent_s_step_again(
    tmp_path: Path,
) -> None:
    one, told = asyncio.Event(), asyncio.Event()
    script = {
        "kidone": [Step(text="one", gate=one)],
        "kidtwo": ["two"],
        "": [BOTH, Step(text="early", gate=told), "both are in", "at last"],
    }
    async with _instance(tmp_path, ScriptedModel(script), 2) as retinue:
        run_id = await retinue.start("general", "go")
        ended = 0
        async with asyncio.timeout(30):
            async for event in retinue.watch(run_id):
                if isinstance(event, ChildEnded):
                    one.set()  # the one that began first ends last
                    ended += 1
                if ended == 2:
                    told.set()
        log = await retinue.store.events(run_id)
    async with _instance(tmp_path, ScriptedModel(script), 1) as fewer:
        again = await fewer.replay(run_id)
    assert again.diff == ""
    assert _course(again.events) == _course(log)


def _course(log: list[AnyEvent]) -> list[tuple[str, int | str]]:
    """The steps of the root, and the ends of its children between them."""
    own = [e for e in log if e.depth == 0]
    return [
        (e.child_id, "ended") if isinstance(e, ChildEnded) else ("step", e.step)
        for e in own
        if isinstance(e, ChildEnded | StepStarted)
    ]
