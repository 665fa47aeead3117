"""Every bomb ends within its limit, and the rest of the process goes on meanwhile."""

from __future__ import annotations

import asyncio
import time

import pytest
from hostile import BOMBS, Bomb

from retinue.sandbox.base import Engine, SandboxLimits

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = SandboxLimits(seconds=0.3, memory=64 * 1024 * 1024, output=1000)


async def _others_go_on(stop: asyncio.Event) -> int:
    """How often another coroutine got its turn meanwhile."""
    turns = 0
    while not stop.is_set():
        await asyncio.sleep(0.002)
        turns += 1
    return turns


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
async def test_a_bomb_ends_within_its_limit_while_others_go_on(engine: Engine, bomb: Bomb) -> None:
    sandbox = engine.session(LIMITS)
    await sandbox.run("before = 41", functions={})
    stop = asyncio.Event()
    watching = asyncio.create_task(_others_go_on(stop))
    began = time.monotonic()
    outcome = await sandbox.run(bomb.code, functions={})
    took = time.monotonic() - began
    stop.set()

    assert outcome.error is not None or bomb.harmless
    assert took < LIMITS.seconds + 2
    assert len(outcome.stdout) <= LIMITS.output
    assert await watching >= took * 20
    assert (await sandbox.run("before + 1", functions={})).value == "42"
    await sandbox.close()


async def test_the_time_limit_names_itself(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    outcome = await sandbox.run("while True: pass", functions={})
    assert outcome.error is not None
    assert "0.3 s" in outcome.error
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
