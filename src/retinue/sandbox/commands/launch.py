"""Retinue's side of commands: the spawner it starts for them, and one socket for each that runs.

`Commands` belongs to whoever assembles the tools and is closed there. Nothing of ours reaches a command but
its argv, its environment, its folder and the pipes it is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import marshal
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from retinue.sandbox.commands import ending, frames
from retinue.sandbox.commands.hide import hide_environment
from retinue.sandbox.commands.strays import SPAWNERS, Strays
from retinue.threads import to_its_end

MOST_ARGUMENT = 131_071
"""Bytes of one argument that Linux takes."""
PATIENCE = 2.0
"""Seconds a supervisor may need beyond the grace of its command."""
DYING = 0.5
"""Seconds that a killed process may need to be gone."""
SETTLING = 10.0
"""More of them for looking through a project afterwards."""

_PROGRAM = """\
import sys
sys.path.append({path!r})
from retinue.sandbox.commands.spawner import main
main()
"""


class NotSealed(Exception):
    """A command that was to be sealed off could not be, so it did not run: why."""


class SealBroken(Exception):
    """A sealed command was ended, since its seal did not hold any more: why."""


class Commands:
    """Starts commands. The spawner is started with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spawner: _Spawner | None = None

    async def start(
        self,
        argv: Sequence[str],
        *,
        folder: int,
        env: Mapping[str, str],
        stdout: int,
        stderr: int,
        grace: float,
        seal: Mapping[str, Any] | None = None,
        stdin: int | None = None,
        adopting: bool = False,
    ) -> Running:
        """Start a command, without input unless it is given. That it could not be started, `end` tells.

        `adopting`: while it runs, this process takes in orphans, so that even a command that kills all who
        watch over it leaves nothing behind.
        """
        if any(len(os.fsencode(argument)) > MOST_ARGUMENT for argument in argv):
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        strays = Strays(adopting=adopting)
        try:
            request = marshal.dumps(
                {
                    "argv": list(argv),
                    "env": dict(env),
                    "grace": grace,
                    "seal": None if seal is None else dict(seal),
                    "mark": strays.mark,
                }
            )
            line, spawner = self._supervisor(stdin, stdout, stderr, folder)
        except BaseException:
            strays.leave()
            raise
        patience = PATIENCE if seal is None else PATIENCE + SETTLING
        running = Running(line, grace, patience, spawner, strays, sealed=seal is not None)
        try:
            await running.begin(request)
        except BaseException:
            strays.leave()
            raise
        return running

    def _supervisor(
        self, stdin: int | None, stdout: int, stderr: int, folder: int
    ) -> tuple[socket.socket, _Spawner]:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._line([nothing if stdin is None else stdin, stdout, stderr, folder])
        finally:
            os.close(nothing)

    def _line(self, handles: list[int]) -> tuple[socket.socket, _Spawner]:
        """A socket to a new supervisor that was given these handles, and where that one comes from."""
        ours, theirs = socket.socketpair()
        try:
            for fresh in (False, True):
                spawner = self._alive(fresh=fresh)
                try:
                    socket.send_fds(spawner.door, [b"c"], [theirs.fileno(), *handles])
                except (BrokenPipeError, ConnectionResetError):
                    continue  # somebody killed the spawner
                return ours, spawner
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def _alive(self, *, fresh: bool) -> _Spawner:
        with self._lock:
            if self._spawner is not None and (fresh or not self._spawner.lives()):
                self._spawner.close()
                self._spawner = None
            if self._spawner is None:
                hide_environment()
                self._spawner = _Spawner()
            return self._spawner

    async def close(self) -> None:
        with self._lock:
            spawner, self._spawner = self._spawner, None
        if spawner is not None:
            await asyncio.to_thread(spawner.close)


class _Spawner:
    """The process that commands are forked from."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.door, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(
                (sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _PROGRAM.format(path=_package())),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self.door.close()
            raise
        finally:
            theirs.close()
        self._process = process
        SPAWNERS.add(process.pid)
        self.close = weakref.finalize(self, _stop, self.door, process, self.owner)

    def lives(self) -> bool:
        """Whether it is there, and a child of this process."""
        if self.owner == os.getpid() and self._process.poll() is None:
            return True
        SPAWNERS.discard(self._process.pid)
        return False

    def wake(self) -> None:
        """Let it and its supervisors go on, if a command has stopped them."""
        pid = self._process.pid
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=DYING)
            return
        for each in (pid, *ending.children_of(pid)):
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGCONT)


def _package() -> str:
    return str(Path(__file__).resolve().parents[3])


def _stop(door: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    door.close()
    SPAWNERS.discard(process.pid)
    if os.getpid() == owner:  # in a fork of this process, the spawner is not its child
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=PATIENCE)
            return
        process.kill()
        process.wait()


class Running:
    """A command that runs, and all that it starts. Of one event loop."""

    def __init__(
        self,
        line: socket.socket,
        grace: float,
        patience: float,
        spawner: _Spawner,
        strays: Strays,
        *,
        sealed: bool,
    ) -> None:
        self._line, self._grace, self._patience = line, grace, patience
        self._spawner, self._strays, self._sealed = spawner, strays, sealed
        self._line.setblocking(False)
        self._frames = frames.Frames()
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._failure: Exception | None = None
        self._code: int | None = None
        self._gone = False
        self.loose = False
        """Whether something of it may still run: it could not be ended, or nobody can say that it was."""
        self.note = ""
        """What was put right after it, in words."""
        self.lost = False
        """Whether its supervisor ended without a word: somebody killed it, or there was no room for it."""

    async def begin(self, request: bytes) -> None:
        self._loop.add_reader(self._line, self._hear)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `end` tells
                await self._loop.sock_sendall(self._line, struct.pack("!I", len(request)) + request)
        except BaseException:
            self._hang_up()
            raise

    async def exited(self) -> None:
        """Until the shell has ended. What it started may go on."""
        await self._until(lambda: self._code is not None)

    async def end(self) -> int:
        """End what is left, with a moment to clean up. The code of the shell, negative for a signal.

        However this ends, nothing of the command goes on afterwards. Who is cancelled meanwhile gives it no
        moment any more, and waits until its supervisor has put away what was there for its sake. Raises
        OSError if it was not even started, `NotSealed` if that is because it could not be sealed, and
        `SealBroken` if its seal did not hold.
        """
        try:
            await self._asked_to_end()
            if not self._gone:  # its supervisor may have been stopped
                await asyncio.to_thread(self._spawner.wake)
                await self._asked_to_end()
        except asyncio.CancelledError:
            await self._ended_at_once()
            raise
        finally:
            self._hang_up()
            await self._nothing_left()
        if isinstance(self._failure, SealBroken) and self.note:
            raise SealBroken(f"{self._failure}; {self.note}")
        if self._failure is not None:
            raise self._failure
        return -signal.SIGKILL if self._code is None else self._code

    async def _nothing_left(self) -> None:
        """Where no supervisor has said so, or it comes to us since the spawner is gone: look for what is.

        Never while a supervisor has a sealed command: that one cannot have harmed it, and it alone can put
        right what the command did to the project. Its line is closed, so it does that and ends.
        """
        try:
            if self._sealed and not self._gone and self._spawner.lives():
                self.loose = True
            elif not self._gone or self.lost or not self._spawner.lives():
                self.loose = not await to_its_end(self._strays.swept)
        finally:
            self._strays.leave()

    async def _ended_at_once(self) -> None:
        """Until the supervisor has ended everything, however often whoever waits is told to stop."""
        for again in (False, True):
            if again and self._sealed and not self._gone:
                with contextlib.suppress(asyncio.CancelledError):
                    await to_its_end(self._spawner.wake)
            with contextlib.suppress(OSError):
                self._line.send(frames.AT_ONCE)
            latest = self._loop.time() + self._patience
            while not self._gone and self._loop.time() < latest:
                with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                    async with asyncio.timeout_at(latest):
                        await self._until(lambda: False)
            if self._gone or not self._sealed:
                return  # what is left of one that is not sealed, the sweep ends

    async def _asked_to_end(self) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._grace + self._patience):
                if not self._gone:
                    self._line.send(frames.END)
                await self._until(lambda: False)

    async def _until(self, told: Callable[[], bool]) -> None:
        """Until the supervisor has told something, or is gone."""
        while not told() and not self._gone:
            self._heard.clear()
            await self._heard.wait()

    def _hear(self) -> None:
        try:
            data = self._line.recv(frames.MOST)
            for kind, payload in self._frames.feed(data):
                self._take(kind, payload)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            data = b""
        if not data:
            self.lost = not self._gone and self._failure is None
            self._gone = True
            self._loop.remove_reader(self._line)
        self._heard.set()

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == frames.NOT_STARTED:
            number = frames.number(payload)
            self._failure = OSError(number, os.strerror(number))
        elif kind == frames.NOT_SEALED:
            self._failure = NotSealed(payload.decode("utf-8", "replace"))
        elif kind == frames.BROKEN:
            self._failure = SealBroken(payload.decode("utf-8", "replace"))
        elif kind == frames.NOTE:
            self.note = payload.decode("utf-8", "replace")
        elif kind == frames.EXITED:
            self._code = frames.number(payload)
        elif kind == frames.GONE:
            self._gone = True

    def _hang_up(self) -> None:
        """A supervisor whose line is closed ends at once whatever is left."""
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line)
            self._line.close()
