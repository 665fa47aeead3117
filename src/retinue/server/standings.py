"""How the runs of a workflow stand, for whoever watches it: told when it changes, and not worked out again.

What is told are the columns of `runs`, which the store keeps as events are written, with what nobody works on
any more as interrupted (`engine.shown`). `Standings` belongs to one channel of the hub: an event says which
run it may have moved, and those rows and the ones above them are read together, once for everybody and a few
times a second at most. A row that is as it was is not told. Never reads a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable

import msgspec
from msgspec import Struct

from retinue.app import Retinue
from retinue.errors import StoreError
from retinue.events import Event, RunResumed
from retinue.standing import waited
from retinue.store.base import RunRow
from retinue.store.projection import may_change
from retinue.types import Outcome, Shortfall, Status

SOON = 0.1
"""Seconds between two looks at the rows: what happens meanwhile is told together."""


class TreeTotal(Struct, frozen=True, kw_only=True):
    """Of a run and everything below it."""

    runs: int
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None


class RunStanding(Struct, frozen=True, kw_only=True, tag_field="type", tag="standing"):
    """One run as it stands at a moment. Without a place: it follows from what has one."""

    run_id: str
    root_id: str
    at: float
    """When this was so: `worked` and `waited` are seconds up to then."""
    status: Status
    outcome: Outcome
    ended: float | None
    worked: float
    works: bool
    """Whether its clock runs."""
    waited: float
    waits: bool
    """Whether it or something below it waits for a person or for a limit of its provider."""
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    total: TreeTotal
    shortfall: Shortfall


def standing(row: RunRow, now: float) -> RunStanding:
    going = row.completed_at is None and row.outcome != "interrupted"
    return RunStanding(
        run_id=row.run_id,
        root_id=row.root_id,
        at=now,
        status=row.status,
        outcome=row.outcome,
        ended=row.completed_at,
        worked=row.seconds(now),
        works=going and row.duration_ms is None and row.began_at is not None and row.held_since is None,
        waited=waited(row, now),
        waits=going and row.waiting > 0,
        turns=row.turns,
        tool_calls=row.tool_calls,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost=row.cost,
        total=TreeTotal(
            runs=row.tree_runs,
            turns=row.tree_turns,
            tool_calls=row.tree_tool_calls,
            input_tokens=row.tree_input_tokens,
            output_tokens=row.tree_output_tokens,
            cost=row.tree_cost,
        ),
        shortfall=row.shortfall,
    )


def as_json(rows: Iterable[RunRow]) -> bytes:
    now = time.time()
    return msgspec.json.encode([standing(row, now) for row in rows])


def _frame(row: RunRow) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(standing(row, time.time()))


class Standings:
    """Of one workflow that somebody watches. `tell` is given each run that has moved, and its frame."""

    def __init__(self, retinue: Retinue, root_id: str, tell: Callable[[str, bytes], None]) -> None:
        self._retinue, self._root_id, self._tell = retinue, root_id, tell
        self._rows: dict[str, RunRow] = {}
        self._parents: dict[str, str | None] = {}
        self._touched: set[str] = set()
        self._everyone = False
        self._stirred = asyncio.Event()
        self.opened: asyncio.Task[None] = asyncio.create_task(self._open())
        """Done when it is known how all of them stand."""
        self._task: asyncio.Task[None] | None = None

    def touch(self, event: Event) -> None:
        """Something happened to a run. Whoever takes a workflow up again works on all of it."""
        self._parents[event.run_id] = event.parent_id
        if isinstance(event, RunResumed):
            self._everyone = True
        elif not may_change(event):
            return
        self._touched.add(event.run_id)
        self._stirred.set()

    def frames(self, run_ids: Collection[str] | None, only: str | None) -> bytes:
        """How these runs and those above them stand, or all of them; `only` leaves out the others."""
        wanted = self._rows if run_ids is None else self._with_above(run_ids)
        found = (self._rows[one] for one in wanted if one in self._rows and only in (None, one))
        return b"".join(_frame(row) for row in found)

    async def _open(self) -> None:
        for row in await self._retinue.shown.standings(self._root_id):
            self._rows[row.run_id] = row
            self._parents[row.run_id] = row.parent_id
        self._task = asyncio.create_task(self._keep(), name=f"standings of {self._root_id}")

    async def _keep(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            await self._look()
            await asyncio.sleep(SOON)

    async def _look(self) -> None:
        touched, self._touched = self._touched, set()
        everyone, self._everyone = self._everyone, False
        with contextlib.suppress(StoreError):
            among = None if everyone else self._with_above(touched)
            for row in await self._retinue.shown.standings(self._root_id, among):
                if self._rows.get(row.run_id) != row:
                    self._rows[row.run_id] = row
                    self._tell(row.run_id, _frame(row))
            return
        self._touched |= touched  # the next look finds it
        self._everyone |= everyone
        self._stirred.set()

    def _with_above(self, run_ids: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for one in run_ids:
            above: str | None = one
            while above is not None and above not in found:
                found.add(above)
                above = self._parents.get(above)
        return found

    def close(self) -> None:
        self.opened.cancel()
        if self._task is not None:
            self._task.cancel()
            self._task = None
