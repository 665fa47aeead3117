"""Finds and ends what a command left behind when all who watched over it are gone.

A command that is not sealed off may kill its supervisor and the spawner behind that one. What it started then
comes to this very process, which takes in orphans while such a command runs, and is told from everything else
here (children of the program that uses Retinue, other calls, MCP servers) by the mark of its call (`marks`).
What is below an unmarked process (a worker, an MCP server that is a Retinue itself) is that one's to end: no
command of ours can have got there. What cannot be told apart is left alone, and the caller hears that
something may still run.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Mapping

from retinue.sandbox.commands import ending, marks
from retinue.sandbox.commands.adopted import Adopted, reap, session_of

SWEEPING = 5.0
"""Seconds at most for ending what is found."""
LOOK_AGAIN = 0.005
DOUBT = 1.0
"""Seconds after which a process of which nobody knows whose it is counts as the command's."""

SPAWNERS: set[int] = set()
"""The processes that commands are forked from: what is below them is looked after by them."""
_lock = threading.Lock()
_live: set[int] = set()
"""The marks of all commands that run."""


class _Giver:
    """This process as the one that gives marks: all of them tell that they are its own. Under the lock."""

    def __init__(self) -> None:
        self._process, self.number = 0, 0

    def new_mark(self, highest: int) -> int:
        """0 if the limit of this process leaves no room for one."""
        if self._process != os.getpid():  # a fork gives its own
            self._process, self.number = os.getpid(), secrets.randbelow(marks.ROOM // marks.EACH)
        if highest <= marks.ROOM + 1:
            return 0
        while (mark := marks.mark_of(self.number, secrets.randbelow(marks.EACH), highest)) in _live:
            pass
        return mark


class _Home:
    """This process as the one that orphans come to, as long as a call wants it. Under the lock."""

    def __init__(self) -> None:
        self._owner, self._wanted, self._ours = 0, 0, False
        self._adopted = Adopted()

    def open(self) -> bool:
        if self._owner != os.getpid():  # a fork takes in nobody, whatever its parent did
            self._owner, self._wanted, self._adopted = os.getpid(), 0, Adopted()
        self._adopted.look(SPAWNERS)
        self._adopted.let_go(seen=self._ours)
        if self._wanted == 0:
            self._ours = not ending.adopts_orphans()  # or the program wants it so, and still will
            if self._ours and not ending.adopt_orphans():
                return False
        self._wanted += 1
        return True

    def close(self) -> None:
        if self._owner == os.getpid() and self._wanted:
            self._wanted -= 1
            last = self._wanted == 0 and self._ours
            if last:
                ending.adopt_orphans(False)
            self._adopted.look(SPAWNERS)
            self._adopted.let_go(seen=self._ours, later=last)


_home, _giver = _Home(), _Giver()


class Strays:
    """What one command may leave behind: from before its start until nothing of it is left."""

    def __init__(self, *, adopting: bool) -> None:
        self.mark = 0
        self._adopting = False
        self._began = _ticks()
        if sys.platform == "linux":
            self._own = marks.own_limit()
            with _lock:
                self.mark = _giver.new_mark(self._own)
                _live.add(self.mark)
                self._adopting = adopting and _home.open()

    def swept(self) -> bool:
        """End what is left. Whether nothing is, as far as can be known. Blocks for some seconds at most."""
        if not self.mark:
            return False
        begun = time.monotonic()
        quiet = 0
        while (now := time.monotonic()) < begun + SWEEPING:
            ours, doubtful = self._found()
            for pid, began in ours.items():
                _end(pid, began)
            quiet = 0 if ours else quiet + 1  # what ends as fast as it starts another leaves its dead to us
            if quiet > 1 and not doubtful:
                return self._adopting
            if quiet > 1 and now > begun + DOUBT:
                return False
            time.sleep(0 if ours else LOOK_AGAIN)
        return False

    def leave(self) -> None:
        with _lock:
            _live.discard(self.mark)
            if self._adopting:
                self._adopting = False
                _home.close()

    def _found(self) -> tuple[dict[int, bytes], bool]:
        """Processes of this command with the times of their start; and whether others may be of it."""
        found = ending.everything()
        top, session = os.getpid(), os.getsid(0)
        looked_after = frozenset(SPAWNERS)
        limits = {pid: marks.limit_of(pid) for pid in found}
        below = ending.reached(found, top, looked_after)
        orphans = ending.reached(found, top, looked_after | self._unmarked(limits))
        ours: dict[int, bytes] = {}
        doubtful = False
        for pid, (parent, began) in found.items():
            limit = limits[pid]
            if limit == self._own - 1 and parent == top and pid not in looked_after:
                reap(pid)  # a supervisor that waited for a command, and ended with its spawner
            if limit == self.mark or (pid in orphans and limit is not None and self._nobodys(limit)):
                ours[pid] = began
            elif pid in orphans and limit not in _live:
                doubtful = doubtful or not ending.is_zombie(
                    pid
                )  # of another Retinue that is gone, or says so
            elif pid in below and int(began) >= self._began and limit in (None, self._own):
                doubtful = doubtful or (session_of(pid) not in (session, 0) and not ending.is_zombie(pid))
        return ours, doubtful

    def _unmarked(self, limits: Mapping[int, int | None]) -> frozenset[int]:
        """What no command can have started, the spawners of others with it: what is below is not ours."""
        return frozenset(pid for pid, limit in limits.items() if limit is None or limit >= self._own - 1)

    def _nobodys(self, limit: int) -> bool:
        """Whether a mark is of no command that runs, nor of another's: a process has lowered its own."""
        return limit not in _live and marks.whose(limit, self._own) in (None, _giver.number)


def _end(pid: int, began: bytes) -> None:
    if ending.is_zombie(pid):
        reap(pid)
    else:
        ending.signalled(pid, began, signal.SIGKILL)


def _ticks() -> int:
    """Now, as the kernel counts the starts of processes."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0 if clock is None else int(time.clock_gettime(clock) * os.sysconf("SC_CLK_TCK"))
