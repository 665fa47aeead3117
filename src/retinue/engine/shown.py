"""Rows of runs as people see them: with what nobody works on any more as interrupted.

A store knows what the logs say, and no log can say that its process is gone. So the owners of what has not
ended are looked at once for a whole list, and what is shown, filtered and summed up goes by the same look.
Used by the app and, through it, by every list: never a log, never a question per row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from retinue.engine.abandoned import is_left_by_process
from retinue.engine.owners import Owners, Verdict
from retinue.standing import OPEN, shown, worked
from retinue.store.base import EVERYONE, Left, RunFilter, RunRow, Store, Totals, TotalsBy


class ShownRuns:
    """`working` are the workflows that are worked on right here."""

    def __init__(self, store: Store, owners: Owners, *, working: Callable[[], Collection[str]]) -> None:
        self._store, self._owners, self._working = store, owners, working

    async def runs(self, which: RunFilter) -> list[RunRow]:
        left = None
        if which.outcome in (*OPEN, "interrupted"):
            left = await self._left(await self._store.open_owners())
            which = msgspec.structs.replace(which, left=left)
        return await self.seen(await self._store.runs(which), left)

    async def run(self, run_id: str) -> RunRow | None:
        row = await self._store.run(run_id)
        return None if row is None else (await self.seen([row]))[0]

    async def tree(self, root_id: str) -> list[RunRow]:
        return await self.seen(await self._store.tree(root_id))

    async def totals(
        self, by: TotalsBy, *, since: float | None = None, utc_offset: float = 0
    ) -> list[Totals]:
        left = await self._left(await self._store.open_owners()) if by == "outcome" else EVERYONE
        return await self._store.totals(by, since=since, utc_offset=utc_offset, left=left)

    async def seen(self, rows: Sequence[RunRow], left: Left | None = None) -> list[RunRow]:
        """These rows with the outcome that is shown. What is interrupted has worked until its log ends."""
        left = left or await self._left({row.owner for row in rows if row.outcome in OPEN})
        stopped = {row.root_id for row in rows if left.has(row)}
        last_at = await self._store.last_at(stopped) if stopped else {}
        return [_seen(row, last_at.get(row.root_id, row.created_at), left) for row in rows]

    async def _left(self, owners: Iterable[str]) -> Left:
        """Of what is ours, nobody works on what we do not work on: we have dropped it."""
        mine = self._owners.id
        others = {one for one in owners if one and one != mine}
        processes = {one for one in others if " " in one}
        named = others - processes
        verdicts = await self._owners.look(named) if named else dict[str, Verdict]()
        gone = {one for one, verdict in verdicts.items() if verdict in ("gone", "seems gone")}
        gone |= {one for one in processes if _has_ended(one)}
        gone |= {mine} if mine else set[str]()
        return Left(owners=tuple(sorted(gone)), working=tuple(self._working()))


def _seen(row: RunRow, last_at: float, left: Left) -> RunRow:
    outcome = shown(row.outcome, row.waiting, left=left.has(row))
    if outcome == "interrupted":
        worked_ms = int(worked(row, last_at) * 1000)
        return msgspec.structs.replace(row, outcome=outcome, duration_ms=worked_ms)
    return row if outcome == row.outcome else msgspec.structs.replace(row, outcome=outcome)


def _has_ended(process: str) -> bool:
    """Of the process that a log of an earlier version names, as `store.runs` keeps it."""
    pid, at, host = process.split(" ", 2)
    return is_left_by_process(host, int(pid), float(at))
