"""How much work something is. A count is the same on every machine; seconds are not."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

CALLS = ("call", "c_call")
ONE_TURN = asyncio.Handle._run.__code__
TIMES = 16
FAR = 64


@contextlib.contextmanager
def _profiled(look: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """On this thread alone. Coverage, which traces, goes on."""
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def calls(work: Callable[[], object]) -> int:
    """How many functions it calls on this thread, those written in C too."""
    count = 0

    def one_more(_frame: FrameType, event: str, _what: Any) -> None:
        nonlocal count
        if event in CALLS:
            count += 1

    with _profiled(one_more):
        work()
    return count


@contextlib.contextmanager
def longest_turn() -> Iterator[Callable[[], int]]:
    """How many functions the event loop called at most in one go, in which nobody else had a turn."""
    count = most = 0

    def one_more(frame: FrameType, event: str, _what: Any) -> None:
        nonlocal count, most
        if event in CALLS:
            count = 0 if event == "call" and frame.f_code is ONE_TURN else count + 1
            most = max(most, count)

    with _profiled(one_more):
        yield lambda: most


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Sixteen times as much is about sixteen times the work, and not 256 times.

    What goes on inside one call, such as a regular expression, cannot be counted. So the processor's time is
    looked at too, but only as a share of what a small piece takes in the same moment on the same machine, and
    with a wide margin: what is 64 times as much may take a thousand times as long, where the square of it
    would be four thousand.
    """
    few, many = calls(lambda: work(size // TIMES)), calls(lambda: work(size))
    assert many <= few * TIMES * 2, f"{few:,} calls became {many:,}"
    short, long = _seconds(lambda: work(size // FAR)), _seconds(lambda: work(size))
    assert long < max(short, 0.001) * FAR * 16, f"{short:.4f} s became {long:.4f} s"


def _seconds(work: Callable[[], object]) -> float:
    """The least of three: other programs on the machine can only add."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(3))
