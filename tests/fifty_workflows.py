"""Fifty workflows of every kind, played by real runs with a scripted model, and how each of them stands.

    python tests/fifty_workflows.py killed|alive DATABASE FOLDER

plays those that a process leaves by being killed, or holds for as long as its input is open. What is asked of an
agent is its script, as JSON: a list of turns, each a list of what it does then. `look` and `mark` are tools, of
which `mark` needs a person; `["leaf", [...]]` is a child with a script of its own, `["delegate_task", []]` one of an
agent that is not there; `fail`, `decline` and `hang` are what the model does. After its last turn it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from retinue import Answer
from retinue.app import Retinue
from retinue.errors import ModelError
from retinue.events import ApprovalRequested
from retinue.story import Story
from retinue.testing.scripted import ScriptedModel, Step, call
from retinue.tools.base import Tool, tool
from retinue.types import AgentSpec, AssistantMessage, Limits, ModelRequest, Usage, UserMessage


def agent(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"PLAY {name}", **fields)


LEAF, MID, SHORT = agent("leaf"), agent("mid"), agent("short", max_turns=1)
ROOT, NARROW = agent("root"), agent("narrow", limits=Limits(concurrency=1))
LOOKS: Any = [["look"], ["look"], ["look"]]
USAGE = Usage(input_tokens=100, output_tokens=20, cost=0.001)


def leaf(*turns: Any) -> Any:
    return ["leaf", list(turns)]


def mid(*turns: Any) -> Any:
    return ["mid", list(turns)]


YES: dict[str, tuple[Any, str]] = {
    "answers": ([], "completed"),
    "looks": ([["look"]], "completed"),
    "marks": ([["mark"]], "completed"),
    "one child": ([[leaf(["look"])]], "completed"),
    "two children": ([[leaf(), leaf(["look"])]], "completed"),
    "grandchild": ([[mid([leaf()])]], "completed"),
    "great-grandchild": ([[mid([mid([leaf(["look"])])])]], "completed"),
    "failed child": ([[leaf(["fail"])]], "incomplete"),
    "failed of two": ([[leaf(["fail"]), leaf()]], "incomplete"),
    "failed grandchild": ([[mid([leaf(["fail"])])]], "incomplete"),
    "failed below": ([[mid([mid([leaf(["fail"])])])]], "incomplete"),
    "declines": ([["decline"]], "refused"),
    "declines late": ([[leaf()], ["decline"]], "refused"),
    "child declines": ([[leaf(["decline"])]], "incomplete"),
    "grandchild declines": ([[mid([leaf(["decline"]), leaf()])]], "incomplete"),
    "fails": ([["fail"]], "error"),
    "fails late": ([[leaf()], ["fail"]], "error"),
    "child out of turns": ([[["short", LOOKS]]], "incomplete"),
    "grandchild out of turns": ([[mid([["short", LOOKS]])]], "incomplete"),
    "child of no agent": ([[["delegate_task", []]]], "incomplete"),
    "grandchild of no agent": ([[mid([["delegate_task", []]])]], "incomplete"),
}
AGAIN: dict[str, tuple[Any, Any, str]] = {
    "again": ([], [], "completed"),
    "mended": ([[leaf(["fail"])]], [[leaf()]], "completed"),
    "worse": ([[leaf()]], [[leaf(["fail"])]], "incomplete"),
    "fails at last": ([], [["fail"]], "error"),
}
REJECTED: dict[str, tuple[Any, str]] = {
    "rejected": ([["mark"]], "rejected"),
    "rejected twice": ([["mark", "mark"]], "rejected"),
    "rejected below": ([[leaf(["mark"])]], "rejected"),
    "rejected far below": ([[mid([mid([leaf(["mark"])])])]], "rejected"),
    "rejected and failed": ([[leaf(["mark"]), leaf(["fail"])]], "rejected"),
    "rejected, then failed": ([["mark"], ["fail"]], "error"),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "refused": ([["mark"]], "refused"),
    "refused below": ([[leaf(["mark"])]], "refused"),
    "refused far below": ([[mid([leaf(["mark"])])]], "refused"),
    "refused and failed": ([[leaf(["mark"]), leaf(["fail"])]], "refused"),
}
CANCELLED: dict[str, tuple[Any, str, str]] = {
    "cancelled": ([["hang"]], "cancelled", "running"),
    "cancelled below": ([[leaf(["hang"])]], "cancelled", "running running"),
    "cancelled far below": ([[mid([leaf(["hang"])])]], "cancelled", "running running running"),
    "cancelled while it waits": ([[leaf(["mark"])]], "cancelled", "waiting waiting"),
    "child cancelled": ([[leaf(["hang"])]], "incomplete", "running running"),
}
GOING: dict[str, tuple[Any, str]] = {
    "goes on": ([["hang"]], "running"),
    "child goes on": ([[leaf(["hang"])]], "running running"),
    "grandchild goes on": ([[mid([leaf(["hang"])])]], "running running running"),
    "one of two goes on": ([[leaf(), leaf(["hang"])]], "running completed running"),
    "one of two failed": ([[leaf(["fail"]), leaf(["hang"])]], "running error running"),
    "asks": ([["mark"]], "waiting"),
    "child asks": ([[leaf(["mark"])]], "waiting waiting"),
    "grandchild asks": ([[mid([leaf(["mark"])])]], "waiting waiting waiting"),
    "one asks, one goes on": ([[leaf(["mark"]), leaf(["hang"])]], "waiting waiting running"),
    "narrow": ([[leaf(["hang"]), leaf()]], "running running pending"),
    "narrow asks": ([[leaf(["hang"]), leaf(), leaf()]], "running running pending pending"),
}
"""Of the root and those below it, in the order of the tree. Played twice: one process lives, one is killed."""


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


def says(request: ModelRequest, hang: asyncio.Event) -> Any:
    if not request.tools:
        return Step(text="all that I have", usage=USAGE)
    people = [
        n for n, m in enumerate(request.messages) if isinstance(m, UserMessage) and m.text.startswith("[")
    ]
    said = request.messages[people[-1]]
    script = json.loads(said.text)
    turn = sum(isinstance(m, AssistantMessage) for m in request.messages[people[-1] :])
    if turn >= len(script):
        return Step(text="done", usage=USAGE)
    if script[turn] == ["fail"]:
        return ModelError("the model is broken", kind="invalid")
    if script[turn] == ["decline"]:
        return Step(text="I will not", usage=USAGE, stop="refusal")
    if script[turn] == ["hang"]:
        return Step(text="never", usage=USAGE, gate=hang)
    calls = [
        call(act, what=f"{turn}.{n}") if isinstance(act, str) else _handed_on(act)
        for n, act in enumerate(script[turn])
    ]
    return Step(calls=tuple(calls), usage=USAGE)


def _handed_on(act: Any) -> Any:
    agent_id = {"agent_id": "nobody"} if act[0] == "delegate_task" else {}
    return call(act[0], prompt=json.dumps(act[1]), **agent_id)


@contextlib.asynccontextmanager
async def opened(db: str, folder: Path, **options: Any) -> AsyncIterator[Retinue]:
    hang = asyncio.Event()
    settings: dict[str, Any] = {"delegation.policy": "nested", "delegation.max_depth": 5}
    settings |= {"delegation.tools": ["agents", "delegate_task"], **options.pop("settings", {})}
    async with Retinue(
        db=db,
        model=ScriptedModel(lambda request: says(request, hang)),
        cwd=folder,
        agents=[LEAF, MID, SHORT],
        tools=tools(folder),
        environ={"HOME": str(folder)},
        settings=settings,
        **options,
    ) as retinue:
        yield retinue


class Stage:
    """Plays workflows, and notes how each must be shown. `expected` has the root's outcome by its id."""

    def __init__(self, db: str, folder: Path) -> None:
        self.db, self.folder = db, folder
        self.expected: dict[str, str] = {}

    def name(self, label: str, outcome: str) -> str:
        run_id = "r" + label.translate(str.maketrans({" ": "-", ",": None}))
        assert run_id not in self.expected
        self.expected[run_id] = outcome
        return run_id

    async def run(self, retinue: Retinue, label: str, script: Any, outcome: str, **spec: Any) -> str:
        run_id = self.name(label, outcome)
        await retinue.run(spec.get("agent", ROOT), json.dumps(script), run_id=run_id)
        return run_id

    async def all(self, retinue: Retinue, scripts: dict[str, tuple[Any, str]]) -> None:
        await asyncio.gather(*(self.run(retinue, label, *facts) for label, facts in scripts.items()))

    async def play(self) -> None:
        """All that have an end. Those without one are played by `main`, in processes of their own."""
        await self._with_yes()
        await self._rejecting()
        async with opened(self.db, self.folder) as retinue:
            await self.all(retinue, REFUSED)
        await self._cancelling()
        async with opened(
            self.db,
            self.folder,
            yes=True,
            settings={"delegation.nested_children": 1, "delegation.agent_calls": 1},
        ) as retinue:
            await self.run(retinue, "not all started", [[leaf(), leaf(), leaf()]], "incomplete")

    async def _with_yes(self) -> None:
        async with opened(self.db, self.folder, yes=True) as retinue:
            await self.all(retinue, YES)
            await self.run(retinue, "out of turns", LOOKS, "incomplete", agent=SHORT)
            for label, (script, second, outcome) in AGAIN.items():
                run_id = await self.run(retinue, label, script, outcome)
                await retinue.resume(run_id, message=json.dumps(second))
                await retinue.wait(run_id)
            for origin, outcome in (("rone-child", "completed"), ("rfailed-child", "completed")):
                new = await retinue.fork(origin, message="[]")
                await retinue.wait(new)
                self.expected[new] = outcome

    async def _rejecting(self) -> None:
        async def reject(asked: ApprovalRequested) -> Answer:
            return Answer(decision="reject", reason="not today")

        async with opened(self.db, self.folder, approve=reject) as retinue:
            await self.all(retinue, REJECTED)
            again = await self.run(retinue, "rejected, then fine", [["mark"]], "completed")
            await retinue.resume(again, message="[]")
            await retinue.wait(again)
            again = await self.run(retinue, "rejected at last", [], "rejected")
            await retinue.resume(again, message='[["mark"]]')
            await retinue.wait(again)

    async def _cancelling(self) -> None:
        async with opened(self.db, self.folder, answering="ask") as retinue:
            for label, (script, outcome, stands) in CANCELLED.items():
                run_id = self.name(label, outcome)
                await retinue.start(ROOT, json.dumps(script), run_id=run_id)
                story = await until(retinue, run_id, stands)
                assert story.root is not None
                below = story.root.children[0].run_id if label == "child cancelled" else run_id
                await retinue.cancel(below)
                await retinue.wait(run_id)
            await retinue.resume("rcancelled", message="[]")
            await retinue.wait("rcancelled")
            self.expected["rcancelled"] = "completed"


async def until(retinue: Retinue, root_id: str, stands: str) -> Story:
    """Wait until the runs of a workflow stand so."""
    story = Story()
    async with contextlib.aclosing(retinue.watch(root_id)) as events:
        async for event in events:
            story.apply(event)
            assert story.root is not None
            if [node.outcome for node in story.root.walk()] == stands.split():
                return story
    raise AssertionError(f"{root_id} has ended")


def label_of(kind: str, label: str) -> str:
    return f"{kind}: {label}".replace(":", "")


async def main(kind: str, db: str, folder: Path) -> None:
    async with opened(db, folder, answering="ask") as retinue:
        stage = Stage(db, folder)

        async def begin(label: str, script: Any, stands: str) -> None:
            run_id = stage.name(label_of(kind, label), stands)
            spec = NARROW if label.startswith("narrow") else ROOT
            await retinue.start(spec, json.dumps(script), run_id=run_id)
            await until(retinue, run_id, stands)

        await asyncio.gather(*(begin(label, *facts) for label, facts in GOING.items()))
        print("ready", flush=True)
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.to_thread(sys.stdin.read)
        await retinue.leave()


@contextlib.contextmanager
def process(kind: str, db: str, folder: Path) -> Any:
    """A process that plays `GOING`, ready; of `killed` nothing is left but what it wrote."""
    playing = subprocess.Popen(
        [sys.executable, __file__, kind, db, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert playing.stdin is not None
    assert playing.stdout is not None
    try:
        assert playing.stdout.readline() == "ready\n"
        if kind == "killed":
            playing.wait()
        yield
    finally:
        playing.stdin.close()
        playing.wait()
        playing.stdout.close()


@contextlib.contextmanager
def played(db: str, folder: Path) -> Any:
    """All of them, with one process that still works on some: what each root must be shown as, by its id."""
    stage = Stage(db, folder)
    with ThreadPoolExecutor(1) as thread:  # whoever calls may have a loop of its own
        thread.submit(lambda: asyncio.run(stage.play())).result()
    for label in GOING:
        stage.name(label_of("killed", label), "interrupted")
    with process("killed", db, folder), process("alive", db, folder):
        for label, (_, stands) in GOING.items():
            stage.name(label_of("alive", label), stands.split()[0])
        yield stage.expected


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
