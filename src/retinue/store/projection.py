"""What the events of a run do to its row in `runs`: pure functions, shared by every store.

A store hands over the events of one batch and gets back one `Change` per run, however many events the run
had. Sums are added to what the row holds; where a run stands (its status, its open questions, how it
ended) is computed from where it stood, which a store looks up only when `Change.needs_standing` says so:
a run asks a person, or ends, far less often than it calls a model.

Touches no database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    HistoryPruned,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.store.base import RunRow
from retinue.types import Status, Usage

# Every turn rewrites the row, so a long prompt must not ride along; the log has it whole.
TASK_CHARS = 2000
SUMMARY_CHARS = 500


class Standing(Struct, frozen=True, kw_only=True):
    """Where a run stands. `approvals` are its open questions: approval id to the seq that asked."""

    status: Status = "pending"
    approvals: dict[str, int] = {}
    duration_ms: int | None = None
    summary: str | None = None
    error: str | None = None
    completed_at: float | None = None


def standing_of(values: Sequence[Any]) -> Standing:
    """Where a run stands, as its row has it: status, approvals, duration, summary, error, end."""
    status, approvals, duration_ms, summary, error, completed_at = values
    return Standing(
        status=status,
        approvals=unpack(approvals),
        duration_ms=duration_ms,
        summary=summary,
        error=error,
        completed_at=completed_at,
    )


class StoredRun(RunRow, frozen=True, kw_only=True):
    """A whole row of `runs`, in the order of its columns."""

    approvals: str


_approvals = msgspec.json.Decoder(dict[str, int])


class Change:
    """What one batch of events does to one row. Mutable while the batch is read."""

    __slots__ = (
        "cost",
        "input_tokens",
        "moves",
        "output_tokens",
        "run_id",
        "standing",
        "started",
        "tool_calls",
        "turns",
    )

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.turns = 0
        self.tool_calls = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost: float | None = 0.0
        self.started: RunStarted | None = None
        self.moves: list[Event] = []
        self.standing: Standing | None = None

    @property
    def needs_standing(self) -> bool:
        return bool(self.moves) and self.started is None

    @property
    def spends(self) -> bool:
        return bool(self.turns or self.tool_calls or self.input_tokens or self.output_tokens) or (
            self.cost != 0.0
        )

    def add(self, usage: Usage) -> None:
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost = None if self.cost is None or usage.cost is None else self.cost + usage.cost

    def settle(self, before: Standing | None) -> None:
        """Compute `standing` from where the run stood; None if it has no row yet."""
        standing = before or Standing()
        for event in self.moves:
            standing = move(standing, event)
        self.standing = standing


def changes(batch: Iterable[Sequence[Event]]) -> dict[str, Change]:
    """One change per run that has any. A run that starts here is settled already."""
    found: dict[str, Change] = {}
    for events in batch:
        for event in events:
            note = _NOTES.get(type(event))
            if note is not None:
                change = found.get(event.run_id)
                if change is None:
                    change = found[event.run_id] = Change(event.run_id)
                note(change, event)
    for change in found.values():
        if change.started is not None:
            change.settle(None)
    return found


def _note_spending(change: Change, event: ToolReturned | HistoryPruned) -> None:
    change.add(event.usage)


def _note_reply(change: Change, event: ModelReplied) -> None:
    change.turns += 1
    change.add(event.usage)


def _note_call(change: Change, event: ToolCalled) -> None:
    change.tool_calls += 1


def _note_move(change: Change, event: Event) -> None:
    change.moves.append(event)


def _note_start(change: Change, event: RunStarted) -> None:
    change.started = event
    change.moves.append(event)


_NOTES: dict[type[Event], Callable[[Change, Any], None]] = {
    RunStarted: _note_start,
    RunResumed: _note_move,
    ModelReplied: _note_reply,
    ToolCalled: _note_call,
    ToolReturned: _note_spending,
    HistoryPruned: _note_spending,
    ApprovalRequested: _note_move,
    ApprovalAnswered: _note_move,
    MessageReceived: _note_move,
    RunFinished: _note_move,
}


def move(standing: Standing, event: Event) -> Standing:
    """Where a run stands after an event: the same answer as folding its whole log."""
    change = msgspec.structs.replace
    if isinstance(event, RunStarted):
        return change(standing, status="running")
    if isinstance(event, ApprovalRequested):
        approvals = {**standing.approvals, event.approval_id: event.seq}
        return change(standing, status="waiting", approvals=approvals)
    if isinstance(event, ApprovalAnswered):
        approvals = {id: seq for id, seq in standing.approvals.items() if id != event.approval_id}
        return change(standing, status="waiting" if approvals else "running", approvals=approvals)
    if isinstance(event, RunResumed):
        return _reopen(standing, "waiting" if standing.approvals else "running")
    if isinstance(event, MessageReceived):
        return _reopen(standing, "running") if standing.completed_at is not None else standing
    if isinstance(event, RunFinished):
        report = event.report
        return change(
            standing,
            status=report.status,
            duration_ms=report.duration_ms,
            summary=clean(report.text, SUMMARY_CHARS) or None,
            error=None if report.error is None else clean(report.error, TASK_CHARS),
            completed_at=event.at,
        )
    return standing


def _reopen(standing: Standing, status: Status) -> Standing:
    # The last answer stays to be seen in lists until there is a newer one.
    return msgspec.structs.replace(standing, status=status, duration_ms=None, error=None, completed_at=None)


def new_row(change: Change) -> StoredRun:
    """The row of a run that started in this batch."""
    started, standing = change.started, change.standing
    assert started is not None
    assert standing is not None
    return StoredRun(
        run_id=started.run_id,
        root_id=started.root_id,
        parent_id=started.parent_id,
        depth=started.depth,
        agent=clean(started.spec.name),
        label=clean(started.label),
        task=clean(started.prompt, TASK_CHARS),
        model=clean(started.model),
        status=standing.status,
        turns=change.turns,
        tool_calls=change.tool_calls,
        input_tokens=change.input_tokens,
        output_tokens=change.output_tokens,
        cost=change.cost,
        duration_ms=standing.duration_ms,
        summary=standing.summary,
        error=standing.error,
        cwd=clean(started.cwd),
        created_at=started.at,
        completed_at=standing.completed_at,
        approvals=pack(standing.approvals),
    )


def clean(text: str, limit: int = TASK_CHARS) -> str:
    """Cut to a length, and without NUL, which PostgreSQL cannot hold in text."""
    return text[:limit].replace("\0", "")


def pack(approvals: dict[str, int]) -> str:
    return msgspec.json.encode(approvals).decode() if approvals else ""


def unpack(text: str) -> dict[str, int]:
    return _approvals.decode(text) if text else {}
