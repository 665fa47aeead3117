"""What every store promises about signals, wake-ups, following, the cache, and removing."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from runlog import Log

from retinue.errors import Gone
from retinue.events import AnyEvent
from retinue.store.base import KeptFile, Signal, Store
from retinue.store.connect import connect
from retinue.store.follow import follow
from retinue.store.memory import MemoryStore
from retinue.store.prune import prune


def signal(key: str, *, root_id: str = "r", body: str = "yes") -> Signal:
    return Signal(root_id=root_id, run_id=root_id, kind="answer", key=key, body=body, at=7.5)


async def test_the_first_signal_with_a_key_wins(store: Store) -> None:
    assert await store.send(signal("a1", body="yes")) is True
    assert await store.send(signal("a1", body="no")) is False
    assert await store.send(signal("a1", root_id="other", body="no")) is True
    found = await store.signal("r", "a1")
    assert found is not None
    assert (found.body, found.kind, found.at) == ("yes", "answer", 7.5)
    assert await store.signal("r", "a2") is None


async def test_signals_are_read_in_order_from_a_cursor(store: Store) -> None:
    for key in ("c", "a", "b"):
        await store.send(signal(key))
        await store.send(signal(key, root_id="other"))
    found = await store.signals("r")
    assert [one.key for one in found] == ["c", "a", "b"]
    assert [one.key for one in await store.signals("r", after=found[0].id)] == ["a", "b"]
    assert await store.signals("r", after=found[-1].id) == []


async def test_of_many_who_answer_at_once_exactly_one_wins(disk_store: Store, disk_url: str) -> None:
    other = connect(disk_url)
    await other.open()
    won = await asyncio.gather(
        *(place.send(signal("a1", body=str(n))) for n, place in enumerate([disk_store, other] * 5))
    )
    await other.close()
    assert sum(won) == 1
    found = await disk_store.signal("r", "a1")
    assert found is not None
    assert won[int(found.body)]


async def woken(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 60)
    event.clear()


async def watching(store: Store, event: asyncio.Event) -> None:
    """A database wakes a new subscriber once, when it begins to look out for other processes."""
    if not isinstance(store, MemoryStore):
        await woken(event)


async def test_a_subscriber_is_woken_by_events_signals_and_removal(store: Store) -> None:
    log, wake = Log("r"), asyncio.Event()
    store.subscribe("r", wake.set)
    await watching(store, wake)
    await store.append([log.start()])
    await woken(wake)
    await store.send(signal("a1"))
    await woken(wake)
    await store.delete("r")
    await woken(wake)


async def test_a_subscriber_to_signals_is_not_woken_by_our_own_events(store: Store) -> None:
    log, wake, all_ = Log("r"), asyncio.Event(), asyncio.Event()
    store.subscribe("r", wake.set, signals=True)
    store.subscribe("r", all_.set)
    await watching(store, wake)
    all_.clear()
    await store.append([log.start()])
    await woken(all_)
    assert not wake.is_set()
    await store.send(signal("a1"))
    await woken(wake)


async def test_nobody_is_woken_by_another_workflow_or_after_the_end(store: Store) -> None:
    mine, other = asyncio.Event(), asyncio.Event()
    end = store.subscribe("mine", mine.set)
    store.subscribe("other", other.set)
    await watching(store, mine)
    await watching(store, other)
    await store.append([Log("other").start()])
    await woken(other)
    assert not mine.is_set()
    end()
    end()
    await store.append([Log("mine").start(), Log("another").start()])
    await store.append([Log("other2", root_id="other", parent_id="other").start()])
    await woken(other)
    assert not mine.is_set()


async def test_another_store_on_the_same_database_wakes_us(disk_store: Store, disk_url: str) -> None:
    other, wake, log = connect(disk_url), asyncio.Event(), Log("r")
    await other.open()
    disk_store.subscribe("r", wake.set, signals=True)
    await watching(disk_store, wake)
    await other.append([log.start()])
    await woken(wake)
    await other.send(signal("a1"))
    await woken(wake)
    await other.append([Log("elsewhere").start()])
    await other.append([log.step()])
    await woken(wake)
    await other.close()


async def test_two_stores_on_one_database_share_the_places(disk_store: Store, disk_url: str) -> None:
    other = connect(disk_url)
    await other.open()
    log = Log("r")
    await disk_store.append([log.start()])
    for place in (other, disk_store, disk_store, other, other, disk_store):
        await place.append([log.step()])
    assert [event.pos for event in await disk_store.events("r")] == list(range(1, 8))
    assert [event.seq for event in await other.events("r")] == list(range(1, 8))
    await other.close()


async def test_following_misses_nothing_and_repeats_nothing(store: Store) -> None:
    root = Log("r")
    await store.append([root.start(), *(root.step() for _ in range(1200))])

    async def write(name: str) -> None:
        log = Log(name, root_id="r", parent_id="r")
        for _ in range(40):
            await store.append([log.step(), log.reply()])

    async def read(after: int) -> list[AnyEvent]:
        found: list[AnyEvent] = []
        async with aclosing(follow(store, "r", after)) as events:
            async for event in events:
                found.append(event)
                if event.pos == 1201 + 5 * 80:
                    break
        return found

    readers = [asyncio.create_task(read(after)) for after in (0, 0, 1200)]
    await asyncio.gather(*(write(f"c{n}") for n in range(5)))
    first, second, late = await asyncio.wait_for(asyncio.gather(*readers), 60)
    assert [event.pos for event in first] == list(range(1, 1602))
    assert second == first
    assert late == first[1200:]


async def test_what_is_stored_while_a_follower_looks_is_not_missed() -> None:
    log = Log("r")
    late = [log.start(), log.step(), log.reply()]

    class Slow(MemoryStore):
        async def events(self, *args: Any, **which: Any) -> list[AnyEvent]:
            found = await super().events(*args, **which)
            if late:
                await self.append([late.pop(0)])
                await asyncio.sleep(0)
            return found

    async with aclosing(follow(Slow(), "r")) as events:
        assert [(await asyncio.wait_for(anext(events), 60)).seq for _ in range(3)] == [1, 2, 3]


async def test_a_follower_that_is_closed_is_forgotten(store: Any) -> None:
    await store.append([Log("r").start()])
    async with aclosing(follow(store, "r")) as events:
        assert (await anext(events)).pos == 1
        assert "r" in store._subscribers  # what a leak would look like
    assert not store._subscribers.get("r")


async def test_a_cached_value_is_there_until_it_expires(store: Store) -> None:
    before = time.time()
    await store.cache("web", "k", b"\0page", 60)
    found = await store.cached("web", "k")
    assert found is not None
    assert found[0] == b"\0page"
    assert before + 60 <= found[1] <= time.time() + 60
    await store.cache("web", "k", b"newer", 60)
    found = await store.cached("web", "k")
    assert found is not None
    assert found[0] == b"newer"
    await store.cache("web", "k", b"gone", -1)
    assert await store.cached("web", "k") is None


async def test_files_are_kept_with_their_run_and_go_with_the_workflow(store: Store) -> None:
    def file(run_id: str, path: str, data: bytes, at: float = 1.0) -> KeptFile:
        return KeptFile(root_id="r", run_id=run_id, path=path, seq=3, at=at, data=data)

    await store.append([Log("r").start()])
    before = await store.size()
    report, page = (
        file("r", "/home/agent/b.md", os.urandom(100_000)),
        file("c", "/home/agent/a.md", b"p", 2.0),
    )
    await store.keep(page)
    await store.keep(report)
    assert await store.kept("r") == [report, page], "oldest first"
    assert await store.kept("r", "c") == [page]
    assert await store.kept("other") == []
    assert await store.size() > before
    other = file("c", "/home/agent/a.md", b"other", 3.0)
    await store.keep(other)
    assert await store.kept("r", "c") == [other], "kept twice at one event, it is one version"
    newer = msgspec.structs.replace(other, seq=5, at=4.0, data=b"newer")
    await store.keep(newer)
    assert await store.kept("r", "c") == [other, newer]
    await store.unkeep("r", "r", "/home/agent/b.md", 3)
    await store.unkeep("r", "c", "/home/agent/a.md", 3)
    assert await store.kept("r") == [newer]
    await store.delete("r")
    assert await store.kept("r") == []


async def test_changes_of_one_value_at_the_same_time_all_count(store: Store) -> None:
    def add(number: int) -> Callable[[bytes | None], bytes]:
        return lambda kept: b",".join([*filter(None, (kept or b"").split(b",")), str(number).encode()])

    await asyncio.gather(*(store.recache("memory", "k", add(number), 60) for number in range(40)))
    found = await store.cached("memory", "k")
    assert found is not None
    assert sorted(map(int, found[0].split(b","))) == list(range(40))
    await store.cache("memory", "k", b"7", -1)
    await store.recache("memory", "k", add(1), 60)
    found = await store.cached("memory", "k")
    assert found is not None
    assert found[0] == b"1", "what has expired is not there"


async def test_scopes_of_the_cache_do_not_mix(store: Store) -> None:
    await store.cache("one", "k", b"1", 60)
    assert await store.cached("two", "k") is None
    assert await store.cached("one", "other") is None


async def test_a_deleted_workflow_is_gone_and_the_others_stay(store: Store) -> None:
    gone, child, stays = Log("gone"), Log("c", root_id="gone", parent_id="gone"), Log("stays")
    await store.append([gone.start(), child.start(), child.ask(), stays.start()])
    await store.send(signal("a1", root_id="gone"))
    await store.delete("gone")
    assert await store.events("gone") == []
    assert await store.tree("gone") == []
    assert await store.signals("gone") == []
    assert await store.waiting() == []
    assert await store.count("stays") == 1
    again = Log("gone").start()
    await store.append([again])
    assert again.pos == 1


async def test_a_writer_is_told_that_its_workflow_was_deleted_and_nothing_of_it_is_kept(store: Store) -> None:
    log, child = Log("gone"), Log("c", root_id="gone", parent_id="gone")
    other = Log("stays")
    await store.append([log.start(), child.start(), other.start()])
    await store.delete("gone")
    late = [store.append([child.step()]), store.append([log.step()]), store.append([other.step()])]
    for future in late[:2]:
        with pytest.raises(Gone, match="gone was deleted"):
            await future
    await late[2]
    with pytest.raises(Gone):
        await store.append([log.step(), log.reply()])
    assert await store.count("gone") == 0
    assert await store.strays(time.time()) == []
    await store.append([Log("gone").start()])  # its name is free for another


async def shelf(store: Store) -> None:
    for name, at in (("ancient", 10.0), ("old", 20.0), ("new", 3e9)):
        log = Log(name, at=at)
        await store.append(
            [log.start(), *(log.result(os.urandom(10_000).hex()) for _ in range(20)), log.finish()]
        )
    waits, revived, crashed = Log("waits", at=15), Log("revived", at=16), Log("crashed", at=17)
    await store.append([waits.start(), waits.ask(), revived.start(), crashed.start(), crashed.step()])
    revived.at = 3e9
    await store.append([revived.step()])


async def test_old_workflows_are_those_where_nothing_happened_lately(store: Store) -> None:
    await shelf(store)
    found = await store.old_roots(1000)
    assert [(root.root_id, root.events) for root in found] == [
        ("ancient", 22),
        ("waits", 2),
        ("crashed", 2),
        ("old", 22),
    ]
    assert (found[0].status, found[0].created_at, found[0].last_at) == ("completed", 10, 10)
    assert [root.root_id for root in await store.old_roots(1000, limit=1)] == ["ancient"]
    assert [root.root_id for root in await store.old_roots(16)] == ["ancient", "waits"]


async def test_pruning_by_age_spares_who_waits(store: Store) -> None:
    await shelf(store)
    planned = await prune(store, before=1000, dry_run=True)
    assert await store.count("ancient") == 22
    done = await prune(store, before=1000)
    assert done == planned
    assert done.root_ids == ("ancient", "crashed", "old")
    assert done.events == 46
    assert await store.count("ancient") == 0
    assert await store.count("waits") == 2
    assert await store.count("new") == 22


async def test_pruning_by_size_removes_the_oldest_first(store: Store) -> None:
    await shelf(store)
    full = await store.size()
    assert full > 1_000_000
    done = await prune(store, max_bytes=full - 100_000)
    assert done.root_ids == ("ancient",)
    assert await store.size() < full - 300_000
    assert (await prune(store, max_bytes=full)).root_ids == ()


async def test_pruning_removes_files_of_what_never_began_but_none_that_is_just_being_begun(
    store: Store,
) -> None:
    await shelf(store)
    now = time.time()
    for root_id, at in (("lost", now - 7200), ("begins", now), ("new", now - 7200)):
        await store.keep(
            KeptFile(root_id=root_id, run_id=root_id, path="/home/agent/a", seq=1, at=at, data=b"x")
        )
    await prune(store, before=5, dry_run=True)
    assert len(await store.kept("lost")) == 1
    assert (await prune(store, before=5)).root_ids == ()
    assert [len(await store.kept(each)) for each in ("lost", "begins", "new")] == [0, 1, 1]


@pytest.mark.parametrize("which", [0, 1])
async def test_a_signal_and_events_of_one_moment_both_arrive(store: Store, which: int) -> None:
    log = Log("r")
    both = [store.append([log.start()]), asyncio.ensure_future(store.send(signal("a1")))]
    await asyncio.gather(*(both if which else both[::-1]))
    assert await store.count("r") == 1
    assert len(await store.signals("r")) == 1


async def test_a_store_that_is_open_is_not_opened_again(disk_store: Store) -> None:
    before = (threading.active_count(), len(os.listdir("/proc/self/fd")))
    await disk_store.open()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
    await disk_store.append([Log("r").start()])
    await disk_store.close()
    await disk_store.close()  # whoever else has opened it
