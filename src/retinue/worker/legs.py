"""One job of the queue: a workflow is taken up, worked on here, and let go of.

A workflow has as many legs as it was put into the queue. A leg is over when the workflow has ended, is
parked or handed over, or belongs to somebody else. Every write is fenced by the log, so a job that is
delivered twice does no harm: this only decides who goes on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from retinue.app import Retinue
from retinue.engine.abandoned import is_left
from retinue.engine.hand_over import ToWorkers, Why
from retinue.engine.workflow import Workflow
from retinue.errors import AlreadyRunning, Fenced, Gone, HasEnded, StoreError, Withdrawn
from retinue.events import RunQueued

log = logging.getLogger("retinue.worker")
SOON, MUCH_LATER = 1.0, 30.0
"""Seconds until a job is looked at again: one that somebody works on, one that was taken from us."""
LONGEST_PAUSE = 300.0
"""Seconds, at most, until a workflow is tried again that cannot be taken up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LegOver:
    """What becomes of a job: it is done, or looked at again, here or elsewhere, after some seconds."""

    again: float | None = None


DONE = LegOver()


class Leg:
    """One workflow in the hands of this worker. `place` is the event by which it was put into the queue."""

    def __init__(self, retinue: Retinue, root_id: str, place: int, *, tries: int) -> None:
        self._retinue = retinue
        self.root_id, self.place, self.tries = root_id, place, tries
        self._to: ToWorkers | None = None
        self._handing: asyncio.Task[None] | None = None

    async def walk(self) -> LegOver:
        """Take the workflow up and stay with it for as long as it is worked on here."""
        try:
            mark = await self._mine()
            if isinstance(mark, LegOver):
                return mark
            self._to = ToWorkers.of(mark)
            if not self._retinue.is_running(self.root_id) and not await self._take_up(mark):
                return DONE
        except AlreadyRunning:
            pass
        except (Gone, HasEnded):
            return DONE
        except Fenced:
            return LegOver(again=SOON)
        except Exception as error:  # whatever it is, the workflow is in the log and stays in the queue
            if isinstance(error, StoreError) and error.passing:
                log.debug("%s cannot be taken up yet: %s", self.root_id, error)
                return LegOver(again=SOON)
            pause = min(LONGEST_PAUSE, SOON * 2 ** min(self.tries, 10))
            log.warning("%s cannot be taken up: %s. It is tried again in %g s", self.root_id, error, pause)
            return LegOver(again=pause)
        return await self._worked()

    async def _mine(self) -> RunQueued | LegOver:
        """How the workflow is to be worked on, if this job still stands for it and nobody is at it."""
        store, root_id = self._retinue.store, self.root_id
        row = await store.run(root_id)
        taken = await store.taken(root_id)
        if row is None or taken is None or row.completed_at is not None:
            return DONE
        if isinstance(taken, RunQueued):
            return taken if taken.seq == self.place else DONE
        own = await store.events(root_id, run_id=root_id)
        queued = [event for event in own if isinstance(event, RunQueued)]
        mark = next((event for event in queued if event.seq == self.place), None)
        if mark is None or queued[-1] is not mark:
            return DONE  # a later job has it
        if not self._retinue.is_running(root_id) and not await is_left(self._retinue.owners, taken):
            return LegOver(again=SOON)
        return mark

    async def _take_up(self, mark: RunQueued) -> bool:
        """False: somebody cancelled it while nobody worked on it."""
        retinue = self._retinue
        for signal in await retinue.take_up.cancelled_since(self.root_id):
            await retinue.cancel(signal.run_id, "cancelled while it waited for a worker")
            if signal.run_id == self.root_id:
                return False
        answering = "ask" if mark.answering == "ask" else "refuse" if mark.answering else None
        await retinue.resume(self.root_id, yes=mark.yes, answering=answering, by_itself=True)
        return True

    async def _worked(self) -> LegOver:
        task = self._retinue.task_of(self.root_id)
        if task is None:
            return LegOver(again=SOON)
        await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        if self._handing is not None:
            return await self._handed(self._handing)
        if isinstance(error, Gone) or (error is None and not task.cancelled()):
            return DONE
        if isinstance(error, Fenced) and not isinstance(error, Withdrawn):
            return LegOver(again=MUCH_LATER)  # whoever took it over has this very job
        return LegOver(again=SOON)

    async def _handed(self, handing: asyncio.Task[None]) -> LegOver:
        await asyncio.wait([handing])
        error = None if handing.cancelled() else handing.exception()
        if error is None and not handing.cancelled():
            return DONE
        log.warning("%s could not be handed over: %s", self.root_id, error)
        return LegOver(again=MUCH_LATER if isinstance(error, Fenced) else SOON)

    @property
    def workflow(self) -> Workflow | None:
        """The workflow, while it is worked on here and nobody hands it over."""
        return None if self._handing is not None or self._to is None else self._retinue.held(self.root_id)

    def hand_over(
        self, workflow: Workflow, why: Why, *, signals: int | None = None, until: float | None = None
    ) -> asyncio.Task[None] | None:
        """Put the workflow back into the queue, and work on it no more."""
        if self._to is None or self._handing is not None:
            return None
        handing = workflow.hand_over(self._to, why, signals=signals, until=until)
        self._handing = asyncio.create_task(handing, name=f"hands over {self.root_id}")
        return self._handing
