"""Which functions are called where they stand, and which in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from retinue.clock import say
from retinue.threads import briefly, is_async, to_its_end


class Number(float):
    """One that knows which thread has compared it."""

    thread = 0

    def __ge__(self, other: float) -> bool:
        self.thread = threading.get_ident()
        return float(self) >= other


def says(seconds: float) -> str:
    """The same as ours, of a program."""
    return say(seconds)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("ours", [True, False])
async def test_a_function_of_ours_is_called_however_it_is_wrapped_and_no_other(
    ours: bool, depth: int
) -> None:
    number, function = Number(1), say if ours else says
    match depth:
        case 0:
            assert await briefly(function, number) == "1"
        case 1:
            assert await briefly(partial(function, number)) == "1"
        case _:
            inner = partial(function)
            inner.__dict__["own"] = True  # without anything of its own it is folded into the outer one
            assert await briefly(partial(inner, number)) == "1"
    assert (number.thread == threading.get_ident()) == ours


class Waits:
    """An object that is called like an async function."""

    async def __call__(self, word: str = "") -> str:
        return word


def test_an_async_function_is_known_as_one_however_it_is_wrapped() -> None:
    waits = Waits()
    for function in (waits, waits.__call__, partial(waits, "a"), partial(waits.__call__, "a")):
        assert is_async(function), function
    for function in (says, partial(says, 1), Waits):  # calling the class makes one, and calls it not yet
        assert not is_async(function), function


async def test_who_is_cancelled_ends_after_the_thread_that_changes_something_for_it() -> None:
    begun, go, done = threading.Event(), threading.Event(), list[str]()

    def change() -> None:
        begun.set()
        go.wait()
        done.append("changed")

    work = asyncio.create_task(to_its_end(change))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):  # whoever cancels may be impatient
        work.cancel()
        await asyncio.sleep(0)
    assert not work.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert done == ["changed"]


async def test_a_thread_that_fails_after_its_caller_was_cancelled_is_no_other_error() -> None:
    begun, go = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go.wait()
        raise OSError("the disk is full")

    work = asyncio.create_task(to_its_end(fail))
    await asyncio.to_thread(begun.wait)
    work.cancel()
    asyncio.get_running_loop().call_soon(go.set)
    with pytest.raises(asyncio.CancelledError):
        await work
    with pytest.raises(OSError, match="full"):
        await to_its_end(fail)


def test_a_loop_that_closes_waits_for_a_thread_that_changes_something() -> None:
    begun, done = threading.Event(), list[str]()

    def change() -> None:
        begun.set()
        done.append("changed")

    async def leave_it() -> None:
        async def work() -> None:
            try:
                await to_its_end(begun.wait)
            finally:
                done.append("ended")

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.get_loop().run_in_executor(None, change)

    asyncio.run(leave_it())
    assert done == ["changed", "ended"]
