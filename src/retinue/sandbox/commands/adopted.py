"""Children of this process that came to it from others: once they are dead, nobody else can let go of them.

Used by `strays`, while this process takes in orphans for the sake of a command. A program that uses Retinue
has children of its own, whose ends are for it to hear of, so a child counts as another's by proof alone:

- its session is neither ours nor its own: a child begins in ours, and moves to one of its own at most;
- it was seen below another process before.

What was started and orphaned between two looks, in our own session, looks like a child of the program: it is
left as it is. Never waits, but for the dead of living orphans in a thread of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Collection

from retinue.sandbox.commands import ending


class Adopted:
    """What is known of the children of this process. Called under a lock."""

    def __init__(self) -> None:
        self._elsewhere: dict[int, bytes] = {}
        """Processes that were seen below others, with the times of their starts."""
        self._awaited: dict[int, bytes] = {}

    def look(self, spare: Collection[int]) -> None:
        """See what is below the children of this process, not below the spared ones."""
        top = os.getpid()
        below = ending.descent(top, frozenset(spare))
        began = {pid: ending.began(pid) for pid, parent in below.items() if parent != top}
        seen = {pid: when for pid, when in began.items() if when is not None}
        came = {pid: when for pid, when in self._elsewhere.items() if below.get(pid) == top}
        self._elsewhere = {**seen, **came}

    def let_go(self, *, seen: bool, later: bool = False) -> None:
        """Reap those of others that are dead; `later`: also those that live, when they have ended.

        `seen`: that they were seen elsewhere is enough. It is not for a program that takes in orphans itself.
        """
        living: dict[int, bytes] = {}
        for pid in ending.children_of_ours():  # orphans come to the first thread
            began = ending.began(pid)
            if began is None or not self._is_anothers(pid, began, seen=seen):
                continue
            if ending.is_zombie(pid):
                reap(pid)
            elif self._awaited.get(pid) != began:
                living[pid] = began
        if later and living:
            self._awaited = {
                **{pid: began for pid, began in self._awaited.items() if ending.began(pid) == began},
                **living,
            }
            threading.Thread(target=_reap_at_their_ends, args=(living,), name="orphans", daemon=True).start()

    def _is_anothers(self, pid: int, began: bytes, *, seen: bool) -> bool:
        away = session_of(pid) not in (os.getsid(0), pid, 0)
        return away or (seen and self._elsewhere.get(pid) == began)


def _reap_at_their_ends(living: dict[int, bytes]) -> None:
    handles: dict[int, int] = {}
    poll = select.poll()
    try:
        for pid, began in living.items():
            with contextlib.suppress(OSError):  # gone, or there is no handle left
                handle = os.pidfd_open(pid)
                handles[handle] = pid
                if ending.began(pid) == began:
                    poll.register(handle, select.POLLIN)
        left = len(handles)
        while left:
            for handle, _ in poll.poll():
                poll.unregister(handle)
                left -= 1
                reap(handles[handle])
    finally:
        for handle in handles:
            os.close(handle)


def reap(pid: int) -> None:
    with contextlib.suppress(OSError):  # another's child, or the program around us was faster
        os.waitpid(pid, os.WNOHANG)


def session_of(pid: int) -> int:
    """0 for a process that is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0
