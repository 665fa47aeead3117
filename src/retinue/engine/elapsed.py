"""How much of its time a run has used, from the logs of its tree. For runs that are taken up again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    LimitPassed,
    LimitReached,
    MessageReceived,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
)


def seconds_used(run_id: str, logs: Mapping[str, Sequence[AnyEvent]]) -> float:
    """The time that counts against a run which was interrupted: since it began to work, was told to go on
    after an end, or was last spoken to by a person, without the times when nobody worked on it, when it
    waited for a person or its provider's limit, and when the database took nothing.
    """
    own = logs[run_id]
    below = _below(run_id, logs)
    last_end = max((i for i, event in enumerate(own) if _is_end(event)), default=-1)
    since = own[last_end + 1 :]
    starts = [e.at for e in since if isinstance(e, RunStarted | RunResumed)]
    if not starts:
        return 0.0
    spoken = max((e.at for e in own if isinstance(e, MessageReceived) and e.sender == "person"), default=0.0)
    if len(since) == len(own):  # it has had no end; while it waited for a slot, its clock stood still
        starts[0] = next((e.at for e in own if isinstance(e, StepStarted)), own[-1].at)
    told = [e for e in since if isinstance(e, StepStarted) and e.used is not None and e.at >= spoken]
    used = 0.0
    if told:  # the run itself has said it, and knows when its clock stood still
        used, begun = told[-1].used or 0.0, told[-1].at
        starts = [begun, *(at for at in starts if at > begun)]
    events = sorted((e for each in (run_id, *below) for e in logs[each]), key=lambda event: event.at)
    waits = _waits(events)
    for start, stop in zip(starts, [*starts[1:], float("inf")], strict=True):
        start = max(start, spoken)
        last = max((e.at for e in events if e.at < stop and not isinstance(e, RunResumed)), default=start)
        waited = sum(max(0.0, min(end, last) - max(begin, start)) for begin, end in waits)
        used += max(0.0, last - start - waited)
    return used


def _is_end(event: AnyEvent) -> bool:
    return isinstance(event, RunFinished) and not event.report.at_work


def _below(run_id: str, logs: Mapping[str, Sequence[AnyEvent]]) -> list[str]:
    """Every run below this one."""
    children: dict[str | None, list[str]] = {}
    for each, log in logs.items():
        children.setdefault(log[0].parent_id, []).append(each)
    found = [*children.get(run_id, ())]
    for each in found:  # which grows meanwhile
        found += children.get(each, ())
    return found


def _what(event: ApprovalRequested | ApprovalAnswered | LimitReached | LimitPassed) -> str:
    """What is waited for, by the run that does."""
    return f"{event.run_id}:" if isinstance(event, LimitReached | LimitPassed) else event.approval_id


def _waits(events: Iterable[AnyEvent]) -> list[tuple[float, float]]:
    """When somebody here waited for a person, or for a limit to reset: spans that do not overlap."""
    waiting: set[str] = set()
    spans: list[tuple[float, float]] = []
    since = 0.0
    for event in events:
        if isinstance(event, ApprovalRequested | LimitReached):
            since = event.at if not waiting else since
            waiting.add(_what(event))
        elif isinstance(event, ApprovalAnswered | LimitPassed) and _what(event) in waiting:
            waiting.discard(_what(event))
            if not waiting:
                spans.append((since, event.at))
        elif isinstance(event, RunFinished) and waiting:  # it was stopped while it waited
            waiting = {each for each in waiting if not each.startswith(f"{event.run_id}:")}
            if not waiting:
                spans.append((since, event.at))
    return [*spans, (since, float("inf"))] if waiting else spans
