"""The worker processes of Monty: started, lent to one snippet each, and killed whatever they are doing.

The synchronous pool is driven from threads on purpose: the asynchronous one aborts the whole process when
the interpreter exits too soon after it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from retinue.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

T = TypeVar("T")

# A worker keeps the memory of the largest snippet it ever ran; a bomb's worker is killed at once, and an
# ordinary one is replaced after this many snippets.
_SNIPPETS_PER_WORKER = 100
# Snippets that compute at the same time, each in a process of about 10 MB.
_WORKERS = 64
# A worker that does not notice its own time limit is killed this many seconds after it.
_GRACE = 0.5


class MontyWorkers:
    """A pool of workers, started with the first snippet."""

    def __init__(self) -> None:
        self._pool: Monty | None = None
        self._opening = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None
        # Who waits for a worker waits here and not in a thread, which a running snippet needs for its turn.
        self._free = asyncio.Semaphore(_WORKERS)

    async def open(self) -> Monty:
        async with self._opening:
            if self._pool is None:
                self._threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="monty")
                self._pool = await self.in_thread(self._start)
            return self._pool

    def _start(self) -> Monty:
        try:
            from pydantic_monty import Monty
        except ImportError:
            raise ConfigError(
                "code mode needs the package pydantic-monty", fix="pip install 'retinue[code]'"
            ) from None
        try:
            return Monty(
                min_processes=1,
                max_processes=_WORKERS,
                max_checkouts_per_worker=_SNIPPETS_PER_WORKER,
                feed_duration_limit_grace=_GRACE,
            ).__enter__()
        except FileNotFoundError as error:
            raise ConfigError(str(error), fix="pip install 'retinue[code]'") from None

    async def in_thread(self, function: Callable[[], T]) -> T:
        """A turn of a worker blocks its thread, with the GIL released, until the worker answers."""
        assert self._threads is not None
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def take(self, check_out: Callable[[Monty], MontyWorker]) -> MontyWorker:
        """A worker, as soon as one is free. Goes back with `give_back`."""
        pool = await self.open()
        await self._free.acquire()
        taking = asyncio.ensure_future(self.in_thread(lambda: check_out(pool)))
        try:
            return await asyncio.shield(taking)
        except BaseException:
            await asyncio.shield(self._untake(taking))
            raise

    async def _untake(self, taking: asyncio.Future[MontyWorker]) -> None:
        await asyncio.wait({taking})
        if taking.cancelled() or taking.exception() is not None:
            self._free.release()
        else:
            await self.give_back(taking.result())

    async def give_back(self, worker: MontyWorker) -> None:
        giving = asyncio.ensure_future(self.in_thread(worker.give_back))
        giving.add_done_callback(lambda _: self._free.release())
        await asyncio.shield(giving)

    async def close(self) -> None:
        async with self._opening:
            pool, threads = self._pool, self._threads
            if pool is not None and threads is not None:
                await self.in_thread(lambda: pool.__exit__(None, None, None))
                threads.shutdown(wait=False)
            self._pool = self._threads = None


@dataclass(slots=True)
class MontyWorker:
    """A worker that is checked out for one snippet, and how to end it whatever it is doing."""

    session: MontySession
    handle: int | None

    def kill(self) -> None:
        if self.handle is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def give_back(self) -> None:
        self.session.__exit__(None, None, None)
        if self.handle is not None:
            os.close(self.handle)
