"""Every bomb ends at its limit, and the rest of the process goes on meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from hostile import BOMBS, Bomb

from retinue.sandbox.base import Engine, SandboxLimits

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = SandboxLimits(seconds=1, memory=64 * 1024 * 1024, output=1000)


async def _others_go_on(stop: asyncio.Event) -> int:
    """How often another coroutine got its turn meanwhile."""
    turns = 0
    while not stop.is_set():
        await asyncio.sleep(0.002)
        turns += 1
    return turns


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
async def test_a_bomb_ends_at_its_limit_while_others_go_on(engine: Engine, bomb: Bomb) -> None:
    sandbox = engine.session(LIMITS)
    await sandbox.run("before = 41", functions={})
    stop = asyncio.Event()
    watching = asyncio.create_task(_others_go_on(stop))
    outcome = await sandbox.run(bomb.code, functions={})
    stop.set()
    turns = await watching

    assert outcome.error is not None or bomb.harmless
    assert len(outcome.stdout) <= LIMITS.output
    assert len(outcome.error or "") + len(outcome.value or "") <= 4000 + LIMITS.output + 2
    # Of the five hundred there is time for. A loop that is held up has one or two.
    assert turns >= 5 or "computed for more than" not in (outcome.error or "")
    assert (await sandbox.run("before + 1", functions={})).value == "42"
    await sandbox.close()


async def test_the_time_limit_names_itself(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    outcome = await sandbox.run("while True: pass", functions={})
    assert outcome.error is not None
    assert "more than 1 s" in outcome.error
    assert outcome.lost
    await sandbox.close()


async def test_bombs_in_many_sessions_at_once_do_not_slow_a_neighbour(engine: Engine) -> None:
    sessions = [engine.session(LIMITS) for _ in range(6)]
    bombs = [asyncio.create_task(session.run("x = [0] * 10**10", functions={})) for session in sessions]
    neighbour = engine.session(LIMITS)
    assert (await neighbour.run("1 + 1", functions={})).value == "2"
    assert all(outcome.error and "MemoryError" in outcome.error for outcome in await asyncio.gather(*bombs))
    for session in (*sessions, neighbour):
        await session.close()


async def test_calls_forged_while_one_is_open_come_to_an_end(engine: Engine) -> None:
    """Waiting for a function is free, but who makes calls does not wait."""
    if engine.name != "cpython":
        pytest.skip("only a pipe can be written to")
    sandbox = engine.session(LIMITS)
    code = (
        "import json, os, time\n"
        'message = json.dumps({"op": "call", "id": 1, "name": "lookup"}).encode()\n'
        'message = len(message).to_bytes(4, "big") + message\n'
        "for _ in range(12_000):\n    os.write(1, message)\n    time.sleep(0)\n"
        "await lookup()"
    )

    async def lookup() -> str:
        await asyncio.Event().wait()
        return ""

    async with asyncio.timeout(60):
        outcome = await sandbox.run(code, functions={"lookup": lookup})
    assert outcome.lost
    assert "10,000 calls" in (outcome.error or "") or "more than 1 s" in (outcome.error or "")
    await sandbox.close()


async def test_a_forged_call_of_nothing_is_not_kept(engine: Engine) -> None:
    if engine.name != "cpython":
        pytest.skip("only a pipe can be written to")
    sandbox = engine.session(LIMITS)
    forged = '{"op": "call", "id": 5, "name": "' + "x" * 200 + '"}'
    code = (
        f"import os\nmessage = b'{forged}'\nos.write(1, len(message).to_bytes(4, 'big') + message)\nafter = 1"
    )
    assert (await sandbox.run(code, functions={})).error is None
    state = await sandbox.dump()
    assert b'"answers":[]' in state
    await sandbox.close()

    again = engine.session(LIMITS)
    await again.load(state)
    assert (await again.run("after + 1", functions={})).value == "2"
    await again.close()


async def test_a_forged_name_is_not_taken_at_any_length(engine: Engine) -> None:
    """Sixty of these once took half a gigabyte of the host, and all of it went into the dump."""
    if engine.name != "cpython":
        pytest.skip("only a pipe can be written to")
    sandbox = engine.session(SandboxLimits(seconds=20))
    bomb = next(each for each in BOMBS if each.name == "forged_calls_of_long_names")
    outcome = await sandbox.run(bomb.code, functions={})
    assert outcome.error == "the code sent something that is not a message"
    assert outcome.lost
    assert await sandbox.dump() == b""
    await sandbox.close()
