"""Functions of a program: one that blocks in a thread of its own, a coroutine in a task of its own.

Used for what a program hands in: tools, what goes with them, and an `approve` function. asyncio's own threads
are few, everything in the process shares them, and the program cannot end before they do; one function that
never returns must not be able to take all that. A coroutine that does not end when it is told to is ended,
and if that does not work either, left behind: nobody waits for it.

What we do ourselves and what changes something, as files, copies, branches or a log, is never left behind:
`to_its_end` and `undisturbed` are for that. `asyncio.to_thread` is for what only looks or computes.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
BRIEFLY = 10.0
"""Seconds for a small function that a program handed in beside a tool."""
GRACE = 2.0
"""Seconds in which a coroutine that was told to end may still put things in order."""

log = logging.getLogger("retinue.threads")
_of_others: contextvars.ContextVar[bool] = contextvars.ContextVar("retinue_of_others", default=False)


def of_others() -> bool:
    """Whether the code that asks runs for a program's function: in a thread of its own, or a task."""
    return _of_others.get() or threading.current_thread() is not threading.main_thread()


@contextlib.contextmanager
def as_others() -> Generator[None]:
    """What runs in here, and what it starts, is a program's own."""
    before = _of_others.set(True)
    try:
        yield
    finally:
        _of_others.reset(before)


async def briefly(function: Callable[P, T | Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What a small function says, async or not. A program's own has ten seconds, then `TimeoutError`; ours is
    called."""
    async with asyncio.timeout(BRIEFLY):
        with only_errors():
            if ours(function):
                said = function(*args, **kwargs)
            else:
                said = await in_own_thread(function, *args, **kwargs)
            return await in_own_task(said) if inspect.isawaitable(said) else said


async def contained(function: Callable[P, T | Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What a program's function says, async or not. What it raises that would end whoever waits, such as
    `SystemExit` or a `CancelledError` of its own, is a `RuntimeError` of that name."""
    with only_errors():
        if is_async(function):
            said = function(*args, **kwargs)
        else:
            said = await in_own_thread(function, *args, **kwargs)
        return await in_own_task(said) if inspect.isawaitable(said) else said


@contextlib.contextmanager
def only_errors() -> Generator[None]:
    """What a program's function raises in here that would end whoever waits is a `RuntimeError`."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        if by_signal(error):
            raise
        raise _ordinary(error) from None


def by_signal(error: BaseException) -> bool:
    """Whether a person stopped the process with Ctrl-C, and not the code that was running by itself.

    Signals are handled in the main thread. Python's own handler leaves no trace in an error: where that is
    in place, and not that of `asyncio.run`, an error in that thread may be a person's.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    code = getattr(_innermost(handler), "__code__", None) if callable(handler) else None
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def _ordinary(error: BaseException) -> Exception:
    """An error that would end more than the call it came from, as one of the same name and words that does
    not."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return type(type(error).__name__, (RuntimeError,), {})(*error.args)


def is_async(function: Callable[..., object]) -> bool:
    """Whether it is an async function, an object that is called like one, or a partial of either."""
    inner = _innermost(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def ours(function: Callable[..., object]) -> bool:
    """Whether a function is of Retinue itself, and so is known to be done soon."""
    return str(getattr(_innermost(function), "__module__", "")).partition(".")[0] == "retinue"


def _innermost(function: Callable[..., object]) -> Callable[..., object]:
    """The function that a partial calls: a partial is of functools, whoever has made it."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[object]", function).func
    return function


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
            raise _ordinary(error)
        return returned[0]
    finally:
        del error  # an error in a variable holds the frame that holds it


async def to_its_end(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function of ours returns that changes something, in a thread of asyncio's.

    Who is cancelled meanwhile waits for it and is cancelled then: a thread cannot be stopped, and would go on
    writing after everybody takes it for ended.
    """
    call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    # No task: those are cancelled one by one where a loop is closed.
    return await undisturbed(asyncio.get_running_loop().run_in_executor(None, call))


async def undisturbed(work: Awaitable[T]) -> T:
    """What some work of ours comes to that must not be left half done. Who is cancelled waits for its end."""
    whole = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(whole)
    except asyncio.CancelledError:
        while not whole.done():
            with contextlib.suppress(asyncio.CancelledError):  # whoever cancels may be impatient
                await asyncio.wait((whole,))
        if not whole.cancelled():
            whole.exception()  # seen: it is the cancelling that counts
        raise


async def in_own_task(work: Awaitable[T]) -> T:
    """What a program's coroutine returns or raises. Whoever stops waiting ends it, or leaves it behind."""
    with as_others():  # a task begins with the context it is made in
        task = asyncio.create_task(_outcome(work))
    try:
        await asyncio.wait((task,))
    finally:
        if not task.done():
            await _end(task, getattr(work, "__qualname__", "a coroutine"))
    returned, error = task.result()
    try:
        if isinstance(error, asyncio.CancelledError) or (error is not None and by_signal(error)):
            raise error
        if error is not None:
            raise _ordinary(error)
        return returned[0]
    finally:
        del error


async def _outcome(work: Awaitable[T]) -> tuple[list[T], BaseException | None]:
    """The error travels as a value: some kinds would end the loop."""
    try:
        return [await work], None
    except BaseException as error:
        return [], error


async def _end(task: asyncio.Task[Any], what: str) -> None:
    for way in (None, task.get_coro()):
        if isinstance(way, Coroutine):
            # One that takes a cancellation for nothing ends like a generator that nobody reads any more.
            with contextlib.suppress(Exception):
                way.close()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # whoever waits was told to stop once more
            await asyncio.wait((task,), timeout=GRACE)
        if task.done():
            break
    else:
        log.warning("%s does not end when it is told to and was left behind: it may still do things", what)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    """Nobody asks how it ended, and nobody is to be told that nobody did."""
    if not task.cancelled():
        task.exception()
