"""Where a run stands, and how an event moves it: one rule for what people are shown and for what is stored.

`fold` keeps a `Standing` for its run and `story` one for every run of a workflow, and the stores keep the
same one as columns of `runs`, so that a list says without any log what the log would say. `moved` is what an
event of the run itself does, `held` what it means for a run that something below it begins or ceases to wait
for a person.

Pure: it knows one run at a time, and touches no store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from retinue.events import (
    INQUIRY,
    ApprovalAnswered,
    ApprovalRequested,
    ChildEnded,
    Event,
    LimitPassed,
    LimitReached,
    MessageReceived,
    RunFinished,
    RunQueued,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolReturned,
)
from retinue.types import NotRun, Outcome, Report, Shortfall, Status, ended_as, worst

OPEN: tuple[Outcome, ...] = ("pending", "running", "waiting")
"""Outcomes of a run that has not ended."""
_NOT_DONE: dict[NotRun, Outcome] = {"rejected": "rejected", "unattended": "refused"}
"""Calls that a person said no to, or nobody could say yes to: they did not fail."""
_NOTHING = Shortfall()
_SHORTFALL = Shortfall.__struct_fields__


class Standing(Struct, frozen=True, kw_only=True):
    """One run as it stands. Moments are seconds since 1970, stretches of time are seconds."""

    status: Status = "pending"
    outcome: Outcome = "pending"
    """As its own log has it. `shown` is what people see of it."""
    approvals: str = ""
    """Its open questions: approval id to the seq that asked, as JSON."""
    parked_until: float | None = None
    """Until when its provider takes nothing more, if that is why it waits."""
    waiting: int = 0
    """How many questions are open and how many runs are parked, here and below. While there is one, the clock
    of the run stands still."""
    held_since: float | None = None
    waited: float = 0.0
    """How long a person was waited for before that."""
    began_at: float | None = None
    """When it began to work, after it was made ready: a child may have to wait for its turn."""
    idle: float = 0.0
    """How long nobody worked on it: between an end, or the death of a process, and when it was taken up."""
    completed_at: float | None = None
    resumed: int = 0
    """The seq by which it was taken up after an end, until it ends again."""
    rejected: int = 0
    refused: int = 0
    not_started: int = 0
    failed: int = 0
    incomplete: int = 0
    denied: int = 0

    @property
    def shortfall(self) -> Shortfall:
        """What it and those below it that have ended went without since a person last spoke to it."""
        return Shortfall(**{name: getattr(self, name) for name in _SHORTFALL})


def shown(outcome: Outcome, waiting: int, *, left: bool) -> Outcome:
    """The one word for how a run stands. `left`: nobody works on it any more, which no log can say.

    What waits for a person below makes those above wait, as it stops their clocks.
    """
    if outcome not in OPEN:
        return outcome
    return "interrupted" if left else "waiting" if waiting > 0 else outcome


class GivenBack(Protocol):
    """What a call gave back: a `ToolReturned` of the log, or the `ToolResult` that becomes one."""

    @property
    def is_error(self) -> bool: ...
    @property
    def not_run(self) -> NotRun: ...
    @property
    def not_started(self) -> int: ...
    @property
    def wrong(self) -> int: ...
    @property
    def children(self) -> tuple[str, ...]: ...


def call_outcome(
    result: GivenBack, call_id: str, ends: Iterable[ChildEnded], waited_for: Collection[str]
) -> Outcome:
    """How a call ended, in one word. `ends` are the last ends of the run's children, `waited_for` those of
    them that were not left to work in the background."""
    theirs: list[Outcome] = [
        ended_as(end.status, end.shortfall, end.ended_by)
        for end in ends
        if end.child_id in result.children or (_made_by(call_id, end.call_id) and end.child_id in waited_for)
    ]
    lacking = result.not_started or result.wrong
    if not theirs and not lacking and result.not_run in _NOT_DONE:
        return _NOT_DONE[result.not_run]
    own: Outcome = "error" if result.is_error else "incomplete" if lacking else "completed"
    return worst((own, *theirs))


def _made_by(call_id: str, started_by: str) -> bool:
    """Whether a call is this one, or one that its code made."""
    return started_by == call_id or started_by.startswith(f"{call_id}/")


def worked(stands: Any, until: float) -> float:
    """Seconds that a run worked up to a moment. `stands` is a `Standing`, or a row of the same columns."""
    if stands.began_at is None:
        return 0.0
    return max(0.0, until - stands.began_at - stands.idle - waited(stands, until))


def waited(stands: Any, until: float) -> float:
    """Seconds that a person was waited for, here or below."""
    return stands.waited + (0.0 if stands.held_since is None else max(0.0, until - stands.held_since))


_approvals = msgspec.json.Decoder(dict[str, int])


def unpack(text: str) -> dict[str, int]:
    """Open questions: approval id to the seq that asked."""
    return _approvals.decode(text) if text else {}


def _pack(approvals: dict[str, int]) -> str:
    return msgspec.json.encode(approvals).decode() if approvals else ""


def holding(stands: Standing) -> int:
    """How many questions of its own, and limits of its provider, hold it and those above it up."""
    if stands.completed_at is not None:
        return 0
    return (len(unpack(stands.approvals)) if stands.approvals else 0) + (stands.parked_until is not None)


def held(stands: Standing, more: int, at: float) -> Standing:
    """With so many more questions open, here or below, or so many fewer."""
    waiting = max(0, stands.waiting + more)
    since, waited = stands.held_since, stands.waited
    if waiting and not stands.waiting:
        since = at
    elif stands.waiting and not waiting:
        since, waited = None, waited + (max(0.0, at - since) if since is not None else 0.0)
    return msgspec.structs.replace(stands, waiting=waiting, held_since=since, waited=waited)


def moves(event: Event) -> bool:
    """Whether an event may move the run that it is of. Most events do not."""
    rule = _MOVES.get(type(event))
    return rule is not None and rule(event)


def moved(before: Standing, event: Event) -> Standing:
    """Where a run stands after an event of its own."""
    rule = _RULES.get(type(event))
    if rule is None:
        return before
    after = rule(before, event)
    more = holding(after) - holding(before)
    return held(after, more, event.at) if more else after


def reported(before: Standing, report: Report) -> Report:
    """A report that says what its run went without: those of earlier versions left that to its log."""
    if report.ended_by or before.shortfall == _NOTHING:
        return report
    return msgspec.structs.replace(report, shortfall=before.shortfall, outcome="pending")


def _with(before: Standing, **changes: Any) -> Standing:
    """Its own outcome is its status, until a report says more."""
    if "status" in changes:
        changes.setdefault("outcome", changes["status"])
    return msgspec.structs.replace(before, **changes)


def _lacking(before: Standing, more: Shortfall) -> dict[str, int]:
    return msgspec.structs.asdict(before.shortfall + more)


def _started(before: Standing, event: RunStarted) -> Standing:
    return _with(before, status="running" if event.parent_id is None else "pending")


def _stepped(before: Standing, event: StepStarted) -> Standing:
    if before.began_at is not None:
        return before
    status = "running" if before.status == "pending" else before.status
    return _with(before, status=status, began_at=event.at)


def _asked(before: Standing, event: ApprovalRequested) -> Standing:
    approvals = _pack({**unpack(before.approvals), event.approval_id: event.seq})
    if before.completed_at is not None:
        return _with(before, approvals=approvals)
    return _with(before, status="waiting", approvals=approvals)


def _answered(before: Standing, event: ApprovalAnswered) -> Standing:
    left = {name: seq for name, seq in unpack(before.approvals).items() if name != event.approval_id}
    lacks = _lacking(
        before, Shortfall(rejected=int(event.decision == "reject" and INQUIRY not in event.call_id))
    )
    if before.completed_at is not None:
        return _with(before, approvals=_pack(left), **lacks)
    waits = left or before.parked_until is not None
    return _with(before, status="waiting" if waits else "running", approvals=_pack(left), **lacks)


def _parked(before: Standing, event: LimitReached) -> Standing:
    if before.completed_at is not None:
        return before
    return _with(before, status="waiting", parked_until=event.until)


def _unparked(before: Standing, event: LimitPassed) -> Standing:
    if before.completed_at is not None or before.parked_until is None:
        return before
    return _with(before, status="waiting" if before.approvals else "running", parked_until=None)


def _returned(before: Standing, event: ToolReturned) -> Standing:
    lacks = Shortfall(
        denied=int(event.not_run == "denied"),
        refused=int(event.not_run == "unattended"),
        not_started=event.not_started - event.corrects,
        incomplete=event.unmerged + int(event.not_run == "no_handles"),
    )
    return _with(before, **_lacking(before, lacks))


def _child_ended(before: Standing, event: ChildEnded) -> Standing:
    if event.opens:  # the next turn begins with it
        return _with(before, **msgspec.structs.asdict(event.shortfall))
    return _with(before, **_lacking(before, event.shortfall - event.instead))


def _queued(before: Standing, event: RunQueued) -> Standing:
    """What no worker has begun is as a child that waits for a slot."""
    return _with(before, status="pending")


def _resumed(before: Standing, event: RunResumed) -> Standing:
    ended = before.completed_at is not None
    stopped = before.completed_at if before.completed_at is not None else event.stopped_at or event.at
    # The time in between was nobody's. While it waited for a person its clock stood still anyway.
    waits = 0.0 if before.held_since is None else event.at - max(before.held_since, stopped)
    parked = before.parked_until is not None and not ended
    status: Status = "waiting" if before.approvals or parked else "running"
    if before.status == "pending":
        status = "pending"
    return _with(
        before,
        status=status,
        idle=before.idle + max(0.0, event.at - stopped - waits),
        completed_at=None,
        parked_until=before.parked_until if parked else None,
        resumed=event.seq if ended else before.resumed,
    )


def next_turn(before: Standing, event: MessageReceived) -> bool:
    """Whether a message opens the next turn of a conversation: it is said to a run that had answered."""
    taken_up = event.sender == "person" and 0 < before.resumed == event.seq - 1
    return event.opens or event.next_turn or before.completed_at is not None or taken_up


def _said(before: Standing, event: MessageReceived) -> Standing:
    """What the turn before lacked, the next one does not miss. What a piece of work lacked still counts."""
    if not next_turn(before, event):
        return before
    ended = before.completed_at
    gone = 0.0 if ended is None else max(0.0, event.at - ended)
    lacks = msgspec.structs.asdict(event.lacked)
    return _with(before, status="running", idle=before.idle + gone, completed_at=None, resumed=0, **lacks)


def _finished(before: Standing, event: RunFinished) -> Standing:
    report = reported(before, event.report)
    lacks = msgspec.structs.asdict(report.shortfall)
    if report.at_work:  # a turn of it is over, and what it left at work is a part of it
        return _with(before, status="running", resumed=0, **lacks)
    return _with(
        before, status=report.status, outcome=report.outcome, completed_at=event.at, resumed=0, **lacks
    )


_RULES: dict[type[Event], Callable[[Standing, Any], Standing]] = {
    RunStarted: _started,
    StepStarted: _stepped,
    ApprovalRequested: _asked,
    ApprovalAnswered: _answered,
    LimitReached: _parked,
    LimitPassed: _unparked,
    ToolReturned: _returned,
    ChildEnded: _child_ended,
    RunResumed: _resumed,
    RunQueued: _queued,
    MessageReceived: _said,
    RunFinished: _finished,
}


def _always(event: Event) -> bool:
    return True


def _is_new(event: RunQueued) -> bool:
    return event.why == "started"


def _begins(event: StepStarted) -> bool:
    return event.step == 1


def _lacks(event: ToolReturned) -> bool:
    counted = event.not_started or event.corrects or event.unmerged
    return bool(counted) or event.not_run in ("unattended", "denied", "no_handles")


def _leaves_lacking(event: ChildEnded) -> bool:
    return event.opens or event.shortfall != event.instead


_MOVES: dict[type[Event], Callable[[Any], bool]] = {
    **dict.fromkeys(_RULES, _always),
    StepStarted: _begins,
    RunQueued: _is_new,
    ToolReturned: _lacks,
    ChildEnded: _leaves_lacking,
}
"""Every turn has some of these. A row that is only read to find that it stays as it is costs as much as a
change, so each says when it matters."""
