"""What comes between a worker and its job: nothing is lost, and nothing that has ended is begun again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from staff import until

from retinue import AgentSpec, Retinue
from retinue.errors import ConfigError
from retinue.events import AnyEvent, RunResumed
from retinue.store.base import Signal, Store
from retinue.store.postgres import PostgresStore
from retinue.store.postgres_queue import TABLE
from retinue.testing import ScriptedModel
from retinue.worker import Worker
from retinue.worker.claims import ClaimedJob
from trees import agent

BOSS = agent("boss")


def asker(db: str, folder: Path) -> Retinue[Any]:
    """Who hands runs over."""
    settings = {"engine": "workers"}
    return Retinue(
        model=ScriptedModel([]),
        agents=[BOSS],
        db=db,
        cwd=folder,
        environ={},
        settings=settings,
        answering="ask",
    )


def doer(
    db: str | Store, folder: Path, *answers: str, agents: tuple[AgentSpec, ...] = (BOSS,)
) -> Retinue[Any]:
    """Whose worker does them."""
    return Retinue(
        model=ScriptedModel(answers), agents=agents, db=db, cwd=folder, environ={}, answering="ask"
    )


@contextlib.asynccontextmanager
async def working(retinue: Retinue[Any]) -> AsyncGenerator[Worker]:
    worker = Worker(retinue)
    task = asyncio.create_task(worker.work())
    await until(lambda: worker.ready)
    try:
        yield worker
    finally:
        worker.stop()
        await task


class SlowToTell(PostgresStore):
    """Gives out the signals of a workflow, the first time, only when somebody lets it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def signals(self, root_id: str, *, after: int = 0) -> list[Signal]:
        found = await super().signals(root_id, after=after)
        self.asked.set()
        await self.go.wait()
        return found


async def test_what_is_cancelled_while_a_worker_takes_it_up_is_not_begun_again(
    postgres_url: str, tmp_path: Path
) -> None:
    store = SlowToTell(postgres_url)
    async with asker(postgres_url, tmp_path) as asks, doer(store, tmp_path, "paid for") as does:
        async with working(does) as worker:
            run_id = await asks.start("boss", "go")
            await store.asked.wait()
            assert await asks.cancel(run_id, "no")
            store.go.set()
            await until(lambda: worker.legs_done)
        log = await asks.store.events(run_id)
        report = await asks.wait(run_id)
    assert report.status == "cancelled"
    assert not [event for event in log if isinstance(event, RunResumed)]


class OutOfFiles(PostgresStore):
    """Fails once as a machine does, and not as a database."""

    failed = False

    async def events(self, root_id: str, **which: Any) -> list[AnyEvent]:
        if not self.failed:
            self.failed = True
            raise OSError(24, "Too many open files")
        return await super().events(root_id, **which)


async def test_a_workflow_that_a_worker_cannot_take_up_for_any_reason_is_tried_again(
    postgres_url: str, tmp_path: Path
) -> None:
    store = OutOfFiles(postgres_url)
    async with asker(postgres_url, tmp_path) as asks, doer(store, tmp_path, "done") as does, working(does):
        assert (await asks.run("boss", "go")).text == "done"
    assert store.failed


async def test_a_workflow_that_waits_for_a_worker_and_has_lost_its_job_is_found(
    postgres_url: str, tmp_path: Path
) -> None:
    async with asker(postgres_url, tmp_path) as asks, doer(postgres_url, tmp_path, "done") as does:
        async with working(does):
            pass  # there is a queue now
        run_id = await asks.start("boss", "go")
        assert isinstance(does.store, PostgresStore)
        await does.store.use(lambda link: link.execute(f"DELETE FROM {TABLE}"))
        async with working(does):
            assert (await asks.wait(run_id)).text == "done"


async def test_a_worker_that_was_told_to_stop_begins_nothing_that_it_claimed_before(
    postgres_url: str, tmp_path: Path
) -> None:
    async with asker(postgres_url, tmp_path) as asks, doer(postgres_url, tmp_path, "done") as does:
        async with working(does) as worker:
            worker.stop()
            run_id = await asks.start("boss", "go")
            place = (await asks.store.events(run_id))[-1].seq
            over = await worker._do(ClaimedJob(root_id=run_id, place=place, tries=0))
            assert over.again == 0
            assert not worker.at_work
        row = await asks.store.run(run_id)
        assert row is not None
        assert row.owner == "queue"
        async with working(does):
            assert (await asks.wait(run_id)).text == "done"


async def test_what_no_log_can_hold_is_refused_also_where_a_run_goes_on(
    postgres_url: str, tmp_path: Path
) -> None:
    async with asker(postgres_url, tmp_path) as asks, doer(postgres_url, tmp_path, "one") as does:
        async with working(does):
            run_id = (await asks.run("boss", "go")).run_id
        before = await asks.store.events(run_id)
        with pytest.raises(ConfigError, match=r"the header 'X-Tenant', whose value no log keeps"):
            await asks.resume(run_id, message="again", extra_headers={"X-Tenant": "s3cret"})
        with pytest.raises(ConfigError, match=r"the model .*, which is an object of this program"):
            await asks.resume(run_id, message="again", model=ScriptedModel(["mine"]))
        assert await asks.store.events(run_id) == before
