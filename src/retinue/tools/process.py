"""Runs child processes that cannot outlive their call: `grep`, `glob`, `ls` and `bash` stand on it.

A child gets a session of its own, starts in a folder given by handle, and reads nothing from us but what
it is given. When it ends, runs out of time, has said enough, or its caller is cancelled, everything it
started is ended too: its process group, its session, and what moved to another session but still carries
the mark in its environment. Its pipes are never waited for longer than the child itself. If this very
process is killed, a guard that outlives it ends the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

MARK = "RETINUE_CALL"
GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL."""
LINGER = 0.1
"""Seconds a finished child's pipes are still read when something else holds them open."""
PIPE = 65536

Feed = Callable[[bytes], bool]
"""Takes what the child wrote; False means that it was enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a child ended. `code` is negative for a signal, which is ours if it was stopped."""

    code: int
    timed_out: bool = False
    stopped: bool = False


async def run_child(
    argv: Sequence[str],
    *,
    folder: int,
    env: Mapping[str, str],
    feed: Feed,
    errors: Feed | None = None,
    stdin: int | bytes = b"",
    timeout: float,
    descends: bool = False,
    memory: int | None = None,
) -> Ended:
    """Run a program in a folder. Without `errors` its stderr goes where its stdout goes.

    `descends`: it may start programs of its own, so look for what it leaves behind. `memory`: bytes that it
    may have, where the system can limit that.
    """
    mark = secrets.token_hex(16) if descends else ""
    # A call inside a call carries both marks, so that the outer one finds it too.
    marked = {MARK: f"{os.environ.get(MARK, '')} {mark}".strip()} if mark else {}
    process = _start(argv, folder, {**env, **marked}, stdin, errors is None)
    if memory is not None:
        _limit(process.pid, memory)
    guard: _Guard | None = None
    enough = asyncio.Event()
    readers = [_Reader(pipe.fileno(), to, enough) for pipe, to in _pipes(process, feed, errors)]
    waiting = {asyncio.ensure_future(_exit(process.pid)), asyncio.ensure_future(enough.wait())}
    try:
        guard = _Guard(process.pid, mark) if mark else None
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
        try:
            await _end(process, mark)
        finally:
            if guard is not None:
                guard.dismiss()
    return Ended(code=process.returncode or 0, timed_out=not done, stopped=stopped)


_GUARD = """
read -r _
kill -KILL -- "-$1"
for _ in 1 2 3 4 5 6 7 8 9 10; do
  found=$(grep -lsaE -e "$2" -e "\\) [^ZX] [0-9]+ [0-9]+ $1 " /proc/[0-9]*/environ /proc/[0-9]*/stat)
  [ -n "$found" ] || break
  for file in $found; do
    pid=${file#/proc/}
    kill -KILL "${pid%/*}"
  done
done
"""
"""Waits until its input ends. The group, then all in the session or with the mark, as `_end` does it."""


class _Guard:
    """Ends what a child started once we are killed and cannot do it: it waits for a pipe to close."""

    def __init__(self, session: int, mark: str) -> None:
        reading, self._ours = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "retinue-guard", str(session), mark],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(reading)

    def dismiss(self) -> None:
        """Before the pipe closes: the id of the session may be another's by then."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


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


async def _exit(pid: int) -> None:
    """Wait until a child has exited, and leave it unreaped: so its id stays its own until `_end`."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        while not _has_exited(pid):  # noqa: ASYNC110  only polling is left where there is no pidfd
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


def _has_exited(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


async def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """SIGTERM, a moment, SIGKILL, for the child and all it started; then reap it."""
    alone = not mark
    try:
        if mark:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            alone = await _until_gone(process.pid, mark)
    finally:
        # No await here: a second cancel must not keep anything alive.
        for _ in range(10):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if alone or not _signal(process.pid, mark, signal.SIGKILL):
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


async def _until_gone(session: int, mark: str) -> bool:
    """Whether everything followed the SIGTERM in time."""
    deadline = time.monotonic() + GRACE
    left = await asyncio.to_thread(_signal, session, mark, signal.SIGTERM)
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
        left = await asyncio.to_thread(_signal, session, mark, 0)
    return not left


def _signal(session: int, mark: str, number: int) -> int:
    """Signal every living process of a session or with the mark; returns how many there were."""
    if not os.path.isdir("/proc/self"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, number)
        return 0
    count = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or not _belongs(name, session, mark):
            continue
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(int(name))
            try:
                if _belongs(name, session, mark):  # still it, now that it cannot become another one
                    signal.pidfd_send_signal(handle, number)
                    count += 1
            finally:
                os.close(handle)
    return count


def _belongs(pid: str, session: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, _, its_session = file.read().rpartition(b")")[2].split()[:4]
        if state in (b"Z", b"X"):
            return False
        if int(its_session) == session:
            return True
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark.encode() in file.read()
    except (OSError, ValueError):
        return False  # gone, or not ours to look at
