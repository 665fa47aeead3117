"""The event log: what an event is, and how it is written down.

Every fact about a run is one `Event`, appended to that run's log and never changed. What a log means is
in `fold`.

This module touches no database. `pos` is the place of an event in its workflow's ordered stream; the
store assigns it.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from retinue.types import (
    AddressFrom,
    AgentSpec,
    AssistantMessage,
    Effect,
    EndedBy,
    Image,
    Limits,
    NotRun,
    Report,
    Risk,
    Shortfall,
    Source,
    Status,
    StopReason,
    Usage,
)

VERSION = 2
"""1: what a result holds of private data is not said; it follows from the effect of its tool."""
KNOWLEDGE_FIRST = "knowledge-first"
"""The call that looks a question up before the first step, and the id of the message with what it found."""

Decision = Literal["approve", "approve_run", "reject"]
Sender = Literal["person", "parent", "child", "system"]
Purpose = Literal["work", "final", "summary", "correct"]
About = Literal["", "form", "sources", "empty", "summary", "knowledge", "files"]
"""What a message to the model is for: what is wrong with its answer, the wish for a summary, what was looked
up for it, or which files were copied for it. Empty for what somebody says."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """What this very run was given. `settings` are dotted names; `first` is the agent that looks the
    question up before the first step."""

    settings: dict[str, Any] = {}
    yes: bool = False
    strict_sources: bool = False
    first: str | None = None


class PromptPart(Struct, frozen=True, array_like=True):
    """One part of what a model is told at the start, by its title and its length in characters."""

    title: str
    length: int


class Knowledge(Struct, frozen=True, kw_only=True):
    """Who looked a question up before the first step, and what it found, without a frame."""

    run_id: str
    agent: str
    turns: int
    text: str


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
    """`system` and `rendered` are what the model is shown; `prompt` is what was asked.

    `parts` are the parts of `system` in order, with a blank line between them; `question` is how much of
    `rendered` is the question itself, before what is attached to it.
    """

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
    forked_at: float | None = None
    """Of a copy: when it was made. `at` is when the run that it is of began."""
    options: RunOptions = RunOptions()
    parts: tuple[PromptPart, ...] = ()
    question: int = 0
    owner: str = ""
    """Who works on it: the random id of one opened `Retinue`. `host` and `pid` are for people to read."""
    private: tuple[str, ...] = ()
    """The private data that its parent had read when it wrote the prompt, and a memory that outlives runs."""


class RunResumed(Event, frozen=True, kw_only=True, tag="run_resumed"):
    """A process took the run up again. Writing this is also what fences off the previous one."""

    host: str = ""
    pid: int = 0
    reason: str = ""
    yes: bool = False
    """Whether what no rule denies or asks about is approved from here on."""
    owner: str = ""
    """Who works on it from here on."""
    signals: int | None = field(default=None, name="letters")
    """Of the root: the last signal that was there. A cancel up to it is what the run is resumed from."""
    settings: dict[str, Any] = {}
    """Of the root: what the run is given from here on, by dotted names, over what it was given before."""
    model: str = ""
    """The model from here on, if it is another."""
    stopped_at: float | None = None
    """When anybody last worked on the workflow before that. None in a log from before this was kept."""


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    """The intent to call the model. `cause` is why this is the last step with a report to write."""

    step: int
    model: str
    purpose: Purpose = "work"
    reason: str = ""
    cause: EndedBy = ""


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
    address: AddressFrom = ""


class ToolReturned(Event, frozen=True, kw_only=True, tag="tool_returned"):
    call_id: str
    name: str
    text: str
    is_error: bool = False
    duration_ms: int = 0
    sources: tuple[Source, ...] = ()
    files: tuple[str, ...] = ()
    usage: Usage = Usage()
    rolled_back: bool = False
    """Code whose variables are again what they were before it. Its text says so too, but code can do that."""
    not_run: NotRun = ""
    """Why the tool did not run, if it did not."""
    not_started: int = 0
    """Children that this call was to start and a limit did not let it."""
    private: tuple[str, ...] = ()
    """The private data that the result rests on, by name: files of the project, a tool that gives such."""
    found: tuple[str, ...] = ()
    """The addresses of the results of a search."""
    links: tuple[str, ...] = ()
    """The addresses that a fetched page links to."""
    passing: bool = False
    """It says how things stood at a moment, and were soon otherwise: to ask again is no circle."""


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
    concerns: tuple[str, ...] = ()
    """What the answer holds for in the whole workflow: hosts that private data could reach, files with
    secrets. Empty if it is for this call alone."""
    unsealed: bool = False
    """Whoever approves lets a command run without the sandbox that it was meant for."""
    answer_by: float | None = None
    """Until when an answer counts, in seconds since 1970; None: it waits for one."""


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
    """What its own definition limits it to."""
    background: bool = False
    as_tool: bool = False
    """An agent that was called by its own name: these are counted apart."""


class ChildEnded(Event, frozen=True, kw_only=True, tag="child_ended"):
    """`notice` is what a parent that did not wait is told before its next model call. A child that was
    stopped and goes on ends once more: of its ends the last one counts."""

    child_id: str
    agent: str
    status: Status
    usage: Usage
    label: str = ""
    call_id: str = ""
    duration_ms: int = 0
    notice: str = ""
    shortfall: Shortfall = Shortfall()
    """What its parent goes without because of it: its own shortfall, and the child itself if it failed."""
    instead: Shortfall = Shortfall()
    """What was counted so far for an earlier end of the same child, which this one takes the place of."""
    private: tuple[str, ...] = ()
    """The private data that it had read when it wrote its report."""
    problems: tuple[str, ...] = ()
    """What is wrong with its citations and those below it."""
    sources: tuple[Source, ...] = ()
    """What it fetched and read, where its notice is all that its parent gets of it."""
    telling: Usage = Usage()
    """The part of `usage` that was not the child's: what it took to shorten its report for its parent."""


class MessageReceived(Event, frozen=True, kw_only=True, tag="message_received"):
    """Said to the run while it goes on (steering), or to a finished one (the conversation goes on)."""

    text: str
    sender: Sender = "person"
    message_id: str = ""
    sources: tuple[Source, ...] = ()
    """What the text rests on, where another agent looked it up for this run."""
    about: About = ""
    knowledge: Knowledge | None = None
    private: tuple[str, ...] = ()
    """The private data that a parent had read when it wrote this."""
    brought: tuple[str, ...] = ()
    """Files of the project that were copied into the workspace, because a person has named them."""


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


def now() -> float:
    return time.time()
