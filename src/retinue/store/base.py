"""What a store is: an append-only log of events, the runs computed from it, letters, and a cache.

Two implementations, SQLite and PostgreSQL, pass one contract suite. `append` puts events in line at once,
in the order of the calls, and the future it returns is done when they are on disk. Writers of the same
run are fenced by the key `(run_id, seq)`: the second to write a seq gets `Fenced`.

Letters are how anyone outside the process that runs a workflow speaks to it: a cancel, an answer to an
approval, a message. The first letter with a given key wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from retinue.events import AnyEvent, Event
from retinue.types import Status

LetterKind = Literal["cancel", "answer", "message"]


class RunRow(Struct, frozen=True, kw_only=True):
    """One execution as a record. Tokens and cost are the run's own, without its children's."""

    run_id: str
    root_id: str
    parent_id: str | None
    depth: int
    agent: str
    label: str
    task: str
    model: str
    status: Status
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    duration_ms: int | None
    summary: str | None
    error: str | None
    cwd: str
    created_at: float
    completed_at: float | None


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first. `before` pages: only runs created before that time."""

    status: Status | None = None
    agent: str | None = None
    root_id: str | None = None
    parent_id: str | None = None
    roots_only: bool = False
    since: float | None = None
    before: float | None = None
    min_cost: float | None = None
    text: str | None = None
    limit: int = 50


class Letter(Struct, frozen=True, kw_only=True):
    """`key` makes it unique within its workflow: an answer's is its approval id."""

    root_id: str
    run_id: str
    kind: LetterKind
    key: str
    body: str
    at: float
    id: int = 0


class Store(Protocol):
    async def open(self) -> None:
        """Create or migrate the schema. Raises `StoreError` if the database is newer or damaged."""
        ...

    async def close(self) -> None:
        """Write what is in line, then close."""
        ...

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        """All of these events or none, in one transaction. Each gets its `pos` before the future is done."""
        ...

    async def events(
        self, root_id: str, *, after: int = 0, run_id: str | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        """A workflow's events in order, from after a cursor; of one run if `run_id` is given."""
        ...

    async def run(self, run_id: str) -> RunRow | None: ...

    async def runs(self, which: RunFilter) -> list[RunRow]: ...

    async def post(self, letter: Letter) -> bool:
        """False if a letter with this key was there before."""
        ...

    async def letters(self, root_id: str, *, after: int = 0) -> list[Letter]: ...

    async def letter(self, root_id: str, key: str) -> Letter | None: ...

    def subscribe(self, root_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever this workflow may have new events or letters, whoever wrote them.

        Returns the function that ends the subscription. Within a process `wake` follows a commit at once;
        from another process well under 100 ms later.
        """
        ...

    async def delete(self, root_id: str) -> None:
        """Remove a whole workflow."""
        ...

    async def cached(self, scope: str, key: str) -> tuple[bytes, float] | None:
        """A value and when it expires; None if absent or expired."""
        ...

    async def cache(self, scope: str, key: str, value: bytes, ttl: float) -> None: ...
