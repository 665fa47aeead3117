"""The columns of `runs`, each declared once: a field of `StoredRun` says what it holds and what makes it.

From these fields come the columns in `sql/` and in PostgreSQL's append function, what is inserted, updated
and selected, the store in memory, and, by its name in `RunFilter`, the filter for it. A column that is added
later says `since` which version; `migrate` adds it to older databases and fills it from their logs. Touches
no database and changes no row: `projection` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

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
from retinue.types import Status

# Every turn rewrites the row, so a long prompt must not ride along; the log has it whole.
TASK_CHARS = 2000
SUMMARY_CHARS = 500

Standing = Mapping[str, Any]
"""Where a run stands: the `Moved` columns of its row by their names."""


class Started(Struct, frozen=True):
    """Written once, when the run starts."""

    value: Callable[[RunStarted], Any]
    since: int = 1


class Added(Struct, frozen=True):
    """A sum: each event of these kinds adds to it. None is unknown, and so is a sum with it."""

    by: Mapping[type[Event], Callable[[Any], Any]]
    since: int = 1


class Moved(Struct, frozen=True):
    """A state: an event of these kinds makes a new one of where the run stood before it."""

    by: Mapping[type[Event], Callable[[Standing, Any], Any]]
    first: Any = None
    since: int = 1


How = Started | Added | Moved


def clean(text: str, limit: int = TASK_CHARS) -> str:
    """Cut to a length, and without NUL, which PostgreSQL cannot hold in text."""
    return text[:limit].replace("\0", "")


_approvals = msgspec.json.Decoder(dict[str, int])


def pack(approvals: dict[str, int]) -> str:
    return msgspec.json.encode(approvals).decode() if approvals else ""


def unpack(text: str) -> dict[str, int]:
    """Open questions: approval id to the seq that asked."""
    return _approvals.decode(text) if text else {}


def _asked(before: Standing, event: ApprovalRequested) -> str:
    return pack({**unpack(before["approvals"]), event.approval_id: event.seq})


def _answered(before: Standing, event: ApprovalAnswered) -> str:
    return pack({id: seq for id, seq in unpack(before["approvals"]).items() if id != event.approval_id})


def _reopened(name: str, value: Any = None) -> Callable[[Standing, Event], Any]:
    """Of what a person said, only that to a run that had ended opens it again."""
    return lambda before, event: value if before["completed_at"] is not None else before[name]


_SPENT_BY = (ModelReplied, ToolReturned, HistoryPruned)


class RunRow(Struct, frozen=True, kw_only=True):
    """One execution as a record. Tokens and cost are the run's own, without its children's.

    `task` and `summary` are cut to a length that suits a list; the log has them whole. The last answer stays
    to be seen in lists while a run goes on, until there is a newer one.
    """

    run_id: Annotated[str, Started(lambda e: e.run_id)]
    root_id: Annotated[str, Started(lambda e: e.root_id)]
    parent_id: Annotated[str | None, Started(lambda e: e.parent_id)]
    depth: Annotated[int, Started(lambda e: e.depth), "INTEGER"]
    agent: Annotated[str, Started(lambda e: clean(e.spec.name))]
    label: Annotated[str, Started(lambda e: clean(e.label))]
    task: Annotated[str, Started(lambda e: clean(e.prompt))]
    model: Annotated[str, Started(lambda e: clean(e.model))]
    status: Annotated[
        Status,
        Moved(
            {
                RunStarted: lambda before, e: "running",
                ApprovalRequested: lambda before, e: "waiting",
                ApprovalAnswered: lambda before, e: "waiting" if _answered(before, e) else "running",
                RunResumed: lambda before, e: "waiting" if before["approvals"] else "running",
                MessageReceived: _reopened("status", "running"),
                RunFinished: lambda before, e: e.report.status,
            },
            first="pending",
        ),
    ]
    turns: Annotated[int, Added({ModelReplied: lambda e: 1}), "INTEGER"]
    tool_calls: Annotated[int, Added({ToolCalled: lambda e: 1}), "INTEGER"]
    input_tokens: Annotated[int, Added(dict.fromkeys(_SPENT_BY, lambda e: e.usage.input_tokens))]
    output_tokens: Annotated[int, Added(dict.fromkeys(_SPENT_BY, lambda e: e.usage.output_tokens))]
    cost: Annotated[float | None, Added(dict.fromkeys(_SPENT_BY, lambda e: e.usage.cost))]
    duration_ms: Annotated[
        int | None,
        Moved(
            {
                RunResumed: lambda before, e: None,
                MessageReceived: _reopened("duration_ms"),
                RunFinished: lambda before, e: e.report.duration_ms,
            }
        ),
    ]
    summary: Annotated[
        str | None, Moved({RunFinished: lambda before, e: clean(e.report.text, SUMMARY_CHARS) or None})
    ]
    error: Annotated[
        str | None,
        Moved(
            {
                RunResumed: lambda before, e: None,
                MessageReceived: _reopened("error"),
                RunFinished: lambda before, e: None if e.report.error is None else clean(e.report.error),
            }
        ),
    ]
    cwd: Annotated[str, Started(lambda e: clean(e.cwd))]
    created_at: Annotated[float, Started(lambda e: e.at)]
    completed_at: Annotated[
        float | None,
        Moved(
            {
                RunResumed: lambda before, e: None,
                MessageReceived: _reopened("completed_at"),
                RunFinished: lambda before, e: e.at,
            }
        ),
    ]


class StoredRun(RunRow, frozen=True, kw_only=True):
    """A whole row of `runs`, in the order of its columns. Here are those that only the store reads."""

    approvals: Annotated[str, Moved({ApprovalRequested: _asked, ApprovalAnswered: _answered}, first="")]


class Column(Struct, frozen=True, kw_only=True):
    """A field of `StoredRun`, read."""

    name: str
    type: str
    """As PostgreSQL calls it, or `{double}`."""
    null: bool
    how: How

    @property
    def first(self) -> Any:
        """What a row has before any event."""
        return self.how.first if isinstance(self.how, Moved) else 0 if isinstance(self.how, Added) else None

    @property
    def ddl(self) -> str:
        return f"{self.name} {self.type}{'' if self.null else ' NOT NULL'}"


@cache
def columns() -> tuple[Column, ...]:
    hints = get_type_hints(StoredRun, globals(), include_extras=True)  # where the functions find their names
    return tuple(_column(name, hints[name]) for name in StoredRun.__struct_fields__)


def _column(name: str, hint: Any) -> Column:
    kind, *notes = get_args(hint)
    how = next(note for note in notes if isinstance(note, How))
    given = next((note for note in notes if isinstance(note, str)), None)
    kinds = get_args(kind) if get_origin(kind) is not Literal and get_args(kind) else (kind,)
    base = next(each for each in kinds if each is not NoneType)
    sql = {int: "BIGINT", float: "{double}"}.get(base, "TEXT")
    return Column(name=name, type=given or sql, null=NoneType in kinds, how=how)


def added() -> tuple[str, ...]:
    """The names of the sums."""
    return tuple(column.name for column in columns() if isinstance(column.how, Added))


def moved() -> tuple[str, ...]:
    """The names of what tells where a run stands."""
    return tuple(column.name for column in columns() if isinstance(column.how, Moved))
