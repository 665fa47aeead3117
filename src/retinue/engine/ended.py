"""The end of a child in its parent's log: how it is written down, and whether it is there already.

Called for children that end here, for those that had ended when a tree is taken up, and for those that are
ended for a process that is gone: what a parent goes without, and what private data has reached it, must not
depend on which of these it was. Writes to no store.
"""

from __future__ import annotations

from retinue.events import KNOWLEDGE_FIRST, ChildEnded, ChildStarted
from retinue.models.prices import paid_for
from retinue.report_facts import MOST_PROBLEMS
from retinue.reports import digest_of, handed_up
from retinue.run_log import RunLog
from retinue.run_state import RunState
from retinue.types import Report, Shortfall, Usage
from retinue.workspace import HOME

PARENT_ENDED = "parent_ended"
"""Who cancels a child when its parent ends without it."""
PARENT_ANSWERED = "parent_answered"
"""Who cancels a child that its parent has answered without: the work it was asked for is lost."""
FROM_ABOVE = frozenset({PARENT_ENDED, PARENT_ANSWERED})


def cut_with_process(state: RunState) -> Usage:
    """What the model call took that was under way when the process of a run ended: nobody was told."""
    return paid_for(state.model).unseen if state.unanswered else Usage()


def child_ended(
    log: RunLog,
    began: ChildStarted,
    report: Report,
    child: RunState | None,
    *,
    notice: str = "",
    telling: Usage | None = None,
) -> ChildEnded:
    """The end of a child as the next event of its parent's log, still to be committed.

    `notice` is what a parent that does not wait for it is told, and `telling` what it took to word that. Of
    a piece of work that goes on after an end and ends again, the last end counts. The end of a piece after
    the first has what the pieces before it lacked as well.
    """
    parent, telling = log.state, telling or Usage()
    earlier = parent.lately.get((began.child_id, began.call_id))
    return log.stamp(
        ChildEnded,
        child_id=began.child_id,
        agent=began.agent,
        status=report.status,
        ended_by=report.ended_by,
        usage=report.usage + parent.telling.get(began.child_id, Usage()) + telling,
        telling=telling,
        label=began.label,
        call_id=began.call_id,
        duration_ms=report.duration_ms,
        notice=notice,
        shortfall=_shortfall(report, began, child),
        instead=began.lacked if earlier is None else earlier.shortfall,
        private=() if child is None else tuple(child.reads()),
        problems=report.problems[:MOST_PROBLEMS],
        sources=handed_up(report) if notice else (),
        files=_written(report, child),
        opens=bool(notice) and parent.at_work > 0,
        digest=digest_of(report),
    )


def _written(report: Report, child: RunState | None) -> tuple[str, ...]:
    """What a child wrote in the project. What it wrote in a copy is its parent's when that merges it."""
    if child is not None and child.started is not None and child.started.spec.isolation == "worktree":
        return ()
    return tuple(path for path in report.files if not path.startswith(f"{HOME}/"))


def _shortfall(report: Report, began: ChildStarted, child: RunState | None) -> Shortfall:
    """What a parent goes without because of this child; it does not miss what was looked up for it unasked.

    Nor does it miss a child that it stopped by itself, or that was stopped along with it: that did not fail.
    One that it answered without was still at work: that did not fail either, and its report is missing.
    """
    if began.call_id == KNOWLEDGE_FIRST:
        return Shortfall()
    failed = report.status != "completed" and not (child is not None and _unwanted(child))
    cut = child is not None and child.cancelled is not None and child.cancelled.by == PARENT_ANSWERED
    incomplete = cut or (report.status == "completed" and bool(report.incomplete))
    return report.shortfall + Shortfall(failed=int(failed), incomplete=int(incomplete))


def _unwanted(child: RunState) -> bool:
    stopped = child.cancelled
    return (stopped is not None and stopped.by == "parent") or stopped_from_above(child)


def stopped_from_above(state: RunState) -> bool:
    """Whether a run was cancelled only because something above it ended: it goes on together with that."""
    why = state.cancelled
    return state.status == "cancelled" and (why is None or why.by in FROM_ABOVE)


def is_told(parent: RunState, child_id: str, child: RunState) -> bool:
    """Whether nothing is left to tell a parent of this end: one that does not wait is told the report."""
    waits = not parent.children[child_id].background
    return parent.has_end_of(child_id, child) and (waits or bool(parent.ended[child_id].notice))
