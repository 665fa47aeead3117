"""Workflows that nobody works on any more: who did last, whether that one lives, and how they are ended.

Called by the app and, through it, by the server. Starts nothing and asks no model.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from retinue import digest, report_facts
from retinue.ending import NOTHING
from retinue.engine.elapsed import seconds_used
from retinue.engine.ended import child_ended, cut_with_process
from retinue.engine.owners import Owners
from retinue.errors import Fenced, HasEnded, RunError
from retinue.events import (
    QUEUE,
    AnyEvent,
    Beside,
    CancelRequested,
    Event,
    LiveEvent,
    RunFinished,
    RunStarted,
)
from retinue.fold import fold
from retinue.run_log import RunLog
from retinue.run_state import RunState
from retinue.store.base import Store, Taken
from retinue.types import ENDED, Report, Usage


def taken_by(events: Sequence[AnyEvent], root_id: str) -> Taken | None:
    """The event by which a workflow was begun or taken up last."""
    found = (e for e in reversed(events) if isinstance(e, Taken) and e.run_id == root_id)
    return next(found, None)


async def is_left(owners: Owners, taken: Taken) -> bool:
    """Whether nobody works on a workflow any more, by all that can be known. Only then it is taken over.

    For a workflow that this very `Retinue` does not work on: with its own id it has dropped it.
    """
    if not taken.owner:
        return is_left_by_process(taken.host, taken.pid, taken.at)
    if taken.owner == QUEUE:  # it waits for a worker, and whoever is first writes
        return True
    return taken.owner == owners.id or await owners.is_gone(taken.owner)


def is_left_by_process(host: str, pid: int, at: float) -> bool:
    """A log of a version that wrote no owner: by the process that it names, if that was on this machine.

    With our own process id it was an earlier process: this version would have written its owner.
    """
    here = host == socket.gethostname()
    gone = pid in (0, os.getpid()) or not alive(pid, at)
    return not host or (here and gone)


async def refuse_if_owned(owners: Owners, events: Sequence[AnyEvent], root_id: str) -> None:
    """A run is not taken away by accident from whoever still works on it, or may do so."""
    taken = taken_by(events, root_id)
    if taken is None:
        return
    ends = (e for e in events if isinstance(e, RunFinished) and e.run_id == root_id and e.seq > taken.seq)
    if any(not end.report.at_work for end in ends):
        return
    if await is_left(owners, taken):
        return
    if taken.owner:
        raise RunError(
            f"{root_id} is still running in {who(taken)}; cancel it first, or take it over on purpose "
            "with take_over=True",
            run_id=root_id,
        )
    raise RunError(
        f"{root_id} was last run by an older Retinue in {who(taken)}, and whether it still runs there cannot "
        "be seen from here; if it does not, take it over with take_over=True",
        run_id=root_id,
    )


def who(taken: Taken) -> str:
    """Who works on a workflow, for people."""
    return f"process {taken.pid} on {taken.host}" + (f" (owner {taken.owner[:8]})" if taken.owner else "")


def refuse_if_ended(events: Sequence[AnyEvent], root_id: str) -> None:
    """What goes on by itself goes on only while it has no end, also not one that came a moment ago."""
    report = _end_of(events, root_id)
    if report is not None:
        raise HasEnded(f"{root_id} has ended ({report.outcome})", run_id=root_id)


def _end_of(events: Sequence[AnyEvent], root_id: str) -> Report | None:
    """The report of a run whose log ends with one, and below which nothing is at work."""
    own = (e for e in reversed(events) if e.run_id == root_id and not isinstance(e, Beside))
    last = next(own, None)
    return last.report if isinstance(last, RunFinished) and not last.report.at_work else None


def alive(pid: int, since: float) -> bool:
    """Whether the process that had this id at that time still lives. Ids are used again."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is there, and another user's
    began = _began(pid)
    return began is None or began <= since + 2


def _began(pid: int) -> float | None:
    """When a process began, where the system says so; at the end of time if it is only waited for."""
    try:
        # The name in brackets may hold anything, so count from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] == "Z":
            return math.inf
        boot = next(
            line.split()[1]
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime")
        )
        return int(boot) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


async def end(store: Store, root_id: str, run_id: str, reason: str, *, taken: Taken) -> Sequence[Event]:
    """Write down that a run and everything below it was cancelled, for a process that cannot any more.

    All of it or nothing: whoever takes the workflow up after it was `taken` makes this fail with `Fenced`.
    """
    logs: dict[str, list[AnyEvent]] = {}
    events = await store.events(root_id)
    newest = taken_by(events, root_id)
    if newest is not None and newest.seq != taken.seq:
        raise Fenced(f"{root_id} was taken up by {who(newest)}", run_id=root_id)
    for event in events:
        logs.setdefault(event.run_id, []).append(event)
    ending = _Ending(store, logs, reason)
    ending.of(run_id, asked_by="person")
    await store.append(ending.written)
    return ending.written


def end_below(
    store: Store, logs: Mapping[str, Sequence[AnyEvent]], run_id: str, reason: str, *, by: str | None
) -> tuple[RunState, list[Event]]:
    """The end of a run that nobody has taken up again, for the tree that it is in: still to be written.

    `by` is who wants it stopped by itself, if it is not only stopped along with what is above it.
    """
    ending = _Ending(store, logs, reason)
    return ending.of(run_id, asked_by=by), ending.written


class _Ending:
    """The ends of the runs of a tree, collected to be written together."""

    def __init__(self, store: Store, logs: Mapping[str, Sequence[AnyEvent]], reason: str) -> None:
        self.store, self.logs, self.reason = store, logs, reason
        self.written: list[Event] = []

    def of(self, run_id: str, *, asked_by: str | None = None) -> RunState:
        """A run with its end. If it has not ended, its end is written, after that of its children."""
        state = fold(self.logs.get(run_id, ()))
        if state.started is None or state.status in ENDED:
            return state
        began, written = state.started, self.written
        log = RunLog(
            run_id=run_id,
            root_id=began.root_id,
            parent_id=began.parent_id,
            depth=began.depth,
            append=self.store.append,
            publish=_nobody,
            state=state,
        )
        if asked_by is not None:
            written.append(log.stamp(CancelRequested, reason=self.reason, by=asked_by))
        for child_id, child_began in list(state.children.items()):
            child = self.of(child_id)
            if child.report is not None and not state.has_end_of(child_id, child):
                written.append(child_ended(log, child_began, child.report, child))
        cut = cut_with_process(state)
        written.append(log.stamp(RunFinished, report=self._report(state, began, cut), cut=cut))
        return state

    def _report(self, state: RunState, began: RunStarted, cut: Usage) -> Report:
        return Report(
            run_id=began.run_id,
            status="cancelled",
            text=digest.so_far(state),
            agent=began.spec.name,
            format=began.spec.output_format,
            label=began.label,
            depth=began.depth,
            turns=state.turns,
            tool_calls=state.tool_calls,
            failed_calls=state.failed_calls,
            usage=sum((each.usage for _, each in sorted(state.ended.items())), state.usage + cut),
            duration_ms=state.duration_ms + int(seconds_used(began.run_id, self.logs) * 1000),
            sources=tuple(state.sources),
            problems=report_facts.all_problems(state, NOTHING),
            files=state.all_files(),
            incomplete=report_facts.why_incomplete(state, self.reason),
            error=self.reason,
            model=began.model,
            ended_by="cancelled",
            shortfall=state.shortfall,
            read=report_facts.read_lines(state),
        )


def _nobody(event: LiveEvent) -> None:
    """Whoever asked for the end tells the others."""
