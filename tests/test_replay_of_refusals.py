"""What a call was kept from while it ran is played back: such a run replays, whoever made the call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.engine.answers import Answer
from retinue.events import AccessDenied
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.types import AgentSpec

OUTSIDE = call("read", path="../x")
PRIVATE = call("web_fetch", url="http://127.0.0.1:1/x")
CLERK = AgentSpec(name="clerk", description="facts", prompt="You are the clerk.", tools=("read", "web_fetch"))
TASKS = [{"agent_id": "clerk", "prompt": "x"}, {"agent_id": "clerk", "prompt": "y"}]


async def replayed(cwd: Path, script: Any, **more: Any) -> tuple[int, str]:
    """How often something was denied in a run, and how its replay differs."""
    store = MemoryStore()
    settings = {"delegation.tools": ["agents", "parallel_tasks"]}
    async with Retinue(
        model=ScriptedModel(script), db=store, cwd=cwd, agents=[CLERK], settings=settings, environ={}, **more
    ) as retinue:
        report = await retinue.run("general", "go")
        denied = [e for e in await store.events(report.run_id) if isinstance(e, AccessDenied)]
        again = await retinue.replay(report.run_id)
        return len(denied), again.diff


@pytest.mark.parametrize("refused", [OUTSIDE, PRIVATE])
async def test_a_root_that_was_refused_a_path_or_an_address_replays(tmp_path: Path, refused: Any) -> None:
    assert await replayed(tmp_path, [refused, "could not"], yes=True) == (1, "")


async def test_a_child_that_was_refused_a_path_replays(tmp_path: Path) -> None:
    script = {"You are the clerk": [OUTSIDE, "could not"], "": [call("clerk", prompt="x"), "done"]}
    assert await replayed(tmp_path, script, yes=True) == (1, "")


async def test_a_batch_whose_children_were_refused_replays(tmp_path: Path) -> None:
    def clerk(request: Any) -> Any:
        return [OUTSIDE, PRIVATE] if len(request.messages) == 1 else "could not"

    script = {"You are the clerk": clerk, "": [call("parallel_tasks", tasks=TASKS), "done"]}
    assert await replayed(tmp_path, script, yes=True) == (4, "")


async def test_a_call_that_was_refused_with_the_arguments_a_person_gave_it_replays(tmp_path: Path) -> None:
    async def other(_: Any) -> Answer:
        edited = json.dumps({"path": "../x", "content": "b"})
        return Answer(decision="approve", reason="", arguments=edited)

    script = [call("write", path="a.txt", content="a"), "could not"]
    assert await replayed(tmp_path, script, approve=other) == (1, "")
