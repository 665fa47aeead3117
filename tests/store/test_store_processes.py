"""Stores shared by real processes: nothing lost, nothing twice, whoever is killed."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from runlog import Log

from retinue.errors import Fenced
from retinue.fold import fold
from retinue.store import sqlite_file
from retinue.store.base import RunFilter, Store
from retinue.store.connect import connect
from retinue.store.follow import follow

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(disk_url: str) -> Iterator[Start]:
    """Starts writers; what is still running at the end of a test is killed."""
    begun: list[subprocess.Popen[str]] = []

    def begin(root_id: str, run_id: str, count: int) -> subprocess.Popen[str]:
        arguments = [disk_url, root_id, run_id, str(count)]
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("writer.py")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


async def opened(url: str) -> Store:
    store = connect(url)
    await store.open()
    return store


async def test_what_was_confirmed_before_kill_9_is_there_afterwards(disk_url: str, start: Start) -> None:
    writer = start("r", "r", 1_000_000)
    go(writer)
    assert writer.stdout is not None
    confirmed = 0
    while confirmed < 200:
        confirmed = int(writer.stdout.readline().split()[0])
    writer.kill()
    rest, _ = writer.communicate()
    whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    confirmed = max([confirmed, *(int(line.split()[0]) for line in whole)])
    store = await opened(disk_url)
    found = await store.events("r")
    assert len(found) >= confirmed
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    assert len(found) % 2 == 1, "an append of two events was torn"
    row = await store.run("r")
    assert row is not None
    assert row.turns == fold(found).turns
    await store.append([Log("other").start()])
    await store.close()
    if disk_url.startswith("sqlite"):
        assert sqlite_file.check(Path(disk_url.removeprefix("sqlite://"))) == []


async def test_processes_that_write_one_workflow_at_once_lose_nothing(disk_url: str, start: Start) -> None:
    names = ["a", "b", "c"]
    writers = [start("r", name, 301) for name in names]
    store = await opened(disk_url)
    ours = Log("ours", root_id="elsewhere")
    await store.append([ours.start()])
    seen: list[int] = []

    async def read() -> None:
        async with aclosing(follow(store, "r")) as events:
            async for event in events:
                seen.append(event.pos)
                if len(seen) == 3 * 301:
                    return

    reader = asyncio.create_task(read())
    for writer in writers:
        go(writer)
    while not reader.done():
        await store.append([ours.step()])
        await asyncio.wait([reader], timeout=0.01)
    await reader
    assert [await asyncio.to_thread(writer.wait) for writer in writers] == [0, 0, 0]
    assert seen == list(range(1, 3 * 301 + 1))
    for name in names:
        assert await store.count("r", run_id=name) == 301
        row = await store.run(name)
        assert row is not None
        assert row.turns == 150
    assert await store.count("elsewhere") == ours.seq
    await store.close()


async def test_of_two_processes_with_one_run_the_slower_is_fenced(disk_url: str, start: Start) -> None:
    writers = [start("r", "r", 401) for _ in range(2)]
    for writer in writers:
        go(writer)
    said = [(await asyncio.to_thread(writer.communicate))[0].splitlines() for writer in writers]
    assert sorted(lines[-1].split()[0] for lines in said) == ["401", "fenced"]
    store = await opened(disk_url)
    assert [event.seq for event in await store.events("r")] == list(range(1, 402))
    assert len(await store.runs(RunFilter())) == 1
    await store.close()


async def test_a_process_that_was_taken_over_is_fenced_at_its_next_append(disk_url: str) -> None:
    first, second = await opened(disk_url), await opened(disk_url)
    log = Log("r")
    await first.append([log.start(), log.step()])
    await second.append([log.resume()])
    log.seq = 2
    with pytest.raises(Fenced):
        await first.append([log.reply()])
    await first.close()
    await second.close()


async def test_another_process_is_heard_within_moments(disk_url: str, start: Start) -> None:
    """Prints how long it took; asserts only that it comes."""
    writer = start("r", "r", 101)
    store = await opened(disk_url)
    heard: dict[int, float] = {}
    async with aclosing(follow(store, "r")) as events:
        go(writer)
        async for event in events:
            heard[event.seq] = time.time()
            if event.seq == 101:
                break
    said, _ = await asyncio.to_thread(writer.communicate)
    told = {int(line.split()[0]): float(line.split()[1]) for line in said.splitlines()}
    delays = [1000 * (heard[seq] - at) for seq, at in told.items()]
    print(f"heard another process after {statistics.median(delays):.1f} ms, at most {max(delays):.1f} ms")
    assert len(delays) == 51
    await store.close()
