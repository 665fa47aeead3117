"""Which functions are called where they stand, and which in a thread of their own."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from retinue.clock import say
from retinue.threads import briefly


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
