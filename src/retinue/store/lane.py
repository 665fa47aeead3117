"""A thread with a line in front of it: how an event loop speaks to SQLite without waiting for it.

Everything put in line during one turn of the event loop is handed over together, the thread takes all that
has come since it last looked, and all of it is handed back together: one wake-up each way, however many
items. That is what makes a group commit, and most of what makes it cheap.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class LaneItem(Protocol):
    """What stands in line. The lane settles `future` from `result` or `error`."""

    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


T = TypeVar("T", bound=LaneItem)


class Lane(Generic[T]):
    """`work` is called in the thread with all that has come, and returns what is done with; it never raises.

    What it does not return it keeps, and is called again for, with nothing new if nothing has come: every
    `patience()` seconds, None meaning to wait for ever. `done` is called in the event loop with what was
    worked off, after the futures are settled; `stopping` in the thread, once nothing more will come.
    """

    def __init__(
        self,
        name: str,
        *,
        work: Callable[[list[T]], list[T]],
        done: Callable[[list[T]], None] | None = None,
        patience: Callable[[], float | None] | None = None,
        stopping: Callable[[], None] | None = None,
    ) -> None:
        self._work, self._done, self._patience, self._stopping = work, done, patience, stopping
        self._loop = asyncio.get_running_loop()
        self._gathered: list[T] = []
        self._ended = False
        self._finished: queue.SimpleQueue[list[T]] = queue.SimpleQueue()
        self._bell = self._hang_bell()
        self._line: queue.SimpleQueue[list[T] | None] = queue.SimpleQueue()
        # A daemon, so that a program which forgets to close its store can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Called in the event loop."""
        self._gathered.append(item)
        if len(self._gathered) == 1:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._line.put(gathered)

    def _hang_bell(self) -> int | None:
        """A file descriptor that wakes the event loop at half the cost of `call_soon_threadsafe`."""
        try:
            bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except (AttributeError, OSError):  # not Linux
            return None
        try:
            self._loop.add_reader(bell, self._answer)
        except NotImplementedError:  # an event loop without file descriptors
            os.close(bell)
            return None
        return bell

    def _answer(self) -> None:
        assert self._bell is not None
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        while not self._finished.empty():
            self._settle(self._finished.get())

    def _hand_back(self, batch: list[T]) -> None:
        if self._bell is None:
            self.call(self._settle, batch)
        else:
            self._finished.put(batch)
            os.eventfd_write(self._bell, 1)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """From the thread: call something in the event loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(function, *arguments)

    async def stop(self) -> None:
        """Work off the line, then end the thread."""
        self._hand_over()
        self._line.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._bell is not None:
            self._answer()
            self._loop.remove_reader(self._bell)
            os.close(self._bell)
            self._bell = None

    def _run(self) -> None:
        going, kept = True, 0
        while going or kept:
            patience = self._patience() if self._patience is not None else None
            batch: list[T] = []
            with contextlib.suppress(queue.Empty):
                batch = self._take(self._line.get(timeout=patience))
                while not self._line.empty():
                    batch += self._take(self._line.get())
            if going and self._ended:
                going = False
                if self._stopping is not None:
                    self._stopping()
            settled = self._work(batch)
            kept += len(batch) - len(settled)
            if settled:
                self._hand_back(settled)

    def _take(self, came: list[T] | None) -> list[T]:
        self._ended = self._ended or came is None
        return came or []

    def _settle(self, batch: list[T]) -> None:
        for item in batch:
            if item.future.done():  # whoever waited was cancelled; the work is done all the same
                continue
            if item.error is not None:
                item.future.set_exception(item.error)
            else:
                item.future.set_result(item.result)
        if self._done is not None:
            self._done(batch)
