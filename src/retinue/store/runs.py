"""The columns of `runs`, each declared once: a field of `StoredRun` says what it holds and what makes it.

From these fields come the columns in `sql/` and in PostgreSQL's append function, what is inserted, updated
and selected, the store in memory, and, by its name in `RunFilter`, the filter for it. A column that is added
later says `since` which version; `migrate` adds it to older databases and fills it from their logs. How a run
stands is not worked out here but in `standing`. Touches no database and changes no row: `projection` does
that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from retinue.events import (
    CallCut,
    CallReviewed,
    ChildEnded,
    ClaimsJudged,
    CopyLeft,
    Event,
    HistoryPruned,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    RunFinished,
    RunQueued,
    RunRenamed,
    RunResumed,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.standing import Standing, worked
from retinue.types import Effort, Outcome, Shortfall, Status, Usage, round_money

# Every turn rewrites the row, so a long prompt must not ride along; the log has it whole.
TASK_CHARS = 2000
SUMMARY_CHARS = 500

KeptColumns = Mapping[str, Any]
"""Where a run stands: the `Moved` and `Stands` columns of its row by their names."""


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

    by: Mapping[type[Event], Callable[[KeptColumns, Any], Any]]
    first: Any = None
    since: int = 1


class Stands(Struct, frozen=True):
    """A field of `standing.Standing`, by the same name."""

    since: int = 1


class Rolled(Struct, frozen=True):
    """A sum over a run and everything below it: of an `Added` column, or of the runs themselves."""

    of: str = ""
    since: int = 1


How = Started | Added | Moved | Stands | Rolled


def clean(text: str, limit: int = TASK_CHARS) -> str:
    """Cut to a length, and without NUL, which PostgreSQL cannot hold in text."""
    return text[:limit].replace("\0", "")


def _json(found: Mapping[str, str]) -> str:
    return msgspec.json.encode(found).decode().replace("\0", "")


def _reopened(name: str) -> Callable[[KeptColumns, Event], Any]:
    """Of what a person said, only that to a run that had ended opens it again."""
    return lambda before, event: None if before["completed_at"] is not None else before[name]


def _taken_by(before: KeptColumns, event: RunStarted | RunResumed | RunQueued) -> str:
    """Who works on it from here on. Logs of earlier versions name a process instead."""
    return event.owner or (f"{event.pid} {event.at!r} {event.host}" if event.host else "")


def _spent(what: Callable[[Usage], Any]) -> Mapping[type[Event], Callable[[Any], Any]]:
    return {
        ModelReplied: lambda e: what(e.usage),
        ToolReturned: lambda e: what(e.usage),
        HistoryPruned: lambda e: what(e.usage),
        CallReviewed: lambda e: what(e.usage),
        ModelSampled: lambda e: what(e.usage),
        ClaimsJudged: lambda e: what(e.usage),
        CallCut: lambda e: what(e.usage),
        RunResumed: lambda e: what(e.cut),
        ChildEnded: lambda e: what(e.telling),
        RunFinished: lambda e: what(e.cut),
    }


class RunRow(Struct, frozen=True, kw_only=True):
    """One execution as a record. Tokens, `cost` (US dollars), turns and calls are the run's own; those that
    begin with `tree_` are of the run and everything below it (`tree_runs`, `tree_turns`, `tree_tool_calls`,
    `tree_input_tokens`, `tree_output_tokens`, `tree_cost`), and so are `waiting`, the questions that are
    open and the runs that wait for a limit of their provider, and what it went without, `Shortfall`:
    `rejected`, `refused`, `not_started`, `failed`, `incomplete`, `denied`.

    `root_id` is the workflow that it belongs to, `parent_id` the run that started it. `created_at`,
    `began_at` (of this turn of a conversation) and `completed_at` are in seconds since 1970; `duration_ms`
    is how long it worked, without `idle` and `waited`, the seconds in which nobody worked on it or a person
    was waited for; `held_since` is since when that is so. `cwd` is the folder it works in, `owner` who works
    on it, `metadata_json` what the program said of it.

    `parked_until` is when a run that waits for such a limit asks its model again. `effort` is how hard its
    model was last asked to think, as its provider took it. `copy_left` is 1 where a run has made something in
    its copy of the project that the project has not; `unmerged` counts such runs, itself and those below it.

    `outcome` as it is stored is what the log says: `Retinue.runs` tells what nobody works on any more. `task`
    and `summary` are cut to a length that suits a list; the log has them whole. The last answer stays to be
    seen in lists while a run goes on, until there is a newer one.
    """

    run_id: Annotated[str, Started(lambda e: e.run_id)]
    root_id: Annotated[str, Started(lambda e: e.root_id)]
    parent_id: Annotated[str | None, Started(lambda e: e.parent_id)]
    depth: Annotated[int, Started(lambda e: e.depth), "INTEGER"]
    agent: Annotated[str, Started(lambda e: clean(e.spec.name))]
    label: Annotated[
        str,
        Moved(
            dict.fromkeys((RunStarted, RunRenamed), lambda before, e: clean(e.label)),
            first="",
        ),
    ]
    task: Annotated[str, Started(lambda e: clean(e.prompt))]
    model: Annotated[str, Started(lambda e: clean(e.model))]
    status: Annotated[Status, Stands()]
    turns: Annotated[int, Added({ModelReplied: lambda e: 1}), "INTEGER"]
    tool_calls: Annotated[int, Added({ToolCalled: lambda e: 1}), "INTEGER"]
    input_tokens: Annotated[int, Added(_spent(lambda usage: usage.input_tokens))]
    output_tokens: Annotated[int, Added(_spent(lambda usage: usage.output_tokens))]
    cost: Annotated[float | None, Added(_spent(lambda usage: usage.cost))]
    duration_ms: Annotated[
        int | None,
        Moved(
            {
                RunResumed: lambda before, e: None,
                MessageReceived: _reopened("duration_ms"),
                RunFinished: lambda before, e: None if e.report.at_work else e.report.duration_ms,
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
    created_at: Annotated[float, Started(lambda e: e.forked_at or e.at)]
    completed_at: Annotated[float | None, Stands()]
    outcome: Annotated[Outcome, Stands(since=5)]
    waiting: Annotated[int, Stands(since=5), "INTEGER"]
    rejected: Annotated[int, Stands(since=5), "INTEGER"]
    refused: Annotated[int, Stands(since=5), "INTEGER"]
    not_started: Annotated[int, Stands(since=5), "INTEGER"]
    failed: Annotated[int, Stands(since=5), "INTEGER"]
    incomplete: Annotated[int, Stands(since=5), "INTEGER"]
    tree_runs: Annotated[int, Rolled(since=5), "INTEGER"]
    tree_turns: Annotated[int, Rolled("turns", since=5), "INTEGER"]
    tree_tool_calls: Annotated[int, Rolled("tool_calls", since=5), "INTEGER"]
    tree_input_tokens: Annotated[int, Rolled("input_tokens", since=5)]
    tree_output_tokens: Annotated[int, Rolled("output_tokens", since=5)]
    tree_cost: Annotated[float | None, Rolled("cost", since=5)]
    began_at: Annotated[float | None, Stands(since=5)]
    idle: Annotated[float, Stands(since=5)]
    waited: Annotated[float, Stands(since=5)]
    held_since: Annotated[float | None, Stands(since=5)]
    owner: Annotated[
        str,
        Moved(dict.fromkeys((RunStarted, RunResumed, RunQueued), _taken_by), first="", since=5),
    ]
    denied: Annotated[int, Stands(since=6), "INTEGER"]
    parked_until: Annotated[float | None, Stands(since=9)]
    metadata_json: Annotated[str, Started(lambda e: _json(e.options.metadata), since=10)]
    effort: Annotated[Effort, Moved({ModelReplied: lambda before, e: e.effort}, first="", since=12)]
    copy_left: Annotated[int, Added({CopyLeft: lambda e: e.more}, since=13), "INTEGER"]
    unmerged: Annotated[int, Rolled("copy_left", since=13), "INTEGER"]

    def __post_init__(self) -> None:
        round_money(self, "cost", "tree_cost")

    @property
    def metadata(self) -> dict[str, str]:
        """What the program said of the workflow when it started it."""
        return msgspec.json.decode(self.metadata_json, type=dict[str, str])

    @property
    def shortfall(self) -> Shortfall:
        """What the run and everything below it went without."""
        return Shortfall(**{name: getattr(self, name) for name in Shortfall.__struct_fields__})

    @property
    def tree_tokens(self) -> int:
        """Tokens of the run and everything below it."""
        return self.tree_input_tokens + self.tree_output_tokens

    @property
    def tree_usage(self) -> Usage:
        """What the run and everything below it used. How much of it was cached, no row says."""
        return Usage(
            input_tokens=self.tree_input_tokens, output_tokens=self.tree_output_tokens, cost=self.tree_cost
        )

    def seconds(self, now: float) -> float:
        """How long it worked: without the times when a person was waited for, or nobody worked on it."""
        return worked(self, now) if self.duration_ms is None else self.duration_ms / 1000


class StoredRun(RunRow, frozen=True, kw_only=True):
    """A whole row of `runs`, in the order of its columns. Here are those that only the store reads."""

    approvals: Annotated[str, Stands()]
    resumed: Annotated[int, Stands(since=5), "INTEGER"]


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
        if isinstance(self.how, Stands):
            return getattr(Standing(), self.name)
        return self.how.first if isinstance(self.how, Moved) else 0 if self.summed else None

    @property
    def summed(self) -> bool:
        return isinstance(self.how, Added | Rolled)

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


def summed() -> tuple[str, ...]:
    """The names of the sums."""
    return tuple(column.name for column in columns() if column.summed)


def stands() -> tuple[str, ...]:
    """The names of what `standing` says."""
    return tuple(column.name for column in columns() if isinstance(column.how, Stands))


def moved_columns() -> tuple[str, ...]:
    """The names of what tells where a run stands."""
    return tuple(column.name for column in columns() if isinstance(column.how, Moved | Stands))
