"""Workflows in the hands of workers: the marks that put one into the queue.

`workflow` writes them when a root is begun for workers, `resume` when one is taken up for them, and a worker
when it parks a workflow or is told to stop. What a mark in a log does to the queue is in
`store/postgres_queue`; what a worker does with a job is in `worker`. Nothing is started here.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from retinue.events import RunQueued, next_event
from retinue.run_state import RunState
from retinue.types import ENDED

Why = Literal["started", "resumed", "parked", "handed_over"]


def queue_name(label: str, cwd: str) -> str:
    """The queue of workers for a folder: only who has the folder may work in it. Without a folder, any."""
    place = hashlib.sha256(cwd.encode()).hexdigest()[:12] if cwd else ""
    return f"{label}@{place}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToWorkers:
    """Which workers a workflow is for, and how they are to work on it."""

    queue: str
    priority: int = 0
    answering: str = ""
    yes: bool = False

    @classmethod
    def of(cls, mark: RunQueued) -> ToWorkers:
        """As it was handed over before."""
        return cls(queue=mark.queue, priority=mark.priority, answering=mark.answering, yes=mark.yes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parked:
    """What a workflow waits for: a signal after `signals`, or the moment `until`, whichever is first."""

    signals: int
    until: float | None = None


def unended(states: Iterable[RunState]) -> list[RunState]:
    return [state for state in states if state.started is not None and state.status not in ENDED]


def marks(
    states: Iterable[RunState],
    to: ToWorkers,
    why: Why,
    *,
    seqs: Mapping[str, int] | None = None,
    parked: Parked | None = None,
    signals: int = 0,
) -> list[RunQueued]:
    """The marks of these runs of a workflow. `seqs`: what is in line for their logs already."""
    found: list[RunQueued] = []
    for state in states:
        began = state.started
        if began is None:
            continue
        last = (seqs or {}).get(began.run_id, state.seq)
        root = began.parent_id is None
        found.append(
            next_event(
                began,
                RunQueued,
                seq=last + 1,
                why=why,
                queue=to.queue if root else "",
                priority=to.priority if root else 0,
                parked=root and parked is not None,
                until=parked.until if root and parked is not None else None,
                signals=(parked.signals if parked is not None else signals) if root else 0,
                answering=to.answering if root else "",
                yes=to.yes and root,
                host=socket.gethostname(),
                pid=os.getpid(),
            )
        )
    return found
