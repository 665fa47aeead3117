"""The one task that appends events to PostgreSQL: all that has come together is one call, one transaction.

A batch whose connection is lost is sent again on a new one, for as long as it takes (`outage`). Nobody knows
then whether it was stored, but `(run_id, seq)` is unique: what is there already with the very same content
was stored by us.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from retinue.errors import StoreError
from retinue.events import Event, RunQueued, place
from retinue.store import postgres_queue, queries
from retinue.store.outage import Waiting, is_held
from retinue.store.postgres_link import (
    Address,
    Link,
    can_pass,
    is_conflict,
    is_gone,
    is_lost,
    is_passing,
    is_refused,
)
from retinue.store.projection import MOVED, SUMMED, Ancestry, Batch, Change, new_row, standing_of
from retinue.store.rows import AT, DATA, PLACE, ROOT, RUN, SEQ, TYPE, Lost, Row, fenced, gone
from retinue.store.runs import StoredRun

_APPEND = "SELECT retinue_append($1, $2, $3, $4, $5, $6, $7, $8)"
_STANDINGS = f"SELECT run_id, {', '.join(MOVED)} FROM runs WHERE run_id = ANY($1::text[])"  # noqa: S608  # only names
_ABOVE = queries.ABOVE["postgresql"]
_STORED = (
    "SELECT e.run_id, e.seq, e.pos, e.data FROM unnest($1::text[], $2::integer[]) AS g(run_id, seq) "
    "JOIN events AS e ON e.run_id = g.run_id AND e.seq = g.seq"
)
_PAUSE_SECONDS = 0.05
_MARGIN_SECONDS = 5.0
_CONFLICTS = 20


class PostgresAppend:
    """Events to store, all or none. `unsure`: it was sent before, and the answer never came."""

    __slots__ = ("events", "future", "held", "rows", "runs", "size", "timer", "tried", "unsure", "withdrawn")

    def __init__(self, events: Sequence[Event], rows: list[Row], future: asyncio.Future[None]) -> None:
        self.events, self.rows, self.future = events, rows, future
        self.runs = {row[RUN] for row in rows}
        self.size = sum(len(row[DATA]) for row in rows)
        self.held = is_held(events)
        self.tried = self.unsure = self.withdrawn = False
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, error: Exception | None = None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if error is None:
            for event, row in zip(self.events, self.rows, strict=True):
                place(event, row[PLACE])
        if self.future.done():  # whoever waited was cancelled; the events are stored all the same
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class PostgresWriter:
    """`stored` is told which workflows have new events, after each batch."""

    def __init__(
        self, address: Address, link: Link, *, waiting: Waiting, stored: Callable[[Iterable[str]], None]
    ) -> None:
        self._address, self._link, self._waiting, self._stored = address, link, waiting, stored
        self._line: list[PostgresAppend] = []
        self._lost = Lost()
        self._ancestry = Ancestry()
        self.in_line = 0
        """Bytes that are not stored yet."""
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="retinue-writer")

    @property
    def pid(self) -> int:
        """The server's process for this connection, by which our own notices are known."""
        return 0 if self._link.is_closed() else self._link.get_server_pid()

    def put(self, item: PostgresAppend) -> None:
        if not item.held:  # a server that hangs says nothing for a minute: whoever begins something is told
            loop = asyncio.get_running_loop()
            item.timer = loop.call_later(self._waiting.patience + _MARGIN_SECONDS, self._withdraw, item)
        self.in_line += item.size
        self._line.append(item)
        self._ready.set()

    def _withdraw(self, item: PostgresAppend) -> None:
        seconds = self._waiting.patience + _MARGIN_SECONDS
        error = StoreError(
            f"the database {self._address} has not answered for {seconds:g} s: look whether it hangs",
            passing=True,
        )
        item.withdrawn = True
        self._lost.note(item.runs, error)
        item.settle(error)

    async def close(self) -> None:
        """Write what is in line, then close. What waits for a server that is away has a few seconds."""
        self._waiting.close()
        self._closing.set()
        self._ready.set()
        await self._task
        if not self._link.is_closed():
            await self._link.close(timeout=5)

    # -- the line

    async def _run(self) -> None:
        while self._line or not self._closing.is_set():
            if not self._line:
                self._ready.clear()
                await self._ready.wait()
                continue
            line, self._line = self._line, []
            kept = await self._try(line)
            self._line[:0] = kept  # what has come meanwhile follows it
            self._refuse_overdue()
            if kept:
                await self._pause()

    async def _pause(self) -> None:
        """Until it is time to try again."""
        left = self._waiting.again - time.monotonic()
        if self._closing.is_set():
            await asyncio.sleep(max(0.0, left))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left)):
                await self._closing.wait()

    async def _try(self, line: list[PostgresAppend]) -> list[PostgresAppend]:
        """One try at all of it together. Returns what must wait."""
        ready: list[PostgresAppend] = []
        for item in line:
            verdict = self._lost.verdict(item.events)
            if verdict is not None or item.withdrawn:
                self._fail(item, verdict)
            else:
                item.tried = True
                ready.append(item)
        if not ready:
            return []
        self._waiting.trying()
        try:
            await self._send_again(ready)
        except Exception as error:  # whatever it is, somebody awaits every one of these items
            lost = self._drop_if_lost(error, ready)
            if lost or isinstance(error, StoreError):
                return self._failed(error, ready)
            return await self._each(ready)
        self._waiting.worked()
        self._done(ready)
        return []

    def _failed(self, error: Exception, items: list[PostgresAppend]) -> list[PostgresAppend]:
        """The server itself fails. Returns what must wait for it."""
        trouble = self._explained(error)
        if trouble.passing:
            self._waiting.failed(trouble)
            return items
        self._waiting.broke(trouble)
        for item in items:
            self._fail(item, trouble)
        return []

    async def _each(self, items: list[PostgresAppend]) -> list[PostgresAppend]:
        """Each alone, in order. What follows from an item that must wait waits behind it."""
        kept: list[PostgresAppend] = []
        runs: set[str] = set()
        for index, item in enumerate(items):
            error = None if not runs.isdisjoint(item.runs) else await self._alone(item)
            if error is None and runs.isdisjoint(item.runs):
                continue
            if error is not None:
                self._waiting.failed(self._explained(error))
                if self._drop_if_lost(error, [item]) or isinstance(error, StoreError):
                    return kept + items[index:]
            kept.append(item)
            runs |= item.runs
        if not kept:
            self._waiting.worked()
        return kept

    async def _alone(self, item: PostgresAppend) -> Exception | None:
        """Store one item, or fail it. Returns why it must wait."""
        error: Exception | None = self._lost.verdict(item.events)
        if error is None:
            try:
                try:
                    await self._send_again([item])
                except Exception as found:
                    error = found
                    if is_conflict(found):
                        error = await self._conflict(item)
                    elif is_gone(found):
                        error = gone(item.rows[0][ROOT])
            except Exception as found:  # while the conflict was looked at
                error = found
        if error is None:
            self._done([item])
        elif can_pass(error):
            return error
        else:
            self._fail(item, self._explained(error) if is_refused(error) else error)
        return None

    def _done(self, items: list[PostgresAppend]) -> None:
        for item in items:
            self.in_line -= item.size
            item.settle()
        self._stored(dict.fromkeys(row[ROOT] for item in items for row in item.rows))

    def _fail(self, item: PostgresAppend, error: Exception | None) -> None:
        self.in_line -= item.size
        if error is not None:
            self._lost.note(item.runs, error)
        item.settle(error)

    def _refuse_overdue(self) -> None:
        waiting = self._waiting
        if not self._line or not (waiting.overdue(held=False) or waiting.overdue(held=True)):
            return
        line, self._line = self._line, []
        for item in line:
            verdict = self._lost.verdict(item.events)
            if item.tried and waiting.overdue(held=item.held):
                verdict = waiting.why
            if verdict is not None:
                self._fail(item, verdict)
            else:
                self._line.append(item)

    # -- what can go wrong

    def _explained(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else self._address.explain(error)

    def _drop_if_lost(self, error: Exception, items: list[PostgresAppend]) -> bool:
        """Give up a connection of which nobody knows what became of the last statement."""
        if not (is_lost(error) or isinstance(error, MemoryError)):
            return False
        self._link.terminate()
        for item in items:
            item.unsure = True
        return True

    async def _conflict(self, item: PostgresAppend) -> Exception | None:
        """Whose are the events that are there already? None if they are these very ones."""
        # The first try may have been under way still when we looked, and have arrived since.
        if item.unsure and await self._is_ours(item):
            return None
        stored = await self._stored_already(item)
        seen: set[tuple[str, int]] = set()
        for row in item.rows:
            key = (row[RUN], row[SEQ])
            if key in stored or key in seen:
                return fenced(*key)
            seen.add(key)
        return StoreError(f"the database {self._address} refused event {item.rows[0][SEQ]} as stored already")

    # -- one transaction

    async def _send_again(self, batch: list[PostgresAppend]) -> None:
        """Send, on a new connection if need be; after a conflict with another transaction once more."""
        for _ in range(_CONFLICTS):
            if self._link.is_closed():
                self._link = await self._address.connect()
            try:
                left = [item for item in batch if not (item.unsure and await self._is_ours(item))]
                if left:
                    await self._send(left)
                return
            except Exception as error:
                if not is_passing(error):
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)
        await self._send(batch)

    async def _send(self, batch: list[PostgresAppend]) -> None:
        rows = [row for item in batch for row in item.rows]
        started, changed = await self._projected([item.events for item in batch])
        columns = [[row[column] for row in rows] for column in (ROOT, RUN, SEQ, TYPE, AT)]
        data = [row[DATA].decode() for row in rows]
        jobs = [
            (event.root_id, event.seq, row[DATA].decode())
            for item in batch
            for event, row in zip(item.events, item.rows, strict=True)
            if isinstance(event, RunQueued) and event.parent_id is None
        ]
        if not jobs:
            places = await self._link.fetchval(_APPEND, *columns, data, started, changed)
        else:  # a workflow that waits for a worker is in the queue if and only if its log says so
            async with self._link.transaction():
                places = await self._link.fetchval(_APPEND, *columns, data, started, changed)
                for job in jobs:
                    await self._link.execute(postgres_queue.ENQUEUE, *job)
        for row, pos in zip(rows, places, strict=True):
            row[PLACE] = pos

    async def _projected(self, appends: Sequence[Sequence[Event]]) -> tuple[str | None, str | None]:
        """What a batch does to the rows of runs."""
        ancestry = self._ancestry
        ancestry.tidy()
        missing = set[str]().union(*(ancestry.learn(events) for events in appends))
        if missing:
            ancestry.add(await self._link.fetch(_ABOVE, list(missing)))
        batch = Batch(appends, ancestry)
        rows = await self._link.fetch(_STANDINGS, batch.asked) if batch.asked else ()
        batch.settle({row[0]: standing_of(row[1:]) for row in rows})
        started: list[StoredRun] = []
        changed: list[dict[str, Any]] = []
        for change in batch.changes.values():
            if change.started is not None:
                started.append(new_row(change))
            elif change.standing is not None or change.spends:
                changed.append(_changed(change))
        return _json(started), _json(changed)

    async def _stored_already(self, item: PostgresAppend) -> dict[tuple[str, int], tuple[int, str]]:
        keys = ([row[RUN] for row in item.rows], [row[SEQ] for row in item.rows])
        found = await self._link.fetch(_STORED, *keys)
        return {(row[0], row[1]): (row[2], row[3]) for row in found}

    async def _is_ours(self, item: PostgresAppend) -> bool:
        """Is it stored already, event for event? Then its places are known too."""
        stored = await self._stored_already(item)
        for row in item.rows:
            pos, data = stored.get((row[RUN], row[SEQ]), (0, ""))
            if data != row[DATA].decode():
                return False
            row[PLACE] = pos
        return True


def _json(rows: Sequence[Struct | dict[str, Any]]) -> str | None:
    return msgspec.json.encode(rows).decode() if rows else None


def _changed(change: Change) -> dict[str, Any]:
    """A change as `retinue_append` reads it."""
    sums = dict(zip(SUMMED, change.sums, strict=True))
    return {"run_id": change.run_id, "moved": change.standing is not None, **sums, **(change.standing or {})}
