"""A few child processes that do the reading of pages, started when first needed and killed when they hang.

`fetch` hands jobs to it. The event loop never runs a parser on markup from the web: a page can make one
take seconds. Bodies that need no parser and are small are read right here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from retinue.errors import ToolError
from retinue.web.content import kind_of
from retinue.web.page import Job
from retinue.web.robots import RobotsJob
from retinue.web.worker import AnyAnswer, AnyJob, answer_decoder, encoder, perform

WORKERS = 2
SECONDS = 20.0
SMALL = 16_000
LARGE = 300_000_000
"""A worker that a page has blown up to this many bytes is not kept."""
JOBS_PER_WORKER = 200
# A worker keeps what it freed, up to this: else every page has to get its memory from the system again.
_KEPT = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "33554432"}
# No keys, no proxies: only what Python needs to start.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "SYSTEMROOT", "VIRTUAL_ENV", "TMPDIR")


class _Worker:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.jobs = 0

    async def ask(self, job: AnyJob) -> AnyAnswer:
        reader, writer = self.process.stdout, self.process.stdin
        if reader is None or writer is None:
            raise AssertionError("a worker without pipes")
        message = bytearray(8)
        encoder.encode_into(job, message, 8)
        message[:8] = (len(message) - 8).to_bytes(8, "big")
        writer.write(message)
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(8), "big")
        answer = answer_decoder.decode(await reader.readexactly(size))
        self.jobs += 1
        return answer

    def memory(self) -> int:
        """Bytes it holds, where the system tells."""
        try:
            pages = Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()


class Pool:
    def __init__(self, *, workers: int = WORKERS, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._places = asyncio.Semaphore(workers)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._starting = 0
        self._warming: asyncio.Task[None] | None = None
        self._closed = False

    async def warm(self) -> None:
        """Start a worker if there is none, so that it is ready when a body has arrived.

        Many first fetches at once wait for one start, and one of them that gives up does not end it.
        """
        if self._warming is None and not self._all and not self._starting and not self._closed:
            self._warming = asyncio.create_task(self._warm())
        if self._warming is not None:
            await asyncio.shield(self._warming)

    async def _warm(self) -> None:
        try:
            self._idle.append(await self._start())
        finally:
            self._warming = None

    async def run(self, job: AnyJob) -> AnyAnswer:
        """Raises `ToolError` for a job that takes too long or brings its worker down."""
        if _is_light(job):
            return perform(job)
        async with self._places:
            worker = await self._take()
            done = False
            try:
                async with asyncio.timeout(self.seconds):
                    answer = await worker.ask(job)
                done = worker.jobs < JOBS_PER_WORKER and worker.memory() < LARGE
                return answer
            except TimeoutError:
                raise ToolError(
                    f"reading it took longer than {self.seconds:g} seconds, so it was given up. Use another "
                    "source, or mode 'raw' and grep."
                ) from None
            except (asyncio.IncompleteReadError, ConnectionError):
                raise ToolError("it brings down the program that reads pages. Use another source.") from None
            finally:
                if done and not self._closed:
                    self._idle.append(worker)
                else:
                    self._all.discard(worker)
                    await asyncio.shield(worker.end())

    async def _take(self) -> _Worker:
        """An idle worker, the one being warmed up, or a new one: never more of them than places."""
        while not self._idle and self._warming is not None:
            await asyncio.shield(self._warming)
        return self._idle.pop() if self._idle else await self._start()

    async def _start(self) -> _Worker:
        self._starting += 1
        try:
            worker = _Worker(await self._spawn())
        finally:
            self._starting -= 1
        self._all.add(worker)
        return worker

    async def _spawn(self) -> Process:
        environment = _KEPT | {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing of the folder that Retinue works in: it may hold a `retinue` of its own
            "-m",
            "retinue.web.worker",
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            limit=1 << 22,
        )

    async def close(self) -> None:
        self._closed = True
        if self._warming is not None:
            await asyncio.gather(self._warming, return_exceptions=True)
        workers, self._all, self._idle = list(self._all), set(), []
        await asyncio.gather(*(worker.end() for worker in workers))


def _is_light(job: AnyJob) -> bool:
    if isinstance(job, RobotsJob):
        return len(job.text) <= SMALL
    if not isinstance(job, Job) or len(job.body) > SMALL:
        return False
    if kind_of(job.content_type, job.body[:2048]) not in ("text", "json", "binary"):
        return False
    try:
        job.body.decode()
    except UnicodeDecodeError:
        # Guessing a charset takes long enough to be felt.
        return False
    return True
