"""What a log means: `fold` turns events into a `RunState`.

The conversation the model sees, what is still open, what was spent. The loop keeps its own state by the same
`apply`, so a run that goes on and a run that is resumed cannot disagree. How the run stands is not worked out
here but in `standing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from retinue.course import Course
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
    Purpose,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.run_state import Before, Mistake, RunState, grant_of
from retinue.standing import moved, moves, next_turn
from retinue.types import (
    AssistantMessage,
    EndedBy,
    Message,
    Source,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

KNOWLEDGE_TITLE = "## External Knowledge\n"
"""How the message begins that holds what was looked up before the first step."""
ATTACHED = "the attachments"
HISTORY = "the history"

_OWED: dict[str, Purpose] = {
    "summary": "summary",
    "form": "correct",
    "sources": "correct",
    "empty": "correct",
    "guard": "correct",
}
"""What the model is asked for after a message about this."""
_PASSING: tuple[EndedBy, ...] = ("refusal", "max_turns", "time")
"""Ends whose last reply is no answer to whoever takes the run up without a word: the question is asked anew,
or the work goes on where it was cut."""
ANY = ""
"""The name of a mistake that whatever child is started later stands in for."""
CIRCLE = 5
"""An identical call with the same outcome this often ends the run."""


def circling(outcomes: Sequence[tuple[bool, int]]) -> bool:
    """Whether an identical call came to the same time after time: to one result, or to nothing but errors."""
    last = outcomes[-CIRCLE:]
    return len(last) == CIRCLE and (len(set(last)) == 1 or all(is_error for is_error, _ in last))


def _run_started(state: RunState, event: RunStarted) -> None:
    state.started = event
    state.model = event.model
    state.began_at = event.at
    if event.history:
        _bring_history(state, event.history)
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


def _bring_history(state: RunState, history: Sequence[Message]) -> None:
    """What was said elsewhere. It may hold anything, so it counts as private."""
    state.messages.extend(history)
    state.answered = history[-1]
    calls = (call for each in history if isinstance(each, AssistantMessage) for call in each.calls)
    state.seen_calls.update(call.id for call in calls)
    state.has_read((HISTORY,))


def _run_resumed(state: RunState, event: RunResumed) -> None:
    if state.report is not None:  # who takes up what had ended does not wait for an old limit
        state.reopened_at = event.at
        state.parked, state.parked_since = None, None
        if state.report.ended_by in _PASSING and state.answer is not None:
            state.declined = state.messages.pop()
    if state.stopped is not None and state.stopped.failed:
        _guard_again(state, state.stopped)
    state.model = event.model or state.model
    state.report = None
    state.cancelled = None
    state.use(event.cut)
    state.unpriced = state.unanswered = False  # whoever takes it up lets it go on beside what nobody knows
    state.asking = False  # whatever was asked is asked again, and then with what was said meanwhile
    state.settle()


def _guard_again(state: RunState, failed: GuardSpoke) -> None:
    """A guard that failed is asked again, with a new answer or with what was said; where that was never
    written, somebody has to say it again first."""
    if failed.side == "output" and state.answer is not None:
        state.messages.pop()
    if failed.side == "output" or failed.about:
        state.stopped = None


def _step_started(state: RunState, event: StepStarted) -> None:
    state.step = event.step
    state.step_open = event
    state.owed = None
    state.asking = True
    state.unread = 0
    state.unanswered = _is_own(state, event)
    _past_guarding(state)


def _past_guarding(state: RunState) -> None:
    """What is before the model now no guard looks at any more; those that there are have seen it."""
    if state.unguarded:
        later = {id(message) for message in state.queued}
        state.unguarded = {seq: each for seq, each in state.unguarded.items() if id(each) in later}


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
    _past_guarding(state)


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
    state.messages.append(event.message)
    state.calls = {call.id: call for call in event.message.calls}
    state.results = {}
    state.copies = _copies(event.message.calls)
    state.step_effects, state.glances = set(), 0
    state.settle()


def _copies(calls: Sequence[ToolCall]) -> dict[str, int]:
    if len(calls) <= CIRCLE:
        return {}
    seen: Counter[tuple[str, str]] = Counter()
    copies: dict[str, int] = {}
    for call in calls:
        key = (call.name, call.arguments)
        if seen[key] >= CIRCLE:
            copies[call.id] = seen[key]
        seen[key] += 1
    return copies


def _tool_called(state: RunState, event: ToolCalled) -> None:
    state.begun[event.call_id] = event
    state.step_effects.add(event.effect)
    state.tool_calls += 1
    if event.address in ("link", "found"):
        state.followed.append(event.arguments)


def _files_changed(state: RunState, event: FilesChanged) -> None:
    if not event.exact:
        return  # a command's changes are not known to whoever ran it
    for change in event.changes:
        state.seen_files.pop(change.path, None)
        if not event.void and change.after.sha256:
            state.seen_files[change.path] = change.after.sha256


def _copy_left(state: RunState, event: CopyLeft) -> None:
    state.copy_left = event if event.files or event.left_out else None


def _code_woken(state: RunState, event: CodeWoken) -> None:
    state.course(event.call_id).wake(event.nth, event.clock)


def courses(log: Iterable[Event]) -> dict[str, Course]:
    """How what it waited for reached the code of a run."""
    state = RunState()
    for event in log:
        if isinstance(event, CodeWoken):
            _code_woken(state, event)
        elif isinstance(event, ToolReturned):
            _take_answer(state, event)
    return state.courses


def _take_answer(state: RunState, event: ToolReturned) -> None:
    """The answer to a call that code made."""
    code, slash, number = event.call_id.rpartition("/")
    if slash and number.isdecimal():
        state.course(code).answer(int(number), event.duration_ms / 1000 if event.timed else 0.0)


def _tool_returned(state: RunState, event: ToolReturned) -> None:
    _take_answer(state, event)
    begun = state.begun.pop(event.call_id, None)
    state.shows.update(dict.fromkeys(event.shows))
    inner = f"{event.call_id}{INQUIRY}"
    for asked in [
        one for one in state.waiting.values() if one.call_id == event.call_id or one.call_id.startswith(inner)
    ]:
        del state.waiting[asked.approval_id]  # refused after a restart: nobody waits for an answer any more
    state.use(event.usage)
    _take_mistakes(state, event)
    if event.unmerged > 0:
        state.unmerged.add(event.merge_of)
    elif event.unmerged < 0:
        state.unmerged.discard(event.merge_of)
    call = state.calls.get(event.call_id)
    message = ToolMessage(
        call_id=event.call_id,
        name=event.name,
        text=event.text,
        is_error=event.is_error,
        images=event.images,
    )
    _take_sources(state, event.sources, event.text)
    state.plan = event.plan or state.plan
    if event.answer:
        state.written = event.answer
        state.reports_written += 1
    if begun is not None and begun.effect in ("read", "write"):  # and not what a child has read
        seen = ((source.path, source.sha256) for source in event.sources)
        state.seen_files.update((path, sha256) for path, sha256 in seen if path and sha256)
    if event.is_error and (asked := begun.arguments if begun else call.arguments if call else ""):
        state.unreadable.update(dict.fromkeys(_addresses(asked)))
    state.files.extend(path for path in event.files if path not in state.files)
    state.has_read(event.private)
    if event.v < 2 and begun is not None and begun.effect in ("read", "write", "execute"):
        state.has_read((f"what {event.name} returned",))
    if begun is None or begun.address != "composed":  # a page may repeat what it was asked
        state.found.update(event.found)
        state.links.update(event.links)
        if begun is not None and begun.effect == "network":
            _take_fetched(state, event.sources)
    if call is None:
        return
    arguments = begun.arguments if begun else call.arguments
    outcomes = state.attempts.setdefault((event.name, arguments), [])
    refused = event.not_run == "repeated" and circling(outcomes)  # that it was not run is no new outcome
    reported = _reported(state, event)
    beside = reported is not None and not event.is_error and _asked_beside(state, call)
    if not refused and not event.passing and not beside:
        outcomes.append((event.is_error, hash(event.text if reported is None else reported)))
    state.glances += event.passing
    state.results[event.call_id] = message
    if len(state.results) == len(state.calls) and state.glances < len(state.calls):
        state.delegating_steps = state.delegating_steps + 1 if state.step_effects == {"delegate"} else 0
    state.settle()


def _reported(state: RunState, event: ToolReturned) -> tuple[str, ...] | None:
    """What the children that a call waited for reported. Its text is never the same: their ids are in it."""
    began = [state.children[child] for child in state.started_by.pop(event.call_id, ())]
    ends = [state.lately.get((child.child_id, event.call_id)) for child in began]
    told = tuple(end.digest for end in ends if end is not None and end.digest)
    waited = not any(child.background for child in began)
    return told if told and waited and len(told) == len(began) else None


def _asked_beside(state: RunState, call: ToolCall) -> bool:
    """Whether the same was asked in the same reply, and answered already: several opinions are no circle."""
    same = (
        each for each in state.calls.values() if (each.name, each.arguments) == (call.name, call.arguments)
    )
    return any(each.id in state.results for each in same if each.id != call.id)


def corrected(state: RunState, tool: str, names: Iterable[str]) -> list[Mistake]:
    """The mistakes that a call of this tool stands in for which is for these agents, one for each.

    Only those of replies before: what made this call knew of no other. One that named this very agent comes
    first, else one that named none and was made by the same tool.
    """
    left = [each for each in state.mistakes if each.step < state.step]
    found: list[Mistake] = []
    for name in names if left else ():
        same = (each for wanted in (name, tool, ANY) for each in left if each.name == wanted)
        one = next(same, None)
        if one is not None:
            left.remove(one)
            found.append(one)
    return found


def _take_mistakes(state: RunState, event: ToolReturned) -> None:
    if event.corrects:
        started = [child.agent for child in state.children.values() if child.call_id == event.call_id]
        for each in corrected(state, event.name, (*started, *event.meant))[: event.corrects]:
            state.mistakes.remove(each)
    wrong = min(event.wrong, event.not_started)
    if wrong:
        names = [*event.meant, *[event.name] * wrong][:wrong]
        state.mistakes += [Mistake(step=state.step, name=name) for name in names]


def _take_sources(state: RunState, sources: Iterable[Source], text: str) -> None:
    """What was fetched or read counts from here on, with the text that quotes are held against."""
    for source in sources:
        if source.url and not source.verified:
            state.unreadable[source.url] = None
            continue
        state.sources.append(source)
        if source.url:
            known = state.source_texts.get(source.url)
            state.source_texts[source.url] = text if known is None else f"{known}\n{text}"


def _addresses(arguments: str) -> list[str]:
    """The arguments of a call that are an address and nothing else."""
    try:
        given: Any = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):  # nested too deep, as only a fault would write it
        return []
    values = cast("dict[str, Any]", given).values() if isinstance(given, dict) else ()
    return [value for value in values if isinstance(value, str) and value.startswith(("http://", "https://"))]


def _take_fetched(state: RunState, sources: Iterable[Source]) -> None:
    """What was fetched may be fetched again, with what its server sent us on to. Nobody named it by that."""
    for source in sources:
        state.links.update(url for url in (source.url, *source.aliases) if url)


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
        _open_turn(state)
    state.ended[child] = state.lately[child, event.call_id] = event
    state.telling[child] = state.telling.get(child, Usage()) + event.telling
    state.unpriced = state.unpriced or event.telling.cost is None
    state.has_read(event.private)
    state.files.extend(path for path in event.files if path not in state.files)
    _take_sources(state, event.sources, event.notice)
    if event.call_id == KNOWLEDGE_FIRST:
        state.unknown = event  # until its report enters the conversation, if it does
    if event.notice:
        state.notices[event.child_id] = told = UserMessage(text=event.notice)
        state.queued.append(told)
        state.settle()


def _open_turn(state: RunState) -> None:
    state.report, state.at_work, state.stopped, state.owed = None, 0, None, None
    state.answered = state.messages[-1] if state.messages else None
    state.unknown, state.lately, state.mistakes, state.unmerged = None, {}, [], set()
    state.output = None  # what an answer has to be is said for one turn
    state.written, state.reports_written = "", 0  # and so is what a call wrote as the answer of the last one


def _message_received(state: RunState, event: MessageReceived) -> None:
    if event.message_id:
        state.seen_messages.add(event.message_id)
    if state.declined is not None and event.sender in (
        "person",
        "parent",
    ):  # somebody speaks to it about that
        state.messages.append(state.declined)
        state.declined = None
    for held in (state.asks, state.awaited):
        held.pop(event.message_id.removesuffix(" no"), None)
    if event.asks:
        state.asks[event.message_id] = event
    # The next turn of a conversation: what the last one lacked is not missing in it.
    if next_turn(state.standing, event):
        lacked = state.lately, state.mistakes, state.unmerged
        _open_turn(state)
        if event.opens and event.sender == "parent":  # but what a piece of work lacked counts for the next
            state.lately, state.mistakes, state.unmerged = lacked
    if event.output is not None:
        state.output = event.output
    if event.sender == "person" or event.opens:  # what was done before does not count for what is asked now
        state.attempts, state.delegating_steps = {}, 0
        state.work_turns = state.corrections = 0
        state.before = Before(
            turns=state.turns, usage=state.usage, spent=state.spent, children=dict(state.pieces)
        )
    if event.opens:
        state.max_turns = event.max_turns or state.max_turns
        state.asked_again.append(state.before)
        ended = state.finished  # what counts of it from here on is said with the new piece
        state.reported = ended and msgspec.structs.replace(ended.report, shortfall=event.lacked)
    _take_sources(state, event.sources, event.text)
    _take_fetched(state, event.sources)
    state.has_read((*event.private, *event.brought))
    state.brought.update(dict.fromkeys(event.brought))
    if event.sender == "person":
        state.said.append(event.text)
        state.vouched.append(event.text)
        state.withheld.clear()  # who speaks again may be asked again
        state.rejected.clear()
    if event.rendered or event.images:
        state.has_read((ATTACHED,))
    message = UserMessage(text=_as_told(state, event), images=event.images)
    if event.asks and event.awaited:
        state.awaited[event.message_id] = message
    if event.about in ("form", "sources", "empty"):
        state.correcting = event.about
    if event.sender in ("person", "parent"):  # that comes first, and may make another answer of it
        state.owed = None
    elif event.sender == "system" and state.answer is not None:
        state.owed = _OWED.get(event.about) or state.owed
    if event.message_id == KNOWLEDGE_FIRST:
        state.knowledge, state.unknown = message, None
    elif event.sender in ("person", "parent"):
        state.unread += 1
        if not event.guarded:
            state.unguarded[event.seq] = message
    state.queued.append(message)
    state.settle()


def _as_told(state: RunState, event: MessageReceived) -> str:
    """What the model reads of a message. What is for a child of it, it is told of."""
    began = state.children.get(event.asks)
    if began is None:
        return event.rendered or event.text
    return (
        f"[The person asks your sub-agent {began.agent} ({event.asks}) again. It works in the background: "
        f"you are told when it ends, and then answer with what it found.]\n{event.text}"
    )


def _guard_spoke(state: RunState, event: GuardSpoke) -> None:
    if event.decision == "stop":
        state.stopped = event
    elif event.decision == "correct":
        state.faulted = event
    before = state.unguarded.get(event.about)
    if event.failed and event.side == "input":
        if not event.about:  # nobody knows what was said: it was not said then
            _unsay(state)
        return
    if before is None:
        return
    if event.decision == "pass":
        del state.unguarded[event.about]
        return
    images = () if event.decision == "stop" else before.images
    now = msgspec.structs.replace(before, text=event.text, images=images)
    state.unguarded[event.about] = now
    state.said = [event.text if said == before.text else said for said in state.said]
    state.vouched = [event.text if said == before.text else said for said in state.vouched]
    for held in (state.messages, state.queued):
        for place, message in enumerate(held):
            if message is before:
                held[place] = now
    state.awaited = {key: now if told is before else told for key, told in state.awaited.items()}


def _unsay(state: RunState) -> None:
    for held in (state.queued, state.messages):
        if held:
            held.pop()
            return


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
    ToolReturned: _tool_returned,
    FilesChanged: _files_changed,
    CopyLeft: _copy_left,
    ApprovalRequested: _approval_requested,
    ApprovalAnswered: _approval_answered,
    CallReviewed: _call_reviewed,
    ClaimsJudged: _claims_judged,
    ModelSampled: _model_sampled,
    CodeWoken: _code_woken,
    ChildStarted: _child_started,
    ChildEnded: _child_ended,
    MessageReceived: _message_received,
    HistoryPruned: _history_pruned,
    GuardSpoke: _guard_spoke,
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
    *("standing", "seq", "pos", "step", "step_open", "model", "usage", "turns", "tool_calls", "duration_ms"),
    *("report", "finished", "reported", "cancelled", "pieces", "asked_again", "began_at", "last_at"),
    *("said", "vouched", "found", "links", "followed", "cleared", "withheld", "rejected", "granted"),
    *("files", "brought", "seen_messages"),
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
