"""The event log: what an event is, how it is written down, and what a log of them means.

Every fact about a run is one `Event`, appended to that run's log and never changed. `fold` turns a log
into a `RunState`: the conversation the model sees, what is still open, what was spent. The loop keeps its
own state by the same `apply`, so a run that goes on and a run that is resumed cannot disagree.

This module touches no database. `pos` is the place of an event in its workflow's ordered stream; the
store assigns it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.types import (
    AgentSpec,
    AssistantMessage,
    Effect,
    Image,
    Limits,
    Message,
    Report,
    Risk,
    Source,
    Status,
    StopReason,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

VERSION = 1

Decision = Literal["approve", "approve_run", "reject"]
Sender = Literal["person", "parent", "child", "system"]
Purpose = Literal["work", "final", "summary", "correct"]


class Event(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The envelope: which run, where in the tree, which place in the run's log."""

    run_id: str
    root_id: str
    parent_id: str | None
    depth: int
    seq: int
    at: float
    pos: int = 0
    v: int = VERSION


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """`system` and `rendered` are what the model is shown; `prompt` is what was asked."""

    spec: AgentSpec
    prompt: str
    system: str = ""
    rendered: str = ""
    images: tuple[Image, ...] = ()
    label: str = ""
    model: str = ""
    call_id: str | None = None
    limits: Limits = Limits()
    tools: tuple[str, ...] = ()
    cwd: str = ""
    host: str = ""
    pid: int = 0
    forked_from: str | None = None
    options: dict[str, Any] = {}


class RunResumed(Event, frozen=True, kw_only=True, tag="run_resumed"):
    """A process took the run up again. Writing this is also what fences off the previous one."""

    host: str = ""
    pid: int = 0
    reason: str = ""


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    """The intent to call the model."""

    step: int
    model: str
    purpose: Purpose = "work"
    reason: str = ""


class StepRetried(Event, frozen=True, kw_only=True, tag="step_retried"):
    """The model call failed and is made again. `text_shown`: what was streamed so far is void."""

    step: int
    reason: str
    attempt: int
    wait: float
    text_shown: bool = False


class ModelReplied(Event, frozen=True, kw_only=True, tag="model_replied"):
    """Paid for: never asked again."""

    step: int
    message: AssistantMessage
    usage: Usage
    stop: StopReason
    model: str
    duration_ms: int = 0
    thinking: str = ""


class ToolCalled(Event, frozen=True, kw_only=True, tag="tool_called"):
    """The tool is about to run, with these arguments (a person may have edited them)."""

    call_id: str
    name: str
    arguments: str
    effect: Effect
    repeatable: bool


class ToolReturned(Event, frozen=True, kw_only=True, tag="tool_returned"):
    call_id: str
    name: str
    text: str
    is_error: bool = False
    duration_ms: int = 0
    sources: tuple[Source, ...] = ()
    files: tuple[str, ...] = ()
    usage: Usage = Usage()


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval_requested"):
    """A question to a person. `path` names the agents from the root down to the one that asks."""

    approval_id: str
    call_id: str
    tool: str
    arguments: str
    effect: Effect
    risk: Risk
    reason: str = ""
    preview: str = ""
    path: tuple[str, ...] = ()


class ApprovalAnswered(Event, frozen=True, kw_only=True, tag="approval_answered"):
    approval_id: str
    call_id: str
    decision: Decision
    reason: str = ""
    arguments: str | None = None
    by: str = "person"


class ChildStarted(Event, frozen=True, kw_only=True, tag="child_started"):
    child_id: str
    agent: str
    prompt: str
    label: str = ""
    call_id: str = ""
    key: str = ""
    reserved: Limits = Limits()
    background: bool = False


class ChildEnded(Event, frozen=True, kw_only=True, tag="child_ended"):
    """`notice` is what a parent that did not wait is told before its next model call."""

    child_id: str
    agent: str
    status: Status
    usage: Usage
    label: str = ""
    call_id: str = ""
    duration_ms: int = 0
    notice: str = ""


class MessageReceived(Event, frozen=True, kw_only=True, tag="message_received"):
    """Said to the run while it goes on (steering), or to a finished one (the conversation goes on)."""

    text: str
    sender: Sender = "person"
    message_id: str = ""


class HistoryPruned(Event, frozen=True, kw_only=True, tag="history_pruned"):
    """The `dropped` messages after the first were replaced by `summary`."""

    dropped: int
    summary: str
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()


class AccessDenied(Event, frozen=True, kw_only=True, tag="access_denied"):
    """For audit: something was tried that this run may not do."""

    what: str
    detail: str
    call_id: str = ""


class CancelRequested(Event, frozen=True, kw_only=True, tag="cancel_requested"):
    reason: str = ""
    by: str = "person"


class ErrorRaised(Event, frozen=True, kw_only=True, tag="error_raised"):
    message: str
    kind: str = "error"


class RunFinished(Event, frozen=True, kw_only=True, tag="run_finished"):
    report: Report


AnyEvent = (
    RunStarted
    | RunResumed
    | StepStarted
    | StepRetried
    | ModelReplied
    | ToolCalled
    | ToolReturned
    | ApprovalRequested
    | ApprovalAnswered
    | ChildStarted
    | ChildEnded
    | MessageReceived
    | HistoryPruned
    | AccessDenied
    | CancelRequested
    | ErrorRaised
    | RunFinished
)


class Streamed(Struct, frozen=True, kw_only=True, tag_field="type", tag="streamed"):
    """A piece of text as it arrives. Live only: never stored, may be lost."""

    run_id: str
    root_id: str
    depth: int
    step: int
    text: str
    thinking: bool = False


class Progressed(Struct, frozen=True, kw_only=True, tag_field="type", tag="progressed"):
    """What a tool is doing right now. Live only."""

    run_id: str
    root_id: str
    depth: int
    call_id: str
    text: str


LiveEvent = AnyEvent | Streamed | Progressed

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode(event: LiveEvent) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes | str) -> AnyEvent:
    """Raises `msgspec.ValidationError` for an event of a newer or a broken form."""
    return _decoder.decode(data)


def place(event: Event, pos: int) -> None:
    """Give a stored event its place in the workflow's stream. For stores alone."""
    msgspec.structs.force_setattr(event, "pos", pos)


class RunState:
    """What a run's log means so far. Mutable, changed by `apply` alone."""

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self.status: Status = "pending"
        self.seq = 0
        self.pos = 0
        self.messages: list[Message] = []
        self.step = 0
        self.step_open: StepStarted | None = None
        self.turns = 0
        self.work_turns = 0
        self.corrections = 0
        self.summarised = False
        self.final_reason: str | None = None
        self.last_stop: StopReason = "end"
        self.tool_calls = 0
        self.usage = Usage()
        self.last_input_tokens = 0
        self.seen_calls: set[str] = set()
        self.calls: dict[str, ToolCall] = {}
        self.begun: dict[str, ToolCalled] = {}
        self.results: dict[str, ToolMessage] = {}
        self.waiting: dict[str, ApprovalRequested] = {}
        self.answers: dict[str, ApprovalAnswered] = {}
        self.granted: set[str] = set()
        self.children: dict[str, ChildStarted] = {}
        self.ended: dict[str, ChildEnded] = {}
        self.sources: list[Source] = []
        self.source_texts: dict[str, str] = {}
        """What a tool showed of a page or a file, by its address: what a quotation is looked for in."""
        self.files: list[str] = []
        self.seen_messages: set[str] = set()
        self.queued: list[UserMessage] = []
        self.attempts: dict[tuple[str, str], list[tuple[bool, int]]] = {}
        self.step_effects: set[Effect] = set()
        self.delegating_steps = 0
        self.cancelled: CancelRequested | None = None
        self.report: Report | None = None
        self.last_error = ""
        """How this run ended the last time, until the model has answered again."""
        self.began_at = 0.0
        self.last_at = 0.0

    @property
    def open_calls(self) -> list[ToolCall]:
        """Calls of the last reply that have no result yet, in the order they were asked for."""
        return [call for call in self.calls.values() if call.id not in self.results]

    @property
    def answer(self) -> AssistantMessage | None:
        """The reply that asks for nothing more, if that is what the conversation ends with."""
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, AssistantMessage) and not last.calls else None

    @property
    def last_text(self) -> str:
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage) and message.text.strip():
                return message.text
        return ""

    def apply(self, event: Event) -> None:
        self.seq = event.seq
        self.pos = max(self.pos, event.pos)
        self.last_at = event.at
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _settle(self) -> None:
        """Once every call has its result, the results join the history in the order of the calls."""
        if self.calls and len(self.results) == len(self.calls):
            self.messages.extend(self.results[call_id] for call_id in self.calls)
            self.calls, self.results = {}, {}
        if not self.calls and self.queued:
            self.messages.extend(self.queued)
            self.queued = []


def _run_started(state: RunState, event: RunStarted) -> None:
    state.started = event
    state.status = "running"
    state.began_at = event.at
    state.messages.append(UserMessage(text=event.rendered or event.prompt, images=event.images))


def _run_resumed(state: RunState, event: RunResumed) -> None:
    state.report = None
    state.cancelled = None
    state.status = "waiting" if state.waiting else "running"


def _step_started(state: RunState, event: StepStarted) -> None:
    state.step = event.step
    state.step_open = event


def _model_replied(state: RunState, event: ModelReplied) -> None:
    state.last_error = ""
    asked = state.step_open
    purpose = asked.purpose if asked else "work"
    state.step_open = None
    state.turns += 1
    state.work_turns += purpose == "work"
    state.corrections += purpose == "correct"
    state.summarised = purpose == "summary"
    state.final_reason = asked.reason if asked and purpose == "final" else None
    state.last_stop = event.stop
    state.seen_calls.update(call.id for call in event.message.calls)
    state.usage = state.usage + event.usage
    state.last_input_tokens = event.usage.input_tokens + event.usage.output_tokens
    state.messages.append(event.message)
    state.calls = {call.id: call for call in event.message.calls}
    state.results = {}
    state.step_effects = set()
    state._settle()  # pyright: ignore[reportPrivateUsage]


def _tool_called(state: RunState, event: ToolCalled) -> None:
    state.begun[event.call_id] = event
    state.step_effects.add(event.effect)
    state.tool_calls += 1


def _tool_returned(state: RunState, event: ToolReturned) -> None:
    begun = state.begun.pop(event.call_id, None)
    state.usage = state.usage + event.usage
    call = state.calls.get(event.call_id)
    message = ToolMessage(call_id=event.call_id, name=event.name, text=event.text, is_error=event.is_error)
    state.sources.extend(event.sources)
    for source in event.sources:
        if source.url:
            known = state.source_texts.get(source.url)
            state.source_texts[source.url] = event.text if known is None else f"{known}\n{event.text}"
    state.files.extend(path for path in event.files if path not in state.files)
    if call is None:
        return
    arguments = begun.arguments if begun else call.arguments
    state.attempts.setdefault((event.name, arguments), []).append((event.is_error, hash(event.text)))
    state.results[event.call_id] = message
    if len(state.results) == len(state.calls):
        state.delegating_steps = state.delegating_steps + 1 if state.step_effects == {"delegate"} else 0
    state._settle()  # pyright: ignore[reportPrivateUsage]


def _approval_requested(state: RunState, event: ApprovalRequested) -> None:
    state.waiting[event.approval_id] = event
    state.status = "waiting"


def _approval_answered(state: RunState, event: ApprovalAnswered) -> None:
    asked = state.waiting.pop(event.approval_id, None)
    state.answers[event.call_id] = event
    if event.decision == "approve_run" and asked is not None:
        state.granted.add(asked.tool)
    state.status = "waiting" if state.waiting else "running"


def _child_started(state: RunState, event: ChildStarted) -> None:
    state.children[event.child_id] = event


def _child_ended(state: RunState, event: ChildEnded) -> None:
    state.ended[event.child_id] = event
    if event.notice:
        state.queued.append(UserMessage(text=event.notice))
        state._settle()  # pyright: ignore[reportPrivateUsage]


def _message_received(state: RunState, event: MessageReceived) -> None:
    if event.message_id:
        state.seen_messages.add(event.message_id)
    if state.report is not None:
        state.report = None
        state.status = "running"
    state.queued.append(UserMessage(text=event.text))
    state._settle()  # pyright: ignore[reportPrivateUsage]


def _history_pruned(state: RunState, event: HistoryPruned) -> None:
    summary: list[Message] = [UserMessage(text=event.summary)] if event.summary else []
    state.messages = state.messages[:1] + summary + state.messages[1 + event.dropped :]
    state.usage = state.usage + event.usage


def _cancel_requested(state: RunState, event: CancelRequested) -> None:
    state.cancelled = event


def _run_finished(state: RunState, event: RunFinished) -> None:
    state.report = event.report
    state.status = event.report.status
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


def now() -> float:
    return time.time()
