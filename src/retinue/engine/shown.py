"""Rows of runs as people see them: with what nobody works on any more as interrupted.

A store knows what the logs say, and no log can say that its process is gone. So the owners of what has not
ended are looked at once for a whole list, and what is shown, filtered and summed up goes by the same look.
Used by the app and, through it, by every list: never a log, never a question per row. `told_with_log` reads
the log of one run, for whoever shows that run alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import cast

import msgspec

from retinue.engine.abandoned import is_left_by_process
from retinue.engine.owners import Owners, Verdict
from retinue.events import AnyEvent
from retinue.standing import OPEN, shown, waited, worked
from retinue.store.base import EVERYONE, Left, RunFilter, RunRow, Store, Totals, TotalsBy
from retinue.story import Story

MOST_PARKED = 1000
"""Runs that wait for something which are looked at for a list."""
MOST_READ = 5000
"""Events of a workflow that are read to show one run of it."""
LOOKS = 3
"""How often sums are asked for where runs begin here meanwhile: the last of them may count one as left."""

Working = Callable[[], AbstractContextManager[Collection[str]]]


async def told_with_log(store: Store, row: RunRow) -> tuple[Story, list[AnyEvent]]:
    """The workflow of a run, and the run's own log with every fact that events have today.

    Of a very large workflow only that log is read.
    """
    only = None if await store.count(row.root_id) <= MOST_READ else row.run_id
    story, log = Story(), list[AnyEvent]()
    for event in await store.events(row.root_id, run_id=only):
        told = cast("AnyEvent", story.apply(event))
        if event.run_id == row.run_id:
            log.append(told)
    if row.outcome == "interrupted":
        story.interrupt()
    return story, log


def rows_below(rows: Iterable[RunRow], run_id: str) -> list[RunRow]:
    """A run of a tree and everything below it. Parents come before their children."""
    inside, found = {run_id}, list[RunRow]()
    for row in rows:
        if row.run_id in inside or row.parent_id in inside:
            inside.add(row.run_id)
            found.append(row)
    return found


class ShownRuns:
    """`working` opens a look at what is worked on right here: what began meanwhile is in it as well."""

    def __init__(self, store: Store, owners: Owners, *, working: Working) -> None:
        self._store, self._owners, self._working = store, owners, working

    async def runs(self, which: RunFilter) -> list[RunRow]:
        with self._working() as working:
            if which.outcome not in (*OPEN, "interrupted"):
                return await self._seen(await self._store.runs(which), working)
            left = await self._left(await self._store.open_owners(), working)
            found = await self._store.runs(msgspec.structs.replace(which, left=left))
            # One that began between the two looks is not what was asked for.
            return [row for row in await self._seen(found, working, left) if row.outcome == which.outcome]

    async def run(self, run_id: str) -> RunRow | None:
        with self._working() as working:
            row = await self._store.run(run_id)
            return None if row is None else (await self._seen([row], working))[0]

    async def tree(self, root_id: str) -> list[RunRow]:
        with self._working() as working:
            return await self._seen(await self._store.tree(root_id), working)

    async def standings(self, root_id: str, among: Collection[str] | None = None) -> list[RunRow]:
        """The runs of a workflow, all or some, each as it stands itself: `parked_until` is its own."""
        with self._working() as working:
            if among is None:
                return await self._with_left(await self._store.tree(root_id), working)
            which = RunFilter(root_id=root_id, among=tuple(among), limit=len(among))
            return await self._with_left(await self._store.runs(which), working)

    async def totals(
        self, by: TotalsBy, *, since: float | None = None, utc_offset: float = 0
    ) -> list[Totals]:
        found: list[Totals] = []
        with self._working() as working:
            for _ in range(LOOKS):
                left = EVERYONE
                if by == "outcome":
                    left = await self._left(await self._store.open_owners(), working)
                found = await self._store.totals(by, since=since, utc_offset=utc_offset, left=left)
                if by != "outcome" or len(working) == len(left.working):
                    break
        return found

    async def _seen(
        self, rows: Sequence[RunRow], working: Collection[str], left: Left | None = None
    ) -> list[RunRow]:
        """These rows with the outcome that is shown, and roots with the limits that are waited for below."""
        seen = await self._with_left(rows, working, left)
        below = await self._parked_below(rows)
        return [_parked(row, below) for row in seen] if below else seen

    async def _with_left(
        self, rows: Sequence[RunRow], working: Collection[str], left: Left | None = None
    ) -> list[RunRow]:
        """What is interrupted has worked, and waited, until its log ends."""
        if left is None:
            left = await self._left({row.owner for row in rows if row.outcome in OPEN}, working)
        left = Left(owners=left.owners, working=tuple(working))
        stopped = {row.root_id for row in rows if left.has(row)}
        last_at = await self._store.last_at(stopped) if stopped else {}
        return [_seen(row, last_at.get(row.root_id, row.created_at), left) for row in rows]

    async def _parked_below(self, rows: Sequence[RunRow]) -> dict[str, float]:
        """When the first run of each workflow asks its model again: one question for a whole list."""
        if not any(_waits_below(row) for row in rows):
            return {}
        found: dict[str, float] = {}
        for row in await self._store.runs(RunFilter(status="waiting", limit=MOST_PARKED)):
            if row.parked_until is not None:
                found[row.root_id] = min(row.parked_until, found.get(row.root_id, row.parked_until))
        return found

    async def _left(self, owners: Iterable[str], working: Collection[str]) -> Left:
        """Of what is ours, nobody works on what we do not work on: we have dropped it."""
        mine = self._owners.id
        others = {one for one in owners if one and one != mine}
        processes = {one for one in others if " " in one}
        named = others - processes
        verdicts = await self._owners.look(named) if named else dict[str, Verdict]()
        gone = {one for one, verdict in verdicts.items() if verdict in ("gone", "seems gone")}
        gone |= {one for one in processes if _has_ended(one)}
        gone |= {mine} if mine else set[str]()
        return Left(owners=tuple(sorted(gone)), working=tuple(working))


def _seen(row: RunRow, last_at: float, left: Left) -> RunRow:
    outcome = shown(row.outcome, row.waiting, left=left.has(row))
    if outcome == "interrupted":
        worked_ms, before = int(worked(row, last_at) * 1000), waited(row, last_at)
        return msgspec.structs.replace(
            row, outcome=outcome, duration_ms=worked_ms, waited=before, held_since=None
        )
    return row if outcome == row.outcome else msgspec.structs.replace(row, outcome=outcome)


def _waits_below(row: RunRow) -> bool:
    return row.parent_id is None and row.waiting > 0 and row.parked_until is None and row.outcome in OPEN


def _parked(row: RunRow, below: dict[str, float]) -> RunRow:
    """A root waits for a limit as long as one of those below it does."""
    if row.parent_id is not None or row.parked_until is not None or row.root_id not in below:
        return row
    return msgspec.structs.replace(row, parked_until=below[row.root_id])


def _has_ended(process: str) -> bool:
    """Of the process that a log of an earlier version names, as `store.runs` keeps it."""
    pid, at, host = process.split(" ", 2)
    return is_left_by_process(host, int(pid), float(at))
