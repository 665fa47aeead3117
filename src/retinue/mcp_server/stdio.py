"""One host over stdin and stdout: nothing but the protocol is on stdout, whatever anybody prints.

Reads and writes in threads that the end of the process does not wait for: a host that neither closes our
stdin nor reads our stdout cannot keep us. A line that is too long or no JSON gets an error and costs nothing
else. When stdin ends, or a signal says stop, calls end and tasks stay as they are in the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import anyio
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter

from retinue.mcp.unread import refusal, request_id
from retinue.mcp_server.hosted import HostedRuns

log = logging.getLogger("retinue.mcp")
MOST_LINE = 12_000_000
"""Bytes of one message: as much as a start over HTTP."""
PIECE = 1 << 16
LEAVING_SECONDS = 2.0
"""For calls under way to be answered before we go."""


async def serve_stdio(hosted: HostedRuns, server: Server[Any]) -> None:
    """Serve one host until it closes our stdin, or a signal says stop. Then leave its runs to who comes."""
    stop = asyncio.Event()
    with _on_signals(stop.set):
        async with anyio.create_task_group() as tasks:
            serving = _Serving(server, *_take_std())
            tasks.start_soon(_until, stop, hosted, serving)
            await serving.run()
            tasks.cancel_scope.cancel()
    hosted.leave()
    await hosted.retinue.leave()


async def _until(stop: asyncio.Event, hosted: HostedRuns, serving: _Serving) -> None:
    await stop.wait()
    log.info("stopping: runs that are not over go on when somebody asks for them")
    hosted.leave()  # calls under way are answered by that
    await serving.drain(LEAVING_SECONDS)
    serving.close()


class _Line(NamedTuple):
    data: bytes = b""
    too_long: bool = False
    end: bool = False
    """Of the file."""


class _Serving:
    """The protocol over two files."""

    def __init__(self, server: Server[Any], source: int, sink: int) -> None:
        self._server, self._source, self._sink = server, source, sink
        self._scope = anyio.CancelScope()
        self._open = 0
        self._idle = asyncio.Event()

    def close(self) -> None:
        self._scope.cancel()

    async def drain(self, seconds: float) -> None:
        """Wait until every request that came in has been answered."""
        self._idle.clear()
        if self._open:
            with anyio.move_on_after(seconds):
                await self._idle.wait()

    async def run(self) -> None:
        inward, requests = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        answers, outward = anyio.create_memory_object_stream[SessionMessage](0)
        lines = _Lines(self._source)
        writer = _Writer(self._sink)
        with self._scope:
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    async with inward:
                        while not (line := await lines.next()).end:
                            message = await self._parsed(line, writer)
                            if message is not None:
                                self._count(message)
                                await inward.send(message)

                async def write() -> None:
                    async with outward:
                        async for message in outward:
                            await writer.write(_dumped(message.message))
                            self._count(message, answered=True)

                tasks.start_soon(read)
                tasks.start_soon(write)
                options = self._server.create_initialization_options()
                await self._server.run(requests, answers, options)
                tasks.cancel_scope.cancel()

    def _count(self, message: SessionMessage, *, answered: bool = False) -> None:
        kind = message.message
        if not answered and hasattr(kind, "method") and hasattr(kind, "id"):
            self._open += 1
        elif answered and not hasattr(kind, "method"):
            self._open -= 1
            if self._open <= 0:
                self._idle.set()

    async def _parsed(self, line: _Line, writer: _Writer) -> SessionMessage | None:
        """A message, or None where it was refused."""
        if line.too_long:
            why = f"a message of more than {MOST_LINE:,} bytes: send less, name files by their paths"
            error = ErrorData(code=INVALID_REQUEST, message=why)
            await writer.write(_dumped(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
            return None
        if not line.data.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line.data, by_name=False))
        except ValueError as error:
            await writer.write(_dumped(refusal(request_id(line.data, answers=False), error)))
            return None


def _dumped(message: Any) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


class _Lines:
    """Lines of a file, read by a thread, at most a few ahead. None for one that was too long.

    By its descriptor: a thread that waits in a file object would hold its lock when the process ends.
    """

    def __init__(self, source: int) -> None:
        self._source = source
        self._queue: asyncio.Queue[_Line] = asyncio.Queue(16)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="mcp stdin", daemon=True).start()

    async def next(self) -> _Line:
        return await self._queue.get()

    def _read(self) -> None:
        line, too_long = bytearray(), False
        with suppress(RuntimeError, OSError):  # the loop is closed, or the file
            while piece := os.read(self._source, PIECE):
                first, *rest = piece.split(b"\n")
                for index, part in enumerate((first, *rest)):
                    if index:  # there was an end of line before it
                        self._put(_Line(too_long=True) if too_long else _Line(data=bytes(line)))
                        line, too_long = bytearray(), False
                    if len(line) + len(part) > MOST_LINE:
                        line, too_long = bytearray(), True
                    elif not too_long:
                        line += part
        with suppress(RuntimeError):
            self._put(_Line(end=True))

    def _put(self, line: _Line) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(line), self._loop).result()


class _Writer:
    """Writes to a file in a thread, one message after the other."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="mcp stdout", daemon=True).start()

    async def write(self, data: bytes) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((data, done))
        await done

    def _run(self) -> None:
        while True:
            data, done = self._queue.get()
            with suppress(OSError):  # whoever reads has gone: our stdin ends too
                while data:
                    data = data[os.write(self._sink, data) :]
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_finish, done)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _take_std() -> tuple[int, int]:
    """Stdin and stdout for us alone: who reads from 0 finds nothing, who writes to 1 writes to stderr."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(sys.stdout.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return source, sink  # they end with the process: a thread may still be in one of them


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Generator[None]:
    """SIGTERM and SIGINT call a function, instead of what they would do."""
    loop, taken = asyncio.get_running_loop(), list[signal.Signals]()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(ValueError, RuntimeError, NotImplementedError):  # not here, or not in this thread
            loop.add_signal_handler(number, stop)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
