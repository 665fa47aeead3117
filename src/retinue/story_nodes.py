"""What a `Story` is made of: runs and their calls, as people are shown them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from retinue.events import ApprovalRequested, ChildEnded, Event, LimitReached, StepRetried, ToolReturned
from retinue.standing import Standing, call_outcome, held, holding, moved, shown, waited, worked
from retinue.types import ENDED, Effort, NotRun, Outcome, Report, Shortfall, Status, Usage

Asking = Literal["", "thinking", "writing", "retrying", "parked"]
"""What an open model call is doing."""


class Took(Struct, frozen=True, kw_only=True):
    """Time and tokens of one piece of work."""

    duration_ms: int
    usage: Usage


@dataclass(kw_only=True, slots=True, eq=False)
class Call:
    """A tool call that runs, or the last one that ran. `delegated`: the children it started show it.

    Of one that never ran, `not_run` is why and `said` what the model was told.
    """

    name: str
    began: float
    arguments: str = "{}"
    not_run: NotRun = ""
    said: str = ""
    progress: str = ""
    ended: float | None = None
    is_error: bool = False
    delegated: bool = False
    cleared: bool = False
    """It ran because a reviewer took it for harmless: no person was asked."""


@dataclass(kw_only=True, slots=True, eq=False)
class Node:
    """One run of the workflow."""

    run_id: str
    agent: str
    began: float
    parent: Node | None = None
    icon: str = ""
    label: str = ""
    task: str = ""
    model: str = ""
    effort: Effort = ""
    """How hard its model was last asked to think, as its provider took it."""
    background: bool = False
    standing: Standing = field(default_factory=Standing)
    step: int = 0
    asking: Asking = ""
    retried: StepRetried | None = None
    """Why the model is asked again, while it is."""
    parked: LimitReached | None = None
    """Until when its provider takes nothing more, and why."""
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    last: Call | None = None
    waiting: dict[str, ApprovalRequested] = field(default_factory=dict[str, ApprovalRequested])
    children: list[Node] = field(default_factory=list["Node"])
    ends: dict[str, ChildEnded] = field(default_factory=dict[str, ChildEnded])
    """How its children ended, as its own log has it."""
    asked_after: dict[str, ChildEnded] = field(default_factory=dict[str, ChildEnded])
    """How children that were asked again had ended by then."""
    before: Report | None = None
    """Its last report when it was asked again."""
    returned: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """How its calls ended: of a log of an earlier version, whose events do not say so."""
    unknown: list[Call] = field(default_factory=list[Call])
    """Calls of this turn that were cut off, and whose outcome nobody knows."""
    unmerged: set[str] = field(default_factory=set[str])
    """Children whose work was to be merged in this turn, and was not."""
    cleared: set[str] = field(default_factory=set[str])
    """Calls that a reviewer cleared: no person was asked."""
    own: Usage = Usage()
    tool_calls: int = 0
    report: Report | None = None
    failure: str = ""
    failure_kind: str = ""
    interrupted: bool = False
    """The process that worked on it is gone. No log says so: whoever knows sets it."""
    courtesy: bool = False
    """It looked the question up before its parent began: that goes on without it, and lacks nothing."""
    last_at: float = 0.0

    @property
    def status(self) -> Status:
        return self.standing.status

    @property
    def ended(self) -> float | None:
        return self.standing.completed_at

    @property
    def over(self) -> bool:
        return self.status in ENDED

    @property
    def outcome(self) -> Outcome:
        """The one word for how it stands: what lacks a part, here or below, is not simply completed."""
        return shown(self.standing.outcome, self.standing.waiting, left=self.interrupted)

    @property
    def shortfall(self) -> Shortfall:
        """What it and those below it that have ended went without."""
        return self.standing.shortfall

    @property
    def lacking(self) -> Shortfall:
        """What its parent goes without because of it, where the log does not say so."""
        incomplete = self.status == "completed" and self.report is not None and self.report.incomplete
        own = Shortfall(failed=int(self.status == "error"), incomplete=int(bool(incomplete)))
        return self.shortfall + own

    @property
    def usage(self) -> Usage:
        """Of the run and everything below it."""
        if self.report is not None:
            return self.report.usage
        return sum((child.usage for child in self.children), self.own)

    def seconds(self, now: float) -> float:
        """How long it worked: without the times when a person was waited for, or nobody worked on it."""
        if self.report is not None:
            return self.report.duration_ms / 1000
        return worked(self.standing, self._until(now))

    def waited(self, now: float) -> float:
        """How long a person was waited for, here or below."""
        return waited(self.standing, self._until(now))

    def _until(self, now: float) -> float:
        return self.ended or (self.last_at if self.interrupted else now)

    def outcome_of(self, event: ToolReturned) -> Outcome:
        """How a call ended, in one word: one that started children as the worst of them."""
        return event.outcome or self.returned.get(event.call_id) or self.ended_now(event)

    def ended_now(self, event: ToolReturned) -> Outcome:
        """The same for a call that ends at this moment, by what is known of its children."""
        waited_for = {child.run_id for child in self.children if not child.background}
        return call_outcome(event, event.call_id, self.ends.values(), waited_for)

    def move(self, event: Event) -> None:
        """An event of its own: it stands elsewhere now, and so may those above it."""
        before, self.standing = self.standing, moved(self.standing, event)
        more = holding(self.standing) - holding(before)
        above = self.parent if more else None
        while above is not None:
            above.standing, above = held(above.standing, more, event.at), above.parent

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()
