"""Taking up what was left behind: every workflow of a project whose owner is gone goes on by itself.

`Retinue.resume_abandoned` does it once, a server for as long as it lives: at its start, when an owner is
gone, when a run of its own was dropped because the database failed, when the database is back. All of them,
a page at a time, a few at once. One that cannot be taken up is told of once with the reason, and tried again
less and less often. Takes up only what worked in the same folder, since its tools would touch another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

import msgspec

from retinue.engine.abandoned import is_left
from retinue.engine.owners import Owners
from retinue.errors import HasEnded, StoreError
from retinue.events import RunStarted
from retinue.store.base import RunFilter, RunRow, Signal, Store, Taken
from retinue.types import Status

log = logging.getLogger("retinue")
NOT_OLDER = 7 * 86400.0
"""Seconds since its last event after which a workflow is left alone: whoever asked has moved on."""
AT_ONCE = 8
"""So many are taken up at the same time. They run side by side then, as they did before."""
PAGE = 200
LOOK_SECONDS = 2.0
"""How often the owners are looked at: one small question."""
ALL_SECONDS = 60.0
"""How often all that is unfinished is looked at, although nothing was heard."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 600.0
_OPEN: tuple[Status, ...] = ("running", "waiting", "pending")


class Resume(Protocol):
    async def __call__(self, run_id: str, *, message: str | None = None, by_itself: bool = False) -> str: ...


class Tries:
    """How often a workflow could not be taken up or was dropped, when that is tried again, and why it was."""

    def __init__(self) -> None:
        self.count = 0
        self.again = 0.0
        self.why = ""

    def failed(self, why: str) -> bool:
        """Whether this is news."""
        news, self.why = why != self.why, why
        # Not all at the same moment: a hundred that failed together would fail together again.
        self.again = time.monotonic() + self.pause * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
        self.count += 1
        return news

    @property
    def pause(self) -> float:
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self.count, 20))


class TakeUp:
    """`resume` and `cancel` are the app's own; `is_running` says whether it works on a workflow already."""

    def __init__(
        self,
        store: Store,
        owners: Owners,
        *,
        cwd: str,
        is_running: Callable[[str], bool],
        resume: Resume,
        cancel: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        self._store, self._owners, self._cwd = store, owners, cwd
        self._is_running, self._resume, self._cancel = is_running, resume, cancel
        self._tries: dict[str, Tries] = {}
        self._stale: set[str] = set()
        self._alive: set[str] = set()
        self._news = False
        self._why = ""
        self._woken = asyncio.Event()

    # -- one

    def belongs(self, row: RunRow) -> bool:
        """Whether a run worked in the folder that is worked in here."""
        return row.cwd == self._cwd

    async def one(self, row: RunRow, *, message: str | None = None, asks: str = "") -> None:
        """Go on with a workflow, without what somebody cancelled while nobody worked on it."""
        if message is None:
            if self._is_running(row.root_id):
                return
            for signal in await self.cancelled_since(row.root_id):
                await self._cancel(signal.run_id, "cancelled while nobody worked on it")
                if signal.run_id == row.root_id:
                    return
        await self._resume(asks or row.root_id, message=message, by_itself=message is None)

    async def cancelled_since(self, root_id: str) -> list[Signal]:
        """The cancels that came while nobody worked on a workflow."""
        taken = await self._store.taken(root_id)
        if taken is None:
            return []
        known = 0 if isinstance(taken, RunStarted) else taken.signals
        signals = await self._store.signals(root_id, after=known or 0)
        cancels = [one for one in signals if one.kind == "cancel"]
        # A log of an earlier version does not say what was known: then by the clocks.
        return cancels if known is not None else [one for one in cancels if one.at > taken.at]

    # -- all

    async def all(self) -> list[str]:
        """Take up whatever was left behind and is due. Returns what goes on."""
        taken: list[str] = []
        gate, gone, unfinished = asyncio.Semaphore(AT_ONCE), set[str](), set[str]()

        async def try_one(row: RunRow) -> None:
            async with gate:
                if await self._try(row, gone):
                    taken.append(row.root_id)

        async with contextlib.aclosing(self._unfinished()) as pages:
            async for page in pages:
                unfinished.update(row.root_id for row in page)
                await asyncio.gather(*(try_one(row) for row in page if self._is_due(row)))
        self._tries = {root_id: tries for root_id, tries in self._tries.items() if root_id in unfinished}
        return taken

    async def _unfinished(self) -> AsyncGenerator[list[RunRow]]:
        """Roots of this project that have no end, the newest first."""
        for status in _OPEN:
            which = RunFilter(roots_only=True, status=status, limit=PAGE)
            while True:
                rows = await self._store.runs(which)
                yield [row for row in rows if self.belongs(row)]
                if len(rows) < PAGE:
                    break
                last = rows[-1]
                which = msgspec.structs.replace(which, before=last.created_at, before_id=last.run_id)

    def _is_due(self, row: RunRow) -> bool:
        tries = self._tries.get(row.root_id)
        return not self._is_running(row.root_id) and (tries is None or tries.again <= time.monotonic())

    async def _try(self, row: RunRow, gone: set[str]) -> bool:
        """Take one up if nobody works on it. Whatever is wrong with it, the others go on."""
        root_id = row.root_id
        try:
            taken = await self._store.taken(root_id)
            if taken is None or not await self._is_left(taken, gone) or await self._is_old(root_id):
                self._tries.pop(root_id, None)  # it waits for nobody here
                return False
            now = await self._store.run(root_id)
            if now is None or now.status not in _OPEN:  # ended, or deleted, since the list was read
                return False
            await self.one(row)
        except HasEnded:
            return False
        except Exception as error:
            self._failed(root_id, error)
            return False
        if not self._is_running(root_id):
            return False
        log.info("%s goes on where its log ends", root_id)
        return True

    async def _is_left(self, taken: Taken, gone: set[str]) -> bool:
        """Whether it is known by now that nobody works on it; if not, the next look may know."""
        owner = taken.owner
        if owner and owner != self._owners.id and owner not in gone:
            if (await self._owners.look([owner]))[owner] != "gone":
                return False
            gone.add(owner)
        return await is_left(self._owners, taken) if not owner else True

    async def _is_old(self, root_id: str) -> bool:
        last = await self._store.tail(root_id, limit=1)
        if last and time.time() - last[0].at < NOT_OLDER:
            return False
        if root_id not in self._stale:
            self._stale.add(root_id)
            log.info("%s was left long ago and stays as it is; it can be resumed by hand", root_id)
        return True

    def _failed(self, root_id: str, error: Exception) -> None:
        if isinstance(error, StoreError) and error.passing:
            self._news = True  # the database fails, and not this workflow: with the next look
            return
        if self._tries.setdefault(root_id, Tries()).failed(str(error)):
            log.warning("%s cannot be taken up: %s. It is tried again", root_id, error)

    # -- for as long as a server lives

    def dropped(self, root_id: str) -> None:
        """A run of this process has stopped without an end: the database or the machine has failed it."""
        tries = self._tries.setdefault(root_id, Tries())
        tries.failed("dropped")
        if tries.count == 1:
            tries.again = 0.0  # at once, the first time
        self._wake()

    async def keep(self) -> None:
        """Take up whatever is left behind, until this is cancelled."""
        deaf = self._store.on_outage(lambda outage: None if outage else self._wake())
        next_all = 0.0
        try:
            while True:
                self._woken.clear()
                try:
                    if await self._something_is_left() or time.monotonic() >= next_all:
                        next_all = time.monotonic() + ALL_SECONDS
                        self._news = False
                        await self.all()
                except Exception as error:  # whatever it is, the next look may fare better
                    self._news = True
                    self._tell(error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._woken.wait()
        finally:
            deaf()

    def _tell(self, error: Exception) -> None:
        """Once, unless the database itself is away, which is told elsewhere."""
        news, self._why = str(error) != self._why, str(error)
        level = logging.WARNING if news and not isinstance(error, StoreError) else logging.DEBUG
        log.log(level, "what was left behind cannot be looked for: %s", error)

    def _wake(self) -> None:
        self._news = True
        self._woken.set()

    async def _something_is_left(self) -> bool:
        """Whether an owner is gone that was there, a run was dropped, or a pause is over."""
        verdicts = await self._owners.look()
        await self._owners.watch(verdicts.values())
        alive = {one for one, verdict in verdicts.items() if verdict != "gone"}
        missing, self._alive = self._alive - alive, alive
        now = time.monotonic()
        due = any(one.again <= now and not self._is_running(root) for root, one in self._tries.items())
        return bool(missing) or due or self._news
