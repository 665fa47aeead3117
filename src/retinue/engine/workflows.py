"""The workflows that this process works on, and the outcome of those it has worked on, a moment longer.

The log has everything, and what a run has read in memory is not to outlive it. Used by the app alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator

from retinue.engine.tree import LiveRun
from retinue.engine.watch import died
from retinue.engine.workflow import Workflow
from retinue.errors import AlreadyRunning, Fenced, RunIdTaken, unwind
from retinue.store.base import Store
from retinue.types import Report

REMEMBERED = 60.0
"""Seconds that the outcome of a workflow is kept after its end, for whoever still waits for it."""


Cancel = Callable[[str], Awaitable[object]]


class Workflows:
    """`dropped` is told of a workflow that stopped without an end: nobody works on it any more."""

    def __init__(self, dropped: Callable[[str], None]) -> None:
        self._dropped = dropped
        self._held: dict[str, tuple[Workflow, asyncio.Task[Report]]] = {}
        self._ended: dict[str, asyncio.Task[Report]] = {}
        self._followed: dict[str, tuple[asyncio.Task[Report], Cancel]] = {}
        """Those that workers have, and that are followed here."""
        self._waiting: Counter[str] = Counter()
        """How many wait for a workflow: it ends early only when nobody does any more."""
        self._beginning: dict[str, asyncio.Event] = {}
        """Those that are being started or taken up: known here before their logs say so."""
        self._looks: list[set[str]] = []

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

    def follow(self, root_id: str, task: asyncio.Task[Report], cancel: Cancel) -> None:
        """Keep what follows a workflow that workers have. `cancel` stops the workflow wherever it is."""
        self._followed[root_id] = (task, cancel)
        self._ended.pop(root_id, None)

        def ended(done: asyncio.Task[Report]) -> None:
            if not done.cancelled():
                done.exception()  # whoever waits gets it; nobody has to
            if self._followed.get(root_id, (None,))[0] is done:
                del self._followed[root_id]
                self._ended[root_id] = done
            asyncio.get_running_loop().call_later(REMEMBERED, self._forget, root_id, done)

        task.add_done_callback(ended)

    def is_followed(self, root_id: str) -> bool:
        return root_id in self._followed

    def held(self, root_id: str) -> Workflow | None:
        """A workflow that this process works on."""
        held = self._held.get(root_id)
        return None if held is None else held[0]

    def _forget(self, root_id: str, done: asyncio.Task[Report]) -> None:
        if self._ended.get(root_id) is done:  # taken up again meanwhile, it is another one's turn
            del self._ended[root_id]
        error = None if done.cancelled() else done.exception()
        if error is not None:
            unwind(error)

    def clear(self) -> None:
        """Forget all of them, with the loop they ran in: no task of it would ever end in another one.

        Whoever still waits in that loop counts down what is forgotten here, and nothing else.
        """
        self._held, self._ended, self._waiting = {}, {}, Counter()
        self._followed = {}
        self._beginning, self._looks = {}, []

    def is_running(self, root_id: str) -> bool:
        """Whether this process works on that workflow, or is about to."""
        task = self.task(root_id)
        return root_id in self._beginning or (task is not None and not task.done())

    @contextlib.contextmanager
    def worked_on(self) -> Generator[Collection[str]]:
        """The workflows that were worked on here at any moment since this was entered.

        Whoever reads rows in here and finds one open that is not among these knows that we have dropped it.
        """
        look = {root_id for root_id in (*self._beginning, *self._held) if self.is_running(root_id)}
        looks = self._looks
        looks.append(look)
        try:
            yield look
        finally:
            looks[:] = [each for each in looks if each is not look]

    @contextlib.contextmanager
    def _begin(self, root_id: str) -> Generator[None]:
        """While a workflow is about to be worked on, up to the moment when it is kept."""
        beginning, begun = self._beginning, asyncio.Event()
        beginning[root_id] = begun
        for look in self._looks:
            look.add(root_id)
        try:
            yield
        finally:
            if beginning.get(root_id) is begun:
                del beginning[root_id]
            begun.set()

    async def begun(self, root_id: str) -> None:
        """Wait for a workflow that is about to be worked on here: after that it is, or it came to nothing."""
        if root_id in self._beginning:
            await self._beginning[root_id].wait()

    def task(self, root_id: str) -> asyncio.Task[Report] | None:
        """The root's task, if it is known here, also one that has ended a moment ago."""
        held = self._held.get(root_id)
        if held is None and root_id in self._followed:
            return self._followed[root_id][0]
        return held[1] if held is not None else self._ended.get(root_id)

    def has_answered(self, root_id: str) -> bool:
        """Whether a workflow of this process waits for nothing but its children, or another word."""
        held = self._held.get(root_id)
        return held is not None and held[0].answer is not None

    def live(self, root_id: str, run_id: str) -> LiveRun | None:
        held = self._held.get(root_id)
        return None if held is None else held[0].tree.live.get(run_id)

    @contextlib.asynccontextmanager
    async def taking_up(self, root_id: str) -> AsyncGenerator[None]:
        """While a workflow is taken up here: nobody else does so meanwhile."""
        root, task = self.live(root_id, root_id), self.task(root_id)
        if root is not None and root.over and task is not None and not task.done():
            await asyncio.wait([task])  # it has ended, and gives its things back
        if self.is_running(root_id) and root_id not in self._followed:
            what = (
                "it has answered, and children of it are at work. A message alone is taken now; a model, "
                "settings, attachments and a type of output when they have ended, or after cancel(run_id)"
                if self.has_answered(root_id)
                else "message(run_id, …) tells it something, cancel(run_id) stops it"
            )
            raise AlreadyRunning(f"{root_id} is already running here: {what}", run_id=root_id)
        with self._begin(root_id):
            yield

    @contextlib.asynccontextmanager
    async def under(self, store: Store, run_id: str, *, new: bool) -> AsyncGenerator[None]:
        """While a workflow begins under that id, which is free if it is `new`, and else has to be."""
        if new:
            with self._begin(run_id):
                yield
            return
        if self.is_running(run_id):
            raise RunIdTaken(run_id)
        with self._begin(run_id):
            if await store.run(run_id) is not None:
                raise RunIdTaken(run_id)
            try:
                yield
            except Fenced:  # its very first event: a run of another process was a moment faster
                raise RunIdTaken(run_id) from None

    async def wait(self, root_id: str) -> Report | None:
        """The report of a workflow that runs here, or why it died; None if its log has to tell.

        Of one that goes on with its children after an answer, that answer. Who waits last and gives up stops
        it.
        """
        task, waiting = self.task(root_id), self._waiting
        if task is None or (task.done() and not died(task)):
            return None  # ended, it may have gone on since, here or elsewhere
        waiting[root_id] += 1
        try:
            return await _answer(self._held.get(root_id), task)
        except asyncio.CancelledError:
            if waiting[root_id] == 1:
                await self.stop(root_id, "cancelled")
            raise
        finally:
            waiting[root_id] -= 1
            if not waiting[root_id]:
                del waiting[root_id]
            del task  # the error of a run knows this frame, which must not know the run then

    async def leave_alone(self, root_id: str, reason: str) -> None:
        """Stop a workflow unless somebody waits for it."""
        if not self._waiting[root_id]:
            await self.stop(root_id, reason)

    async def stop(self, root_id: str, reason: str) -> None:
        task = self.task(root_id)
        if task is None or task.done():
            return
        if root_id in self._followed:
            await self._followed[root_id][1](reason)
        else:
            self._held[root_id][0].cancel(root_id, reason)
        await asyncio.wait([task])

    async def stop_all(self, reason: str) -> None:
        """What workers have goes on there."""
        for root_id in list(self._held):
            await self.stop(root_id, reason)
        await self._unfollow()

    async def _unfollow(self) -> None:
        following = [task for task, _ in self._followed.values()]
        for task in following:
            task.cancel()
        if following:
            await asyncio.wait(following)

    async def leave(self) -> None:
        """Stop working on all of them without ending any: their logs stay as they are."""
        for workflow, _ in list(self._held.values()):
            await workflow.leave()
        await self._unfollow()


async def _answer(held: tuple[Workflow, asyncio.Task[Report]] | None, task: asyncio.Task[Report]) -> Report:
    """What a root answers next, or has answered if it only waits for its children since."""
    if held is None or held[1] is not task:
        return await asyncio.shield(task)
    if held[0].answer is not None:
        return held[0].answer
    answer = held[0].next_answer()
    del held
    try:
        await asyncio.wait({task, answer}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else task.result()
    finally:
        answer.cancel()
