"""The clock and the random numbers of code come from the log: a program that runs again sees the same."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.events import ToolCalled, ToolReturned
from retinue.sandbox.base import Engine, SandboxLimits
from retinue.sandbox.cpython import why_not
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from retinue.types import ModelRequest
from trees import Cast, agent, results, turn

pytest.importorskip("pydantic_monty")

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()
COMMON = """
import datetime, random, time
seen = [time.time(), time.time_ns(), time.monotonic(), time.perf_counter(), time.strftime("%Y-%m-%d %H:%M:%S")]
seen += [str(datetime.datetime.now()), str(datetime.datetime.now(datetime.timezone.utc)), str(datetime.date.today())]
seen += [time.localtime().tm_year, time.gmtime().tm_hour, time.ctime()]
seen += [random.random(), random.Random().random(), random.sample(range(1000), 5)]
"""
WHOLE = (
    COMMON
    + """
import os, secrets, uuid, timeit
seen += [os.urandom(8), secrets.token_hex(4), random.SystemRandom().random(), str(uuid.uuid4()), str(uuid.uuid1())]
seen += [str(datetime.datetime.utcnow()), str(datetime.datetime.today()), time.asctime(), timeit.default_timer()]
seen += [list({"a", "b", "c", "d", "e", "f", "g"}), time.clock_gettime(time.CLOCK_REALTIME), time.process_time()]
"""
)


async def values(engine: Engine, *codes: str, seed: str = "s", at: float = AT) -> Any:
    """What a fresh session comes to."""
    sandbox = engine.session(SandboxLimits())
    try:
        for code in codes[:-1]:
            await sandbox.run(code, functions={}, at=at, seed=seed)
        outcome = await sandbox.run(codes[-1], functions={}, at=at, seed=seed)
        assert outcome.error is None, outcome.trace
        return ast.literal_eval(outcome.value or "None")
    finally:
        await sandbox.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_the_same_time_and_seed_give_the_same_values_in_another_process(engine: Engine) -> None:
    code = (WHOLE if engine.name == "cpython" else COMMON) + "seen"
    first = await values(engine, code)
    assert first == await values(engine, code)
    other = await values(engine, code, seed="another")
    assert first[:11] == other[:11]
    assert first[11] != other[11]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_clock_stands_where_it_was_given_but_for_readings_and_sleep(engine: Engine) -> None:
    code = """
import asyncio, time
a = time.time()
b = time.time()
await asyncio.sleep(0.01)
time.sleep(0.01)
c = time.time()
[a, b - a, c - b]
"""
    start, reading, slept = await values(engine, code)
    assert AT < start < AT + 0.01
    assert 0 < reading < 0.01
    assert slept == pytest.approx(0.02 + reading, abs=0.0001)
    later = await values(engine, "import time\ntime.time()", "time.strftime('%H:%M:%S')", at=AT + 3600)
    assert later == "06:06:07"


@pytest.mark.asyncio(loop_scope="module")
async def test_what_code_seeds_itself_it_keeps_over_snippets(engine: Engine) -> None:
    one = await values(engine, "import random\nrandom.seed(7)\nx = random.random()", "[x, random.random()]")
    two = await values(
        engine, "import random\nrandom.seed(7)\nx = random.random()", "[x, random.random()]", seed="b"
    )
    assert one == two


@tool(effect="read")
async def look(what: str) -> str:
    """Look.

    Args:
        what: at what
    """
    return f"saw {what}"


PROGRAM = """
import datetime, random, time
before = [random.random(), time.time(), str(datetime.datetime.now())]
await look(what=str(before))
after = [random.random(), time.time() > before[1]]
print(before, after)
"""


@pytest.mark.parametrize("engine_name", ["monty", "cpython"])
async def test_a_program_that_is_cut_anywhere_sees_the_same_clock_and_numbers_when_it_goes_on(
    engine_name: str,
) -> None:
    if engine_name == "cpython" and why_not() is not None:
        pytest.skip("no cpython engine here")

    def play(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("run_code", {"code": PROGRAM})]
        if turn(request) == 1:
            return [("run_code", {"code": "print(before, after, random.random())"})]
        return "\n".join(result.text for result in results(request))

    def app(store: MemoryStore) -> Retinue:
        settings = {"code.engine": engine_name}
        return Retinue(model=Cast({"coder": play}), db=store, tools=[look], environ={}, settings=settings)

    coder = agent("coder", mode="code", tools=("look",))
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run(coder, "go")
    log = await store.events(report.run_id)
    calls = [n for n, e in enumerate(log) if isinstance(e, ToolCalled | ToolReturned)]
    assert len(calls) == 6
    for place in calls:
        cut = MemoryStore()
        await cut.append(log[: place + 1])
        async with app(cut) as retinue:
            await retinue.resume(report.run_id, take_over=True)
            assert (await retinue.wait(report.run_id)).text == report.text, place
            if place == calls[-1]:
                assert (await retinue.replay(report.run_id)).diff == "", "a replay reads what was read then"
