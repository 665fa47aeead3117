"""The supervisor of one command: starts it, tells how it ended, and ends all that it started.

Forked by the spawner for every command. It talks to Retinue over a socket (`frames`), and when that closes,
because Retinue has what it wanted or was killed, it ends the command at once. What a command leaves behind
is found by descent (`ending`) or, where it is sealed, ends with its process namespace (`inside`).
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import struct
import time

from retinue.sandbox.commands import ending, frames, marks
from retinue.sandbox.commands.guards import CannotSeal
from retinue.sandbox.commands.sealed import Sealed
from retinue.sandbox.commands.spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Protocol

    class Body(Protocol):
        """A command with all that it started."""

        code: int | None
        """How the shell ended, once it has; negative for a signal."""
        broken: str
        """Why it was ended before its time, if it was."""

        @property
        def watch(self) -> int:
            """What to wake on beside the ends of children; negative for nothing."""
            ...

        @property
        def tells(self) -> int:
            """Where it says that the shell has ended, if no child of ours is that; negative for nothing."""
            ...

        def look(self) -> bool:
            """Find out what has ended. Whether nothing is left."""
            ...

        def ask_to_end(self) -> None: ...

        def kill(self) -> bool:
            """Whether there was anything that this process may kill."""
            ...

        def leave(self) -> str:
            """Nothing is left: put away what was there for its sake. What is to be told about that."""
            ...


LOOK_AGAIN = 0.02
"""Seconds between two tries to kill what is still there."""
FINISHES = 3.0
"""Seconds at most in which what a shell has left may finish what it is doing."""
UNKILLABLE = 2.0
"""Seconds after which what is left is given up if all of it runs as somebody else."""


def supervise(control: int, stdin: int, stdout: int, stderr: int, folder: int) -> NoReturn:
    """All there is to the life of a supervisor. Never comes back to the spawner."""
    line = socket.socket(fileno=control)
    try:
        os.setsid()
        request = _request(line)
        awake = ending.wake_on_children()
        marks.wear(request["mark"])
        try:
            os.fchdir(folder)
            body = _begun(request, (stdin, stdout, stderr), folder)
            os.chdir("/")
        except CannotSeal as error:
            _tell(line, frames.frame(frames.NOT_SEALED, str(error).encode("utf-8", "surrogateescape")))
            os._exit(0)
        except OSError as error:
            _tell(line, frames.frame(frames.NOT_STARTED, frames.code(error.errno or 1)))
            os._exit(0)
        for handle in (stdin, stdout, stderr, folder):
            os.close(handle)  # or whoever reads would wait for this process too
        _attend(line, body, awake, float(request["grace"]))
    finally:
        os._exit(0)  # whatever went wrong: Retinue sees the socket close, the spawner ends what there may be


def _begun(request: dict[str, Any], standard: tuple[int, int, int], folder: int) -> Body:
    if request["seal"] is None:
        return Bare(request["argv"], request["env"], standard)
    return Sealed(request, standard, folder)


def _request(line: socket.socket) -> dict[str, Any]:
    """What to run. From Retinue alone: nobody else ever has this socket before the command runs."""
    (length,) = struct.unpack("!I", _exactly(line, 4))
    request: dict[str, Any] = marshal.loads(_exactly(line, length))  # noqa: S302  both ends are this file's
    return request


def _exactly(line: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = line.recv(min(count - len(data), 65536))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def _tell(line: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody there: the next look at the socket says so too
        line.sendall(data)


def _attend(line: socket.socket, body: Body, awake: int, grace: float) -> None:
    """Until nothing is left of the command. What is to be told in one moment is told in one piece."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.register(awake, select.POLLIN)
    if body.watch >= 0:
        poll.register(body.watch, select.POLLIN)
    if body.tells >= 0:
        poll.register(body.tells, select.POLLIN)
    told, calm, listens = False, Calm(), body.tells >= 0
    deadline: float | None = None
    """When what is left is killed: not before somebody wants it ended."""
    give_up = 0.0
    while True:
        gone = body.look()
        now = time.monotonic()
        if deadline is not None and now >= deadline and not gone:
            if body.kill() or not give_up:
                give_up = now + UNKILLABLE
            gone = now > give_up
        news = b""
        if body.code is not None and not told and (gone or calm.comes()):
            told, news = True, frames.frame(frames.EXITED, frames.code(body.code))
        if gone:
            if body.broken:
                news = frames.frame(frames.BROKEN, body.broken.encode("utf-8", "surrogateescape"))
            if news:  # looking through a project takes a moment
                _tell(line, news)
            note = body.leave().encode("utf-8", "surrogateescape")[: frames.MOST]
            news = (frames.frame(frames.NOTE, note) if note else b"") + frames.frame(frames.GONE)
        if news:
            _tell(line, news)
        if gone:
            return
        wait = None if deadline is None else max(deadline - now, LOOK_AGAIN)
        if body.code is not None and not told:
            wait = LOOK_AGAIN
        found = dict(poll.poll(None if wait is None else int(wait * 1000)))
        ready = found.keys()
        if listens and (body.code is not None or found.get(body.tells, 0) & ~select.POLLIN):
            poll.unregister(body.tells)  # nothing more comes of interest, or nothing at all
            listens = False
        if awake in ready:
            ending.drain(awake)
        if body.watch in ready:
            ending.drain(body.watch)
        if line.fileno() in ready:
            if _word(line) != frames.END:  # at once, or nobody is there any more
                deadline = time.monotonic()
                poll.unregister(line)
            elif deadline is None:
                deadline = time.monotonic() + grace
                body.ask_to_end()


def _word(line: socket.socket) -> bytes:
    """What Retinue says; empty if it is gone."""
    try:
        return line.recv(1)
    except OSError:
        return b""


class Calm:
    """Whether what a shell has left behind is done with what it was doing.

    `> >(sort)` goes on when the shell has ended, as long as there is something to do; a server waits.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._looks = 0

    def comes(self) -> bool:
        """Looked at again and again. Two looks, since the end of one process may wake another."""
        self._until = self._until or time.monotonic() + FINISHES
        self._looks = 0 if ending.is_busy(os.getpid()) else self._looks + 1
        return self._looks > 1 or time.monotonic() >= self._until


class Bare:
    """A command with the rights of whoever started Retinue. Its orphans come to this process."""

    def __init__(self, argv: list[str], env: dict[str, str], standard: tuple[int, int, int]) -> None:
        self.code: int | None = None
        self.broken, self.watch, self.tells = "", -1, -1
        ending.adopt_orphans()
        self._shell = spawn(argv, env, standard)

    def look(self) -> bool:
        ended, gone = ending.reaped()
        self.code = ended.get(self._shell, self.code)
        return gone

    def ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> bool:
        return self._signal(signal.SIGKILL) > 0

    def leave(self) -> str:
        """Nothing was there for it."""
        return ""

    def _signal(self, number: int) -> int:
        if not os.path.isdir("/proc/self"):  # macOS: its group is all that can be found
            with contextlib.suppress(OSError):
                os.killpg(self._shell, number)
        return ending.signal_below(os.getpid(), number)
