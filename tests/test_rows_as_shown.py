"""Rows of runs as people see them: whose process is gone, who waits for a limit, what a list may not say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from retinue.engine.owners import Owners
from retinue.engine.shown import ShownRuns, told_with_log
from retinue.events import ChildStarted, LimitReached, RunStarted, StepStarted
from retinue.store.base import RunFilter, RunRow
from retinue.store.memory import MemoryStore
from trees import agent


class Shown:
    """Logs of runs, and the look that a list takes at them."""

    def __init__(self, *working: str) -> None:
        self.store, self.working = MemoryStore(), set(working)
        self.runs = ShownRuns(self.store, Owners(self.store, busy=lambda: False), working=self._look)
        self.seqs: dict[str, int] = {}

    @contextmanager
    def _look(self) -> Iterator[Collection[str]]:
        yield self.working

    async def write(self, run_id: str, kind: Any, at: float, root_id: str = "", **fields: Any) -> None:
        self.seqs[run_id] = seq = self.seqs.get(run_id, 0) + 1
        above: Any = {"root_id": root_id or run_id, "parent_id": root_id or None, "depth": int(bool(root_id))}
        await self.store.append([kind(run_id=run_id, seq=seq, at=at, **above, **fields)])

    async def begin(self, run_id: str, root_id: str = "", at: float = 1.0, **owner: Any) -> None:
        if root_id:
            await self.write(root_id, ChildStarted, at, child_id=run_id, agent="a", prompt="part")
        await self.write(run_id, RunStarted, at, root_id, spec=agent("a"), prompt="go", **owner)
        await self.write(run_id, StepStarted, at + 1, root_id, step=1, model="m")

    async def row(self, run_id: str) -> RunRow:
        row = await self.runs.run(run_id)
        assert row is not None
        return row

    async def listed(self, **which: Any) -> list[str]:
        return sorted(row.run_id for row in await self.runs.runs(RunFilter(**which)))


@pytest.mark.parametrize(("process", "left"), [("ended", True), ("younger", True), ("at work", False)])
async def test_a_run_of_before_there_were_owners_is_interrupted_when_its_process_is_gone(
    process: str, left: bool
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    shown, elsewhere = Shown(), Shown()
    pid = ended.pid if process == "ended" else os.getppid()
    at = 1.0 if process == "younger" else time.time()
    await shown.begin("r", at=at, host=socket.gethostname(), pid=pid)
    assert (await shown.row("r")).outcome == ("interrupted" if left else "running")
    assert await shown.listed(outcome="interrupted") == (["r"] if left else [])
    assert await shown.listed(outcome="running") == ([] if left else ["r"])
    await elsewhere.begin("r", at=at, host="another machine", pid=pid)
    assert (await elsewhere.row("r")).outcome == "running"


async def test_what_is_interrupted_has_worked_until_its_log_ends_and_what_we_work_on_is_not() -> None:
    shown = Shown("ours")
    for run_id in ("ours", "gone"):
        await shown.begin(run_id, owner="nobody")
        await shown.write(run_id, StepStarted, 9.0, step=2, model="m")
    row = await shown.row("gone")
    assert (row.outcome, row.duration_ms, row.held_since) == ("interrupted", 7000, None)
    assert (await shown.row("ours")).outcome == "running"
    assert await shown.listed(outcome="interrupted") == ["gone"]
    assert await shown.listed(outcome="running") == ["ours"]
    assert await shown.listed() == ["gone", "ours"]
    assert {total.key: total.runs for total in await shown.runs.totals("outcome")} == {
        "interrupted": 1,
        "running": 1,
    }
    story, log = await told_with_log(shown.store, row)
    assert story.root is not None
    assert (story.root.outcome, len(log)) == ("interrupted", 3)


async def test_a_root_waits_for_the_first_limit_that_is_waited_for_below_it() -> None:
    shown = Shown("root", "other")
    for root_id in ("root", "other"):
        await shown.begin(root_id)
        for child, until in ((f"{root_id}-b", 700.0), (f"{root_id}-a", 500.0)):
            await shown.begin(child, root_id)
            more = 0 if root_id == "root" else 1000
            await shown.write(
                child, LimitReached, 3.0, root_id, step=1, model="m", reason="busy", until=until + more
            )
    assert {row.run_id: row.parked_until for row in await shown.runs.tree("root")} == {
        "root": 500.0,
        "root-a": 500.0,
        "root-b": 700.0,
    }
    assert {row.run_id: row.parked_until for row in await shown.runs.standings("root")} == {
        "root": None,
        "root-a": 500.0,
        "root-b": 700.0,
    }
    among = await shown.runs.standings("root", ["root-a", "other-a"])
    assert [(row.run_id, row.parked_until) for row in among] == [("root-a", 500.0)]
    assert (await shown.row("other")).parked_until == 1500.0
    assert (await shown.row("root-b")).parked_until == 700.0


async def test_of_a_run_that_is_not_there_there_is_no_row() -> None:
    assert await Shown().runs.run("nobody") is None
