"""What is under way in one run, as far as spans are concerned: its turn, its calls, those it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from retinue.events import RunStarted
from retinue.telemetry import names
from retinue.telemetry.span import Attributes, Kind, Span, SpanLink, SpanMark
from retinue.types import Usage


@dataclass(kw_only=True, slots=True)
class OpenSpan:
    """A span that has begun."""

    operation: str
    subject: str
    start: float
    span_id: str
    parent_id: str
    kind: Kind = "internal"
    attributes: Attributes = field(default_factory=dict[str, Any])
    marks: list[SpanMark] = field(default_factory=list[SpanMark])
    links: tuple[SpanLink, ...] = ()

    def ended(self, trace_id: str, at: float, *, error: str = "", message: str = "") -> Span:
        attributes: Attributes = {names.OPERATION: self.operation, **self.attributes}
        if error:
            attributes[names.ERROR_TYPE] = error
        return Span(
            trace_id=trace_id,
            span_id=self.span_id,
            parent_id=self.parent_id,
            operation=self.operation,
            subject=self.subject,
            start=self.start,
            end=max(at, self.start),
            kind=self.kind,
            attributes=attributes,
            marks=tuple(self.marks),
            links=self.links,
            error=error,
            message=message,
        )


@dataclass(kw_only=True, slots=True)
class RunTrace:
    """One run of a workflow: its turn under way, and what is open in it."""

    began: RunStarted
    model: str
    turn: int = 0
    trace_id: str = ""
    workflow: OpenSpan | None = None
    """Of the root alone."""
    agent: OpenSpan | None = None
    chat: OpenSpan | None = None
    parked: OpenSpan | None = None
    calls: dict[str, OpenSpan] = field(default_factory=dict[str, OpenSpan])
    waits: dict[str, OpenSpan] = field(default_factory=dict[str, OpenSpan])
    before: tuple[SpanLink, ...] = ()
    """The turn before this one."""
    own: Usage = Usage()
    inference_calls: int = 0
    tool_calls: int = 0
    waited_before: float = 0.0
    failure: str = ""
    failure_text: str = ""

    @property
    def name(self) -> str:
        return self.began.spec.name

    def start_turn(self) -> None:
        self.turn += 1
        self.own, self.inference_calls, self.tool_calls = Usage(), 0, 0
        self.failure = self.failure_text = ""
