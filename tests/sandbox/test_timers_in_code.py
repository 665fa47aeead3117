"""Timers and races of code: which way it took, it takes again after a cut anywhere and in a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.events import AnyEvent, CodeWoken, ToolCalled, ToolReturned
from retinue.sandbox.base import Engine, SandboxLimits
from retinue.sandbox.cpython import CPythonEngine, why_not
from retinue.store.memory import MemoryStore
from retinue.tools.base import Tool, tool
from retinue.types import ModelRequest
from trees import Cast, agent, results, turn

pytestmark = pytest.mark.skipif(why_not() is not None, reason="no cpython engine here")

TIMEOUT = """
import asyncio
try:
    async with asyncio.timeout(0.05):
        way = await slow()
except TimeoutError:
    way = "late"
way = [way, await note(what=way)]
"""
WAIT_FOR = """
import asyncio
try:
    way = await asyncio.wait_for(slow(), 0.05)
except asyncio.TimeoutError:
    way = await note(what="late")
"""
FIRST = """
import asyncio
tasks = [asyncio.create_task(slow()), asyncio.create_task(quick())]
done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
way = [each.result() for each in done]
await note(what=str(way))
way += [await each for each in pending]
"""
COMPLETED = """
import asyncio
way = []
for each in asyncio.as_completed([slow(), quick()]):
    way.append(str(await each))
    await note(what=str(way))
"""
BESIDE = """
import asyncio
task = asyncio.create_task(slow())
way = [await asyncio.wait_for(quick(), 20)]
way.append(await note(what=str(way)))
way.append(await task)
"""
SLEEPING = """
import asyncio, time
async def later():
    await asyncio.sleep(0.02)
    return await note(what="slept")
began = time.time()
way = await asyncio.gather(slow(), later(), quick())
way.append(time.time() >= began + 0.02)
"""
RACES = {
    "timeout": (TIMEOUT, "['late', 'noted late']"),
    "wait_for": (WAIT_FOR, "noted late"),
    "first_completed": (FIRST, "['quick', 'came']"),
    "as_completed": (COMPLETED, "['quick', 'came']"),
    "beside": (BESIDE, "['quick', \"noted ['quick']\", 'came']"),
    "sleeping": (SLEEPING, "['came', 'noted slept', 'quick', True]"),
}


def tools() -> list[Tool]:
    """`slow` is not back before `note` was called; all of them are at once where that has been."""
    noted = asyncio.Event()

    @tool(effect="read")
    async def slow() -> str:
        """Wait."""
        await noted.wait()
        return "came"

    @tool(effect="read")
    async def quick() -> str:
        """Do not."""
        return "quick"

    @tool(effect="read")
    async def note(what: str) -> str:
        """Note.

        Args:
            what: it
        """
        noted.set()
        return f"noted {what}"

    return [slow, quick, note]


def at_once() -> list[Tool]:
    made = tools()

    @tool(effect="read")
    async def slow() -> str:
        """Wait no longer."""
        return "came"

    return [slow, *made[1:]]


def app(store: MemoryStore, given: list[Tool], program: str) -> Retinue:
    def play(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("run_code", {"code": program})]
        if turn(request) == 1:
            return [("run_code", {"code": "print(way)"})]
        return "\n".join(result.text for result in results(request))

    settings = {"code.engine": "cpython"}
    return Retinue(model=Cast({"coder": play}), db=store, tools=given, environ={}, settings=settings)


def told(log: list[AnyEvent]) -> list[tuple[int, bool]]:
    return [(e.nth, e.clock) for e in log if isinstance(e, CodeWoken)]


@pytest.mark.parametrize("race", RACES)
async def test_code_that_is_cut_anywhere_takes_the_way_again_that_it_took(race: str) -> None:
    coder = agent("coder", mode="code", tools=("slow", "quick", "note"))
    store = MemoryStore()
    program, way = RACES[race]
    async with app(store, tools(), program) as retinue:
        report = await retinue.run(coder, "go")
        assert (await retinue.replay(report.run_id)).diff == ""
    assert report.status == "completed"
    assert report.text.endswith(way)
    log = await store.events(report.run_id)
    assert told(log)
    calls = [n for n, e in enumerate(log) if isinstance(e, ToolCalled | ToolReturned)]
    woken = [n for n, e in enumerate(log) if isinstance(e, CodeWoken)]
    for place in (place for place in (*calls, *woken) if place >= woken[0]):
        cut = MemoryStore()
        await cut.append(log[: place + 1])
        async with app(cut, at_once(), program) as retinue:
            await retinue.resume(report.run_id, take_over=True)
            assert (await retinue.wait(report.run_id)).text == report.text, place
            assert (await retinue.replay(report.run_id)).diff == "", place


async def outcome_of(code: str, functions: dict[str, Callable[..., Any]], engine: Engine) -> str:
    sandbox = engine.session(SandboxLimits(seconds=10))
    try:
        outcome = await sandbox.run(code, functions=functions, at=1000.0)
        assert outcome.error is None, outcome.trace
        return outcome.stdout
    finally:
        await sandbox.close()


async def test_code_that_looks_again_and_again_for_an_answer_gets_it() -> None:
    async def quick() -> str:
        await asyncio.sleep(0)
        return "quick"

    engine = CPythonEngine()
    try:
        polls = """
import asyncio
task = asyncio.create_task(quick())
while not task.done():
    await asyncio.sleep(0)
print(task.result())
end = asyncio.get_running_loop().time() + 2
while asyncio.get_running_loop().time() < end:
    await asyncio.sleep(0)
print("over")
"""
        assert await outcome_of(polls, {"quick": quick}, engine) == "quick\nover\n"
    finally:
        await engine.close()


async def test_a_race_is_run_again_in_its_order_where_the_process_is_lost() -> None:
    noted = asyncio.Event()

    async def slow() -> str:
        await noted.wait()
        return "came"

    async def note(what: str) -> str:
        noted.set()
        return what

    engine = CPythonEngine()
    sandbox = engine.session(SandboxLimits(seconds=1))
    try:
        functions = {"slow": slow, "note": note}
        await sandbox.run(TIMEOUT, functions=functions, at=1000.0)
        lost = await sandbox.run("while True: pass", functions=functions)
        assert lost.lost
        assert (await sandbox.run("print(way)", functions=functions)).stdout == "['late', 'late']\n"
    finally:
        await sandbox.close()
        await engine.close()
