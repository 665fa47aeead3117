"""What a log means: `fold` turns events into a `RunState`.

The conversation the model sees, what is still open, what was spent. The loop keeps its own state by the same
`apply`, so a run that goes on and a run that is resumed cannot disagree. How the run stands is not worked out
here but in `standing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import Struct

from retinue.events import (
    KNOWLEDGE_FIRST,
    About,
    ApprovalAnswered,
    ApprovalRequested,
    CallReviewed,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Event,
    FilesChanged,
    HistoryPruned,
    LimitPassed,
    LimitReached,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.standing import Standing, moved, moves, next_turn
from retinue.types import (
    AssistantMessage,
    Effect,
    Effort,
    EndedBy,
    Message,
    Report,
    Shortfall,
    Source,
    Status,
    StopReason,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

KNOWLEDGE_TITLE = "## External Knowledge\n"
"""How the message begins that holds what was looked up before the first step."""
ATTACHED = "the attachments"
MOST_NAMED = 50
"""Names of private data that are kept: that there is some counts, and a person reads a few."""

CIRCLE = 5
"""An identical call with the same outcome this often ends the run."""


def circling(outcomes: Sequence[tuple[bool, int]]) -> bool:
    """Whether an identical call came to the same time after time: to one result, or to nothing but errors."""
    last = outcomes[-CIRCLE:]
    return len(last) == CIRCLE and (len(set(last)) == 1 or all(is_error for is_error, _ in last))


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """What had been done when a person last spoke, or when a child was asked again: none of it counts against
    what is allowed for that. `children` is how often each of them had been asked."""

    turns: int = 0
    usage: Usage = Usage()
    children: Mapping[str, int] = field(default_factory=dict[str, int])


class RunState:
    """What a run's log means so far. Mutable, changed by `apply` alone."""

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self.standing = Standing()
        self.seq = 0
        self.pos = 0
        self.messages: list[Message] = []
        self.step = 0
        self.step_open: StepStarted | None = None
        """The step that has no reply yet."""
        self.parked: LimitReached | None = None
        """Why and until when it does not ask its model."""
        self.parked_since: float | None = None
        """When it was first parked in the open step."""
        self.asking = False
        """Whether the model is being asked: what is said now, it does not see."""
        self.model = ""
        self.turns = 0
        self.work_turns = 0
        """Of those, the ones that count against its turns: since a person last spoke."""
        self.corrections = 0
        self.before = Before()
        self.asked_again: list[Before] = []
        """Of a child: what it had done whenever another piece of work began for it."""
        self.reported: Report | None = None
        """What it reported of the piece of work before that."""
        self.summarised = False
        self.final_reason: str | None = None
        self.final_cause: EndedBy = ""
        self.correcting: About = ""
        """What was last found wrong with an answer."""
        self.reopened_at = 0.0
        """When it was last taken up after an end."""
        self.notices: dict[str, UserMessage] = {}
        """What was said of the end of a child that nobody waited for, by the child."""
        self.last_stop: StopReason = "end"
        self.effort: Effort = ""
        self.tool_calls = 0
        self.usage = Usage()
        self.seen_calls: set[str] = set()
        self.calls: dict[str, ToolCall] = {}
        self.begun: dict[str, ToolCalled] = {}
        self.results: dict[str, ToolMessage] = {}
        self.waiting: dict[str, ApprovalRequested] = {}
        self.answers: dict[str, ApprovalAnswered] = {}
        self.reviews: dict[str, CallReviewed] = {}
        """What the small model said of calls, by the call."""
        self.rejected: set[str] = set()
        """The tools of calls that a person said no to since they last spoke."""
        self.granted: set[Grant] = set()
        self.unsealed: set[str] = set()
        """Calls that a person was asked about as ones without the sandbox."""
        self.shown: dict[str, str] = {}
        """Digests of what people were shown of calls, by the call."""
        self.asks: dict[str, MessageReceived] = {}
        """What people ask children of this run again, and these have not been asked yet."""
        self.children: dict[str, ChildStarted] = {}
        """What each child was last asked."""
        self.pieces: dict[str, int] = {}
        """How often each child was asked."""
        self.ended: dict[str, ChildEnded] = {}
        """The last end of each child."""
        self.lately: dict[tuple[str, str], ChildEnded] = {}
        """The ends since a person last spoke to this run, by child and call: what they lack counts."""
        self.telling: dict[str, Usage] = {}
        """What it took to word the ends of a child for this run, by the child."""
        self.sources: list[Source] = []
        self.unreadable: dict[str, None] = {}
        """Addresses that a call of this run or one below it asked for, and that were not read by it."""
        self.source_texts: dict[str, str] = {}
        """What a tool showed of a page or a file, by its address: what a quotation is looked for in."""
        self.files: list[str] = []
        self.seen_files: dict[str, str] = {}
        """The content that this run last saw or wrote at a path, by its hash."""
        self.seen_messages: set[str] = set()
        self.digest: UserMessage | None = None
        """What is left of the turns that were dropped from the history."""
        self.answered: Message | None = None
        """The last message of the turns of the conversation that are over."""
        self.unread = 0
        """What was said to this run since its model was asked last."""
        self.knowledge: UserMessage | None = None
        self.unknown: ChildEnded | None = None
        """What looked the question up first, where its report did not enter the conversation."""
        self.queued: list[UserMessage] = []
        self.attempts: dict[tuple[str, str], list[tuple[bool, int]]] = {}
        self.copies: dict[str, int] = {}
        """Calls of the last reply that repeat `CIRCLE` or more before them, and how many of them."""
        self.step_effects: set[Effect] = set()
        self.glances = 0
        """Calls of this step that only looked how things stood."""
        self.delegating_steps = 0
        self.cancelled: CancelRequested | None = None
        self.finished: RunFinished | None = None
        """Its last end, also while it goes on after that."""
        self.report: Report | None = None
        self.at_work = 0
        """It has answered, and so many children were still at work then: it waits for what comes first, their
        reports or another word of a person."""
        self.duration_ms = 0
        """How long it worked up to its last end."""
        self.last_error = ""
        """How this run ended the last time, until the model has answered again."""
        self.began_at = 0.0
        self.last_at = 0.0
        self.is_remains = False
        """Only what is left of a run that has ended: nothing goes on from this."""
        self.private: dict[str, None] = {}
        """The private data that this run has read, by name, in that order."""
        self.brought: dict[str, None] = {}
        """Files of the project that were copied into its workspace."""
        self.said: list[str] = []
        """What people said to it, word for word."""
        self.found: set[str] = set()
        self.links: set[str] = set()
        """The addresses that searches found and fetched pages link to."""
        self.followed: list[str] = []
        """The arguments of calls that went to a link or a search result after it had read private data."""
        self.cleared: set[str] = set()
        self.withheld: set[str] = set()
        """What people let leave or be read, and what they did not, for the whole workflow."""

    @property
    def status(self) -> Status:
        return self.standing.status

    @property
    def shortfall(self) -> Shortfall:
        """What this run and those below it went without since a person last spoke to it."""
        return self.standing.shortfall

    @property
    def problems(self) -> list[str]:
        """What is wrong with citations of those below, since a person last spoke to this run."""
        ends = self.lately.values()
        return list(dict.fromkeys(f"{end.agent}: {problem}" for end in ends for problem in end.problems))

    @property
    def open_calls(self) -> list[ToolCall]:
        """Calls of the last reply that have no result yet, in the order they were asked for."""
        return [call for call in self.calls.values() if call.id not in self.results]

    @property
    def answer(self) -> AssistantMessage | None:
        """The reply that asks for nothing more, if that is what the conversation ends with."""
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, AssistantMessage) and not last.calls else None

    def apply(self, event: Event) -> None:
        self.seq = event.seq
        self.pos = max(self.pos, event.pos)
        self.last_at = event.at
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
        if moves(event):
            self.standing = moved(self.standing, event)

    def _settle(self) -> None:
        """Once every call has its result, the results join the history in the order of the calls.

        What is said while the model is asked comes after its reply: it was not part of the question.
        """
        if self.calls and len(self.results) == len(self.calls):
            self.messages.extend(self.results[call_id] for call_id in self.calls)
            self.calls, self.results = {}, {}
        if not self.calls and not self.asking and self.queued:
            self.messages.extend(self.queued)
            self.queued = []

    def _has_read(self, names: Iterable[str]) -> None:
        """Private data is before the model from here on, and nothing takes that back."""
        for name in names:
            if len(self.private) < MOST_NAMED:
                self.private[name] = None


def _run_started(state: RunState, event: RunStarted) -> None:
    state.started = event
    state.model = event.model
    state.began_at = event.at
    state.messages.append(UserMessage(text=event.rendered or event.prompt, images=event.images))
    state._has_read(event.private)  # pyright: ignore[reportPrivateUsage]
    if event.rendered or event.images:
        state._has_read((ATTACHED,))  # pyright: ignore[reportPrivateUsage]
    if event.parent_id is None:
        state.said.append(event.prompt)


def _run_resumed(state: RunState, event: RunResumed) -> None:
    if state.report is not None:  # who takes up what had ended does not wait for an old limit
        state.reopened_at = event.at
        state.parked, state.parked_since = None, None
    state.model = event.model or state.model
    state.report = None
    state.cancelled = None
    state.asking = False  # whatever was asked is asked again, and then with what was said meanwhile
    state._settle()  # pyright: ignore[reportPrivateUsage]


def _step_started(state: RunState, event: StepStarted) -> None:
    state.step = event.step
    state.step_open = event
    state.asking = True
    state.unread = 0


def _limit_reached(state: RunState, event: LimitReached) -> None:
    state.parked = event
    state.parked_since = event.at if state.parked_since is None else state.parked_since
    state.asking = False  # what is said meanwhile, it is asked with
    state._settle()  # pyright: ignore[reportPrivateUsage]


def _limit_passed(state: RunState, event: LimitPassed) -> None:
    state.parked = None
    state.asking = state.step_open is not None
    state.unread = 0


def _model_replied(state: RunState, event: ModelReplied) -> None:
    state.last_error = ""
    asked = state.step_open
    purpose = asked.purpose if asked else "work"
    state.step_open, state.asking = None, False
    state.parked, state.parked_since = None, None
    state.turns += 1
    state.work_turns += purpose == "work"
    state.corrections += purpose == "correct"
    if purpose != "correct":  # a summary that had to be mended is still the summary
        state.summarised = purpose == "summary"
    state.final_reason = asked.reason if asked and purpose == "final" else None
    state.final_cause = asked.cause if asked and purpose == "final" else ""
    state.last_stop = event.stop
    state.effort = event.effort
    state.seen_calls.update(call.id for call in event.message.calls)
    state.usage = state.usage + event.usage
    state.messages.append(event.message)
    state.calls = {call.id: call for call in event.message.calls}
    state.results = {}
    state.copies = _copies(event.message.calls)
    state.step_effects, state.glances = set(), 0
    state._settle()  # pyright: ignore[reportPrivateUsage]


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


def _tool_returned(state: RunState, event: ToolReturned) -> None:
    begun = state.begun.pop(event.call_id, None)
    for asked in [one for one in state.waiting.values() if one.call_id == event.call_id]:
        del state.waiting[asked.approval_id]  # refused after a restart: nobody waits for an answer any more
    state.usage = state.usage + event.usage
    call = state.calls.get(event.call_id)
    message = ToolMessage(call_id=event.call_id, name=event.name, text=event.text, is_error=event.is_error)
    _take_sources(state, event.sources, event.text)
    if begun is not None and begun.effect in ("read", "write"):  # and not what a child has read
        seen = ((source.path, source.sha256) for source in event.sources)
        state.seen_files.update((path, sha256) for path, sha256 in seen if path and sha256)
    if event.is_error and (asked := begun.arguments if begun else call.arguments if call else ""):
        state.unreadable.update(dict.fromkeys(_addresses(asked)))
    state.files.extend(path for path in event.files if path not in state.files)
    state._has_read(event.private)  # pyright: ignore[reportPrivateUsage]
    if event.v < 2 and begun is not None and begun.effect in ("read", "write", "execute"):
        state._has_read((f"what {event.name} returned",))  # pyright: ignore[reportPrivateUsage]
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
    if not refused and not event.passing:
        outcomes.append((event.is_error, hash(event.text)))
    state.glances += event.passing
    state.results[event.call_id] = message
    if len(state.results) == len(state.calls) and state.glances < len(state.calls):
        state.delegating_steps = state.delegating_steps + 1 if state.step_effects == {"delegate"} else 0
    state._settle()  # pyright: ignore[reportPrivateUsage]


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


class Grant(Struct, frozen=True, kw_only=True):
    """What a person approved for the rest of a workflow: what a rule covers, or every call of a tool.

    Without a sandbox runs only what was asked so: neither what was meant to run in one and cannot, nor what
    would run without since the settings are others by now.
    """

    tool: str
    rule: str = ""
    unsealed: bool = False
    sealed: bool = False


def grant_of(asked: ApprovalRequested, answer: ApprovalAnswered) -> Grant | None:
    """What an answer to this question is for beyond it. Who changed the call let that one pass alone."""
    if answer.decision in ("approve", "reject") or asked.concerns or answer.arguments is not None:
        return None
    if asked.rule is None:  # asked before there were rules in questions
        return Grant(tool=asked.tool, unsealed=asked.unsealed)
    if answer.decision not in asked.answers:
        return None
    rule = "" if answer.decision == "approve_tool" else asked.rule
    return Grant(tool=asked.tool, rule=rule, unsealed=asked.unsealed, sealed=asked.sealed)


def _approval_requested(state: RunState, event: ApprovalRequested) -> None:
    state.waiting[event.approval_id] = event
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
        if asked is not None:
            state.rejected.add(asked.tool)
    elif event.arguments is None:  # who changed the call let that one pass, and no other
        state.cleared.update(concerns)


def _call_reviewed(state: RunState, event: CallReviewed) -> None:
    state.reviews[event.call_id] = event
    state.usage = state.usage + event.usage


def _child_started(state: RunState, event: ChildStarted) -> None:
    child = event.child_id
    state.pieces[child] = state.pieces.get(child, 0) + 1
    first = state.children.get(child)
    if event.continues and first is not None:
        state.asks.pop(event.call_id, None)
        state.notices.pop(child, None)  # of an end before this
        event = msgspec.structs.replace(event, as_tool=first.as_tool)
    state.children[child] = event


def _child_ended(state: RunState, event: ChildEnded) -> None:
    child = event.child_id
    if event.opens:
        _open_turn(state)
    state.ended[child] = state.lately[child, event.call_id] = event
    state.telling[child] = state.telling.get(child, Usage()) + event.telling
    state._has_read(event.private)  # pyright: ignore[reportPrivateUsage]
    _take_sources(state, event.sources, event.notice)
    if event.call_id == KNOWLEDGE_FIRST:
        state.unknown = event  # until its report enters the conversation, if it does
    if event.notice:
        state.notices[event.child_id] = told = UserMessage(text=event.notice)
        state.queued.append(told)
        state._settle()  # pyright: ignore[reportPrivateUsage]


def _open_turn(state: RunState) -> None:
    state.report, state.at_work = None, 0
    state.answered = state.messages[-1] if state.messages else None
    state.unknown, state.lately = None, {}


def _message_received(state: RunState, event: MessageReceived) -> None:
    if event.message_id:
        state.seen_messages.add(event.message_id)
    state.asks.pop(event.message_id.removesuffix(" no"), None)
    if event.asks:
        state.asks[event.message_id] = event
    # The next turn of a conversation: what the last one lacked is not missing in it.
    if next_turn(state.standing, event):
        _open_turn(state)
    if event.sender == "person" or event.opens:  # what was done before does not count for what is asked now
        state.attempts, state.delegating_steps = {}, 0
        state.work_turns = state.corrections = 0
        state.before = Before(turns=state.turns, usage=state.usage, children=dict(state.pieces))
    if event.opens:
        state.asked_again.append(state.before)
        state.reported = state.finished.report if state.finished is not None else None
    _take_sources(state, event.sources, event.text)
    _take_fetched(state, event.sources)
    state._has_read((*event.private, *event.brought))  # pyright: ignore[reportPrivateUsage]
    state.brought.update(dict.fromkeys(event.brought))
    if event.sender == "person":
        state.said.append(event.text)
        state.withheld.clear()  # who speaks again may be asked again
        state.rejected.clear()
    message = UserMessage(text=_as_told(state, event))
    if event.about in ("form", "sources", "empty"):
        state.correcting = event.about
    if event.message_id == KNOWLEDGE_FIRST:
        state.knowledge, state.unknown = message, None
    elif event.sender in ("person", "parent"):
        state.unread += 1
    state.queued.append(message)
    state._settle()  # pyright: ignore[reportPrivateUsage]


def _as_told(state: RunState, event: MessageReceived) -> str:
    """What the model reads of a message. What is for a child of it, it is told of."""
    began = state.children.get(event.asks)
    if began is None:
        return event.text
    return (
        f"[The person asks your sub-agent {began.agent} ({event.asks}) again. It works in the background: "
        f"you are told when it ends, and then answer with what it found.]\n{event.text}"
    )


def _history_pruned(state: RunState, event: HistoryPruned) -> None:
    state.digest = UserMessage(text=event.summary) if event.summary else None
    summary: list[Message] = [] if state.digest is None else [state.digest]
    state.messages = state.messages[:1] + summary + state.messages[1 + event.dropped :]
    state.usage = state.usage + event.usage


def _cancel_requested(state: RunState, event: CancelRequested) -> None:
    state.cancelled = event


def _run_finished(state: RunState, event: RunFinished) -> None:
    state.finished, state.at_work = event, event.report.at_work
    if not state.at_work:  # else it goes on, and its time runs on
        state.report, state.duration_ms = event.report, event.report.duration_ms
    state.asking = False
    state._settle()  # pyright: ignore[reportPrivateUsage]
    state.last_error = event.report.error or "" if event.report.status == "error" else ""


_HANDLERS: dict[type[Event], Any] = {
    RunStarted: _run_started,
    RunResumed: _run_resumed,
    StepStarted: _step_started,
    LimitReached: _limit_reached,
    LimitPassed: _limit_passed,
    ModelReplied: _model_replied,
    ToolCalled: _tool_called,
    ToolReturned: _tool_returned,
    FilesChanged: _files_changed,
    ApprovalRequested: _approval_requested,
    ApprovalAnswered: _approval_answered,
    CallReviewed: _call_reviewed,
    ChildStarted: _child_started,
    ChildEnded: _child_ended,
    MessageReceived: _message_received,
    HistoryPruned: _history_pruned,
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
            state.started, system="", parts=(), rendered="", images=(), tools=()
        )
    kept.is_remains = True
    return kept


_REMAINS = (
    *("standing", "seq", "pos", "step", "model", "usage", "turns", "tool_calls", "duration_ms"),
    *("report", "finished", "reported", "cancelled", "pieces", "asked_again", "began_at", "last_at"),
    *("private", "said", "found", "links", "followed", "cleared", "withheld", "rejected", "granted"),
    *("files", "brought", "seen_messages"),
)


def fold(events: Iterable[Event]) -> RunState:
    """The state of one run from its log, or from any beginning of it."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
