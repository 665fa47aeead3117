"""The small process that commands are forked from: it knows nothing of Retinue's keys, files or connections.

Started by `launch` in a bare interpreter with an empty environment, once, since starting an interpreter for
every command would take longer than most commands. It keeps one supervisor ready, which waits at the socket
for the next command; so no command waits for a fork either. It ends when Retinue closes the socket or dies.

It is also what catches a command that kills its own supervisor: the orphans come here, and are ended.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct

from retinue.sandbox.commands import ending, marks
from retinue.sandbox.commands.supervise import supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

HANDLES = 5
"""What comes with every request: the socket of that command, its stdin, stdout and stderr, and its folder."""
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTTOU, signal.SIGTTIN)
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def main() -> None:
    gc.disable()  # a collection would touch, and so copy, pages that supervisors share
    gc.freeze()
    door = socket.socket(fileno=0)
    for number in IGNORED:  # it ends with Retinue, and not before
        signal.signal(number, signal.SIG_IGN)
    awake = ending.wake_on_children()
    ending.adopt_orphans()
    marks.wear(max(marks.own_limit() - 1, 0))  # below it are those of its commands
    taken, take = os.pipe()
    ready = _fork(door, take)
    supervisors = {ready}
    poll = select.poll()
    poll.register(door, 0)  # only whether it is closed: the one that is ready reads it
    poll.register(awake, select.POLLIN)
    poll.register(taken, select.POLLIN)
    while True:
        news = {fd for fd, _ in poll.poll()}
        if door.fileno() in news:
            os._exit(0)  # Retinue is gone. Every supervisor learns it from its own socket.
        if taken in news:
            os.read(taken, 1)
        if awake in news:
            ending.drain(awake)
            _reap(supervisors)
        if taken in news or ready not in supervisors:
            ready = _fork(door, take)
            supervisors.add(ready)


def _fork(door: socket.socket, take: int) -> int:
    """The supervisor of the next command."""
    child = os.fork()
    return child if child else _wait(door, take)


def _wait(door: socket.socket, take: int) -> NoReturn:
    try:
        ending.die_with_parent(True)
        handles = _handles(door)
        ending.die_with_parent(False)
        os.write(take, b"t")
        os.close(take)
        door.detach()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # so that a closed door is closed
        if len(handles) == HANDLES:
            supervise(*handles)
    finally:
        os._exit(0)  # whoever asked sees its socket close


def _handles(door: socket.socket) -> list[int]:
    """The handles of the next request; fewer if there was no room for them, or none comes."""
    size = struct.calcsize("i")
    _, ancillary, _, _ = door.recvmsg(1, socket.CMSG_SPACE(HANDLES * size), CLOSE_ON_EXEC)
    taken: list[int] = []
    for level, kind, raw in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            taken += struct.unpack(f"{len(raw) // size}i", raw[: len(raw) // size * size])
    for handle in taken:
        os.set_inheritable(handle, False)
    return taken


def _reap(supervisors: set[int]) -> None:
    ended, gone = ending.reaped()
    supervisors.difference_update(ended)
    if not gone and not ending.children_of_ours() <= supervisors:
        ending.signal_below(os.getpid(), signal.SIGKILL, spare=frozenset(supervisors))
