"""One host is not asked for everything at once, by whichever agent or process; others are not held up by it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from local_web import Site

from retinue.errors import ToolError
from retinue.store.sqlite import SqliteStore
from retinue.web.fetch import Web
from retinue.web.host_pace import HostPace
from retinue.web.urls import take_apart

GAP = 0.2


def pace(store: SqliteStore | None = None, gap: float = GAP) -> HostPace:
    recache = None if store is None else store.recache
    return HostPace(gap, recache, wall=time.time, clock=time.monotonic)


async def starts(*paces: HostPace, count: int = 3) -> list[float]:
    """When requests to one host began, several at once from each: after how many seconds.

    One may begin late on a machine that is busy, and the next one is on time all the same. None is early.
    """
    began: list[float] = []
    first = time.time()

    async def one(through: HostPace) -> None:
        async with through.turn(take_apart("https://one.example/"), 60):
            began.append(time.time() - first)

    await asyncio.gather(*(one(through) for through in paces for _ in range(count)))
    return sorted(began)


async def test_requests_to_one_host_are_spaced() -> None:
    began = await starts(pace(), count=4)
    assert all(after >= place * GAP * 0.99 for place, after in enumerate(began))


async def test_processes_that_share_a_database_share_the_pace(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "retinue.db") for _ in range(2)]
    for store in stores:
        await store.open()
    began = await starts(*(pace(store) for store in stores), count=2)
    assert len(began) == 4
    assert all(after >= place * GAP * 0.99 for place, after in enumerate(began))
    for store in stores:
        await store.close()


async def test_another_host_is_not_held_up() -> None:
    through = pace(gap=3600)
    async with through.turn(take_apart("https://one.example/"), 60):
        pass
    async with through.turn(take_apart("https://other.example/"), 60):
        pass
    with pytest.raises(ToolError, match=r"too many requests to one\.example:443 wait already"):
        async with through.turn(take_apart("https://one.example/"), 60):
            raise AssertionError("it may not start")


async def test_fetching_goes_by_it(make_web, site: Site) -> None:
    web: Web = make_web(host_interval=3600.0)
    await web.page(site.add("/a", "<p>words</p>"))
    with pytest.raises(ToolError, match="too many requests"):
        await web.page(site.add("/b", "<p>words</p>"))
    assert "/b" not in [asked.path for asked in site.asked]
