"""What a store is: an append-only log of events, the runs computed from it, files that it names, signals, and
a cache.

Three implementations, SQLite, PostgreSQL and one in memory, pass one contract suite. `append` puts events
in line at once, in the order of the calls, and the future it returns is done when they are on disk. Writers
of the same run are fenced by the key `(run_id, seq)`: the second to write a seq gets `Fenced`.

Signals are how anyone outside the process that runs a workflow speaks to it: a cancel, an answer to an
approval, a message. The first signal with a given key wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from retinue.events import AnyEvent, ApprovalRequested, Event, RunQueued, RunResumed, RunStarted
from retinue.parameters import check, check_word, texts
from retinue.standing import OPEN
from retinue.store.outage import Outage
from retinue.store.owner_lock import LockFile
from retinue.store.runs import RunRow as RunRow
from retinue.types import Outcome, Status, round_money

SignalKind = Literal["cancel", "answer", "message"]
FOREVER = 1e18
"""A moment after all others."""
TotalsBy = Literal["agent", "model", "day", "outcome"]
Taken = RunStarted | RunResumed | RunQueued


class Left(Struct, frozen=True, kw_only=True):
    """What nobody works on any more: runs of these owners, but for the workflows in `working`.

    No log and no store can say so. `engine.shown` finds it out.
    """

    owners: tuple[str, ...] = ()
    working: tuple[str, ...] = ()

    def has(self, row: RunRow) -> bool:
        return row.outcome in OPEN and row.owner in self.owners and row.root_id not in self.working


EVERYONE = Left()
"""Nothing is left by anybody, as far as is known."""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first, `limit` of them. `root_id` and `parent_id` are ids of runs,
    `roots_only` leaves out children, `since` is a time in seconds since 1970. `text` is looked for in task
    and summary, in any case, and `id_prefix` is how a run's id begins. `min_cost` is what a run and
    everything below it cost at least.

    `metadata` is what a workflow was started with, at least this; its root alone has it.

    `outcome` is the one that is shown: of what has not ended it depends on what is `left`, which
    `Retinue.runs` fills in.

    `before` pages: only runs created before that time. With `before_id` as well, runs created at that
    very time follow too, if they come after that run in the list. `among`: only these runs, by their ids.
    """

    status: Status | None = None
    outcome: Outcome | None = None
    left: Left = EVERYONE
    agent: str | None = None
    root_id: str | None = None
    parent_id: str | None = None
    id_prefix: str | None = None
    roots_only: bool = False
    among: tuple[str, ...] | None = None
    since: float | None = None
    before: float | None = None
    before_id: str | None = None
    min_cost: float | None = None
    text: str | None = None
    metadata: dict[str, str] = {}
    limit: int = 50

    def __post_init__(self) -> None:
        """A word that no run has would find nothing, and nobody would know why."""
        for name, words in (("status", Status), ("outcome", Outcome)):
            if getattr(self, name) is not None:
                check_word(name, getattr(self, name), words)
        check(bool, roots_only=self.roots_only)
        check(int, limit=self.limit)
        msgspec.structs.force_setattr(self, "metadata", texts(self.metadata))


class RunRows(list[RunRow]):
    """Some runs of a list. `more`: there are others after them, which the filter's `limit` left out."""

    def __init__(self, rows: Iterable[RunRow] = (), *, more: bool = False) -> None:
        super().__init__(rows)
        self.more = more


class Signal(Struct, frozen=True, kw_only=True):
    """`key` makes it unique within its workflow: an answer's is its approval id."""

    root_id: str
    run_id: str
    kind: SignalKind
    key: str
    body: str
    at: float
    id: int = 0


class KeptFile(Struct, frozen=True, kw_only=True):
    """A file of a run's workspace that its log names, or what was attached to a workflow.

    `data` is as whoever keeps it packed it. `seq` is the last event of the run when it was kept.
    """

    root_id: str
    run_id: str
    path: str
    seq: int
    at: float
    data: bytes


class Totals(Struct, frozen=True, kw_only=True):
    """What the runs of one agent, one model, one day or one outcome used together.

    `cost` is what is known; `unpriced` counts the runs whose cost is not.
    """

    key: str
    runs: int
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    unpriced: int
    duration_ms: int

    def __post_init__(self) -> None:
        round_money(self, "cost")


class OldRoot(Struct, frozen=True, kw_only=True):
    """A workflow that nothing has happened in for a while. `events` is how many it has."""

    root_id: str
    status: Status
    created_at: float
    last_at: float
    events: int


class OwnerRow(Struct, frozen=True, kw_only=True):
    """One who works on runs. `beats` rises every few seconds while it lives; `place` is the file that it
    holds a lock on, as `owner_lock` names it, if it could take one.

    `silent` is how many seconds ago that was by the database's own clock; None where it has none.
    """

    id: str
    beats: int
    place: str
    silent: float | None = None


class Store(Protocol):
    def hold_for(self, seconds: float | None) -> None:
        """How long what runs have written waits for a database that is locked, full or away.

        None: for as long as it takes. All that only begins something is refused sooner.
        """
        ...

    @property
    def outage(self) -> Outage | None:
        """What is wrong with the database at the moment."""
        ...

    def on_outage(self, hear: Callable[[Outage | None], None]) -> Callable[[], None]:
        """Call `hear` when the database begins to fail, with None when it is back. Returns how to end it."""
        ...

    async def open(self) -> None:
        """Create or migrate the schema. Raises `StoreError` if the database is newer or damaged."""
        ...

    async def close(self) -> None:
        """Write what is in line, then close. Raises `StoreError` if the file was deleted meanwhile."""
        ...

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        """All of these events or none, in one transaction. Each gets its `pos` before the future is done.

        If they are not stored, no later events of these runs are, until a run is begun or taken up again.
        Raises `Gone` for a workflow that has no event yet, unless the first of these begins it.
        """
        ...

    async def events(
        self, root_id: str, *, after: int = 0, run_id: str | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        """A workflow's events in order, from after a cursor; of one run if `run_id` is given."""
        ...

    async def tail(self, root_id: str, *, limit: int, run_id: str | None = None) -> list[AnyEvent]:
        """The last events of a workflow or of one run, in order."""
        ...

    async def count(self, root_id: str, *, run_id: str | None = None) -> int:
        """How many events a workflow or one run has."""
        ...

    async def run(self, run_id: str) -> RunRow | None: ...

    async def runs(self, which: RunFilter) -> list[RunRow]: ...

    async def tree(self, root_id: str) -> list[RunRow]:
        """Every run of a workflow, oldest first: a parent comes before its children."""
        ...

    async def waiting(self, root_id: str | None = None) -> list[ApprovalRequested]:
        """Questions nobody has answered yet, oldest first, of one workflow or of all."""
        ...

    async def totals(
        self, by: TotalsBy, *, since: float | None = None, utc_offset: float = 0, left: Left = EVERYONE
    ) -> list[Totals]:
        """Sums over runs created since then, the most expensive first; days in order.

        A day is `YYYY-MM-DD` where the clock is `utc_offset` seconds ahead of UTC.
        """
        ...

    async def open_owners(self) -> list[str]:
        """Whoever is the owner of a run that has not ended."""
        ...

    async def last_at(self, root_ids: Collection[str]) -> dict[str, float]:
        """When the last event of each of these workflows was."""
        ...

    async def send(self, signal: Signal) -> bool:
        """False if a signal with this key was there before."""
        ...

    async def signals(self, root_id: str, *, after: int = 0) -> list[Signal]: ...

    async def signal(self, root_id: str, key: str) -> Signal | None: ...

    async def keep(self, file: KeptFile) -> None:
        """Keep a file with the log, in the place of an earlier one of this path."""
        ...

    async def kept(self, root_id: str, run_id: str | None = None) -> list[KeptFile]:
        """The files that are kept with a workflow, or with one run of it, oldest first, in each version."""
        ...

    async def unkeep(self, root_id: str, run_id: str, path: str, seq: int) -> None: ...

    def subscribe(
        self, root_id: str, wake: Callable[[], None], *, signals: bool = False
    ) -> Callable[[], None]:
        """Call `wake` whenever this workflow may have new events or signals, whoever wrote them.

        With `signals`, events appended through this very store do not wake: only signals, and whatever
        another process wrote. That is for the process that runs the workflow, which knows its own events.
        Returns the function that ends the subscription. Within a process `wake` follows a commit at once;
        from another process well under 100 ms later.
        """
        ...

    @property
    def lock_file(self) -> LockFile | None:
        """Where those who work on runs of this store lock a file; None if nobody could look at it."""
        ...

    async def beat(self, owner: str, place: str) -> None:
        """Say that an owner of runs lives: begins its row, or moves its count. One statement."""
        ...

    async def release(self, owner: str) -> None:
        """An owner works on nothing any more, or is known to be dead: its row is removed."""
        ...

    async def owners(self) -> list[OwnerRow]: ...

    async def taken(self, root_id: str) -> Taken | None:
        """The event by which a workflow was begun, taken up or queued last: it names who works on it."""
        ...

    async def delete(self, root_id: str) -> None:
        """Remove a whole workflow. Whoever still works on it is told: its next append fails with `Gone`."""
        ...

    async def old_roots(self, before: float, *, limit: int | None = None) -> list[OldRoot]:
        """Workflows whose last event is older than that, oldest first."""
        ...

    async def strays(self, before: float, *, silent_since: float = FOREVER) -> list[str]:
        """What belongs to no workflow: events of one whose beginning is gone, as it was deleted, where none
        is of `silent_since` or later; and files and signals from before that time of one without an event,
        as it was never begun."""
        ...

    async def size(self) -> int:
        """Bytes in use. Space that deleted workflows left behind does not count."""
        ...

    async def compact(self) -> None:
        """Give the space that deleted workflows left behind back to the disk."""
        ...

    async def cached(self, scope: str, key: str) -> tuple[bytes, float] | None:
        """A value and when it expires; None if absent or expired."""
        ...

    async def cache(self, scope: str, key: str, value: bytes, ttl: float) -> None: ...

    async def recache(
        self, scope: str, key: str, change: Callable[[bytes | None], bytes], ttl: float
    ) -> None:
        """Read and write a value as one: no change that anyone makes meanwhile is lost.

        `change` only computes. It may be called more than once.
        """
        ...
