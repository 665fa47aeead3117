"""Calls from threads that have no event loop, carried out in one loop that they share.

The first caller starts a thread with a loop and opens what the calls need in it; callers that come meanwhile
use the same; the last one closes it again. Used by `Retinue.run_sync` alone. Everything async stays in one
loop, so a call from a thread is no different from a task of an async program.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from retinue.errors import RunError

T = TypeVar("T")
LOOK = 1.0
"""Seconds between looks whether the loop is still there: a loop that ends tells nobody who waits."""
GRACE = 10.0
"""Seconds that a call has to end after its caller was interrupted, and the loop after its last call."""

STOPPED = "the run was stopped: the event loop it ran in has ended"


class LoopThread:
    """`opened` is entered before the first call and left after the last."""

    def __init__(self, opened: AbstractAsyncContextManager[Any]) -> None:
        self._opened = opened
        self._session: _Session | None = None
        self._closing = False
        self._changed = threading.Condition()

    def owns(self, loop: asyncio.AbstractEventLoop) -> bool:
        session = self._session
        return session is not None and session.loop is loop

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns or raises. The caller waits; its interruption cancels the call."""
        session = self._enter()
        try:
            return call_in(session.ready(), make)
        finally:
            self._leave(session)

    def _enter(self) -> _Session:
        with self._changed:
            self._changed.wait_for(lambda: not self._closing)
            if self._session is None or self._session.over.is_set():
                self._session = _Session(self._opened)
                self._session.start()
            self._session.users += 1
            return self._session

    def _leave(self, session: _Session) -> None:
        with self._changed:
            session.users -= 1
            if session.users or session is not self._session:
                return
            self._closing = True
        try:
            session.close()
        finally:
            with self._changed:
                self._session, self._closing = None, False
                self._changed.notify_all()


class _Session:
    """One loop in one thread, from its first user to its last."""

    def __init__(self, opened: AbstractAsyncContextManager[Any]) -> None:
        self.users = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.over = threading.Event()
        self._opened = opened
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._failure: BaseException | None = None
        # A daemon: what somebody's tool or callback does in there must not keep the program from ending.
        self._thread = threading.Thread(target=self._main, name="retinue run_sync", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ready(self) -> asyncio.AbstractEventLoop:
        """The loop, once everything is open in it."""
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        if self.loop is None:
            raise RunError("the event loop of run_sync has ended: call it again")
        return self.loop

    def close(self) -> None:
        """Close what was opened, wait for that, and give the loop itself a moment to end."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self.loop.call_soon_threadsafe(self._stop.set)
        self._closed.wait()
        self._thread.join(GRACE)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # whoever waits for the loop gets it
            self._failure = error
        finally:
            self.over.set()
            self._ready.set()
            self._closed.set()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self.loop = (
            asyncio.get_running_loop()
        )  # before anything is opened: whoever sees that, sees whose it is
        async with self._opened:
            self._ready.set()
            await self._stop.wait()
        self._closed.set()


def call_in(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Carry a call out in a loop of another thread, in the caller's context, and wait for it."""
    # This queue, and no future: an interruption while a future is waited for may leave its lock taken,
    # and the loop would wait for that for ever when it sets the result.
    ended: queue.SimpleQueue[asyncio.Task[T]] = queue.SimpleQueue()
    tasks: list[asyncio.Task[T]] = []

    def begin() -> None:
        task = loop.create_task(make())
        tasks.append(task)
        task.add_done_callback(ended.put)

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    try:
        loop.call_soon_threadsafe(begin, context=contextvars.copy_context())
        task = _first(ended, loop)
    except BaseException:
        if not loop.is_closed():  # the caller was interrupted
            loop.call_soon_threadsafe(cancel)
            if not (tasks and tasks[0].done()):
                with contextlib.suppress(queue.Empty):
                    ended.get(timeout=GRACE)
        raise
    if task.cancelled():
        raise RunError(STOPPED)
    return task.result()


def _first(ended: queue.SimpleQueue[T], loop: asyncio.AbstractEventLoop) -> T:
    while not loop.is_closed():
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=LOOK)
    try:
        return ended.get_nowait()  # it came in the last moment
    except queue.Empty:
        raise RunError(STOPPED) from None
