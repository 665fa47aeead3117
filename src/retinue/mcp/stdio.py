"""Speaks to a server that is a program of this machine: one JSON message in each line, over its pipes.

Not by the transport of the package: a program is started by `sandbox.commands`, whose supervisor ends it with
all that it started also when this process is killed; a line is bounded, and so is what comes unasked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from retinue.errors import ToolError
from retinue.mcp.unread import refusal, request_id
from retinue.programs import find_program
from retinue.sandbox.commands.launch import Commands, Running

GRACE = 2.0
"""Seconds that a server has to end by itself when it is told to."""
MOST_UNASKED = 20_000
"""Messages between two answers."""
MOST_STDERR = 4000

Incoming = SessionMessage | Exception


class StdioTransport:
    """One process. Entered and left by the task that owns the connection."""

    def __init__(
        self,
        commands: Commands,
        argv: list[str],
        *,
        env: Mapping[str, str],
        folder: Path,
        most: int,
        admit: Callable[[], Awaitable[None]],
        outside: Path | None,
    ) -> None:
        """`admit` is asked last of all before the program starts, and raises if it may not.

        `outside`: a name alone is no program in this folder.
        """
        self._outside = outside
        self._commands, self._argv, self._env, self._folder, self._most = commands, argv, env, folder, most
        self._admit = admit
        self._running: Running | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        self._stderr: deque[str] = deque(maxlen=40)
        self.ended = asyncio.Event()
        """It says nothing any more."""
        self.fault = ""
        """Why it was ended by us, if it was."""

    async def __aenter__(
        self,
    ) -> tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]:
        named = self._argv[0]
        program = self._program(named)
        if program is None:
            where = "" if self._outside is None else f" outside of {self._outside}"
            fix = "install it" if os.path.isabs(named) else "install it, or write its whole path"
            raise ToolError(f"there is no program {named!r}{where}: {fix}")
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe()
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await self._admit()
            self._running = await self._commands.start(
                [program, *self._argv[1:]],
                folder=folder,
                env=self._env,
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=theirs_err,
                grace=GRACE,
            )
        except BaseException:
            for handle in (ours_in, ours_out, ours_err):
                os.close(handle)
            raise
        finally:
            for handle in (theirs_in, theirs_out, theirs_err, folder):
                os.close(handle)
        return await self._connect(ours_in, ours_out, ours_err)

    def _program(self, named: str) -> str | None:
        path = self._env.get("PATH")
        if self._outside is None or "/" in named:
            return shutil.which(named, path=path) or _beside(named, self._folder)
        return find_program(named, self._outside, path=path)

    async def _connect(
        self, stdin: int, stdout: int, stderr: int
    ) -> tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]:
        loop = asyncio.get_running_loop()
        writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(stdin, "wb", 0))
        reader = asyncio.StreamReader(limit=self._most)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout, "rb", 0)
        )
        errors = asyncio.StreamReader()
        telling, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(errors), os.fdopen(stderr, "rb", 0)
        )
        self._transports = [writing, reading, telling]
        arrived, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (arrived, incoming, outgoing, to_send)
        self._tasks = [
            asyncio.create_task(self._read(reader, arrived)),
            asyncio.create_task(self._write(to_send, writing)),
            asyncio.create_task(self._listen(errors)),
        ]
        return incoming, outgoing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            self._transports[0].close()  # a server ends when its stdin does
            if self._running is not None and not self.fault:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GRACE / 2):
                        await self._running.exited()
            if self._running is not None:
                with contextlib.suppress(OSError):
                    await self._running.end()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for transport in self._transports:
                transport.close()
            for stream in self._streams:
                stream.close()
            self.ended.set()

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return "\n".join(self._stderr)[-MOST_STDERR:].strip()

    async def _read(self, reader: asyncio.StreamReader, arrived: MemoryObjectSendStream[Incoming]) -> None:
        unasked = 0
        try:
            while True:
                try:
                    line = await reader.readuntil(b"\n")
                except asyncio.LimitOverrunError:
                    self.fault = f"it sent more than {self._most // 1_000_000} MB in one message"
                    break
                except asyncio.IncompleteReadError:
                    break
                if not line.strip():
                    continue
                message = _parsed(line)
                answers = isinstance(message, SessionMessage) and isinstance(
                    message.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError
                )
                unasked = 0 if answers else unasked + 1
                if unasked > MOST_UNASKED:
                    self.fault = f"it sent {MOST_UNASKED:,} messages that nobody asked for"
                    break
                await arrived.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # the session is gone, or the pipe is
        finally:
            arrived.close()
            self.ended.set()

    async def _write(
        self, to_send: MemoryObjectReceiveStream[SessionMessage], pipe: asyncio.WriteTransport
    ) -> None:
        async for each in to_send:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            if pipe.is_closing():
                break
            pipe.write(text.encode() + b"\n")

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        held = b""
        while data := await errors.read(65536):
            *lines, held = (held + data).split(b"\n")
            held = held[-MOST_STDERR:]
            self._stderr.extend(line[:500].decode("utf-8", "replace") for line in lines[-40:])
        if held:
            self._stderr.append(held[:500].decode("utf-8", "replace"))


def _parsed(line: bytes) -> Incoming:
    """A message. An answer that cannot be read is an error for the call that waits for it; what else cannot
    be read is whatever a program prints."""
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        number = request_id(line, answers=True)
        return error if number is None else SessionMessage(refusal(number, error))


def _beside(name: str, folder: Path) -> str | None:
    path = folder / name
    return str(path) if "/" in name and os.access(path, os.X_OK) else None
