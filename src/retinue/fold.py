"""What a log means: `fold` turns events into a `RunState`.

The conversation the model sees, what is still open, what was spent. The loop keeps its own state by the same
`apply`, so a run that goes on and a run that is resumed cannot disagree. How the run stands is not worked out
here but in `standing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from retinue.events import (
    KNOWLEDGE_FIRST,
    About,
    ApprovalAnswered,
    ApprovalRequested,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Event,
    HistoryPruned,
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
    """What had been done when a person last spoke: none of it counts against what is allowed for that."""

    turns: int = 0
    usage: Usage = Usage()
    children: frozenset[str] = frozenset()


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
        self.asking = False
        """Whether the model is being asked: what is said now, it does not see."""
        self.model = ""
        self.turns = 0
        self.work_turns = 0
        """Of those, the ones that count against its turns: since a person last spoke."""
        self.corrections = 0
        self.before = Before()
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
        self.tool_calls = 0
        self.usage = Usage()
        self.seen_calls: set[str] = set()
        self.calls: dict[str, ToolCall] = {}
        self.begun: dict[str, ToolCalled] = {}
        self.results: dict[str, ToolMessage] = {}
        self.waiting: dict[str, ApprovalRequested] = {}
        self.answers: dict[str, ApprovalAnswered] = {}
        self.granted: set[str] = set()
        self.unsealed: set[str] = set()
        """Calls that a person was asked about as ones without the sandbox."""
        self.children: dict[str, ChildStarted] = {}
        self.ended: dict[str, ChildEnded] = {}
        """The last end of each child."""
        self.lately: dict[str, ChildEnded] = {}
        """Of those, the ones since a person last spoke to this run: what they lack counts."""
        self.telling: dict[str, Usage] = {}
        """What it took to word the ends of a child for this run, by the child."""
        self.sources: list[Source] = []
        self.unreadable: dict[str, None] = {}
        """Addresses that a call of this run or one below it asked for, and that were not read by it."""
        self.source_texts: dict[str, str] = {}
        """What a tool showed of a page or a file, by its address: what a quotation is looked for in."""
        self.files: list[str] = []
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
        self.duration_ms = 0
        """How long it worked up to its last end."""
        self.last_error = ""
        """How this run ended the last time, until the model has answered again."""
        self.began_at = 0.0
        self.last_at = 0.0
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
    if state.report is not None:
        state.reopened_at = event.at
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


def _model_replied(state: RunState, event: ModelReplied) -> None:
    state.last_error = ""
    asked = state.step_open
    purpose = asked.purpose if asked else "work"
    state.step_open, state.asking = None, False
    state.turns += 1
    state.work_turns += purpose == "work"
    state.corrections += purpose == "correct"
    if purpose != "correct":  # a summary that had to be mended is still the summary
        state.summarised = purpose == "summary"
    state.final_reason = asked.reason if asked and purpose == "final" else None
    state.final_cause = asked.cause if asked and purpose == "final" else ""
    state.last_stop = event.stop
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


def _tool_returned(state: RunState, event: ToolReturned) -> None:
    begun = state.begun.pop(event.call_id, None)
    for asked in [one for one in state.waiting.values() if one.call_id == event.call_id]:
        del state.waiting[asked.approval_id]  # refused after a restart: nobody waits for an answer any more
    state.usage = state.usage + event.usage
    call = state.calls.get(event.call_id)
    message = ToolMessage(call_id=event.call_id, name=event.name, text=event.text, is_error=event.is_error)
    _take_sources(state, event.sources, event.text)
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


def grants(tool: str, *, unsealed: bool) -> tuple[str, ...]:
    """What an approval for the rest of a run covers: without a sandbox only what was asked so."""
    return (tool, f"{tool} without the sandbox") if unsealed else (tool,)


def _approval_requested(state: RunState, event: ApprovalRequested) -> None:
    state.waiting[event.approval_id] = event
    if event.unsealed:
        state.unsealed.add(event.call_id)


def _approval_answered(state: RunState, event: ApprovalAnswered) -> None:
    asked = state.waiting.pop(event.approval_id, None)
    state.answers[event.call_id] = event
    concerns = asked.concerns if asked is not None else ()
    if event.decision == "approve_run" and asked is not None and not concerns:
        state.granted.update(grants(asked.tool, unsealed=asked.unsealed))
    if event.decision == "reject":
        state.withheld.update(concerns)
    elif event.arguments is None:  # who changed the call let that one pass, and no other
        state.cleared.update(concerns)


def _child_started(state: RunState, event: ChildStarted) -> None:
    state.children[event.child_id] = event


def _child_ended(state: RunState, event: ChildEnded) -> None:
    child = event.child_id
    state.ended[child] = state.lately[child] = event
    state.telling[child] = state.telling.get(child, Usage()) + event.telling
    state._has_read(event.private)  # pyright: ignore[reportPrivateUsage]
    _take_sources(state, event.sources, event.notice)
    if event.call_id == KNOWLEDGE_FIRST:
        state.unknown = event  # until its report enters the conversation, if it does
    if event.notice:
        state.notices[event.child_id] = told = UserMessage(text=event.notice)
        state.queued.append(told)
        state._settle()  # pyright: ignore[reportPrivateUsage]


def _message_received(state: RunState, event: MessageReceived) -> None:
    if event.message_id:
        state.seen_messages.add(event.message_id)
    # The next turn of a conversation: what the last one lacked is not missing in it.
    if next_turn(state.standing, event):
        state.report = None
        state.answered = state.messages[-1] if state.messages else None
        state.unknown, state.lately = None, {}
    if event.sender == "person":  # what was done before does not count against what is asked for now
        state.attempts, state.delegating_steps = {}, 0
        state.work_turns = state.corrections = 0
        done = frozenset(state.children)
        state.before = Before(turns=state.turns, usage=state.usage, children=done)
    _take_sources(state, event.sources, event.text)
    _take_fetched(state, event.sources)
    state._has_read((*event.private, *event.brought))  # pyright: ignore[reportPrivateUsage]
    state.brought.update(dict.fromkeys(event.brought))
    if event.sender == "person":
        state.said.append(event.text)
        state.withheld.clear()  # who speaks again may be asked again
    message = UserMessage(text=event.text)
    if event.about in ("form", "sources", "empty"):
        state.correcting = event.about
    if event.message_id == KNOWLEDGE_FIRST:
        state.knowledge, state.unknown = message, None
    elif event.sender in ("person", "parent"):
        state.unread += 1
    state.queued.append(message)
    state._settle()  # pyright: ignore[reportPrivateUsage]


def _history_pruned(state: RunState, event: HistoryPruned) -> None:
    state.digest = UserMessage(text=event.summary) if event.summary else None
    summary: list[Message] = [] if state.digest is None else [state.digest]
    state.messages = state.messages[:1] + summary + state.messages[1 + event.dropped :]
    state.usage = state.usage + event.usage


def _cancel_requested(state: RunState, event: CancelRequested) -> None:
    state.cancelled = event


def _run_finished(state: RunState, event: RunFinished) -> None:
    state.report, state.finished = event.report, event
    state.duration_ms = event.report.duration_ms
    state.asking = False
    state._settle()  # pyright: ignore[reportPrivateUsage]
    state.last_error = event.report.error or "" if event.report.status == "error" else ""


_HANDLERS: dict[type[Event], Any] = {
    RunStarted: _run_started,
    RunResumed: _run_resumed,
    StepStarted: _step_started,
    ModelReplied: _model_replied,
    ToolCalled: _tool_called,
    ToolReturned: _tool_returned,
    ApprovalRequested: _approval_requested,
    ApprovalAnswered: _approval_answered,
    ChildStarted: _child_started,
    ChildEnded: _child_ended,
    MessageReceived: _message_received,
    HistoryPruned: _history_pruned,
    CancelRequested: _cancel_requested,
    RunFinished: _run_finished,
}


def fold(events: Iterable[Event]) -> RunState:
    """The state of one run from its log, or from any beginning of it."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
