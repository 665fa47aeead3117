"""What happened to a run beside its words, calls, questions and children, each in a line.

The transcript at the terminal, the exported page and the API's transcript say it in the same words.
"""

from __future__ import annotations

from retinue.events import (
    AccessDenied,
    AnyEvent,
    CallCut,
    CallReviewed,
    CancelRequested,
    ChangesUndone,
    ClaimsJudged,
    CopyLeft,
    FilesChanged,
    GuardSpoke,
    HistoryPruned,
    LimitReached,
    ModelSampled,
    RunQueued,
    RunRenamed,
    RunResumed,
    StepRetried,
)
from retinue.view import words
from retinue.view.question import judged_text, review_text, sampled_text

_QUEUED = {
    "started": "waits for a worker",
    "resumed": "waits for a worker",
    "parked": "parked: no worker holds it while it waits",
    "handed_over": "handed over: its worker was told to stop",
}
_GUARDED = {"stop": "stops the run", "mend": "changes the text", "correct": "sends the answer back"}


def noted(event: AnyEvent) -> str:
    """Empty: the event is something else, or nothing that people need to be told."""
    match event:
        case RunResumed():
            return f"resumed {words.moment(event.at)}" + (f": {event.reason}" if event.reason else "")
        case RunQueued() if event.parent_id is None:
            return _QUEUED[event.why]
        case StepRetried():
            return _retried(event)
        case CallCut():
            unknown = ": what it cost is not known" if event.usage.cost is None else ""
            return f"a model call was cut off after it had begun{unknown}"
        case LimitReached():
            return f"{words.parked(event.until, event.at)}: {event.reason}"
        case HistoryPruned():
            left = words.count(event.dropped, "message")
            facts = f"{words.tokens(event.tokens_before)} to {words.tokens(event.tokens_after)} tokens"
            return f"history shortened: {left} left out, {facts}"
        case CallReviewed():
            return review_text(event)
        case ClaimsJudged():
            return judged_text(event)
        case ModelSampled():
            return sampled_text(event)
        case GuardSpoke() if event.decision != "pass":
            why = f": {event.why}" if event.why else ""
            return f"the {event.side} guard {event.guard} {_GUARDED[event.decision]}{why}"
        case AccessDenied():
            return f"denied: {event.what}: {event.detail}"
        case FilesChanged():
            return _changes(event)
        case ChangesUndone():
            left = f"; {len(event.left)} left as they were" if event.left else ""
            return f"changes taken back by {event.by}: {len(event.paths)}{left}"
        case RunRenamed():
            return f"named by {event.by}: {event.label}" if event.label else f"its name taken by {event.by}"
        case CopyLeft():
            where = f" (branch {event.branch})" if event.branch else ""
            left = event.files + event.left_out
            if not left:
                return "nothing is left in its copy of the project"
            return f"not in the project: {words.count(left, 'file')} in its copy{where}"
        case CancelRequested():
            return f"cancelled by {event.by}: {event.reason}"
        case _:
            return ""


def _retried(event: StepRetried) -> str:
    if not event.model:
        return f"asked again (try {event.attempt + 1}): {event.reason}"
    begun = "; a reply had begun, which may be charged for" if event.begun else ""
    return f"{event.model} is asked instead: {event.reason}{begun}"


def _changes(event: FilesChanged) -> str:
    """What a call changed; nothing of a change that was not made."""
    if event.void:
        return ""
    paths = [change.path for change in event.changes]
    left = [f"not recorded: {line}" for line in event.left_out[:3]]
    some = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return "; ".join([f"changed: {some}", *left] if paths else left)
