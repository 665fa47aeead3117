"""The store in memory: the same contract, gone with the process.

For tests, and for programs that keep no log. Also the plainest statement of what a store must do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec

from retinue.errors import Fenced, StoreError
from retinue.events import AnyEvent, ApprovalRequested, Event, place
from retinue.standing import OPEN, shown, unpack
from retinue.store.base import (
    EVERYONE,
    FOREVER,
    KeptFile,
    Left,
    OldRoot,
    OwnerRow,
    RunFilter,
    RunRow,
    Signal,
    Taken,
    Totals,
    TotalsBy,
)
from retinue.store.outage import Outage
from retinue.store.owner_lock import LockFile
from retinue.store.projection import Rows
from retinue.store.queries import SAME
from retinue.store.rows import AT, DATA, RUN, TYPE, Lost, Row, begins, encoded, fenced, gone, placed
from retinue.store.runs import StoredRun


class MemoryStore:
    def __init__(self) -> None:
        self._logs: dict[str, list[Row]] = {}
        self._places: dict[str, dict[int, int]] = {}
        self._rows = Rows()
        self._signals: dict[tuple[str, str], Signal] = {}
        self._sent = 0
        self._lost = Lost()
        self._cache: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._owners: dict[str, OwnerRow] = {}
        self._files: dict[tuple[str, str, str, int], KeptFile] = {}
        self._subscribers: dict[str, list[tuple[Callable[[], None], bool]]] = {}

    def hold_for(self, seconds: float | None) -> None:
        pass  # it never fails

    @property
    def outage(self) -> Outage | None:
        return None

    def on_outage(self, hear: Callable[[Outage | None], None]) -> Callable[[], None]:
        return lambda: None

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            rows = encoded(events)
            self._fence(events, rows)
        except (StoreError, Fenced) as error:
            self._lost.note((event.run_id for event in events), error)
            future.set_exception(error)
            return future
        # Kept as JSON, like in a database: whoever reads gets events of their own.
        for event, row in zip(events, rows, strict=True):
            log = self._logs.setdefault(event.root_id, [])
            log.append(row)
            place(event, len(log))
            self._places.setdefault(event.run_id, {})[event.seq] = len(log)
        self._rows.take(events)
        future.set_result(None)
        for root_id in dict.fromkeys(event.root_id for event in events):
            self._wake(root_id, events=True)
        return future

    def _fence(self, events: Sequence[Event], rows: Sequence[Row]) -> None:
        verdict = self._lost.verdict(events)
        if verdict is not None:
            raise verdict
        given: set[tuple[str, int]] = set()
        begun: set[str] = set()
        for event, row in zip(events, rows, strict=True):
            if event.root_id not in self._logs and event.root_id not in begun and not begins(row[TYPE]):
                raise gone(event.root_id)
            begun.add(event.root_id)
            if event.seq in self._places.get(event.run_id, ()) or (event.run_id, event.seq) in given:
                raise fenced(event.run_id, event.seq)
            given.add((event.run_id, event.seq))

    async def events(
        self, root_id: str, *, after: int = 0, run_id: str | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        return [self._read(root_id, pos) for pos in self._of(root_id, run_id) if pos > after][:limit]

    async def tail(self, root_id: str, *, limit: int, run_id: str | None = None) -> list[AnyEvent]:
        found = self._of(root_id, run_id)
        return [self._read(root_id, pos) for pos in found[max(0, len(found) - limit) :]]

    async def count(self, root_id: str, *, run_id: str | None = None) -> int:
        return len(self._of(root_id, run_id))

    def _of(self, root_id: str, run_id: str | None) -> Sequence[int]:
        """The places of a workflow's events, or of one run's."""
        if run_id is None:
            return range(1, len(self._logs.get(root_id, ())) + 1)
        return [pos for _, pos in sorted(self._places.get(run_id, {}).items())]

    def _read(self, root_id: str, pos: int) -> AnyEvent:
        return placed(pos, self._logs[root_id][pos - 1][DATA], "memory")

    async def run(self, run_id: str) -> RunRow | None:
        row = self._rows.get(run_id)
        return None if row is None else _shown(row)

    async def runs(self, which: RunFilter) -> list[RunRow]:
        found = sorted(self._rows.values(), key=lambda row: (row.created_at, row.run_id), reverse=True)
        return [_shown(row) for row in found if _fits(row, which)][: which.limit]

    async def tree(self, root_id: str) -> list[RunRow]:
        found = [row for row in self._rows.values() if row.root_id == root_id]
        return [_shown(row) for row in sorted(found, key=lambda row: (row.created_at, row.depth, row.run_id))]

    async def waiting(self, root_id: str | None = None) -> list[ApprovalRequested]:
        found = [
            cast("ApprovalRequested", self._read(row.root_id, self._places[row.run_id][seq]))
            for row in self._rows.values()
            if row.status == "waiting" and root_id in (None, row.root_id)
            for seq in unpack(row.approvals).values()
        ]
        return sorted(found, key=lambda event: (event.at, event.root_id, event.pos))

    async def totals(
        self, by: TotalsBy, *, since: float | None = None, utc_offset: float = 0, left: Left = EVERYONE
    ) -> list[Totals]:
        groups: dict[str, list[StoredRun]] = {}
        for row in self._rows.values():
            if since is None or row.created_at >= since:
                day = datetime.fromtimestamp(row.created_at + utc_offset, UTC).strftime("%Y-%m-%d")
                stands = shown(row.outcome, row.waiting, left=left.has(row))
                keys = {"agent": row.agent, "model": row.model, "day": day, "outcome": stands}
                groups.setdefault(keys[by], []).append(row)
        found = [_total(key, rows) for key, rows in groups.items()]
        if by == "day":
            return sorted(found, key=lambda total: total.key)
        return sorted(found, key=lambda total: (-total.cost, -total.runs, total.key))

    async def open_owners(self) -> list[str]:
        return list({row.owner for row in self._rows.values() if row.outcome in OPEN})

    async def last_at(self, root_ids: Collection[str]) -> dict[str, float]:
        return {root: self._logs[root][-1][AT] for root in root_ids if root in self._logs}

    async def send(self, signal: Signal) -> bool:
        key = (signal.root_id, signal.key)
        if key in self._signals:
            return False
        self._sent += 1
        self._signals[key] = msgspec.structs.replace(signal, id=self._sent)
        self._wake(signal.root_id)
        return True

    async def signals(self, root_id: str, *, after: int = 0) -> list[Signal]:
        return [one for one in self._signals.values() if one.root_id == root_id and one.id > after]

    async def signal(self, root_id: str, key: str) -> Signal | None:
        return self._signals.get((root_id, key))

    async def keep(self, file: KeptFile) -> None:
        self._files[file.root_id, file.run_id, file.path, file.seq] = file

    async def kept(self, root_id: str, run_id: str | None = None) -> list[KeptFile]:
        found = [f for f in self._files.values() if f.root_id == root_id and run_id in (None, f.run_id)]
        return sorted(found, key=lambda file: (file.at, file.run_id, file.path, file.seq))

    async def unkeep(self, root_id: str, run_id: str, path: str, seq: int) -> None:
        self._files.pop((root_id, run_id, path, seq), None)

    def subscribe(
        self, root_id: str, wake: Callable[[], None], *, signals: bool = False
    ) -> Callable[[], None]:
        wakes = self._subscribers.setdefault(root_id, [])
        wakes.append((wake, signals))

        def end() -> None:
            if (wake, signals) in wakes:
                wakes.remove((wake, signals))

        return end

    def _wake(self, root_id: str, *, events: bool = False) -> None:
        loop = asyncio.get_running_loop()
        for wake, signals in self._subscribers.get(root_id, ()):
            if not (events and signals):
                loop.call_soon(wake)

    @property
    def lock_file(self) -> LockFile | None:
        return None  # whoever shares it is in this very process

    async def beat(self, owner: str, place: str) -> None:
        before = self._owners.get(owner)
        self._owners[owner] = OwnerRow(id=owner, beats=before.beats + 1 if before else 1, place=place)

    async def release(self, owner: str) -> None:
        self._owners.pop(owner, None)

    async def owners(self) -> list[OwnerRow]:
        return list(self._owners.values())

    async def taken(self, root_id: str) -> Taken | None:
        log = await self.events(root_id, run_id=root_id)
        return next((event for event in reversed(log) if isinstance(event, Taken)), None)

    async def delete(self, root_id: str) -> None:
        for row in self._logs.pop(root_id, []):
            self._places.pop(row[RUN], None)
        for row in [row for row in self._rows.values() if row.root_id == root_id]:
            del self._rows[row.run_id]
        self._signals = {key: one for key, one in self._signals.items() if one.root_id != root_id}
        self._files = {place: file for place, file in self._files.items() if file.root_id != root_id}
        self._wake(root_id)

    async def old_roots(self, before: float, *, limit: int | None = None) -> list[OldRoot]:
        found = [
            OldRoot(
                root_id=row.run_id,
                status=row.status,
                created_at=row.created_at,
                last_at=log[-1][AT],
                events=len(log),
            )
            for row in self._rows.values()
            if row.parent_id is None
            and row.created_at < before
            and (log := self._logs[row.run_id])[-1][AT] < before
        ]
        return sorted(found, key=lambda root: root.created_at)[:limit]

    async def strays(self, before: float, *, silent_since: float = FOREVER) -> list[str]:
        kept = (*self._files.values(), *self._signals.values())
        return sorted({each.root_id for each in kept if each.at < before} - self._logs.keys())

    async def size(self) -> int:
        events = sum(len(row[DATA]) for log in self._logs.values() for row in log)
        return events + sum(len(file.data) for file in self._files.values())

    async def compact(self) -> None:
        pass

    async def cached(self, scope: str, key: str) -> tuple[bytes, float] | None:
        found = self._cache.get((scope, key))
        return None if found is None or found[1] <= time.time() else found

    async def cache(self, scope: str, key: str, value: bytes, ttl: float) -> None:
        now = time.time()
        self._cache = {key: held for key, held in self._cache.items() if held[1] > now}
        self._cache[scope, key] = (value, now + ttl)

    async def recache(
        self, scope: str, key: str, change: Callable[[bytes | None], bytes], ttl: float
    ) -> None:
        found = self._cache.get((scope, key))
        kept = None if found is None or found[1] <= time.time() else found[0]
        self._cache[scope, key] = (change(kept), time.time() + ttl)


def _shown(row: StoredRun) -> RunRow:
    return RunRow(**{name: getattr(row, name) for name in RunRow.__struct_fields__})


def _fits(row: StoredRun, which: RunFilter) -> bool:
    place_in_list = (row.created_at, row.run_id)
    return (
        all(getattr(which, name) in (None, getattr(row, name)) for name in SAME)
        and which.outcome in (None, shown(row.outcome, row.waiting, left=which.left.has(row)))
        and row.run_id.startswith(which.id_prefix or "")
        and not (which.roots_only and row.parent_id is not None)
        and (which.among is None or row.run_id in which.among)
        and (which.since is None or row.created_at >= which.since)
        and (which.before is None or place_in_list < (which.before, which.before_id or ""))
        and which.metadata.items() <= row.metadata.items()
        and (which.min_cost is None or _cost(row) >= which.min_cost)
        and (
            not which.text
            or which.text.lower() in row.task.lower()
            or which.text.lower() in (row.summary or "").lower()
        )
    )


def _cost(row: StoredRun) -> float:
    known = row.cost if row.tree_cost is None else row.tree_cost
    return -1.0 if known is None else known


def _total(key: str, rows: list[StoredRun]) -> Totals:
    return Totals(
        key=key,
        runs=len(rows),
        turns=sum(row.turns for row in rows),
        tool_calls=sum(row.tool_calls for row in rows),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cost=sum(row.cost or 0.0 for row in rows),
        unpriced=sum(row.cost is None for row in rows),
        duration_ms=sum(row.duration_ms or 0 for row in rows),
    )
