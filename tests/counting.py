"""How much work something is. A count is the same on every machine; seconds are not."""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """How many functions it calls on this thread, those written in C too. Coverage, which traces, goes on."""
    count = 0

    def one_more(_frame: object, event: str, _what: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(one_more)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
