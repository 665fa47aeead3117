"""What every store promises about the log itself."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runlog import EVERY_CHECK, Log

from pg import database
from retinue.errors import Fenced, StoreError
from retinue.events import Event, RunStarted
from retinue.store.base import Store
from retinue.store.connect import connect


def same(found: Sequence[Event], expected: Sequence[Event]) -> bool:
    """Equal but for the place, which the store gives."""
    return [msgspec.structs.replace(e, pos=0) for e in found] == [
        msgspec.structs.replace(e, pos=0) for e in expected
    ]


async def test_events_come_back_in_the_order_they_were_appended(store: Store) -> None:
    log = Log("r")
    written: list[Event] = [log.start(), log.step(), log.reply(), log.finish()]
    await store.append(written[:1])
    await store.append(written[1:])
    found = await store.events("r")
    assert same(found, written)
    assert [event.pos for event in found] == [1, 2, 3, 4]


async def test_appends_that_are_not_awaited_keep_their_order(store: Store) -> None:
    log = Log("r")
    written = [log.start(), *(log.step() for _ in range(20))]
    await asyncio.gather(*[store.append([event]) for event in written])
    assert same(await store.events("r"), written)


async def test_an_event_has_its_place_when_its_append_is_done(store: Store) -> None:
    log = Log("r")
    first, second = log.start(), log.step()
    future = store.append([first, second])
    future.add_done_callback(lambda _: places.extend([first.pos, second.pos]))
    places: list[int] = []
    await future
    await asyncio.sleep(0)
    assert places == [1, 2]


async def test_the_list_that_was_appended_may_be_used_again(store: Store) -> None:
    log = Log("r")
    events: list[Event] = [log.start(), log.step()]
    future = store.append(events)
    events.clear()
    await future
    assert await store.count("r") == 2


async def test_appending_nothing_is_done_at_once(store: Store) -> None:
    assert store.append([]).done()


async def test_the_second_writer_of_a_seq_is_fenced(store: Store) -> None:
    await store.append([Log("r").start()])
    with pytest.raises(Fenced, match=r"run r was taken over by another process") as caught:
        await store.append([Log("r").start("another")])
    assert caught.value.run_id == "r"
    (kept,) = await store.events("r")
    assert isinstance(kept, RunStarted)
    assert kept.prompt == "why?"


async def test_a_fenced_append_stores_none_of_its_events(store: Store) -> None:
    log, other = Log("r"), Log("s", root_id="r", parent_id="r")
    await store.append([log.start()])
    log.seq = 0
    with pytest.raises(Fenced):
        await store.append([other.start(), other.step(), log.start()])
    assert await store.count("r") == 1
    assert await store.run("s") is None


async def test_the_same_seq_twice_in_one_append_is_fenced(store: Store) -> None:
    with pytest.raises(Fenced):
        await store.append([Log("r").start(), Log("r").start()])
    assert await store.events("r") == []


async def test_only_the_guilty_append_of_a_moment_fails(store: Store) -> None:
    good = [Log(f"g{n}") for n in range(5)]
    twice = [Log("x"), Log("x")]
    futures = [store.append([log.start()]) for log in (*good[:2], *twice, *good[2:])]
    done = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(result) for result in done].count(Fenced) == 1
    assert isinstance(done[3], Fenced)
    for log in (*good, twice[0]):
        assert await store.run(log.run_id) is not None


async def test_after_a_fence_places_go_on_without_a_gap(store: Store) -> None:
    log = Log("r")
    await store.append([log.start()])
    with pytest.raises(Fenced):
        await store.append([Log("c", root_id="r", parent_id="r").start(), Log("r").start()])
    child = Log("d", root_id="r", parent_id="r").start()
    await store.append([child])
    assert child.pos == 2


async def test_what_stands_in_line_behind_a_fenced_event_is_fenced_too(store: Store) -> None:
    """The new owner has written seq 2 only; the old one has 2 and 3 in line. Its 3 must not get in."""
    await store.append([Log("r").start()])
    new, old = Log("r"), Log("r")
    new.seq = old.seq = 1
    await store.append([new.step()])
    futures = [store.append([old.step()]), store.append([old.reply()])]
    done = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(result) for result in done] == [Fenced, Fenced]
    with pytest.raises(Fenced):
        await store.append([old.step()])
    old.seq = 2
    await store.append([old.resume()])
    await store.append([old.step()])
    assert [event.seq for event in await store.events("r")] == [1, 2, 3, 4]


async def test_fifty_writers_of_one_workflow_leave_no_gap(store: Store) -> None:
    root = Log("r")
    await store.append([root.start()])

    async def write(name: str) -> None:
        log = Log(name, root_id="r", parent_id="r")
        await store.append([log.start()])
        for _ in range(4):
            await store.append([log.step(), log.reply()])

    await asyncio.gather(*(write(f"c{n}") for n in range(50)))
    found = await store.events("r")
    assert [event.pos for event in found] == list(range(1, 1 + 1 + 50 * 9))
    for n in range(50):
        assert [event.seq for event in found if event.run_id == f"c{n}"] == list(range(1, 10))


async def test_places_are_counted_per_workflow(store: Store) -> None:
    one, two = Log("one"), Log("two")
    await store.append([one.start(), two.start(), two.step()])
    await store.append([one.step(), two.step()])
    assert [event.pos for event in await store.events("one")] == [1, 2]
    assert [event.pos for event in await store.events("two")] == [1, 2, 3]


async def test_events_are_read_from_a_cursor_by_run_and_up_to_a_limit(store: Store) -> None:
    root, child = Log("r"), Log("c", root_id="r", parent_id="r")
    await store.append([root.start(), child.start(), root.step(), child.step(), child.reply(), root.reply()])

    async def places(**which: Any) -> list[int]:
        return [event.pos for event in await store.events("r", **which)]

    assert await places(after=4) == [5, 6]
    assert await places(after=2, limit=2) == [3, 4]
    assert await places(limit=0) == []
    assert await places(run_id="c") == [2, 4, 5]
    assert await places(run_id="c", after=2) == [4, 5]
    assert await places(run_id="c", after=2, limit=1) == [4]
    assert await places(run_id="r") == [1, 3, 6]
    assert await store.events("nobody") == []


async def test_the_tail_and_the_number_of_events_are_known(store: Store) -> None:
    root, child = Log("r"), Log("c", root_id="r", parent_id="r")
    await store.append([root.start(), child.start(), root.step(), child.step(), child.reply(), root.reply()])
    assert [event.pos for event in await store.tail("r", limit=2)] == [5, 6]
    assert [event.pos for event in await store.tail("r", limit=2, run_id="r")] == [3, 6]
    assert len(await store.tail("r", limit=99)) == 6
    assert await store.tail("r", limit=0) == []
    assert await store.count("r") == 6
    assert await store.count("r", run_id="c") == 3
    assert await store.count("nobody") == 0


async def test_odd_texts_come_back_unchanged(store: Store) -> None:
    log = Log("r")
    written = [log.start("NUL \0, quote ', \\u0000, 👩‍🚀, \u202e, $1 ?1"), log.result("x" * 200_000)]
    await store.append(written)
    assert same(await store.events("r"), written)


async def test_text_that_is_not_unicode_is_refused_and_says_so(store: Store) -> None:
    log = Log("r")
    refused = store.append([log.start("half a pair: \ud800")])
    with pytest.raises(StoreError, match="not valid Unicode"):
        await refused
    await store.append([Log("r").start()])


async def test_events_are_stored_even_if_nobody_waits_for_them_any_more(store: Store) -> None:
    log = Log("r")

    async def write() -> None:
        await store.append([log.start()])

    task = asyncio.create_task(write())
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await store.append([log.step()])
    assert [event.seq for event in await store.events("r")] == [1, 2]


async def test_closing_writes_what_is_in_line(disk_url: str) -> None:
    log = Log("r")
    store = connect(disk_url)
    await store.open()
    futures = [store.append([event]) for event in (log.start(), log.step(), log.reply())]
    await store.close()
    assert all(future.done() and future.exception() is None for future in futures)
    again = connect(disk_url)
    await again.open()
    assert await again.count("r") == 3
    await again.close()


async def test_a_closed_store_refuses_events(disk_url: str) -> None:
    store = connect(disk_url)
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.append([Log("r").start()])


KINDS = st.sampled_from(["step", "reply", "call", "result", "ask", "answer", "message", "resume", "finish"])


@contextlib.asynccontextmanager
async def opened(kind: str, tmp_path: Path, number: int) -> AsyncIterator[Store]:
    with database() if kind == "postgresql" else contextlib.nullcontext("memory:") as url:
        store = connect(f"sqlite://{tmp_path}/{number}.db" if kind == "sqlite" else url)
        await store.open()
        yield store
        await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
async def test_any_log_in_any_batches_reads_back_equal(kind: str, tmp_path: Path) -> None:
    """Several runs, in whatever order and batches: what is read is what was written."""
    async with opened(kind, tmp_path, 0) as store:
        loop = asyncio.get_running_loop()
        rounds = 0

        async def check(plan: list[tuple[int, str]], cuts: list[int]) -> None:
            nonlocal rounds
            rounds += 1
            root = f"r{rounds}"
            logs = [Log(root), *(Log(f"{root}.{n}", root_id=root, parent_id=root) for n in (1, 2))]
            written: list[Event] = [log.start() for log in logs]
            written += [getattr(logs[which], kind)() for which, kind in plan]
            edges = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
            batches = [written[a:b] for a, b in itertools.pairwise(edges)]
            await asyncio.gather(*[store.append(batch) for batch in batches])
            found = await store.events(root)
            assert same(found, written)
            assert [event.pos for event in found] == list(range(1, len(written) + 1))
            for log in logs:
                own = [event for event in written if event.run_id == log.run_id]
                assert same(await store.events(root, run_id=log.run_id), own)

        @settings(max_examples=25, deadline=None, suppress_health_check=EVERY_CHECK, database=None)
        @given(
            st.lists(st.tuples(st.integers(0, 2), KINDS), max_size=30),
            st.lists(st.integers(0, 33), max_size=6),
        )
        def examples(plan: list[tuple[int, str]], cuts: list[int]) -> None:
            asyncio.run_coroutine_threadsafe(check(plan, cuts), loop).result(30)

        await asyncio.to_thread(examples)
        assert rounds >= 10
