"""The event log: what an event is (`kinds`), and how it is written down. Everybody imports from here.

Every fact about a run is one `Event`, appended to that run's log and never changed. What a log means is
in `fold`.

This module touches no database. `pos` is the place of an event in its workflow's ordered stream; the
store assigns it.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from retinue.events.kinds import (
    QUEUE,
    VERSION,
    AccessDenied,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    Beside,
    CallCut,
    CallReviewed,
    CancelRequested,
    ChangesUndone,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    CodeWoken,
    CopyLeft,
    ErrorRaised,
    Event,
    FilesChanged,
    GuardSpoke,
    HistoryPruned,
    JudgedClaim,
    LimitPassed,
    LimitReached,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    RunFinished,
    RunQueued,
    RunRenamed,
    RunResumed,
    RunStarted,
    StepRetried,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.events.parts import (
    BEFORE_RULES,
    FOR_MORE,
    INQUIRY,
    KNOWLEDGE_FIRST,
    About,
    Decision,
    Knowledge,
    PromptPart,
    Purpose,
    RunOptions,
    Sender,
)

__all__ = [
    "BEFORE_RULES",
    "FOR_MORE",
    "INQUIRY",
    "KNOWLEDGE_FIRST",
    "QUEUE",
    "VERSION",
    "About",
    "AccessDenied",
    "AnyEvent",
    "ApprovalAnswered",
    "ApprovalRequested",
    "Beside",
    "CallCut",
    "CallReviewed",
    "CancelRequested",
    "ChangesUndone",
    "ChildEnded",
    "ChildStarted",
    "ClaimsJudged",
    "CodeWoken",
    "CopyLeft",
    "Decision",
    "ErrorRaised",
    "Event",
    "FilesChanged",
    "GuardSpoke",
    "HistoryPruned",
    "JudgedClaim",
    "Knowledge",
    "LimitPassed",
    "LimitReached",
    "LiveEvent",
    "MessageReceived",
    "ModelReplied",
    "ModelSampled",
    "Progressed",
    "PromptPart",
    "Purpose",
    "RunFinished",
    "RunOptions",
    "RunQueued",
    "RunRenamed",
    "RunResumed",
    "RunStarted",
    "Sender",
    "StepRetried",
    "StepStarted",
    "Streamed",
    "ToolCalled",
    "ToolReturned",
    "decode",
    "encode",
    "next_event",
    "now",
    "place",
]


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


E = TypeVar("E", bound=Event)
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


def next_event(before: Event, kind: type[E], /, *, seq: int | None = None, **fields: Any) -> E:
    """The event that follows another in the log of its run, or has the place `seq` there.

    For a run that nobody works on: one at work has its `RunLog`.
    """
    return kind(
        run_id=before.run_id,
        root_id=before.root_id,
        parent_id=before.parent_id,
        depth=before.depth,
        seq=before.seq + 1 if seq is None else seq,
        at=now(),
        **fields,
    )
