"""One worker: it claims workflows from the queue, works on them as a `Retinue` does, and lets go of them.

Made by `retinue worker`, or by a program that has tools of its own. It is one owner of runs for as long as it
lives, so that whoever looks knows whether it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Sequence
from importlib.metadata import version

from retinue.app import Retinue
from retinue.engine.hand_over import queue_name
from retinue.errors import ConfigError, StoreError
from retinue.store import postgres_workers
from retinue.store.postgres import PostgresStore
from retinue.worker.claims import ClaimedJob, QueueClaims
from retinue.worker.legs import Leg, LegOver
from retinue.worker.rest import LOOK_SECONDS, Rest

log = logging.getLogger("retinue.worker")
SWEEP_SECONDS = 2.0
SEARCH_SECONDS = 30.0
"""How often it is looked for workflows that wait for a worker and are in no queue."""
FORGET_SECONDS = 3600.0


class Worker:
    """Works for the queues of these labels, for the folder that its `Retinue` was given."""

    def __init__(
        self, retinue: Retinue, *, labels: Sequence[str] = ("default",), slots: int | None = None
    ) -> None:
        store, settings = retinue.store, retinue.settings.workers
        if not isinstance(store, PostgresStore):
            raise ConfigError(
                "a worker needs a PostgreSQL database: the queue of runs is in it",
                fix='give db="postgresql://…", or RETINUE_DB',
            )
        if retinue.hands_over:
            raise ConfigError(
                'a worker does the runs itself, and engine = "workers" would have it hand them over',
                fix="Retinue(settings={'engine': 'local'})",
            )
        self._retinue, self._store, self._grace = retinue, store, settings.grace
        self._labels = tuple(labels)
        self.legs_done = 0
        folder = str(retinue.project or "")
        places = ("", folder) if folder else ("",)
        self.queues = [queue_name(label, place) for label in labels for place in places]
        self.slots = slots or settings.slots
        self._claims = QueueClaims(store, self.queues, slots=self.slots, do=self._do)
        self._rest = Rest(settings.park_after)
        self._legs: dict[str, tuple[Leg, asyncio.Task[LegOver]]] = {}
        store.hold_for(None)  # what was paid for waits for the database as long as it takes

    @property
    def at_work(self) -> int:
        """How many workflows it works on."""
        return len(self._legs)

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._claims.stopping

    @property
    def ready(self) -> bool:
        """Whether it can claim work: it is connected to the queue."""
        return self._claims.connected

    def stop(self) -> None:
        """Claim nothing more; what is at work finishes its steps, as far as there is time, and goes back into
        the queue."""
        self._claims.stop()

    async def work(self) -> None:
        """Until it is told to stop."""
        async with self._retinue.owners.working() as owner:
            beside = [asyncio.create_task(each) for each in (self._look(), self._sweep(owner))]
            claiming = asyncio.create_task(self._claims.keep(owner), name="claims jobs")
            try:
                await self._claims.stopped(claiming)
                await self._let_go()
                await claiming
            finally:
                for task in (*beside, claiming):
                    task.cancel()
                await asyncio.wait([*beside, claiming])
                with contextlib.suppress(StoreError):  # others remove what has been silent for long
                    await postgres_workers.leave(self._store, owner)

    # -- one job

    async def _do(self, job: ClaimedJob) -> LegOver:
        """Work on a job. Whoever waits for it may go, and another come: the leg is the same."""
        while (known := self._legs.get(job.root_id)) is not None:
            leg, task = known
            over = await asyncio.shield(task)
            if leg.place == job.place:
                return over
        if self.stopping:  # it was claimed a moment before: another begins it
            return LegOver(again=0.0)
        leg = Leg(self._retinue, job.root_id, job.place, tries=job.tries)
        task = asyncio.create_task(leg.walk(), name=f"works on {job.root_id}")
        self._legs[job.root_id] = leg, task
        task.add_done_callback(lambda _: self._over(job.root_id))
        return await asyncio.shield(task)

    def _over(self, root_id: str) -> None:
        self._legs.pop(root_id, None)
        self.legs_done += 1

    # -- beside them

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._rest.look([leg for leg, _ in self._legs.values()])

    async def _sweep(self, owner: str) -> None:
        """What workers left behind that are gone is in the queue again, without waiting for heartbeats; and
        what waits for a worker and has lost its job, whatever has taken that."""
        next_forget, next_search = time.monotonic() + SWEEP_SECONDS, 0.0
        while True:
            await asyncio.sleep(SWEEP_SECONDS if self.ready else LOOK_SECONDS)
            with contextlib.suppress(StoreError):  # the next look may fare better
                if not self.ready:
                    continue
                if await postgres_workers.say(self._store, self._row(owner)) and not self.stopping:
                    log.info("told to stop by 'workers drain'")
                    self.stop()
                await self._claims.give_back(self._gone)
                if time.monotonic() >= next_search:
                    next_search = time.monotonic() + SEARCH_SECONDS
                    await self._claims.search()
                if time.monotonic() >= next_forget:
                    next_forget = time.monotonic() + FORGET_SECONDS
                    await self._claims.forget()

    def _row(self, owner: str) -> postgres_workers.WorkerRow:
        return postgres_workers.WorkerRow(
            owner=owner,
            host=socket.gethostname(),
            pid=os.getpid(),
            folder=str(self._retinue.project or ""),
            labels=self._labels,
            slots=self.slots,
            at_work=self.at_work,
            version=version("retinue"),
        )

    async def _gone(self, holders: Sequence[str]) -> Sequence[str]:
        verdicts = await self._retinue.owners.look(holders)
        return [one for one, verdict in verdicts.items() if verdict == "gone"]

    async def _let_go(self) -> None:
        """Hand everything over: between two steps where that comes in time, else in the middle of one."""
        until = time.monotonic() + self._grace
        while self._legs:
            late = time.monotonic() >= until
            for leg, _ in list(self._legs.values()):
                workflow = leg.workflow
                if workflow is None:
                    continue
                workflow.tree.halt()
                if late or workflow.tree.idle:
                    leg.hand_over(workflow, "handed_over")
            if late and time.monotonic() >= until + self._grace:
                log.warning("%d workflows could not be handed over in time", len(self._legs))
                return
            await asyncio.sleep(0.05)
