"""Code that asks agents replays: what it was told, in the order and in the time it was told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from retinue.app import Retinue
from retinue.events import StepStarted, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.types import ModelRequest
from trees import Cast, agent, results, turn

pytest.importorskip("pydantic_monty")

ASKS = 'r = await c(prompt="x")\nprint(r.report, r.success)'


def root(program: str) -> Any:
    def play(request: ModelRequest) -> Any:
        return [("run_code", {"code": program})] if turn(request) == 0 else results(request)[0].text

    return play


def app(store: MemoryStore, program: str, child: Any, engine: str) -> Retinue:
    return Retinue(
        model=Cast({"root": root(program), "c": child}),
        db=store,
        agents=[agent("root", mode="code", tools=("c", "run_code")), agent("c")],
        environ={},
        settings={"code.engine": engine},
    )


@pytest.mark.parametrize("engine", ["monty", "cpython"])
async def test_a_fork_after_a_child_that_code_asked_replays(engine: str) -> None:
    store = MemoryStore()
    async with app(store, ASKS, lambda request: "found", engine) as retinue:
        report = await retinue.run("root", "go")
        events = await store.events(report.run_id)
        last = [e.pos for e in events if isinstance(e, StepStarted) and e.depth == 0][-1]
        for at in (last - 1, last):
            fork = await retinue.fork(report.run_id, at=at)
            assert (await retinue.wait(fork)).text == report.text
            copied = [e for e in await store.events(fork) if isinstance(e, ToolReturned) and e.fields]
            assert copied
            assert (await retinue.replay(fork)).diff == ""


TIMED = """import time
before = time.time()
r = await c(prompt="x")
print("late" if time.time() - before > 0.1 else "at once")"""


@pytest.mark.parametrize(("timed", "same"), [(False, True), (True, False)])
async def test_code_of_a_log_from_before_its_clock_knew_what_calls_took_takes_the_same_way(
    timed: bool, same: bool
) -> None:
    store = MemoryStore()
    async with app(store, TIMED, lambda request: "found", "cpython") as retinue:
        events = await store.events((await retinue.run("root", "go")).run_id)
        inner = [e for e in events if isinstance(e, ToolReturned) and "/" in e.call_id]
        assert [e.timed for e in inner] == [True]
        assert any(isinstance(e, ToolReturned) and "at once" in e.text for e in events)
        slow = [
            msgspec.structs.replace(e, duration_ms=400, timed=timed)
            if isinstance(e, ToolReturned) and "/" in e.call_id
            else e
            for e in events
        ]
        assert ((await retinue.replay_events(slow)).diff == "") == same
