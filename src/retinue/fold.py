"""What a log means: `fold` turns events into a `RunState`.

The conversation the model sees, what is still open, what was spent. The loop keeps its own state by the same
`apply`, so a run that goes on and a run that is resumed cannot disagree. How the run stands is not worked out
here but in `standing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from retinue.events import (
    INQUIRY,
    KNOWLEDGE_FIRST,
    ApprovalAnswered,
    ApprovalRequested,
    CallCut,
    CallReviewed,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    CodeWoken,
    CopyLeft,
    Event,
    FilesChanged,
    GuardSpoke,
    HistoryPruned,
    LimitPassed,
    LimitReached,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.fold_messages import (
    ATTACHED,
    bring_history,
    guard_again,
    guard_spoke,
    message_received,
    open_turn,
    past_guarding,
)
from retinue.fold_results import code_woken, copies_of, take_sources, tool_returned
from retinue.run_state import RunState, grant_of
from retinue.standing import moved, moves
from retinue.types import EndedBy, Message, Usage, UserMessage

KNOWLEDGE_TITLE = "## External Knowledge\n"
"""How the message begins that holds what was looked up before the first step."""

_PASSING: tuple[EndedBy, ...] = ("refusal", "max_turns", "time", "budget")
"""Ends whose last reply is no answer to whoever takes the run up without a word: the question is asked anew,
or the work goes on where it was cut."""


def _run_started(state: RunState, event: RunStarted) -> None:
    state.started = event
    state.model = event.model
    state.began_at = event.at
    if event.history:
        bring_history(state, event.history)
    asked = UserMessage(text=event.rendered or event.prompt, images=event.images)
    state.messages.append(asked)
    if not event.guarded:
        state.unguarded[event.seq] = asked
    state.output = event.options.output
    state.has_read(event.private)
    if event.rendered or event.images:
        state.has_read((ATTACHED,))
    if event.parent_id is None:
        drawn = event.options.drawn_from
        said = event.options.said if drawn else event.prompt
        state.said.append(said)
        if not event.options.client:  # else a program wrote it, maybe a model from what it had read
            state.vouched.append(said)
        state.has_read((drawn,) if drawn else ())
        state.links.update(event.options.links)


def _run_resumed(state: RunState, event: RunResumed) -> None:
    if state.report is not None:  # who takes up what had ended does not wait for an old limit
        state.reopened_at = event.at
        state.parked, state.parked_since = None, None
        if state.report.ended_by in _PASSING and state.answer is not None:
            state.declined = state.messages.pop()
    if state.stopped is not None and state.stopped.failed:
        guard_again(state, state.stopped)
    state.model = event.model or state.model
    state.report = None
    state.cancelled = None
    state.use(event.cut)
    state.unpriced = state.unanswered = False  # whoever takes it up lets it go on beside what nobody knows
    state.asking = False  # whatever was asked is asked again, and then with what was said meanwhile
    state.settle()


def _step_started(state: RunState, event: StepStarted) -> None:
    state.step = event.step
    state.step_open = event
    state.owed = None
    state.asking = True
    state.unread = 0
    state.unanswered = _is_own(state, event)
    past_guarding(state)


def _is_own(state: RunState, event: Event) -> bool:
    """Whether it was in this workflow, and not in the one that it is a copy of: what that paid is its own."""
    return state.started is None or event.at >= (state.started.forked_at or 0.0)


def _limit_reached(state: RunState, event: LimitReached) -> None:
    state.parked = event
    state.parked_since = event.at if state.parked_since is None else state.parked_since
    state.asking = state.unanswered = False  # what is said meanwhile, it is asked with
    state.settle()


def _limit_passed(state: RunState, event: LimitPassed) -> None:
    state.parked = None
    state.asking = state.step_open is not None
    state.unanswered = state.asking and _is_own(state, event)
    state.unread = 0
    past_guarding(state)


def _larger(one: Usage, other: Usage) -> Usage:
    """The larger of two calls, in each of what they took."""
    return Usage(
        input_tokens=max(one.input_tokens, other.input_tokens),
        output_tokens=max(one.output_tokens, other.output_tokens),
        cost=max(one.cost or 0.0, other.cost or 0.0),
    )


def _call_cut(state: RunState, event: CallCut) -> None:
    state.use(event.usage)


def _model_replied(state: RunState, event: ModelReplied) -> None:
    state.last_error = ""
    state.faulted = None
    asked = state.step_open
    purpose = asked.purpose if asked else "work"
    state.step_open, state.asking, state.unanswered = None, False, False
    state.parked, state.parked_since = None, None
    state.turns += 1
    state.work_turns += purpose == "work"
    state.corrections += purpose == "correct"
    if purpose != "correct":  # a summary that had to be mended is still the summary
        state.summarised = purpose == "summary"
    state.final_reason = asked.reason if asked and purpose == "final" else None
    state.final_cause = asked.cause if asked and purpose == "final" else ""
    if purpose == "work":
        state.work_stop = event.stop
    state.last_stop, state.declined = event.stop, None
    state.effort = event.effort
    state.answered_by = event.model
    state.seen_calls.update(call.id for call in event.message.calls)
    state.use(event.usage)
    state.largest_call = _larger(state.largest_call, event.usage)
    state.messages.append(event.message)
    state.calls = {call.id: call for call in event.message.calls}
    state.results = {}
    state.copies = copies_of(event.message.calls)
    state.step_effects, state.glances = set(), 0
    state.settle()


def _tool_called(state: RunState, event: ToolCalled) -> None:
    state.begun[event.call_id] = event
    state.step_effects.add(event.effect)
    state.tool_calls += 1
    if event.address in ("link", "found"):
        state.followed.append(event.arguments)


def _files_changed(state: RunState, event: FilesChanged) -> None:
    if not event.exact:  # a command's changes are not known to whoever ran it
        _command_changed(state, event)
        return
    for change in event.changes:
        state.seen_files.pop(change.path, None)
        if not event.void and change.after.sha256:
            state.seen_files[change.path] = change.after.sha256


def _command_changed(state: RunState, event: FilesChanged) -> None:
    """What a command put back as it was is no change."""
    for change in event.changes:
        if "folder" not in (change.before.kind, change.after.kind):
            before = state.changed.setdefault(change.path, change.before)
            if change.after.is_like(before):
                del state.changed[change.path]


def _copy_left(state: RunState, event: CopyLeft) -> None:
    state.copy_left = event if event.files or event.left_out else None


def _approval_requested(state: RunState, event: ApprovalRequested) -> None:
    state.waiting[event.approval_id] = event
    state.asked_about[event.call_id] = event.tool, event.arguments
    if event.unsealed:
        state.unsealed.add(event.call_id)
    if event.shown:
        state.shown[event.call_id] = event.shown


def _approval_answered(state: RunState, event: ApprovalAnswered) -> None:
    asked = state.waiting.pop(event.approval_id, None)
    state.answers[event.call_id] = event
    concerns = asked.concerns if asked is not None else ()
    if asked is not None and (grant := grant_of(asked, event)) is not None:
        state.granted.add(grant)
    if event.decision == "reject":
        state.withheld.update(concerns)
        if asked is not None and INQUIRY not in event.call_id:
            state.rejected.add(asked.tool)
    elif event.arguments is None:  # who changed the call let that one pass, and no other
        state.cleared.update(concerns)


def _model_sampled(state: RunState, event: ModelSampled) -> None:
    state.use(event.usage)


def _claims_judged(state: RunState, event: ClaimsJudged) -> None:
    state.use(event.usage)
    for one in event.verdicts:
        state.judged[one.of] = one


def _call_reviewed(state: RunState, event: CallReviewed) -> None:
    state.reviews[event.call_id] = event
    unpriced = state.unpriced
    state.use(event.usage)
    state.unpriced = unpriced  # the reviewer alone is not asked again for it


def _child_started(state: RunState, event: ChildStarted) -> None:
    child = event.child_id
    state.pieces[child] = state.pieces.get(child, 0) + 1
    first = state.children.get(child)
    if event.continues and first is not None:
        state.asks.pop(event.call_id, None)
        state.notices.pop(child, None)  # of an end before this
        event = msgspec.structs.replace(event, as_tool=first.as_tool)
    state.children[child] = event
    state.started_by.setdefault(event.call_id, []).append(child)


def _child_ended(state: RunState, event: ChildEnded) -> None:
    child = event.child_id
    state.awaited.pop(event.call_id, None)
    if event.opens:
        open_turn(state)
    state.ended[child] = state.lately[child, event.call_id] = event
    state.telling[child] = state.telling.get(child, Usage()) + event.telling
    state.unpriced = state.unpriced or event.telling.cost is None
    state.has_read(event.private)
    state.files.extend(path for path in event.files if path not in state.files)
    take_sources(state, event.sources, event.notice)
    if event.call_id == KNOWLEDGE_FIRST:
        state.unknown = event  # until its report enters the conversation, if it does
    if event.notice:
        state.notices[event.child_id] = told = UserMessage(text=event.notice)
        state.queued.append(told)
        state.settle()


def _history_pruned(state: RunState, event: HistoryPruned) -> None:
    state.digest = UserMessage(text=event.summary) if event.summary else None
    summary: list[Message] = [] if state.digest is None else [state.digest]
    state.messages = state.messages[:1] + summary + state.messages[1 + event.dropped :]
    state.use(event.usage)


def _cancel_requested(state: RunState, event: CancelRequested) -> None:
    state.cancelled = event


def _run_finished(state: RunState, event: RunFinished) -> None:
    state.finished, state.at_work = event, event.report.at_work
    state.use(event.cut)
    state.unanswered = False
    if not state.at_work:  # else it goes on, and its time runs on
        state.report, state.duration_ms = event.report, event.report.duration_ms
    state.asking = False
    state.settle()
    state.last_error = event.report.error or "" if event.report.status == "error" else ""
    if state.stopped is not None and state.stopped.failed:
        state.last_error = ""  # the program's own trouble, and none of the model's


_HANDLERS: dict[type[Event], Any] = {
    RunStarted: _run_started,
    RunResumed: _run_resumed,
    StepStarted: _step_started,
    CallCut: _call_cut,
    LimitReached: _limit_reached,
    LimitPassed: _limit_passed,
    ModelReplied: _model_replied,
    ToolCalled: _tool_called,
    ToolReturned: tool_returned,
    FilesChanged: _files_changed,
    CopyLeft: _copy_left,
    ApprovalRequested: _approval_requested,
    ApprovalAnswered: _approval_answered,
    CallReviewed: _call_reviewed,
    ClaimsJudged: _claims_judged,
    ModelSampled: _model_sampled,
    CodeWoken: code_woken,
    ChildStarted: _child_started,
    ChildEnded: _child_ended,
    MessageReceived: message_received,
    HistoryPruned: _history_pruned,
    GuardSpoke: guard_spoke,
    CancelRequested: _cancel_requested,
    RunFinished: _run_finished,
}


def remains(state: RunState) -> RunState:
    """What others still ask of a run that has ended: how it stood, what it reported and was asked, and what
    it was told, found and was allowed, which counts for its whole workflow. Its log has the rest."""
    kept = RunState()
    for name in _REMAINS:
        setattr(kept, name, getattr(state, name))
    if state.started is not None:
        kept.started = msgspec.structs.replace(
            state.started, system="", parts=(), rendered="", images=(), tools=(), history=()
        )
    kept.private = state.reads()
    kept.is_remains = True
    return kept


_REMAINS = (
    *("standing", "seq", "pos", "step", "step_open", "model", "usage", "turns", "tool_calls"),
    *("failed_calls", "duration_ms"),
    *("report", "finished", "reported", "cancelled", "pieces", "asked_again", "began_at", "last_at"),
    *("said", "vouched", "found", "links", "followed", "cleared", "withheld", "rejected", "granted"),
    *("files", "changed", "brought", "seen_messages"),
)


def apply(state: RunState, event: Event) -> None:
    """Take one more event of the run's log into its state."""
    state.seq = event.seq
    state.pos = max(state.pos, event.pos)
    state.last_at = event.at
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, event)
    if moves(event):
        state.standing = moved(state.standing, event)


def fold(events: Iterable[Event]) -> RunState:
    """The state of one run from its log, or from any beginning of it."""
    state = RunState()
    for event in events:
        apply(state, event)
    return state
