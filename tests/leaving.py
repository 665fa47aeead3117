"""What is left behind: open handles, and objects that only the collector could take away."""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator

LIVES_ON = ("retinue.testing", "retinue.store")
"""What belongs to the fakes and to the database, not to a run."""


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def uncollected() -> Iterator[Callable[[], Counter[str]]]:
    """The collector is off. What it would find of ours is counted by class."""
    gc.collect()
    gc.disable()
    gc.garbage.clear()

    def found() -> Counter[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        return Counter(
            name for name in names if name.startswith("retinue.") and not name.startswith(LIVES_ON)
        )

    try:
        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def alive(*kinds: type) -> int:
    """How many objects of these classes there are."""
    return sum(type(one) in kinds for one in gc.get_objects())
