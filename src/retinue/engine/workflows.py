"""The workflows that this process works on, and the outcome of those it has worked on, a moment longer.

The log has everything, and what a run has read in memory is not to outlive it. Used by the app alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable

from retinue.engine.tree import LiveRun
from retinue.engine.workflow import Workflow
from retinue.errors import ConfigError, Fenced, RunError, unwind
from retinue.run import new_id
from retinue.store.base import Store
from retinue.types import Report

REMEMBERED = 60.0
"""Seconds that the outcome of a workflow is kept after its end, for whoever still waits for it."""


class Workflows:
    """`dropped` is told of a workflow that stopped without an end: nobody works on it any more."""

    def __init__(self, dropped: Callable[[str], None]) -> None:
        self._dropped = dropped
        self._held: dict[str, tuple[Workflow, asyncio.Task[Report]]] = {}
        self._ended: dict[str, asyncio.Task[Report]] = {}
        self._waiting: Counter[str] = Counter()
        """How many wait for a workflow: it ends early only when nobody does any more."""
        self._resuming: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, workflow: Workflow, task: asyncio.Task[Report]) -> None:
        """Keep a workflow while it runs."""
        root_id = workflow.tree.root_id
        self._held[root_id] = held = (workflow, task)
        self._ended.pop(root_id, None)

        def ended(done: asyncio.Task[Report]) -> None:
            error = None if done.cancelled() else done.exception()  # whoever waits gets it; nobody has to
            if error is not None and not isinstance(error, Fenced):
                self._dropped(root_id)
            if self._held.get(root_id) is held:
                del self._held[root_id]
                self._ended[root_id] = done
            workflow.tree.clear()
            asyncio.get_running_loop().call_later(REMEMBERED, self._forget, root_id, done)

        task.add_done_callback(ended)

    def _forget(self, root_id: str, done: asyncio.Task[Report]) -> None:
        if self._ended.get(root_id) is done:  # taken up again meanwhile, it is another one's turn
            del self._ended[root_id]
        error = None if done.cancelled() else done.exception()
        if error is not None:
            unwind(error)

    def clear(self) -> None:
        """Forget those of a loop that died: their tasks would never end in this one."""
        self._held.clear()

    def is_running(self, root_id: str) -> bool:
        """Whether this process works on that workflow, or is about to."""
        task = self.task(root_id)
        return root_id in self._resuming or (task is not None and not task.done())

    def running(self) -> list[str]:
        return [root_id for root_id in self._held if self.is_running(root_id)]

    def task(self, root_id: str) -> asyncio.Task[Report] | None:
        """The root's task, if it is known here, also one that has ended a moment ago."""
        held = self._held.get(root_id)
        return held[1] if held is not None else self._ended.get(root_id)

    def live(self, root_id: str, run_id: str) -> LiveRun | None:
        held = self._held.get(root_id)
        return None if held is None else held[0].tree.live.get(run_id)

    @contextlib.asynccontextmanager
    async def taking_up(self, root_id: str) -> AsyncGenerator[None]:
        """While a workflow is taken up here: nobody else does so meanwhile."""
        root, task = self.live(root_id, root_id), self.task(root_id)
        if root is not None and root.over and task is not None and not task.done():
            await asyncio.wait([task])  # it has ended, and gives its things back
        if self.is_running(root_id):
            raise RunError(f"{root_id} is already running here", run_id=root_id)
        self._resuming.add(root_id)
        try:
            yield
        finally:
            self._resuming.discard(root_id)

    @contextlib.asynccontextmanager
    async def under(self, store: Store, run_id: str | None) -> AsyncGenerator[str]:
        """The id that a new workflow begins under: the one that is asked for, if it is free, or a new one."""
        if run_id is None:
            yield new_id()
            return
        if self.is_running(run_id):
            raise _taken(run_id)
        self._resuming.add(run_id)
        try:
            if await store.run(run_id) is not None:
                raise _taken(run_id)
            yield run_id
        except Fenced:  # its very first event: a run of another process was a moment faster
            raise _taken(run_id) from None
        finally:
            self._resuming.discard(run_id)

    async def wait(self, root_id: str) -> Report | None:
        """The report of a workflow, None if it is not known here. Who waits last and gives up stops it."""
        task = self.task(root_id)
        if task is None:
            return None
        self._waiting[root_id] += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._waiting[root_id] == 1:
                await self.stop(root_id, "cancelled")
            raise
        finally:
            self._waiting[root_id] -= 1
            if not self._waiting[root_id]:
                del self._waiting[root_id]
            del task  # the error of a run knows this frame, which must not know the run then

    async def leave_alone(self, root_id: str, reason: str) -> None:
        """Stop a workflow unless somebody waits for it."""
        if not self._waiting[root_id]:
            await self.stop(root_id, reason)

    async def stop(self, root_id: str, reason: str) -> None:
        task = self.task(root_id)
        if task is not None and not task.done():
            self._held[root_id][0].cancel(root_id, reason)
            await asyncio.wait([task])

    async def stop_all(self, reason: str) -> None:
        for root_id in list(self._held):
            await self.stop(root_id, reason)

    async def leave(self) -> None:
        """Stop working on all of them without ending any: their logs stay as they are."""
        for workflow, _ in list(self._held.values()):
            await workflow.leave()


def _taken(run_id: str) -> ConfigError:
    return ConfigError(
        f"the run_id {run_id!r} is taken: there is a run of that id",
        fix="leave it out to have one made, or go on with that run: resume(run_id, message=…)",
    )
