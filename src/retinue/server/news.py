"""What changes among all runs: started, ended, waiting. For lists, badges and notifications.

Found by comparing what the store says now with what it said before: soon after something happens in this
process, and every moment for the sake of other processes that use the same database. Looks only while
somebody watches. Keeps no history: whoever connects gets a snapshot first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from retinue.app import Retinue
from retinue.errors import StoreError
from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    LiveEvent,
    RunFinished,
    RunResumed,
    RunStarted,
)
from retinue.server import shapes
from retinue.server.hub import HEARTBEAT, HEARTBEAT_SECONDS
from retinue.store.base import RunFilter, RunRow

EVERY = 1.0
SOON = 0.05
MOST_QUEUED = 500
NEWEST = 50
_TELLING = (RunStarted, RunFinished, RunResumed, ApprovalRequested, ApprovalAnswered)


class News:
    def __init__(
        self, retinue: Retinue, *, every: float = EVERY, heartbeat: float = HEARTBEAT_SECONDS
    ) -> None:
        self.retinue, self.every, self.heartbeat = retinue, every, heartbeat
        self.closed = False
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._rows: dict[str, RunRow] = {}
        self._approvals: dict[str, dict[str, Any]] = {}
        self._happened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._deaf = retinue.hear(self._hear)

    def _hear(self, event: LiveEvent) -> None:
        if self._watchers and isinstance(event, _TELLING):
            self._happened.set()

    async def watch(self) -> AsyncGenerator[bytes]:
        if self.closed:
            return
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_QUEUED)
        if not self._watchers:
            await self._compare(tell=False)
        self._watchers.add(queue)
        try:
            self._task = self._task or asyncio.create_task(self._look(), name="news of all runs")
            yield self._snapshot()  # whoever goes after this one is a watcher to forget like any other
            while True:
                try:
                    async with asyncio.timeout(self.heartbeat):
                        chunk = await queue.get()
                except TimeoutError:
                    chunk = HEARTBEAT
                if chunk is None:
                    return
                yield chunk
        finally:
            self._watchers.discard(queue)
            if not self._watchers:
                self._rest()

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.every):
                    await self._happened.wait()
                    await asyncio.sleep(SOON)  # what happens together is told together
            self._happened.clear()
            with contextlib.suppress(StoreError):  # the next look finds it
                await self._compare(tell=True)

    async def _compare(self, *, tell: bool) -> None:
        rows = await self._now()
        approvals = {
            asked.approval_id: shapes.approval(asked).model_dump() for asked in await self.retinue.approvals()
        }
        before, asked_before = self._rows, self._approvals
        self._rows, self._approvals = rows, approvals
        if not tell:
            return
        news: list[dict[str, Any]] = []
        for approval_id in asked_before:
            if approval_id not in approvals:
                news.append({"type": "approval", "change": "answered", "approval_id": approval_id})
        for run_id, row in rows.items():
            old = before.get(run_id)
            if old is None or (old.status, old.outcome) != (row.status, row.outcome):
                change = "started" if old is None else "ended" if row.completed_at is not None else "changed"
                run = shapes.run(row)
                news.append({"type": "run", "change": change, "run": run.model_dump()})
        for approval_id, approval in approvals.items():
            if approval_id not in asked_before:
                news.append({"type": "approval", "change": "asked", "approval": approval})
        if news:
            self._tell(b"".join(_frame(one) for one in (*news, self._counts())))

    async def _now(self) -> dict[str, RunRow]:
        """The newest workflows, those that go on, and what became of those that went on before."""
        found: dict[str, RunRow] = {}
        for which in (
            RunFilter(roots_only=True, limit=NEWEST),
            RunFilter(roots_only=True, status="running", limit=200),
            RunFilter(roots_only=True, status="waiting", limit=200),
        ):
            found.update((row.run_id, row) for row in await self.retinue.shown.runs(which))
        for run_id, row in self._rows.items():
            if run_id not in found and row.completed_at is None:
                now = await self.retinue.shown.run(run_id)
                if now is not None:
                    found[run_id] = now
        return found

    def _counts(self) -> dict[str, Any]:
        going = sum(row.completed_at is None for row in self._rows.values())
        return {"type": "counts", "running": going, "waiting": len(self._approvals)}

    def _snapshot(self) -> bytes:
        going = [shapes.run(row).model_dump() for row in self._rows.values() if row.completed_at is None]
        waiting = list(self._approvals.values())
        return _frame({"type": "snapshot", "running": going, "waiting": waiting})

    def _tell(self, chunk: bytes) -> None:
        for queue in list(self._watchers):
            if queue.full():  # too slow: it gets a snapshot when it comes back
                self._watchers.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(chunk)

    def _rest(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._deaf()
        self._rest()
        for queue in self._watchers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)


def _frame(facts: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(facts).encode() + b"\n\n"
