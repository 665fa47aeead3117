"""One workflow's events for everyone who watches it, read once, however many watch.

A `Channel` holds the newest events of a workflow that somebody watches: what happens in this process comes
straight from `Retinue`, what another process writes is read from the store. Whoever is further behind reads
the log in pages, which never change once they are full and are shared too. A watcher is a cursor and nothing
else, so a slow one costs no memory; nothing is lost and nothing comes twice, since places have no gaps.

Text as it arrives rides along for those who have caught up, without a place of its own. Whoever catches up in
the middle of a reply is sent its beginning first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from retinue.app import Retinue
from retinue.errors import StoreError
from retinue.events import AnyEvent, Event, LiveEvent, RunFinished, ToolReturned, encode
from retinue.server.standings import Standings
from retinue.server.writing import Writing
from retinue.store.base import Store
from retinue.story import with_facts

PAGE = 200
HEARTBEAT = b": still here\n\n"
HEARTBEAT_SECONDS = 15.0
MOST_ENTRIES = 2000
MOST_BYTES = 4_000_000
MOST_CACHED = 16_000_000
CHUNK = 64_000
DELETED = b'data: {"type":"deleted"}\n\n'


class SentEvent(NamedTuple):
    """One event, ready to be sent. `pos` is 0 for what is live only; `number` counts what a channel held.

    `standing`: it is no event but how a run stands, for those who asked to be told.
    """

    number: int
    pos: int
    run_id: str
    data: bytes
    standing: bool = False


def frame(event: LiveEvent) -> bytes:
    place = b"id: %d\n" % event.pos if isinstance(event, Event) else b""
    return b"%bdata: %b\n\n" % (place, encode(event))


class StoredPages:
    """Stored events in pages of a fixed size. Full pages are kept for a while, and read once at a time."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, int], tuple[SentEvent, ...]] = OrderedDict()
        self._bytes = 0
        self._reading: dict[tuple[str, int], asyncio.Task[tuple[SentEvent, ...]]] = {}
        self.reads = 0

    async def after(self, root_id: str, cursor: int) -> Sequence[SentEvent]:
        """The events of one page that come after a place; none if the log ends there."""
        number = cursor // PAGE
        key = (root_id, number)
        page = self._kept.get(key)
        if page is None:
            page = await self._read(key)
        else:
            self._kept.move_to_end(key)
        return page[cursor - number * PAGE :]

    async def _read(self, key: tuple[str, int]) -> tuple[SentEvent, ...]:
        task = self._reading.get(key)
        if task is None:
            task = self._reading[key] = asyncio.create_task(self._load(key))
            task.add_done_callback(lambda _: self._reading.pop(key, None))
        return await asyncio.shield(task)

    async def _load(self, key: tuple[str, int]) -> tuple[SentEvent, ...]:
        root_id, number = key
        self.reads += 1
        store = self._store()
        events = await store.events(root_id, after=number * PAGE, limit=PAGE)
        events = await with_outcomes(store, root_id, events)
        page = tuple(SentEvent(0, event.pos, event.run_id, frame(event)) for event in events)
        if len(page) == PAGE:
            self._kept[key] = page
            self._bytes += sum(len(entry.data) for entry in page)
            while self._bytes > MOST_CACHED and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= sum(len(entry.data) for entry in gone)
        return page

    def forget(self, root_id: str) -> None:
        for key in [key for key in self._kept if key[0] == root_id]:
            self._bytes -= sum(len(entry.data) for entry in self._kept.pop(key))


class Channel:
    """The newest events of one workflow. `last` is the place of the newest."""

    def __init__(self, retinue: Retinue, root_id: str) -> None:
        self.retinue, self.root_id = retinue, root_id
        self.last = 0
        self.deleted = False
        self.closed = False
        self.watchers: set[asyncio.Event] = set()
        self.opened: asyncio.Task[None] = asyncio.create_task(self._open())
        self._ring: deque[SentEvent] = deque()
        self._bytes = 0
        self._index = 0
        self._known = False
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._standings: Standings | None = None

    @property
    def held(self) -> int:
        """How many events are kept here."""
        return len(self._ring)

    async def standings(self) -> Standings:
        """How its runs stand, kept from the moment on that somebody asks."""
        if self._standings is None:
            self._standings = Standings(self.retinue, self.root_id, self._stands)
        found = self._standings
        await asyncio.shield(found.opened)
        return found

    def _stands(self, run_id: str, data: bytes) -> None:
        self._hold(0, run_id, data, standing=True)
        self._wake()

    async def _open(self) -> None:
        store = self.retinue.store
        unsubscribe = store.subscribe(self.root_id, self._news.set, signals=True)
        try:
            # The full pages are read as pages; what is left begins the ring.
            self.last = await store.count(self.root_id) // PAGE * PAGE
            self._known = True
            await self._look()
        except BaseException:
            unsubscribe()
            raise
        self._task = asyncio.create_task(self._watch(unsubscribe), name=f"watch {self.root_id}")

    async def _watch(self, unsubscribe: Callable[[], None]) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                with contextlib.suppress(StoreError):  # the next wake tries again
                    await self._look()
                    if await self.retinue.store.count(self.root_id) == 0:
                        self.deleted = True
                        self._wake()
        finally:
            unsubscribe()

    async def _look(self) -> None:
        """What the store has and this does not."""
        while True:
            store = self.retinue.store
            found = await store.events(self.root_id, after=self.last, limit=PAGE)
            found = await with_outcomes(store, self.root_id, found)
            for event in found:
                self._take(event)
            if len(found) < PAGE:
                return

    def hear(self, event: LiveEvent) -> None:
        """From this process, as it happens."""
        if not self._known:
            return  # it is about to be read
        if isinstance(event, Event) and event.pos > self.last + 1:
            self._news.set()  # something came before it that was not heard here
            return
        self._take(event)

    def _take(self, event: LiveEvent) -> None:
        pos = event.pos if isinstance(event, Event) else 0
        if pos:
            if pos != self.last + 1:
                return
            self.last = pos
        self._hold(pos, event.run_id, frame(event))
        if self._standings is not None and isinstance(event, Event):
            self._standings.touch(event)
        self._wake()

    def _hold(self, pos: int, run_id: str, data: bytes, *, standing: bool = False) -> None:
        self._index += 1
        entry = SentEvent(self._index, pos, run_id, data, standing)
        self._ring.append(entry)
        self._bytes += len(entry.data)
        while len(self._ring) > 1 and (len(self._ring) > MOST_ENTRIES or self._bytes > MOST_BYTES):
            self._bytes -= len(self._ring.popleft().data)

    def _wake(self) -> None:
        for watcher in self.watchers:
            watcher.set()

    def enter(self, cursor: int) -> int | None:
        """Where in the ring a watcher goes on that has seen all up to a place; None if too far back."""
        if cursor >= self.last:
            return self._index + 1
        found: int | None = None
        for entry in reversed(self._ring):
            if entry.pos:
                if entry.pos <= cursor:
                    return found
                found = entry.number
        # The oldest event here must be the very next one.
        first = next((entry.pos for entry in self._ring if entry.pos), 0)
        return found if first == cursor + 1 else None

    def since(self, index: int) -> list[SentEvent] | None:
        """What came from an index on, one chunk at most; None if that is gone from the ring."""
        if index > self._index:
            return []
        if index < self._ring[0].number:
            return None
        taken: list[SentEvent] = []
        size = 0
        for place in range(index - self._ring[0].number, len(self._ring)):
            entry = self._ring[place]
            taken.append(entry)
            size += len(entry.data)
            if size >= CHUNK:
                break
        return taken

    def close(self) -> None:
        self.closed = True
        self.opened.cancel()
        if self._task is not None:
            self._task.cancel()
            self._task = None  # a cancelled task knows where it was, and so this channel
        if self._standings is not None:
            self._standings.close()
            self._standings = None
        self._wake()


class Hub:
    """Every workflow that is being watched."""

    def __init__(self, retinue: Retinue, *, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self.retinue, self.heartbeat = retinue, heartbeat
        self.pages = StoredPages(lambda: retinue.store)
        self.writing = Writing()
        self.channels: dict[str, Channel] = {}
        self.closed = False
        self._deaf = retinue.hear(self._hear)

    def _hear(self, event: LiveEvent) -> None:
        self.writing.hear(event)
        channel = self.channels.get(event.root_id)
        if channel is not None:
            channel.hear(event)

    async def watch(
        self, root_id: str, *, after: int = 0, only: str | None = None, standing: bool = False
    ) -> AsyncGenerator[tuple[bytes, int]]:
        """Chunks of a stream with the place they lead to: what is stored first, then what happens.

        Ends when the workflow is deleted or the server stops; `only` leaves out the other runs. `standing`:
        also how each run stands, once the stream has caught up, and whenever that changes.
        """
        if self.closed:
            return
        channel = self.channels.get(root_id)
        if channel is None:
            channel = self.channels[root_id] = Channel(self.retinue, root_id)
        woken = asyncio.Event()
        channel.watchers.add(woken)
        try:
            await asyncio.shield(channel.opened)
            standings = await channel.standings() if standing else None
            async for chunk in self._follow(channel, woken, after, only, standings):
                yield chunk
        finally:
            channel.watchers.discard(woken)
            if not channel.watchers and self.channels.get(root_id) is channel:
                del self.channels[root_id]
                channel.close()

    async def _follow(
        self,
        channel: Channel,
        woken: asyncio.Event,
        cursor: int,
        only: str | None,
        standings: Standings | None,
    ) -> AsyncGenerator[tuple[bytes, int]]:
        index: int | None = None
        caught_up = False
        behind: set[str] | None = set()  # runs of which it has missed how they stand; None: of any
        while not channel.closed:
            woken.clear()
            if channel.deleted:
                self.pages.forget(channel.root_id)
                yield DELETED, cursor
                return
            if index is None:
                index = channel.enter(cursor)
            entries = None if index is None else channel.since(index)
            if entries is None:
                behind = behind if index is None else None
                index, caught_up = None, False
                entries = await self.pages.after(channel.root_id, cursor)
                if not entries:
                    await asyncio.sleep(0.05)  # deleted under our eyes: the channel will notice
                    continue
            elif entries:
                index = entries[-1].number + 1
            elif not caught_up:
                caught_up = True
                written = self.writing.frames(channel.root_id, only)
                if standings is not None:
                    written += standings.frames(behind, only)
                    behind = set()
                if written:
                    yield written, cursor
                    continue
            cursor_before = cursor
            if not caught_up and behind is not None:
                behind.update(entry.run_id for entry in entries)
            chunk = b"".join(
                entry.data
                for entry in entries
                if (not entry.pos or entry.pos > cursor_before)
                and only in (None, entry.run_id)
                and (standings is not None or not entry.standing)
            )
            cursor = max(cursor, max((entry.pos for entry in entries), default=0))
            if chunk:
                yield chunk, cursor
            elif not entries and not await _within(woken, self.heartbeat):
                yield HEARTBEAT, cursor

    def close(self) -> None:
        """End every stream: whoever watched comes back to the next server with its cursor."""
        if self.closed:
            return
        self.closed = True
        self._deaf()
        for channel in list(self.channels.values()):
            channel.close()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def with_outcomes(store: Store, root_id: str, events: list[AnyEvent]) -> list[AnyEvent]:
    """These events of a workflow, each report and each result of a call with its outcome.

    Earlier versions left it to the rest of the log, which is read for them alone, and once.
    """
    bare = [event.pos for event in events if _lacks_outcome(event)]
    if not bare:
        return events
    kept = _told.setdefault(store, OrderedDict())
    if root_id not in kept or max(bare) > kept[root_id][0]:
        log = await store.events(root_id)
        facts = zip(log, with_facts(log), strict=True)
        kept[root_id] = log[-1].pos, {event.pos: told for event, told in facts if _lacks_outcome(event)}
        kept.move_to_end(root_id)
        while len(kept) > MOST_TOLD:
            kept.popitem(last=False)
    told = kept[root_id][1]
    return [told.get(event.pos, event) for event in events]


def _lacks_outcome(event: AnyEvent) -> bool:
    if isinstance(event, RunFinished):
        return not event.report.ended_by
    return isinstance(event, ToolReturned) and not event.outcome


_told: WeakKeyDictionary[Store, OrderedDict[str, tuple[int, dict[int, AnyEvent]]]] = WeakKeyDictionary()
MOST_TOLD = 8
"""Workflows of earlier versions of which it is remembered how their calls ended."""


def stored(events: Sequence[AnyEvent]) -> bytes:
    """Events as a JSON array."""
    return b"[" + b",".join(encode(event) for event in events) + b"]"
