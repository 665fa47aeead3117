"""Fork: the beginning of a workflow, copied under new ids, to go on from there in another way.

A child's id follows from its parent's, so every id in the copy is new and the two workflows never meet: the
copy names no run of the old one but as what it was `forked_from`. The old one is only read. What it used was
paid for there, and in the copy it is nothing: what a fork uses is what it does itself, for every sum and
every limit. What a person allowed was allowed in the old one: a grant for the rest of a run ends with the
copy, and an answer to a call that had not begun yet is asked for again, as is a reviewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import msgspec

from retinue.errors import ConfigError
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    Beside,
    CallCut,
    CallReviewed,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    CopyLeft,
    GuardSpoke,
    HistoryPruned,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    RunFinished,
    RunQueued,
    RunResumed,
    RunStarted,
    ToolCalled,
    ToolReturned,
    decode,
    encode,
)
from retinue.run_ids import child_id
from retinue.types import Usage

_APART = 1e-6
"""Seconds between the beginnings of two copied runs: as little as a time of today can tell apart."""

_CHILD = re.compile(r"c[0-9a-z]{17}")
"""The id of a child, as `child_id` makes it: long enough that nothing else is ever the same."""


def beginning(events: Sequence[AnyEvent], at: int | None, *, goes_on: bool) -> Sequence[AnyEvent]:
    """The events up to the place `at`. Refuses an end after which nothing is said."""
    root_id = events[0].root_id
    kept = list(_up_to(events, at))
    if not kept:
        raise ConfigError(
            f"{root_id} has no event up to {at}", fix="'at' is the pos of an event: watch(run_id) yields them"
        )
    if at is not None and at > events[-1].pos > 0:
        raise ConfigError(
            f"there is no event {at} in {root_id}: the last one is {events[-1].pos}",
            fix="'retinue runs events' lists them with their numbers",
        )
    last = next(event for event in reversed(kept) if not isinstance(event, Beside))
    over = isinstance(last, RunFinished) and last.run_id == root_id and not last.report.at_work
    if over and not goes_on:
        raise ConfigError(
            f"{root_id} is finished at that point",
            fix="say how it should go on with message=…, or fork at an earlier event with at=…",
        )
    return kept


def _up_to(events: Iterable[AnyEvent], at: int | None) -> Iterator[AnyEvent]:
    """Those up to this place, and with the last of each run what guards said to it: that is of one write, and
    without it what they sent back or stopped would pass."""
    last: dict[str, int] = {}
    for event in events:
        spoken = isinstance(event, GuardSpoke) and last.get(event.run_id) == event.seq - 1
        if at is None or event.pos <= at or spoken:
            last[event.run_id] = event.seq
            yield event


def forked(
    events: Iterable[AnyEvent], new_root: str, *, at: float, model: str | None = None
) -> list[AnyEvent]:
    """These events of a workflow as the beginning of another, begun `at` that moment, with another model if
    one is given."""
    ids: dict[str, str] = {}
    copies: list[AnyEvent] = []
    seq: dict[str, int] = {}
    for event in _carried(list(events)):
        if event.run_id not in ids:
            if event.run_id != event.root_id:
                raise ConfigError(f"the log names {event.run_id} before its parent has started it")
            ids[event.run_id] = new_root
        new = ids[event.run_id]
        seq[new] = seq.get(new, 0) + 1
        if isinstance(event, ChildStarted) and not event.continues:
            ids[event.child_id] = child_id(new, event.call_id, event.key)
        copy = _renamed(event, ids)
        change: dict[str, Any] = {
            "run_id": new,
            "seq": seq[new],
            "root_id": new_root,
            "parent_id": ids.get(event.parent_id or ""),
            "pos": 0,
            **_unpaid(copy),
            **_changed(event, ids, model),
        }
        if isinstance(event, RunStarted):
            # All at one moment, and still in the order in which they began: lists go by that.
            change["forked_at"] = at + _APART * (len(seq) - 1)
        copies.append(msgspec.structs.replace(copy, **change))
    return copies


def _changed(event: AnyEvent, ids: Mapping[str, str], model: str | None) -> dict[str, Any]:
    """What is otherwise in the copy, beside the envelope."""
    new = ids[event.run_id]
    match event:
        case ChildStarted() | ChildEnded():
            return {"child_id": ids[event.child_id]}
        case ApprovalRequested():
            # The time to answer begins with the copy: `answer_by` was counted in the old one.
            return {"approval_id": f"{new}:{event.call_id}", "concerns": (), "answer_by": None}
        case ApprovalAnswered():
            once: dict[str, Any] = {} if event.decision == "reject" else {"decision": "approve"}
            if event.along_with:
                with_run, _, with_call = event.along_with.partition(":")
                once["along_with"] = f"{ids.get(with_run, with_run)}:{with_call}"
            return {"approval_id": f"{new}:{event.call_id}", **once}
        case RunStarted() if event.parent_id is None:
            return _root(event, model)
        case RunResumed() if event.parent_id is None and model is not None:
            return {"model": model}
        case _:
            return {}


def renamed(text: str, ids: Mapping[str, str]) -> str:
    """A text that names children, by their new ids."""
    return _CHILD.sub(lambda found: ids.get(found[0], found[0]), text)


def _renamed(event: AnyEvent, ids: Mapping[str, str]) -> AnyEvent:
    """The event with the new ids of children, wherever it names one: in its fields, in the report it holds,
    and in what the model was told and said, since by that it asks for its children again.

    Only what a provider has signed stays as it was.
    """
    before = encode(event).decode()
    after = renamed(before, ids)
    copy = event if after == before else decode(after)
    if isinstance(copy, RunFinished):
        report = msgspec.structs.replace(copy.report, run_id=ids[event.run_id])
        return msgspec.structs.replace(copy, report=report)
    if isinstance(copy, ModelReplied) and isinstance(event, ModelReplied):
        message = msgspec.structs.replace(copy.message, extra=event.message.extra)
        return msgspec.structs.replace(copy, message=message)
    return copy


def _unpaid(event: AnyEvent) -> dict[str, Any]:
    """Whatever an event says was used, as nothing."""
    if isinstance(
        event,
        ModelReplied | ToolReturned | HistoryPruned | CallReviewed | ClaimsJudged | ModelSampled | CallCut,
    ):
        return {"usage": Usage()}
    if isinstance(event, RunResumed):
        return {"cut": Usage()}
    if isinstance(event, ChildEnded):
        return {"usage": Usage(), "telling": Usage()}
    if isinstance(event, RunFinished):
        return {"report": msgspec.structs.replace(event.report, usage=Usage()), "cut": Usage()}
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedRun:
    """A run that was copied: its new id, and the old places of its events, which are numbered anew."""

    new_id: str
    seqs: Sequence[int]


def copied_runs(events: Sequence[AnyEvent], copies: Sequence[AnyEvent]) -> dict[str, CopiedRun]:
    """The runs of these events, of which those are the copies, by their old ids."""
    seqs: dict[str, list[int]] = {}
    ids: dict[str, str] = {}
    for event, copy in zip(_carried(events), copies, strict=True):
        seqs.setdefault(event.run_id, []).append(event.seq)
        ids[event.run_id] = copy.run_id
    return {run_id: CopiedRun(new_id=ids[run_id], seqs=old) for run_id, old in seqs.items()}


def _carried(events: Sequence[AnyEvent]) -> Iterator[AnyEvent]:
    """What of these events is in a copy of them."""
    began = {event.run_id for event in events if isinstance(event, RunStarted)}
    opened = {(e.run_id, e.message_id) for e in events if isinstance(e, MessageReceived) and e.opens}
    unused = _unused_answers(events)
    last = {event.run_id: event.seq for event in events}
    unasked = {e.child_id for e in events if _continues(e) and _asked(e) not in opened}
    for event in events:
        if isinstance(event, CopyLeft):
            continue  # the copy is of the old run
        if isinstance(event, RunQueued):
            continue  # it would put the copy into the queue as well
        if isinstance(event, ChildStarted) and event.child_id not in began:
            continue  # cut between the two halves of one write: this child was not started
        if _continues(event) and _asked(event) not in opened:
            continue  # nor was this one asked again
        if isinstance(event, RunResumed) and event.run_id in unasked and last[event.run_id] == event.seq:
            continue  # for that: it has not been taken up
        asks = isinstance(event, ApprovalRequested | ApprovalAnswered) or _is_cleared(event)
        if not asks or _call(event) not in unused:
            yield event


def _continues(event: AnyEvent) -> TypeGuard[ChildStarted]:
    return isinstance(event, ChildStarted) and event.continues


def _asked(event: ChildStarted) -> tuple[str, str]:
    return event.child_id, event.call_id


def _unused_answers(events: Iterable[AnyEvent]) -> set[tuple[str, str]]:
    """Calls that a person has answered for, or a reviewer has cleared, and that have not begun."""
    answered: set[tuple[str, str]] = set()
    for event in events:
        if isinstance(event, ApprovalAnswered) or _is_cleared(event):
            answered.add(_call(event))
        elif isinstance(event, ToolCalled | ToolReturned):
            answered.discard((event.run_id, event.call_id))
    return answered


def _is_cleared(event: AnyEvent) -> bool:
    return isinstance(event, CallReviewed) and event.cleared


def _call(event: AnyEvent) -> tuple[str, str]:
    return event.run_id, getattr(event, "call_id", "")


def _root(event: RunStarted, model: str | None) -> dict[str, Any]:
    if model is None:
        return {"forked_from": event.run_id}
    settings = {**event.options.settings, "model": model}
    return {
        "forked_from": event.run_id,
        "model": model,
        "options": msgspec.structs.replace(event.options, settings=settings),
    }
