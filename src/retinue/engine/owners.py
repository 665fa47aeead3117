"""Who works on runs: an owner is a random id with a heartbeat in the store, and whether it still lives.

An opened `Retinue` is one owner. Its id stands in the event by which it began or took up a workflow, its row
in the store is there before that event, its count moves every few seconds, and its row goes when it works on
nothing any more. So of an owner without a row it is known that it let go. Of one with a row:

- Who sees the file that the owner holds a lock on goes by the lock, and knows at once.
- PostgreSQL says by its own clock how long an owner has been silent. Where that is too long, also since the
  database was last away as far as we know, and its count has not moved while our own moved twice, it is gone.
- SQLite has no clock: an owner whose count has not moved while our own moved five times is gone.

Process ids, host names and the clocks of machines decide nothing. Nor does this decide who may write: that
is the fence of the log, `(run_id, seq)`. It only says when to take a workflow over. Used by the app and by
`post`; workers on other machines go by the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from retinue.errors import StoreError
from retinue.events import QUEUE
from retinue.store.base import OwnerRow, Store
from retinue.store.owner_lock import OwnerLock
from retinue.threads import to_its_end

log = logging.getLogger("retinue")
BEAT_SECONDS = 3.0
SILENT_SECONDS = 5 * BEAT_SECONDS
"""An owner that PostgreSQL has heard nothing of for so long seems gone."""
SILENT_BEATS = 5
"""Beats of ours in which a count that does not move means that its owner is gone, where there is no clock."""
CONFIRMING_BEATS = 2
"""The same where the database's clock has said so already: that clock may have been set."""
TIDY_BEATS = 100
"""Beats of ours after which the rows of those who are gone are removed once more."""
_LOOK_SECONDS = 0.2
_UNDECIDED_SECONDS = 60.0

Verdict = Literal["alive", "seems alive", "seems gone", "gone"]
UNDECIDED: tuple[Verdict, ...] = ("seems alive", "seems gone")


class _Mark(NamedTuple):
    """What an owner's count was, and ours when it was first seen there."""

    beats: int
    ours: int


class Owners:
    """This owner, and what is known of the others. `busy` says whether there is anything it works on."""

    def __init__(self, store: Store, *, busy: Callable[[], bool]) -> None:
        self._store, self._busy = store, busy
        self._lock = OwnerLock(store.lock_file)
        self.id: str | None = None
        """Our own id, while we work on anything."""
        self._holds = 0
        self._changing = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._beats = 0
        self._away = -math.inf
        """When we last found that the database hears nobody, by the clock that only runs."""
        self._marks: dict[str, _Mark] = {}
        self._watching = False

    # -- ourselves

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncGenerator[str]:
        """Be an owner, at least in here: the id to write into a log. `busy` keeps it one after that."""
        self._holds += 1
        try:
            yield await self._claim()
        finally:
            self._holds -= 1

    async def _claim(self) -> str:
        async with self._changing:
            if self.id is None:
                mine = secrets.token_hex(16)
                try:
                    place = await to_its_end(self._lock.take, mine)
                    await self._store.beat(mine, place)
                except BaseException:
                    self._lock.close()
                    raise
                self.id = mine
                self._beating = asyncio.create_task(self._beat(mine, place), name=f"heartbeat {mine}")
            return self.id

    async def release(self) -> None:
        """Let go of everything. Whoever looks from now on need not wait."""
        async with self._changing:  # who is about to be an owner is one first, with a heartbeat to end
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.wait([self._beating])
            self._watching = False
            await self._let_go()

    def forget(self) -> None:
        """Let go of the lock, for a loop that died: nobody works in it any more."""
        self._lock.close()

    async def _let_go(self) -> None:
        mine, self.id, self._beating = self.id, None, None
        try:
            if mine is not None:
                await self._store.release(mine)
        except StoreError as error:
            log.debug("owner %s could not be released: %s", mine, error)  # the lock is free all the same
        finally:
            self._lock.close()

    async def _beat(self, mine: str, place: str) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            async with self._changing:
                if not (self._holds or self._watching or self._busy()):
                    await self._let_go()
                    return
            began, heard = time.monotonic(), False
            with contextlib.suppress(StoreError):  # a database that is away hears us when it is back
                if self._beats % TIDY_BEATS == 0:
                    await self._tidy()
                await self._store.beat(mine, place)
                self._beats += 1
                heard = time.monotonic() - began < SILENT_SECONDS - BEAT_SECONDS
            if not heard:
                self._away = time.monotonic()

    async def _tidy(self) -> None:
        """Remove the rows of those who are gone. One who was not after all is back with its next beat."""
        for owner, verdict in (await self.look()).items():
            if verdict == "gone":
                await self._store.release(owner)

    # -- the others

    async def look(self, ids: Collection[str] | None = None) -> Mapping[str, Verdict]:
        """What is known of these owners now, of all that have a row if none are named. One question."""
        rows = {row.id: row for row in await self._store.owners()}
        asked = rows if ids is None else ids
        held = await asyncio.to_thread(self._held, [rows[one] for one in asked if one in rows])
        found: dict[str, Verdict] = {one: self._judge(one, rows.get(one), held.get(one)) for one in asked}
        self._marks = {one: mark for one, mark in self._marks.items() if one in rows}
        return found

    def _held(self, rows: Collection[OwnerRow]) -> dict[str, bool | None]:
        return {row.id: self._lock.is_held(row.id, row.place) for row in rows}

    def _judge(self, owner: str, row: OwnerRow | None, held: bool | None) -> Verdict:
        if owner in (self.id, QUEUE):  # what waits for a worker is not left behind
            return "alive"
        if row is None:
            return "gone"
        if held is not None:
            return "alive" if held else "gone"
        mark = self._marks.get(owner)
        if mark is None or mark.beats != row.beats:
            self._marks[owner] = _Mark(row.beats, self._beats)
            if mark is not None:
                return "alive"
        unmoved = self._beats - self._marks[owner].ours
        if row.silent is None:
            return "gone" if unmoved >= SILENT_BEATS else "seems alive"
        # A database that was away has heard nobody, and others may be back a little later than we are.
        if min(row.silent, time.monotonic() - self._away) < SILENT_SECONDS:
            return "seems alive"
        return "gone" if unmoved >= CONFIRMING_BEATS else "seems gone"

    async def is_gone(self, owner: str) -> bool:
        """Whether an owner is known to be gone, watched for as long as it takes to know."""
        verdict = (await self.look([owner]))[owner]
        if verdict in UNDECIDED:
            with contextlib.suppress(TimeoutError):
                async with self.working(), asyncio.timeout(_UNDECIDED_SECONDS):
                    while verdict in UNDECIDED:
                        await asyncio.sleep(_LOOK_SECONDS)
                        verdict = (await self.look([owner]))[owner]
        return verdict == "gone"

    async def watch(self, verdicts: Iterable[Verdict]) -> None:
        """Keep our own count moving while nothing certain is known of somebody: it is what we go by."""
        self._watching = any(verdict in UNDECIDED for verdict in verdicts)
        if self._watching:
            await self._claim()
