"""The one task that appends events to PostgreSQL: all that has come together is one call, one transaction.

A batch whose connection is lost is sent again on a new one. Nobody knows then whether it was stored, but
`(run_id, seq)` is unique: what is there already with the very same content was stored by us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from retinue.errors import StoreError
from retinue.events import Event, place
from retinue.store.postgres_link import (
    Address,
    Link,
    is_conflict,
    is_lost,
    is_passing,
    is_refused,
    until_back,
)
from retinue.store.projection import Change, StoredRun, changes, new_row, pack, standing_of
from retinue.store.rows import AT, DATA, PLACE, ROOT, RUN, SEQ, TYPE, Lost, Row, fenced

_APPEND = "SELECT retinue_append($1, $2, $3, $4, $5, $6, $7, $8)"
_STANDINGS = (
    "SELECT run_id, status, approvals, duration_ms, summary, error, completed_at "
    "FROM runs WHERE run_id = ANY($1::text[])"
)
_STORED = (
    "SELECT e.run_id, e.seq, e.pos, e.data FROM unnest($1::text[], $2::integer[]) AS g(run_id, seq) "
    "JOIN events AS e ON e.run_id = g.run_id AND e.seq = g.seq"
)
_PAUSE_SECONDS = 0.05


class Append:
    """Events to store, all or none. `unsure`: it was sent before, and the answer never came."""

    __slots__ = ("events", "future", "rows", "unsure")

    def __init__(self, events: Sequence[Event], rows: list[Row], future: asyncio.Future[None]) -> None:
        self.events, self.rows, self.future = events, rows, future
        self.unsure = False

    def settle(self, error: Exception | None = None) -> None:
        if error is None:
            for event, row in zip(self.events, self.rows, strict=True):
                place(event, row[PLACE])
        if self.future.done():  # whoever waited was cancelled; the events are stored all the same
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class Changed(Struct, frozen=True, kw_only=True):
    """A change as `retinue_append` reads it."""

    run_id: str
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    moved: bool
    status: str | None = None
    approvals: str | None = None
    duration_ms: int | None = None
    summary: str | None = None
    error: str | None = None
    completed_at: float | None = None


class Writer:
    """`stored` is told which workflows have new events, after each batch."""

    def __init__(
        self, address: Address, link: Link, *, patience: float, stored: Callable[[Iterable[str]], None]
    ) -> None:
        self._address, self._link, self._patience, self._stored = address, link, patience, stored
        self._line: list[Append] = []
        self._lost = Lost()
        self._ready = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="retinue-writer")

    @property
    def pid(self) -> int:
        """The server's process for this connection, by which our own notices are known."""
        return 0 if self._link.is_closed() else self._link.get_server_pid()

    def put(self, item: Append) -> None:
        self._line.append(item)
        self._ready.set()

    async def close(self) -> None:
        """Write what is in line, then close."""
        self._closing = True
        self._ready.set()
        await self._task
        if not self._link.is_closed():
            await self._link.close(timeout=5)

    async def _run(self) -> None:
        while self._line or not self._closing:
            if not self._line:
                self._ready.clear()
                await self._ready.wait()
            batch, self._line = self._line, []
            if batch:
                await self._write(batch)

    async def _write(self, batch: list[Append]) -> None:
        for item in batch:
            verdict = self._lost.verdict(item.events)
            if verdict is not None:
                item.settle(verdict)
                batch = [other for other in batch if other is not item]
        if not batch:
            return
        try:
            await self._send_safely(batch)
        except Exception as error:  # whatever it is, somebody awaits every one of these items
            if len(batch) > 1 and not isinstance(error, StoreError):
                for item in batch:
                    await self._write([item])
            else:
                for item in batch:
                    verdict = await self._verdict(item, error)
                    self._lost.note(verdict)
                    item.settle(verdict)
        else:
            for item in batch:
                item.settle()
            self._stored(dict.fromkeys(row[ROOT] for item in batch for row in item.rows))

    async def _verdict(self, item: Append, error: Exception) -> Exception:
        if is_conflict(error):
            try:
                return await self._conflict(item)
            except Exception as another:  # then that one is the verdict: the task must go on
                error = another
        return self._address.explain(error) if is_refused(error) or is_lost(error) else error

    async def _conflict(self, item: Append) -> Exception:
        stored = await self._stored_already(item)
        seen: set[tuple[str, int]] = set()
        for row in item.rows:
            key = (row[RUN], row[SEQ])
            if key in stored or key in seen:
                return fenced(*key)
            seen.add(key)
        return StoreError(f"the database {self._address} refused event {item.rows[0][SEQ]} as stored already")

    async def _send_safely(self, batch: list[Append]) -> None:
        """Send; after a lost connection again on a new one, after a passing conflict once more."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                if self._link.is_closed():
                    self._link = await until_back(self._address.connect, seconds=self._patience)
                left = [item for item in batch if not (item.unsure and await self._is_ours(item))]
                if left:
                    await self._send(left)
                return
            except Exception as error:
                if is_lost(error):
                    self._link.terminate()
                    for item in batch:
                        item.unsure = True
                elif is_conflict(error) and len(batch) == 1 and batch[0].unsure:
                    # The first try was still under way when we looked, and may have arrived since.
                    if await self._is_ours(batch[0]):
                        return
                    raise
                elif not is_passing(error):
                    raise
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _send(self, batch: list[Append]) -> None:
        rows = [row for item in batch for row in item.rows]
        found = changes([item.events for item in batch])
        started, changed = await self._projected(found) if found else (None, None)
        columns = [[row[column] for row in rows] for column in (ROOT, RUN, SEQ, TYPE, AT)]
        data = [row[DATA].decode() for row in rows]
        places = await self._link.fetchval(_APPEND, *columns, data, started, changed)
        for row, pos in zip(rows, places, strict=True):
            row[PLACE] = pos

    async def _projected(self, found: dict[str, Change]) -> tuple[str | None, str | None]:
        asked = [change.run_id for change in found.values() if change.needs_standing]
        if asked:
            standings = {row[0]: standing_of(row[1:]) for row in await self._link.fetch(_STANDINGS, asked)}
            for run_id in asked:
                found[run_id].settle(standings.get(run_id))
        started: list[StoredRun] = []
        changed: list[Changed] = []
        for change in found.values():
            if change.started is not None:
                started.append(new_row(change))
            elif change.standing is not None or change.spends:
                changed.append(_changed(change))
        return _json(started), _json(changed)

    async def _stored_already(self, item: Append) -> dict[tuple[str, int], tuple[int, str]]:
        keys = ([row[RUN] for row in item.rows], [row[SEQ] for row in item.rows])
        found = await self._link.fetch(_STORED, *keys)
        return {(row[0], row[1]): (row[2], row[3]) for row in found}

    async def _is_ours(self, item: Append) -> bool:
        """Is it stored already, event for event? Then its places are known too."""
        stored = await self._stored_already(item)
        for row in item.rows:
            pos, data = stored.get((row[RUN], row[SEQ]), (0, ""))
            if data != row[DATA].decode():
                return False
            row[PLACE] = pos
        return True


def _json(rows: Sequence[Struct]) -> str | None:
    return msgspec.json.encode(rows).decode() if rows else None


def _changed(change: Change) -> Changed:
    sums: dict[str, Any] = {
        "run_id": change.run_id,
        "turns": change.turns,
        "tool_calls": change.tool_calls,
        "input_tokens": change.input_tokens,
        "output_tokens": change.output_tokens,
        "cost": change.cost,
    }
    now = change.standing
    if now is None:
        return Changed(**sums, moved=False)
    return Changed(
        **sums,
        moved=True,
        status=now.status,
        approvals=pack(now.approvals),
        duration_ms=now.duration_ms,
        summary=now.summary,
        error=now.error,
        completed_at=now.completed_at,
    )
