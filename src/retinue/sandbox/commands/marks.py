"""The mark of a command: a limit of its processes that all of them inherit and none can raise again.

It is the limit on file locks, which Linux keeps and has not looked at for twenty years, so it hinders nobody.
Unlike a session, a group or an environment it is not left behind by moving away: it can only be lowered, and
then it is still no limit of ours (root alone can lift it). Worn by a supervisor (`supervise`) before it
starts anything, and looked for by `strays`.
"""

from __future__ import annotations

import contextlib
import resource

FILE_LOCKS = 10
"""RLIMIT_LOCKS, which Python has no name for."""
HIGHEST = 2**62
ROOM = 2**40
"""How far below our own limit a mark may be."""
EACH = 2**16
"""How many marks one process that starts commands has for itself: so a mark tells whose it is."""


def whose(limit: int, highest: int) -> int | None:
    """The number of the one whose mark this would be; None for a limit that is nobody's mark.

    `highest`: the limit of those who give marks.
    """
    far = highest - 2 - limit
    return far // EACH if 0 <= far < ROOM else None


def mark_of(owner: int, number: int, highest: int) -> int:
    return highest - 2 - owner * EACH - number


def own_limit() -> int:
    return _plain(resource.getrlimit(FILE_LOCKS)[1])


def limit_of(pid: int) -> int | None:
    """None for a process that is gone or somebody else's."""
    try:
        return _plain(resource.prlimit(pid, FILE_LOCKS)[1])
    except (OSError, AttributeError):
        return None


def wear(mark: int) -> None:
    """Mark this process and all that it starts from now on. 0 is no mark."""
    if mark:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(FILE_LOCKS, (mark, mark))


def _plain(limit: int) -> int:
    return HIGHEST if limit == resource.RLIM_INFINITY or limit > HIGHEST else limit
