"""What a span is, and the ids of spans: derived from the ids of runs, so that whoever reads a log, when and
where ever, gives the same trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]
Kind = Literal["internal", "client"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanMark:
    """Something that happened at one moment of a span."""

    name: str
    at: float
    attributes: Mapping[str, Value] = field(default_factory=dict[str, Value])


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanLink:
    """Another span that this one follows."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A piece of work that has ended. `error` is the kind of failure, empty for none."""

    trace_id: str
    span_id: str
    parent_id: str
    operation: str
    subject: str
    start: float
    end: float
    kind: Kind = "internal"
    attributes: Mapping[str, Value]
    marks: tuple[SpanMark, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str = ""
    message: str = ""

    @property
    def name(self) -> str:
        return f"{self.operation} {self.subject}".rstrip()

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0.0)


def trace_id(root_id: str, turn: int) -> str:
    """One trace for each turn of a conversation: they may be days apart."""
    return sha256(f"retinue trace {root_id} {turn}".encode()).hexdigest()[:32]


def span_id(run_id: str, what: str, key: int) -> str:
    """`key` is the place in the run's log where it begins."""
    return sha256(f"retinue span {run_id} {what} {key}".encode()).hexdigest()[:16]
