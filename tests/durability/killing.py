"""Workflows that are killed: run in a process of their own, by kill -9 right after a chosen event.

Forked from a warm process, so that killing one after every single event is quick enough to do each time.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from retinue.app import Retinue
from retinue.engine.parking_clock import ParkingClock
from retinue.events import Event, now
from retinue.store.base import Store
from retinue.store.connect import connect
from retinue.testing.script import Script, SeenRequest, call
from retinue.tools.base import Tool, ToolContext, tool
from retinue.types import AgentSpec, AssistantMessage, ToolMessage, UserMessage


class KillingStore:
    """A real store whose process dies the moment the chosen number of events is durable, or an event of each
    of the chosen kinds."""

    def __init__(self, store: Store, after: int | tuple[str, ...]) -> None:
        self._store = store
        self._left = after if isinstance(after, int) else 0
        self._kinds = set() if isinstance(after, int) else set(after)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        written = self._store.append(events)
        written.add_done_callback(lambda done: self._count(done, events))
        return written

    def _count(self, done: asyncio.Future[None], events: Sequence[Event]) -> None:
        if done.exception() is None:
            self._left -= len(events)
            self._kinds -= {type(event).__name__ for event in events}
            if self._left <= 0 and not self._kinds:
                os.kill(os.getpid(), signal.SIGKILL)


def agent(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"PLAY {name}", **fields)


AGENTS = [agent("mid"), agent("leaf"), agent("asks")]
SCENARIOS = ("sequential", "parallel", "nested", "background", "approvals", "code")


def tools(folder: Path) -> list[Tool]:
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    @tool(effect="write")
    async def mark(what: str, ctx: ToolContext) -> str:
        """Leave a mark: must never happen twice."""
        with (folder / "marks").open("a") as file:
            file.write(f"{what}\n")
        return f"marked {what}"

    return [look, mark]


def answer(request: SeenRequest) -> Script:
    """What every agent says: a function of what it has seen, so that a call made again gets the same."""
    me = request.system.split("\n", 1)[0].removeprefix("PLAY ")
    task = next(m.text for m in request.messages if isinstance(m, UserMessage))
    turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
    seen = [m.text for m in request.messages if isinstance(m, ToolMessage)]
    if (me, task, getattr(request, "key", "")) == ("leaf", "held", "first"):
        return Script(status=429, message="come back later", retry_after=90)
    plays = {
        "root": _root,
        "mid": lambda t, n, s: (
            Script(calls=(call("leaf", prompt=f"{t}a"), call("leaf", prompt=f"{t}b")))
            if n == 0
            else Script(text=f"mid {t} done")
        ),
        "leaf": lambda t, n, s: (
            Script(calls=(call("look", what=t),)) if n % 2 == 0 else Script(text=f"leaf {t}: {s[0]}")
        ),
        "asks": lambda t, n, s: (
            Script(calls=(call("mark", what=t),)) if n == 0 else Script(text=f"asks {t} done")
        ),
    }
    return plays[me](task, turn, seen)


def _root(task: str, turn: int, seen: list[str]) -> Script:
    pairs = [{"agent_id": "leaf", "prompt": str(n)} for n in range(3)]
    plans: dict[str, list[tuple[Any, ...]]] = {
        "sequential": [(call("look", what="one"),), (call("mark", what="two"), call("look", what="three"))],
        "parallel": [(call("parallel_tasks", tasks=pairs),)],
        "nested": [(call("mid", prompt="x"), call("mid", prompt="y"))],
        "background": [
            (call("background", operation="start", agent_id="leaf", prompt="bg"), call("leaf", prompt="fg")),
            (call("look", what="meanwhile"),),
        ],
        "code": [
            (call("run_code", code="a = await look(what='one')\nb = await mark(what='two')\na"),),
            (call("run_code", code="c = await look(what='three')\na + c"),),
        ],
        "again": [
            (call("leaf", prompt="x"),),
            (call("delegate_task", child_id=seen[0].split()[1] if seen else "", prompt="more of x"),),
        ],
        "limited": [(call("look", what="one"),), (call("leaf", prompt="held"), call("leaf", prompt="free"))],
        "approvals": [(call("asks", prompt="p"), call("asks", prompt="q"), call("leaf", prompt="r"))],
    }
    plan = plans[task]
    if turn < len(plan):
        return Script(calls=plan[turn])
    return Script(text=f"{task} finished")


def root_of(scenario: str) -> AgentSpec:
    if scenario == "code":
        return agent("root", mode="code", tools=("look", "mark", "run_code"))
    return agent("root")


async def play(
    db: str,
    folder: str,
    base_url: str,
    scenario: str,
    root_id: str,
    kill_after: int | tuple[str, ...] | None,
    later: float | None = None,
) -> str:
    """Begin a workflow and die, or go on with it; `later` goes on as if so many seconds had passed."""
    store: Any = connect(db)
    async with Retinue(
        db=store if kill_after is None else KillingStore(store, kill_after),  # pyright: ignore[reportArgumentType]
        model="openai:fake-model",
        cwd=folder,
        agents=AGENTS,
        tools=tools(Path(folder)),
        answering="ask" if scenario == "approvals" else "refuse",
        yes=scenario != "approvals",
        environ={
            "OPENAI_API_KEY": "first" if kill_after is not None and later is None else "second",
            "OPENAI_BASE_URL": base_url,
            "HOME": folder,
            "PATH": os.environ["PATH"],
        },
        settings={
            "delegation.tools": ["agents", "parallel_tasks", "background", "delegate_task"],
            "delegation.policy": "nested",
            "delegation.parent_ends": "wait",
        },
    ) as retinue:
        if later is not None:
            retinue.parking_clock = ParkingClock(now=lambda: now() + later)
        if kill_after is not None and later is None:
            await retinue.start(root_of(scenario), scenario, run_id=root_id)
        else:
            row = await retinue.store.run(root_id)
            if row is None:
                await retinue.start(root_of(scenario), scenario, run_id=root_id)  # killed before it had begun
            elif row.status != "completed":
                await retinue.resume(root_id)
        return (await retinue.wait(root_id)).text


def main(*arguments: Any) -> None:
    sys.stdout.flush()
    text = asyncio.run(play(*arguments))
    Path(arguments[1], "report").write_text(text)


# The server that forks imports this module once, with all that a run would import on its way.
os.environ["PYTHONPATH"] = str(Path(__file__).parent)
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["killing"])
if "forkserver" in sys.orig_argv[-1]:
    for name in (
        "asyncio.unix_events",
        "concurrent.futures.thread",
        "sqlite3",
        "ctypes",
        "encodings.idna",
        "encodings.utf_8_sig",
        "httptools",
        "yaml",
        "pydantic.dataclasses",
        "jsonschema",
        "asyncpg",
        "genai_prices.data",
    ):
        importlib.import_module(name)
    for name in (
        "models.connect",
        "models.line",
        "models.openai",
        "models.responses",
        "store.sqlite",
        "store.postgres",
        "tools.files",
        "tools.shell",
    ):
        importlib.import_module(f"retinue.{name}")
    # Schemas of tools are slow to make, and made once per process.
    from retinue.assembly import _built_in_tools
    from retinue.delegate.tools import delegation_tools
    from retinue.sandbox.commands.launch import Commands
    from retinue.settings import Settings
    from retinue.store.memory import MemoryStore
    from retinue.tools.notes import notes_tools
    from retinue.tools.shell import shell_tools

    nobody: Any = None
    client: Any = SimpleNamespace(picture=None)
    commands = Commands()
    _built_in_tools(Settings(), MemoryStore(), {}, commands, shell_tools(commands), client)
    delegation_tools(nobody)
    notes_tools(nobody)
    tools(Path())
    # What is there by now stays: no child goes through it to collect garbage, which would copy it all.
    gc.collect()
    gc.freeze()


async def in_process(*arguments: Any) -> int:
    """Run `main` in a process of its own; its exit code, negative for a signal."""
    process = context.Process(target=main, args=arguments)
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.join, 60)
    if process.exitcode is None:
        process.kill()
        raise AssertionError("the process hangs")
    return process.exitcode
