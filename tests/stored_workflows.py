"""The workflows in the stored databases under `stored/`: who plays in them and what the model says.

    python tests/stored_workflows.py DATABASE FOLDER

played them, with the version that the name of the file says; what it wrote was dumped as SQL text, with
`@folder@` for the folder and `@host@` for the machine. The tests go on with them, so what the model says
depends on what it has seen alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from retinue import Answer
from retinue.app import Retinue
from retinue.errors import ModelError
from retinue.events import ApprovalRequested, ChildEnded, StepStarted
from retinue.testing.scripted import ScriptedModel, Step, call
from retinue.tools.base import Tool, tool
from retinue.types import AgentSpec, AssistantMessage, ModelRequest, ToolCall, Usage, UserMessage

ROOTS = {
    "done": "two children, one with a child of its own",
    "talk": "a conversation of two turns",
    "poor": "a child that fails",
    "shut": "a call that was rejected",
    "fail": "a model that fails",
    "stop": "cancelled while a child works",
    "asks": "a child waits for a person",
    "half": "left while the root asks its model",
}


def agent(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"PLAY {name}", **fields)


AGENTS = [agent("mid"), agent("leaf"), agent("marker"), agent("broken")]
ROOT = agent("root")


def tools(folder: Path) -> list[Tool]:
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    @tool(effect="write")
    async def mark(what: str) -> str:
        """Leave a mark."""
        with (folder / "marks").open("a") as file:
            file.write(f"{what}\n")
        return f"marked {what}"

    return [look, mark]


_USAGE = Usage(input_tokens=100, output_tokens=20, cost=0.001)
_PLANS: dict[str, list[list[ToolCall]]] = {
    "done": [[call("mid", prompt="m"), call("leaf", prompt="l")]],
    "talk": [[call("leaf", prompt="l")]],
    "poor": [[call("broken", prompt="b"), call("leaf", prompt="l")]],
    "shut": [[call("mark", what="shut")]],
    "fail": [],
    "stop": [[call("leaf", prompt="hang")]],
    "asks": [[call("marker", prompt="k"), call("leaf", prompt="l")]],
    "half": [[call("leaf", prompt="l")]],
}


def says(request: ModelRequest, *, hang: asyncio.Event | None) -> Any:
    """With `hang`, what is to be left unfinished hangs on it."""
    me = request.system.split("\n", 1)[0].removeprefix("PLAY ")
    told = [m.text for m in request.messages if isinstance(m, UserMessage)]
    turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
    if me == "root":
        plan = _PLANS[told[0]]
        if turn < len(plan):
            return Step(calls=tuple(plan[turn]), usage=_USAGE)
        if told[0] == "fail":
            return ModelError("the model is broken", kind="invalid")
        waits = hang if told[0] == "half" else None
        return Step(text=f"{told[-1]} finished", usage=_USAGE, gate=waits)
    if me == "broken":
        return ModelError("the model is broken", kind="invalid")
    calls = {"mid": call("leaf", prompt="deep"), "leaf": call("look", what=told[0])}
    if turn == 0:
        waits = hang if told[0] == "hang" else None
        first = calls.get(me, call("mark", what=told[0]))
        return Step(calls=(first,), usage=_USAGE, gate=waits)
    return Step(text=f"{me} {told[0]} done", usage=_USAGE)


@contextlib.asynccontextmanager
async def opened(
    db: str, folder: Path, *, hang: asyncio.Event | None = None, **options: Any
) -> AsyncIterator[Retinue]:
    async with Retinue(
        db=db,
        model=ScriptedModel(lambda request: says(request, hang=hang)),
        cwd=folder,
        agents=AGENTS,
        tools=tools(folder),
        environ={"HOME": str(folder)},
        settings={"delegation.policy": "nested"},
        **options,
    ) as retinue:
        yield retinue


async def play(db: str, folder: Path) -> None:
    async with opened(db, folder, yes=True) as retinue:
        for name in ("done", "talk", "poor", "fail"):
            await retinue.run(ROOT, name, run_id=name)
        await retinue.resume("talk", message="and then?")
        await retinue.wait("talk")

    async def reject(asked: ApprovalRequested) -> Answer:
        return Answer(decision="reject", reason="not today")

    async with opened(db, folder, approve=reject) as retinue:
        await retinue.run(ROOT, "shut", run_id="shut")
    async with opened(db, folder, hang=asyncio.Event(), answering="ask") as retinue:
        await retinue.start(ROOT, "stop", run_id="stop")
        await _until(retinue, "stop", lambda event: isinstance(event, StepStarted) and event.depth == 1)
        await retinue.cancel("stop")
        await retinue.wait("stop")
        await retinue.start(ROOT, "asks", run_id="asks")
        await _until(retinue, "asks", lambda event: isinstance(event, ApprovalRequested))
        await _until(retinue, "asks", lambda event: isinstance(event, ChildEnded))
        await retinue.start(ROOT, "half", run_id="half")
        await _until(retinue, "half", lambda e: isinstance(e, StepStarted) and e.depth == 0 and e.step == 2)
        await retinue.leave()


async def _until(retinue: Retinue, root_id: str, when: Any) -> None:
    async for event in retinue.watch(root_id):
        if hasattr(event, "seq") and when(event):
            return


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], Path(sys.argv[2])))
