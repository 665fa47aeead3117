"""The clock and the random numbers of a sealed interpreter: both are what the host gives a snippet.

Loaded by `child`, by its path, before it locks itself. A program that is run again reads the same times and
draws the same numbers. It keeps nothing secret and nobody in: code that looks for the real clock may find it.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable
from typing import Any

READING = 0.001
"""Seconds that the clock moves on whenever it is read: what is measured with it never took no time at all."""


class Chance:
    """The clock, which stands but for readings, sleep and answers, and the source of all random numbers.

    `passed` are the seconds since the process began: what its event loop goes by. It never goes back.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self.passed = 0.0
        self._source: random.Random | None = None

    def begin(self, at: float, seed: str) -> None:
        """A snippet begins: `at` in seconds since 1970; the seed counts for the first one of the process."""
        if self._source is not None:
            self.passed += max(0.0, at - self._now)
        self._now = at
        if self._source is None:
            self._source = random.Random(seed)  # noqa: S311  # what is wanted is the same each time
            random.seed()

    def read(self) -> float:
        self.sleep(READING)
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
        self.passed += max(0.0, seconds)

    def until(self, passed: float) -> None:
        """Time goes on to there, if it is not past it."""
        self._now += max(0.0, passed - self.passed)
        self.passed = max(self.passed, passed)

    def bytes(self, count: int) -> bytes:
        return b"" if self._source is None else self._source.randbytes(count)

    def seed(self) -> int:
        return 0 if self._source is None else self._source.getrandbits(128)


def install() -> Chance:
    """Put them in the place of the real ones, in every module there is."""
    given = Chance()
    _clocks(given)
    _calendar(given)
    _chance(given)
    return given


def _clocks(given: Chance) -> None:
    import timeit

    def nanoseconds(*which: object) -> int:
        return int(given.read() * 1e9)

    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, given.read)
        setattr(time, f"{name}_ns", nanoseconds)
    time.process_time = time.thread_time = lambda: 0.0
    time.process_time_ns = time.thread_time_ns = lambda: 0
    time.clock_gettime = lambda which: given.read()
    time.clock_gettime_ns = nanoseconds
    timeit.default_timer = given.read
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name), given.read))
    time.asctime = _of_now(time.asctime, time.localtime)
    real, today = time.strftime, time.localtime

    def strftime(form: str, t: Any = None, /) -> str:
        return real(form, today() if t is None else t)

    time.strftime = strftime
    slept = time.sleep

    def sleep(seconds: float, /) -> None:
        slept(seconds)
        given.sleep(seconds)

    time.sleep = sleep


def _of_now(real: Callable[[Any], Any], now: Callable[[], Any]) -> Any:
    def of(given: Any = None, /) -> Any:
        return real(now() if given is None else given)

    return of


def _calendar(given: Chance) -> None:
    """`date.today` asks the module `time`; these two ask the system, and are methods of a built-in type."""
    import datetime

    def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return cls.fromtimestamp(given.read(), tz)

    def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
        return cls.fromtimestamp(given.read(), datetime.UTC).replace(tzinfo=None)

    _method_of_class(datetime.datetime, now)
    _method_of_class(datetime.datetime, utcnow)


def _method_of_class(kind: type, function: Callable[..., Any]) -> None:
    import ctypes

    (methods,) = gc.get_referents(kind.__dict__)
    methods[function.__name__] = classmethod(function)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _chance(given: Chance) -> None:
    import uuid

    real = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        real(self, given.seed() if a is None else a, version)

    random.Random.seed = seed
    random.seed = random._inst.seed  # pyright: ignore[reportPrivateUsage]
    os.urandom = given.bytes
    os.getrandom = lambda size, flags=0: given.bytes(size)
    random._urandom = given.bytes  # pyright: ignore[reportAttributeAccessIssue]
    uuid._generate_time_safe = uuid._UuidCreate = None  # pyright: ignore[reportAttributeAccessIssue]
