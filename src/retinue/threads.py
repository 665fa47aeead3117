"""Functions that block, each in a thread of its own.

Used for what a program hands in: tools and an `approve` function that are not async. asyncio's own threads
are few, everything in the process shares them, and the program cannot end before they do; one function that
never returns must not be able to take all that.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
BRIEFLY = 10.0
"""Seconds for a small function that a program handed in beside a tool."""


async def briefly(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What a small function says. A program's own has ten seconds, then `TimeoutError`; ours is called."""
    if str(getattr(function, "__module__", "")).partition(".")[0] == "retinue":
        return function(*args, **kwargs)
    async with asyncio.timeout(BRIEFLY):
        return await in_own_thread(function, *args, **kwargs)


async def in_own_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function returns or raises. Whoever stops waiting leaves it behind; it cannot be stopped."""
    loop = asyncio.get_running_loop()
    # The error travels as a value: a future does not take every kind of exception.
    done: asyncio.Future[tuple[list[T], BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def tell(returned: list[T], error: BaseException | None) -> None:
        if not done.done():
            done.set_result((returned, error))

    def work() -> None:
        returned: list[T] = []
        error: BaseException | None = None
        try:
            returned.append(context.run(function, *args, **kwargs))
        except BaseException as raised:  # it is raised again where it is waited for
            error = raised
        with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
            loop.call_soon_threadsafe(tell, returned, error)

    name = getattr(function, "__name__", type(function).__name__)
    threading.Thread(target=work, name=f"retinue {name}", daemon=True).start()
    returned, error = await done
    try:
        if error is not None:
            raise error
        return returned[0]
    finally:
        del error  # an error in a variable holds the frame that holds it
