"""The workers that read pages: two at most, killed when they hang, without keys."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
import pytest_asyncio
from paging import job

from retinue.errors import ToolError
from retinue.web.page import Page, convert
from retinue.web.pool import Pool


@pytest_asyncio.fixture(loop_scope="module")
async def own():
    """A pool that no other test has used."""
    pool = Pool()
    yield pool
    await pool.close()


async def test_a_worker_runs_nothing_of_the_folder_it_is_started_in(
    own: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project may hold a `retinue` of its own: as it came, or as a command has put it there."""
    (tmp_path / "retinue").mkdir()
    (tmp_path / "retinue/__init__.py").write_text("open('ran.txt', 'w')")
    monkeypatch.chdir(tmp_path)
    assert isinstance(await own.run(job("<p>a</p>")), Page)
    assert not (tmp_path / "ran.txt").exists()


async def test_a_worker_is_started_once_and_used_again(own: Pool) -> None:
    assert isinstance(await own.run(job("<p>a</p>")), Page)
    (worker,) = own._all
    assert isinstance(await own.run(job("<p>b</p>")), Page)
    assert own._all == {worker}


async def test_no_more_than_two_workers_run(own: Pool) -> None:
    found = await asyncio.gather(*(own.run(job(f"<p>{n}</p>")) for n in range(10)))
    assert [answer.text for answer in found if isinstance(answer, Page)] == [str(n) for n in range(10)]
    assert len(own._all) <= 2


async def test_many_first_fetches_warm_one_worker(own: Pool) -> None:
    await asyncio.gather(*(own.warm() for _ in range(20)))
    assert (len(own._all), own._idle) == (1, list(own._all))


async def test_warming_and_reading_at_once_start_no_more_workers_than_places() -> None:
    pool = Pool(workers=1)
    try:
        reading = [pool.run(job(f"<p>{n}</p>")) for n in range(3)]
        await asyncio.gather(pool.warm(), reading[0], pool.warm(), *reading[1:], pool.warm())
        assert len(pool._all) == 1
    finally:
        await pool.close()


async def test_one_that_gives_up_while_a_worker_starts_leaves_it_to_the_others(own: Pool) -> None:
    first, second = asyncio.create_task(own.warm()), asyncio.create_task(own.warm())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
    assert len(own._idle) == 1


async def test_closing_while_a_worker_starts_leaves_none_behind() -> None:
    pool = Pool()
    warming = asyncio.create_task(pool.warm())
    await asyncio.sleep(0)
    await pool.close()
    await warming
    assert (pool._all, pool._idle) == (set(), [])


async def test_a_worker_that_hangs_is_killed_and_replaced() -> None:
    pool = Pool(workers=1)
    try:
        assert isinstance(await pool.run(job("<p>warm</p>")), Page)
        (worker,) = pool._all
        pool.seconds = 0.4
        os.kill(worker.process.pid, signal.SIGSTOP)
        with pytest.raises(ToolError, match=r"took longer than 0\.4 seconds"):
            await pool.run(job("<p>a</p>"))
        assert worker.process.returncode == -signal.SIGKILL
        pool.seconds = 60
        assert isinstance(await pool.run(job("<p>again</p>")), Page)
    finally:
        await pool.close()


async def test_a_worker_that_dies_is_replaced(own: Pool) -> None:
    await own.run(job("<p>warm</p>"))
    (worker,) = own._all
    os.kill(worker.process.pid, signal.SIGKILL)
    await worker.process.wait()
    with pytest.raises(ToolError, match="brings down the program"):
        await own.run(job("<p>a</p>"))
    assert isinstance(await own.run(job("<p>again</p>")), Page)


async def test_a_cancelled_job_does_not_leave_its_answer_to_the_next(own: Pool) -> None:
    await own.run(job("<p>warm</p>"))
    task = asyncio.create_task(own.run(job("<p>first</p>" * 20_000)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = await own.run(job("<p>second</p>"))
    assert isinstance(found, Page)
    assert found.text == "second"


async def test_the_worker_has_no_keys_little_memory_and_may_write_nothing(
    own: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "secret-key")
    await own.run(job("<p>warm</p>"))
    (worker,) = own._all
    place = Path(f"/proc/{worker.process.pid}")
    if not place.exists():
        pytest.skip("needs /proc")
    assert b"secret-key" not in (place / "environ").read_bytes()
    limits = (place / "limits").read_text()
    assert str(1 << 30) in next(line for line in limits.splitlines() if line.startswith("Max address space"))
    assert next(line for line in limits.splitlines() if line.startswith("Max file size")).split()[3] == "0"


async def test_a_worker_that_a_page_blew_up_is_not_kept(own: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    await own.run(job("<p>warm</p>"))
    (worker,) = own._all
    if not worker.memory():
        pytest.skip("needs /proc")
    monkeypatch.setattr("retinue.web.pool.LARGE", worker.memory() // 2)
    await own.run(job("<p>large</p>"))
    assert own._all == set()
    assert worker.process.returncode is not None


async def test_closing_ends_every_worker() -> None:
    pool = Pool()
    await asyncio.gather(*(pool.run(job("<p>x</p>" * 3000)) for _ in range(2)))
    processes = [worker.process for worker in pool._all]
    assert processes
    await pool.close()
    assert all(process.returncode is not None for process in processes)


async def test_an_answer_is_no_larger_than_asked(pool: Pool) -> None:
    cells = "<td rowspan=60000 colspan=900>x" * 300
    found = await pool.run(job(f"<table><tr>{cells}</table>", most=50_000))
    assert isinstance(found, Page)
    assert len(found.text) <= 50_000


async def test_the_worker_reads_a_page_as_it_would_be_read_here(pool: Pool) -> None:
    asked = job("<title>T</title><h1>H</h1>" + "<p>words &amp; more</p>" * 500)
    assert await pool.run(asked) == convert(asked)
