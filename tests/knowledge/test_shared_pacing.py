"""Limits hold for all processes of one database, whatever ends them and whatever their clocks do."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from retinue.errors import StoreError
from retinue.store.sqlite import SqliteStore
from retinue.web.pacing import Busy, Limit
from retinue.web.shared_pacing import GRACE, SCOPE, Change, LaneState, PaceClaim, SharedPace

from .test_storm import FEED, Guard
from .wiring import Clock, Reply, Wire

PROCESS = Path(__file__).with_name("asking_process.py")
ARXIV = Limit(interval=3.0, concurrency=1)
GAP = 0.3


async def test_four_processes_of_one_database_keep_the_limit_as_counted_by_the_server(
    wire: Wire, tmp_path: Path
) -> None:
    guard = Guard(Reply(FEED, type="application/atom+xml"), gap=GAP, most=1)
    wire.on("/arxiv", guard)
    store = SqliteStore(tmp_path / "retinue.db")
    await store.open()
    await store.close()
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(PROCESS), str(tmp_path / "retinue.db"), f"{wire.url}/arxiv", str(GAP),
            str(10 * number), "2", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        for number in range(4)
    ]  # fmt: skip
    for one in processes:
        assert one.stdout is not None
        assert await one.stdout.readline() == b"ready\n"
    for one in processes:  # all at once
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        await one.stdin.drain()
    assert [await one.wait() for one in processes] == [0, 0, 0, 0]
    assert (guard.served, guard.refused, guard.peak) == (8, 0, 1)
    times = [seen.at for seen in wire.seen]
    assert all(after - before >= GAP for before, after in pairwise(times))


def claim(clock: Clock, state: bytes | None, name: str, limit: Limit = ARXIV) -> tuple[bytes, float]:
    one = PaceClaim(limit, name=name, now=clock, lease=20 + GRACE)
    after = one(state)
    return after, one.wait


def test_one_at_a_time_and_the_next_counts_from_the_end() -> None:
    clock = Clock(1000.0)
    one = PaceClaim(ARXIV, name="a", now=clock, lease=25)
    state = one(None)
    assert one.wait == 0
    clock.now += 10
    state, wait = claim(clock, state, "b")
    assert wait > 0, "the first is at it still, three seconds or not"
    state = one.done(state)
    assert claim(clock, state, "b")[1] == 3.0
    clock.now += 3
    assert claim(clock, state, "b")[1] == 0


def test_who_was_killed_is_waited_for_no_longer_than_its_request_could_take() -> None:
    clock = Clock(1000.0)
    state, _ = claim(clock, None, "killed")
    clock.now += 24.9
    assert claim(clock, state, "b")[1] > 0
    clock.now += 0.2
    assert claim(clock, state, "b")[1] == 0


@pytest.mark.parametrize("back", [1.0, 3600.0, 1e9])
def test_a_clock_that_is_set_back_makes_nobody_wait_longer_than_the_limit(back: float) -> None:
    clock = Clock(2e9)
    one = PaceClaim(ARXIV, name="a", now=clock, lease=25)
    state = one.done(one(None))
    clock.now -= back
    state, wait = claim(clock, state, "b")
    assert wait <= 3.0
    clock.now += wait
    assert claim(clock, state, "b")[1] == 0


def test_a_killed_one_of_the_future_holds_no_place() -> None:
    clock = Clock(2e9)
    state, _ = claim(clock, None, "killed")
    clock.now -= 1e6
    state, wait = claim(clock, state, "b")
    clock.now += wait
    assert claim(clock, state, "b")[1] == 0


def test_who_may_take_long_keeps_its_place_before_those_who_may_not() -> None:
    clock, limit = Clock(1000.0), Limit(interval=0.0, concurrency=1)
    state = PaceClaim(limit, name="long", now=clock, lease=65)(None)
    clock.now += 1
    short = PaceClaim(limit, name="short", now=clock, lease=20)
    short(state)
    assert short.wait > 0


def test_a_claim_that_a_store_applies_twice_is_granted_once_and_at_once() -> None:
    clock, limit = Clock(1000.0), Limit(interval=3.0, concurrency=1, windows=((2, 60.0),))
    one = PaceClaim(limit, name="a", now=clock, lease=25)
    state = one(one(None))
    assert one.wait == 0
    assert len(msgspec.msgpack.decode(state, type=LaneState).sent) == 1
    state = one.done(one.done(state))
    clock.now += 3
    assert claim(clock, state, "b", limit)[1] == 0, "one request is counted, not two"


def test_quotas_are_counted_together() -> None:
    clock, limit, state = Clock(1000.0), Limit(interval=0.0, concurrency=3, windows=((10, 61.0),)), None
    for number in range(10):
        one = PaceClaim(limit, name=str(number), now=clock, lease=25)
        state = one.done(one(state))
        assert one.wait == 0
        clock.now += 1
    assert claim(clock, state, "more", limit)[1] == pytest.approx(51.0)


def test_an_entry_that_cannot_be_read_makes_one_wait_once() -> None:
    clock = Clock(1000.0)
    state, wait = claim(clock, b"\xff\x00", "a")
    assert wait == 3.0
    clock.now += 3
    assert claim(clock, state, "a")[1] == 0


async def test_who_would_come_too_late_is_told_and_leaves_no_place_taken(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "retinue.db")
    await store.open()
    clock = Clock(1000.0)
    pace = SharedPace(store.recache, wall=clock, clock=clock, sleep=clock.sleep)
    async with pace.turn("arxiv", ARXIV, seconds=20, deadline=2000):
        pass
    with pytest.raises(Busy) as caught:
        async with pace.turn("arxiv", ARXIV, seconds=20, deadline=1001):
            raise AssertionError("it may not start")
    assert caught.value.wait == 3.0
    async with pace.turn("arxiv", ARXIV, seconds=20, deadline=2000):
        assert clock.now == 1003.0
    await store.close()


async def busy(store: SqliteStore, lane: str) -> int:
    entry = await store.cached(SCOPE, lane)
    assert entry is not None
    return len(msgspec.msgpack.decode(entry[0], type=LaneState).busy)


@pytest.mark.parametrize("again", [False, True])
async def test_who_is_cancelled_on_the_way_leaves_no_place_taken(tmp_path: Path, again: bool) -> None:
    store = SqliteStore(tmp_path / "retinue.db")
    await store.open()
    clock, limit = Clock(1000.0), Limit(interval=0.0, concurrency=9)
    pace = SharedPace(store.recache, wall=clock, clock=clock, sleep=clock.sleep)

    async def use() -> None:
        async with pace.turn("host", limit, seconds=20, deadline=2000):
            await asyncio.sleep(0)

    for turns in range(8):
        task = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        if again:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.recache("other", "x", lambda _: b"", 60)  # what was under way before this is written
    assert await busy(store, "host") == 0
    await store.close()


async def test_who_gives_up_waiting_shortens_nobody_elses_lease(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "retinue.db")
    await store.open()
    clock, kept = Clock(1000.0), list[float]()

    async def recache(scope: str, key: str, change: Change, ttl: float) -> None:
        kept.append(ttl)
        await store.recache(scope, key, change, ttl)

    pace = SharedPace(recache, wall=clock, clock=clock, sleep=clock.sleep)
    async with pace.turn("host", ARXIV, seconds=300, deadline=2000):
        with pytest.raises(Busy):
            async with pace.turn("host", ARXIV, seconds=1, deadline=1001):
                raise AssertionError("it may not start")
        assert await busy(store, "host") == 1
        assert min(kept) >= 300 + GRACE
    await store.close()


async def test_a_store_that_fails_stops_nobody() -> None:
    async def broken(*_: object) -> None:
        raise StoreError("the disk is full")

    clock = Clock(1000.0)
    pace = SharedPace(broken, wall=clock, clock=clock, sleep=clock.sleep)
    async with pace.turn("arxiv", ARXIV, seconds=20, deadline=2000):
        pass
    assert clock.slept == []
