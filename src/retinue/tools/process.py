"""Runs programs that cannot outlive their call: `grep`, `glob`, `ls` and `bash` stand on it.

A program gets a session of its own, starts in a folder given by handle, and reads nothing from us but what
it is given. When it ends, runs out of time, has said enough, or its caller is cancelled, it is ended with
everything it started, and its pipes are never waited for longer than the program itself. `run_child` is for
programs of ours, which start no others. `run_command` is for commands of a model: those have a supervisor
(`sandbox.commands`), which also ends them if this very process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Protocol

from retinue.sandbox.commands.launch import Commands

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL."""
LINGER = 0.1
"""Seconds a finished child's pipes are still read when something else holds them open."""
PIPE = 65536

Feed = Callable[[bytes], bool]
"""Takes what the child wrote; False means that it was enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a child ended. `code` is negative for a signal, which is ours if it was stopped.

    `lost`: how a command ended, or whether it ran at all, nobody knows.
    """

    code: int
    timed_out: bool = False
    stopped: bool = False
    lost: bool = False
    loose: bool = False
    """Whether something that a command started may still run."""
    note: str = ""
    """What was put right after a sealed command."""


class RunningProgram(Protocol):
    """A program that runs: one child of ours, or a command with all that it starts."""

    async def exited(self) -> None: ...

    async def end(self) -> int:
        """End it if it still runs, and whatever it started. Its code, negative for a signal."""
        ...


async def run_child(
    argv: Sequence[str],
    *,
    folder: int,
    env: Mapping[str, str],
    feed: Feed,
    errors: Feed | None = None,
    stdin: int | bytes = b"",
    timeout: float,
    memory: int | None = None,
) -> Ended:
    """Run a program of ours in a folder, one that starts no others.

    Without `errors` its stderr goes where its stdout goes. `memory`: bytes that it may have, where the system
    can limit that.
    """
    process = _start(argv, folder, env, stdin, errors is None)
    if memory is not None:
        _limit(process.pid, memory)
    pipes = [(pipe.fileno(), to) for pipe, to in _pipes(process, feed, errors)]
    return await _attended(_Child(process), pipes, timeout)


async def run_command(
    commands: Commands,
    argv: Sequence[str],
    *,
    folder: int,
    env: Mapping[str, str],
    feed: Feed,
    timeout: float,
    seal: Mapping[str, Any] | None = None,
) -> Ended:
    """Run a command that may start whatever it likes. Nothing of it is left afterwards.

    Raises OSError if it cannot be started, and `NotSealed` if it was to be sealed and cannot be.
    """
    reading, writing = os.pipe()
    try:
        try:
            running = await commands.start(
                argv,
                folder=folder,
                env=env,
                stdout=writing,
                stderr=writing,
                grace=GRACE,
                seal=seal,
                adopting=seal is None,
            )
        finally:
            os.close(writing)
        ended = await _attended(running, [(reading, feed)], timeout)
        return replace(ended, lost=running.lost, loose=running.loose, note=running.note)
    finally:
        os.close(reading)


async def _attended(started: RunningProgram, pipes: Sequence[tuple[int, Feed]], timeout: float) -> Ended:
    """Hand on what a program says until it ends, has said enough or runs out of time; then end it all."""
    enough = asyncio.Event()
    readers = [_Reader(fd, to, enough) for fd, to in pipes]
    waiting = {asyncio.ensure_future(started.exited()), asyncio.ensure_future(enough.wait())}
    try:
        done, _ = await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if done and not enough.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER):
                    for reader in readers:
                        await reader.ended.wait()
        for reader in readers:
            reader.drain()
        stopped = enough.is_set()
    finally:
        for task in waiting:
            task.cancel()
        for reader in readers:
            reader.close()
        code = await started.end()
    return Ended(code=code, timed_out=not done, stopped=stopped)


def _start(
    argv: Sequence[str], folder: int, env: Mapping[str, str], stdin: int | bytes, merged: bool
) -> subprocess.Popen[bytes]:
    given = stdin if isinstance(stdin, int) else _filled(stdin)
    try:
        return subprocess.Popen(
            argv,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            bufsize=0,
            env=env,
            start_new_session=True,
            cwd=f"/proc/self/fd/{folder}" if sys.platform == "linux" else None,
            preexec_fn=None if sys.platform == "linux" else lambda: os.fchdir(folder),  # noqa: PLW1509  no other way there
        )
    finally:
        if given != stdin:
            os.close(given)


def _limit(pid: int, memory: int) -> None:
    """From outside, a moment after the start: setting it before would take a slow and unsafe way to fork."""
    import resource

    with contextlib.suppress(AttributeError, OSError, ValueError):  # Linux alone has it; it may have ended
        resource.prlimit(pid, resource.RLIMIT_AS, (memory, memory))


def _filled(data: bytes) -> int:
    """The reading end of a pipe that holds this already. A pipe takes 64 KB without a reader."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    reading, writing = os.pipe()
    with open(writing, "wb") as file:
        file.write(data[:PIPE])
    return reading


def _pipes(
    process: subprocess.Popen[bytes], feed: Feed, errors: Feed | None
) -> Iterator[tuple[IO[bytes], Feed]]:
    if process.stdout is not None:
        yield process.stdout, feed
    if process.stderr is not None and errors is not None:
        yield process.stderr, errors


class _Reader:
    """Hands on what arrives in a pipe, until its end or until it was enough."""

    def __init__(self, fd: int, feed: Feed, enough: asyncio.Event) -> None:
        self.ended = asyncio.Event()
        self._fd, self._feed, self._enough = fd, feed, enough
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, PIPE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
        elif not self._enough.is_set() and not self._feed(data):
            self._enough.set()
        return bool(data)

    def drain(self) -> None:
        """Read what is there already: all that a child left, not what its own children still write."""
        for _ in range(16):
            if self.ended.is_set() or self._enough.is_set() or not self._read():
                return

    def close(self) -> None:
        self.ended.set()
        self._loop.remove_reader(self._fd)


class _Child:
    """One process of ours, in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    async def exited(self) -> None:
        """Until it has exited. It is left unreaped: so its id stays its own until `end`."""
        try:
            fd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            while not _has_exited(self._process.pid):  # noqa: ASYNC110  only polling is left without a pidfd
                await asyncio.sleep(0.02)
            return
        loop = asyncio.get_running_loop()
        exited = asyncio.Event()
        loop.add_reader(fd, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def end(self) -> int:
        # No await here: a second cancel must not keep anything alive.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return self._process.returncode or 0


def _has_exited(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
