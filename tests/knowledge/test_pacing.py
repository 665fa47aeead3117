"""Lanes: strict spacing, few at a time, quotas, and holds, first come first served."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.web.pacing import Busy, Limit, ServerQueue

from .wiring import Clock

FAR = 1e9


def lane(clock: Clock, **limit: Any) -> ServerQueue:
    return ServerQueue(Limit(**limit), clock=clock, sleep=clock.sleep)


async def starts(one: ServerQueue, clock: Clock, count: int, *, takes: float = 0.0) -> list[float]:
    """When each of `count` parallel requests got its turn."""
    seen: list[float] = []

    async def ask() -> None:
        async with one.turn("", FAR):
            seen.append(clock.now)
            clock.now += takes

    await asyncio.gather(*(ask() for _ in range(count)))
    return seen


async def test_the_first_request_does_not_wait(clock: Clock) -> None:
    assert await starts(lane(clock, interval=3.0), clock, 1) == [1000.0]
    assert clock.slept == []


@settings(max_examples=50, deadline=None)
@given(
    interval=st.floats(0.01, 10),
    concurrency=st.integers(1, 5),
    count=st.integers(1, 30),
    takes=st.floats(0, 5),
)
async def test_no_two_starts_are_closer_than_the_interval(
    interval: float, concurrency: int, count: int, takes: float
) -> None:
    clock = Clock()
    one = lane(clock, interval=interval, concurrency=concurrency)
    seen = await starts(one, clock, count, takes=takes)
    gaps = [b - a for a, b in pairwise(seen)]
    assert len(seen) == count
    assert all(gap >= interval * 0.999999 for gap in gaps)


async def test_with_one_connection_the_gap_is_counted_from_the_end(clock: Clock) -> None:
    one = lane(clock, interval=3.0, concurrency=1)
    assert await starts(one, clock, 3, takes=2.0) == [1000.0, 1005.0, 1010.0]


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 40), most=st.integers(1, 10), seconds=st.floats(1, 100))
async def test_a_quota_is_kept_in_every_window(count: int, most: int, seconds: float) -> None:
    clock = Clock()
    one = lane(clock, concurrency=3, windows=((most, seconds), (most * 3, seconds * 5)))
    seen = await starts(one, clock, count)
    for limit, span in ((most, seconds), (most * 3, seconds * 5)):
        for first, later in zip(seen, seen[limit:], strict=False):
            assert later - first >= span * 0.999999


async def test_never_more_at_a_time_than_allowed(clock: Clock) -> None:
    one = lane(clock, concurrency=3)
    inside, most = 0, 0

    async def ask() -> None:
        nonlocal inside, most
        async with one.turn("", FAR):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(ask() for _ in range(20)))
    assert most == 3


async def test_turns_come_in_the_order_of_asking(clock: Clock) -> None:
    one = lane(clock, interval=1.0)
    order: list[int] = []

    async def ask(number: int) -> None:
        async with one.turn("", FAR):
            order.append(number)

    await asyncio.gather(*(ask(number) for number in range(10)))
    assert order == list(range(10))


async def test_who_cannot_be_served_in_time_is_told_at_once(clock: Clock) -> None:
    one = lane(clock, interval=3.0)
    served, refused = 0, []

    async def ask() -> None:
        nonlocal served
        try:
            async with one.turn("", 1030.0):
                served += 1
        except Busy as busy:
            refused.append((clock.now, busy.wait))

    await asyncio.gather(*(ask() for _ in range(50)))
    assert served == 11  # at 0, 3, … 30 s
    assert len(refused) == 39
    assert all(now <= 1003.0 and now + wait > 1030.0 for now, wait in refused)


async def test_a_hold_stops_everyone_and_ends(clock: Clock) -> None:
    one = lane(clock)
    one.hold(60)
    one.hold(5)  # a shorter one does not shorten it
    with pytest.raises(Busy) as caught:
        async with one.turn("search", clock.now + 30):
            pass
    assert caught.value.wait == 60
    async with one.turn("search", FAR):
        assert clock.now == 1060.0


async def test_a_hold_of_one_method_leaves_the_others_free(clock: Clock) -> None:
    one = lane(clock, concurrency=1)
    one.hold(60, "search")
    order: list[str] = []

    async def ask(method: str) -> None:
        async with one.turn(method, FAR):
            order.append(f"{method} at {clock.now:.0f}")

    await ask("answers")
    await ask("search")
    assert order == ["answers at 1000", "search at 1060"]


async def test_a_hold_that_comes_while_waiting_is_kept(clock: Clock) -> None:
    one = lane(clock, interval=2.0, concurrency=1)
    seen: list[float] = []

    async def ask() -> None:
        async with one.turn("m", FAR):
            seen.append(clock.now)
            if len(seen) == 1:
                one.hold(30, "m")

    await asyncio.gather(ask(), ask())
    assert seen == [1000.0, 1030.0]


async def test_a_cancelled_waiter_gives_its_place_back(clock: Clock) -> None:
    one = ServerQueue(Limit(interval=0.0, concurrency=1), clock=clock, sleep=clock.sleep)
    entered = asyncio.Event()
    leave = asyncio.Event()

    async def holder() -> None:
        async with one.turn("", FAR):
            entered.set()
            await leave.wait()

    async def waiter() -> None:
        async with one.turn("", FAR):
            pass

    first = asyncio.create_task(holder())
    await entered.wait()
    second = asyncio.create_task(waiter())
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    leave.set()
    await first
    await asyncio.wait_for(waiter(), 60)
    assert one.wait() == 0.0


async def test_a_failing_request_gives_its_place_back(clock: Clock) -> None:
    one = lane(clock, concurrency=1)
    with pytest.raises(ValueError, match="broken"):
        async with one.turn("", FAR):
            raise ValueError("broken")
    async with one.turn("", FAR):
        pass


async def test_who_is_refused_at_the_gate_gives_its_place_back(clock: Clock) -> None:
    one = lane(clock, interval=3.0, concurrency=1)
    outcomes: list[str] = []

    async def slow() -> None:
        async with one.turn("", FAR):
            await asyncio.sleep(0)
            clock.now += 100

    async def ask(deadline: float) -> None:
        try:
            async with one.turn("", deadline):
                outcomes.append(f"served at {clock.now:.0f}")
        except Busy:
            outcomes.append("refused")

    await asyncio.gather(slow(), ask(1050.0), ask(FAR))
    assert outcomes == ["refused", "served at 1103"]
