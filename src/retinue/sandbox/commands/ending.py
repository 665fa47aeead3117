"""Finds and signals all that a process started, however it moved away: by descent alone.

A supervisor adopts what its command orphans (`adopt_orphans`), so a process that has no child any more has
left nothing behind: no session, group, name or environment is asked about. Where the kernel cannot do that
(macOS), the group of the command is all that is found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 1, 36, 37
TO_ITS_GROUP = 4
"""PIDFD_SIGNAL_PROCESS_GROUP: one signal for a whole group, which no fork can outrun. Linux 6.9."""


def adopt_orphans(wanted: bool = True) -> bool:
    """Whether the kernel does that."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0


def adopts_orphans() -> bool:
    if sys.platform != "linux":
        return False
    told = ctypes.c_int()
    return ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(told), 0, 0, 0) == 0 and bool(told)


def die_with_parent(wanted: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL if wanted else 0, 0, 0, 0)


def wake_on_children() -> int:
    """A handle that becomes readable when a child has ended."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def drain(handle: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(handle, 4096):
            pass


def reaped() -> tuple[dict[int, int], bool]:
    """Children that have ended, by their ids, with how; and whether no other is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended[pid] = os.waitstatus_to_exitcode(status)


def children_of_ours() -> set[int]:
    return children_of(os.getpid())


def children_of(own: int) -> set[int]:
    """The children of a process that has one thread."""
    try:
        with open(f"/proc/{own}/task/{own}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except OSError:  # not every kernel keeps that list
        found = {pid: _looked_up(pid) for pid in map(int, filter(str.isdigit, _listed("/proc")))}
        return {pid for pid, looked_up in found.items() if looked_up is not None and looked_up[0] == own}


def descent(top: int, spare: frozenset[int] = frozenset()) -> dict[int, int]:
    """Every process below one with its parent, not the spared ones and what is below these. Looks at those
    alone, and finds nothing where the kernel keeps no lists of children."""
    found: dict[int, int] = {}
    ahead = [top]
    while ahead:
        parent = ahead.pop()
        for thread in _listed(f"/proc/{parent}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                more = {pid: parent for pid in map(int, file.read().split()) if pid not in spare}
                ahead += more.keys() - found.keys()
                found |= more
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def below(top: int, spare: frozenset[int] = frozenset()) -> dict[int, bytes]:
    """Every living process below one, with the time of its start; not what is below the spared ones."""
    found = everything()
    return {pid: found[pid][1] for pid in reached(found, top, spare)}


def everything() -> dict[int, tuple[int, bytes]]:
    """Every process that can be seen: its parent, and the time of its start."""
    found = ((pid, _looked_up(pid)) for pid in map(int, filter(str.isdigit, _listed("/proc"))))
    return {pid: looked_up for pid, looked_up in found if looked_up is not None}


def reached(
    found: dict[int, tuple[int, bytes]], top: int, spare: frozenset[int] = frozenset()
) -> dict[int, None]:
    """Those of them that are below one, from the top down; not the spared ones and what is below these."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in found.items():
        children.setdefault(parent, []).append(pid)
    below_it: dict[int, None] = {}
    ahead = [top]
    while ahead:
        for pid in children.get(ahead.pop(), ()):
            if pid not in spare and pid not in below_it:
                below_it[pid] = None
                ahead.append(pid)
    return below_it


def is_busy(top: int) -> bool:
    """Whether something below a process runs or would if there was a processor for it: does not just wait."""
    threads = (f"{pid}/task/{thread}" for pid in below(top) for thread in _listed(f"/proc/{pid}/task"))
    return any(_fields(thread)[:1] in ([b"R"], [b"D"]) for thread in threads)


def _fields(process: int | str) -> list[bytes]:
    """What the kernel says of a process or thread, from its state on; nothing if it is gone."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _looked_up(pid: int) -> tuple[int, bytes] | None:
    """The parent of a process and when it began; None if it is gone or only waits to be reaped."""
    fields = _fields(pid)
    return None if len(fields) < 20 or fields[0] in (b"X",) else (int(fields[1]), fields[19])


def began(pid: int) -> bytes | None:
    """When a process was started; None if it is gone."""
    found = _looked_up(pid)
    return None if found is None else found[1]


def signal_below(top: int, number: int, *, spare: frozenset[int] = frozenset()) -> int:
    """Signal everything below a process. Returns how many took it: 0 if there is none that we may signal."""
    return sum(signalled(pid, began, number) for pid, began in below(top, spare).items())


def is_zombie(pid: int) -> bool:
    """Whether it has ended and only waits to be reaped."""
    return _fields(pid)[:1] == [b"Z"]


def signalled(pid: int, began: bytes, number: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        found = _looked_up(pid)
        if found is None or found[1] != began:  # its id is another's by now
            return False
        if number == signal.SIGKILL:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, number, None, TO_ITS_GROUP)
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
