"""The tree of a workflow: its runs that have a task here, what the others had come to, and their logs.

One object, made by the workflow and given to all that need to know the other runs: the inbox, the children,
resume, replay. It knows nobody of these. Runs know it, so it is cleared when the last of them has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from retinue.budget import Slots
from retinue.clock import Clock
from retinue.engine.abandoned import end_below
from retinue.engine.config import WorkflowConfig
from retinue.engine.ended import PARENT_ANSWERED, PARENT_ENDED, child_ended
from retinue.engine.resources import RunResources
from retinue.errors import Fenced, RunError, StoreError
from retinue.events import AnyEvent, CancelRequested
from retinue.fold import fold, remains
from retinue.run import Run
from retinue.run_state import RunState
from retinue.store.outage import Outage
from retinue.types import ENDED, Report


@dataclass(kw_only=True, slots=True, eq=False)
class LiveRun:
    """A run that has a task here, or had one."""

    run: Run
    resources: RunResources
    task: asyncio.Task[Report]
    background: bool = False
    begun: bool = False
    """A task that is cancelled before its first step would never write its end."""
    stored: asyncio.Future[None] | None = None
    """Done when its start is in the log. Nothing is asked or paid for before that."""

    telling: bool = False
    """Its end is written, and its report is being made ready for its parent."""

    @property
    def over(self) -> bool:
        """Whether its end is in its log: nothing comes after that, though its task may still tidy up."""
        return self.task.done() or self.run.state.report is not None

    @property
    def stoppable(self) -> bool:
        """Whether it has anything to stop. Who has written its end gives its things back undisturbed."""
        return not self.task.done() and (self.telling or not self.over)


class RunTree:
    """One root and everything below it."""

    def __init__(self, config: WorkflowConfig, root_id: str) -> None:
        self.config = config
        self.root_id = root_id
        self.slots = Slots(config.settings.delegation.concurrency)
        self.live: dict[str, LiveRun] = {}
        self.past: dict[str, RunState] = {}
        """What the logs of a tree that is taken up again mean."""
        self.logs: dict[str, list[AnyEvent]] = {}
        """Those logs: what a run has to itself is rebuilt from its own."""
        self._states: dict[str, RunState] = {}
        self._below: dict[str, dict[str, LiveRun]] = {}
        self._spoken: dict[str, asyncio.Event] = {}
        """Of runs that wait for their children before they end."""
        self._all_here: set[tuple[str, str]] = set()
        """Calls that take up no more of the children they had, by the run and their id."""
        self.continuing: set[str] = set()
        """Children that are about to be asked again."""
        self.asking: dict[str, set[asyncio.Future[None]]] = {}
        """By the run that started them: what has them asked. They are not at work yet."""
        self._resting: dict[str, Counter[str]] = {}
        """By the run: which of its calls wait, and for the model itself an empty name."""
        self._halting = False
        self._given_up: Fenced | StoreError | None = None
        self._still: list[Clock] | None = None
        """The clocks that stand still, while the database takes nothing."""

    # -- who is there ----------------------------------------------------------

    def add(self, live: LiveRun) -> None:
        run = live.run
        self.live[run.id] = live
        self._states[run.id] = run.state
        if self._given_up is not None:  # it was being taken up: it must not go on by itself
            _shut_log(run, self._given_up)
        if self._still is not None:
            self._stop_clock(run, self._still)
        if run.parent_id is not None:
            self._below.setdefault(run.parent_id, {})[run.id] = live
            # Now and not when its turn comes: what it had in the background may be taken up before that.
            self.slots.place(run.id, run.parent_id, run.budget.limits.concurrency)

    def retire(self, live: LiveRun) -> None:
        """Let go of a run below the root that has ended, but for what others may still ask of it."""
        run = live.run
        if self.live.get(run.id) is not live or run.state.report is None:
            return  # asked again meanwhile, or it died without an end
        del self.live[run.id]
        self.logs.pop(run.id, None)
        self._below.get(run.parent_id or "", {}).pop(run.id, None)
        self._below.pop(run.id, None)
        self.past[run.id] = self._states[run.id] = remains(run.state)

    def run(self, run_id: str) -> Run:
        return self.live[run_id].run

    def state(self, run_id: str) -> RunState | None:
        live = self.live.get(run_id)
        return live.run.state if live is not None else self.past.get(run_id)

    def is_over(self, run_id: str) -> bool:
        """Whether a run below the root has ended, or is not at work here."""
        live = self.live.get(run_id)
        return run_id != self.root_id and (live is None or live.over)

    def has_ended(self, run_id: str) -> bool:
        """Whether a run below the root has an end, here or before a restart."""
        live, state = self.live.get(run_id), self.state(run_id)
        over = live.over if live is not None else state is not None and state.status in ENDED
        return run_id != self.root_id and over

    def goes_on(self, run_id: str) -> bool:
        """Whether a run works here, or will: it has no end, neither has anybody above it, and each of them is
        here or will be taken up by a call of its parent's."""
        at: str | None = run_id
        while at is not None:
            live, state = self.live.get(at), self.state(at)
            if state is None or state.started is None or state.status in ENDED:
                return False
            parent_id = state.started.parent_id
            here = self._will_be_here(at, parent_id) if live is None else not live.task.done()
            if not here:
                return False
            at = parent_id
        return True

    def approved_above(self, run: Run) -> bool:
        """Whether a person approved the call that made up this run, or one that it is below.

        What was approved in the workflow that this one is a fork of was approved there.
        """
        while run.parent_id is not None:
            above = self.run(run.parent_id)
            answer = above.state.answers.get(above.state.children[run.id].call_id)
            began = run.state.started
            here = began is not None and began.forked_at is None
            if here and run.spec.lifecycle == "temporary" and answer and answer.decision != "reject":
                return True
            run = above
        return False

    def _will_be_here(self, run_id: str, parent_id: str | None) -> bool:
        """Whether a run from before a restart is still to be taken up: its agent may be gone by now."""
        parent = self.state(parent_id) if parent_id is not None else None
        if parent_id is None or parent is None or run_id not in parent.children:
            return False
        began = parent.children[run_id]
        calls = {began.call_id, began.call_id.split("/")[0]}
        is_open = calls <= parent.begun.keys() and (parent_id, began.call_id) not in self._all_here
        return began.background or is_open

    def all_here(self, run: Run, call_id: str) -> bool:
        """A call has started all its children, or is over. Whether one of them will never be taken up."""
        lost = any(
            began.call_id == call_id
            and child_id not in self.live
            and child_id in self.past
            and self.past[child_id].status not in ENDED
            for child_id, began in run.state.children.items()
        )
        if lost:
            self._all_here.add((run.id, call_id))
        return lost

    def states(self) -> Collection[RunState]:
        """What the logs of all runs of this workflow mean, of those before a restart as well.

        Every call of a tool asks for them: they are kept, and not put together for it.
        """
        return self._states.values()

    def read(self, events: Iterable[AnyEvent]) -> None:
        """Take the whole log of the workflow for what it was."""
        self.logs.clear()
        for event in events:
            self.logs.setdefault(event.run_id, []).append(event)
        self.past = {run_id: fold(log) for run_id, log in self.logs.items()}
        if self.root_id not in self.past:
            raise RunError(f"there is no run {self.root_id}", run_id=self.root_id)
        self._states = {**self.past, **{run_id: live.run.state for run_id, live in self.live.items()}}

    def running_below(self, run_id: str) -> list[LiveRun]:
        return [live for live in self._below.get(run_id, {}).values() if not live.task.done()]

    def clear(self) -> None:
        """Let go of every run, once all have ended: each of them knows its tree."""
        self.live.clear()
        self.past.clear()
        self.logs.clear()
        self._states.clear()
        self._below.clear()
        self._all_here.clear()
        self._resting.clear()
        self.asking.clear()

    # -- waiting ---------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def resting(self, run_id: str, call_id: str = "") -> AsyncGenerator[None]:
        """While a run, or one call of it, waits for what is in the log, and for nothing in this process: it
        lends its slot, and could as well go on elsewhere."""
        resting = self._resting.setdefault(run_id, Counter())
        resting[call_id] += 1
        try:
            async with self.slots.lent(run_id):
                yield
        finally:
            resting[call_id] -= 1

    @property
    def idle(self) -> bool:
        """Whether every run here only waits: whoever takes the tree up from its log misses nothing."""
        if any(self.asking.values()):
            return False
        return all(self._rests(live.run) for live in self.live.values() if not live.task.done())

    def _rests(self, run: Run) -> bool:
        resting = self._resting.get(run.id, Counter[str]())
        waits = {call for call, count in resting.items() if count}
        return bool(waits) and run.performing <= waits

    def halt(self) -> None:
        """Let every run finish the step and the calls that it is at, and begin nothing after that."""
        self._halting = True

    async def due(self, run_id: str, what: int | str) -> None:
        """Before each step and each call: what is not begun any more waits to be taken up elsewhere."""
        if self._halting:
            async with self.resting(run_id, what if isinstance(what, str) else ""):
                await asyncio.get_running_loop().create_future()

    # -- a database that takes nothing -----------------------------------------

    def outage(self, now: Outage | None) -> None:
        """Nobody's time runs while the database takes nothing: what a run has in hand, it cannot write."""
        if now is not None and now.passing and self._still is None:
            self._still = []
            for live in self.live.values():
                if not live.over:
                    self._stop_clock(live.run, self._still)
        elif now is None and self._still is not None:
            still, self._still = self._still, None
            for clock in still:
                clock.resume()

    def _stop_clock(self, run: Run, still: list[Clock]) -> None:
        run.clock.pause()
        still.append(run.clock)

    # -- the end of things -----------------------------------------------------

    async def linger(self, run: Run, *, answered: bool = False, asked: bool = False) -> bool:
        """Before a parent's answer counts: wait for its background children, if so set, as long as it can.

        These have no more time than it can spare; what else may hang is waited for a little longer. Whoever
        speaks to it meanwhile is answered, and its children go on. A parent that has `answered` without them
        waits for nothing else, nor does one whose children people `asked`, until there is a report.
        """
        waits = answered or asked or self.config.parent_ends(run.depth) == "wait"
        news = await self._linger(run, one=answered or asked) if waits else False
        if answered and not news:
            await self.dismiss(run, "its parent has waited for it as long as it could", answered=True)
        return news

    def left(self, run: Run) -> int:
        """How many children are at work that a parent answers without."""
        return sum(live.background for live in self.running_below(run.id)) if run.leaves else 0

    async def _linger(self, run: Run, *, one: bool) -> bool:
        """For all of its background children, or until `one` of them has ended."""
        waiting: list[asyncio.Future[Any]] = [
            *(live.task for live in self.running_below(run.id) if live.background),
            *self.asking.get(run.id, ()),
        ]
        if not waiting:
            return False
        spoken = self._spoken[run.id] = asyncio.Event()
        until = asyncio.FIRST_COMPLETED if one else asyncio.ALL_COMPLETED
        over = asyncio.ensure_future(asyncio.wait(waiting, return_when=until))
        heard = asyncio.ensure_future(spoken.wait())
        patience = Clock(None, parent=run.clock, leaves=0.5)  # it stands still while a child of the run asks
        async with self.resting(run.id):
            try:
                async with patience.start():
                    await asyncio.wait({over, heard}, return_when=asyncio.FIRST_COMPLETED)
            except TimeoutError:
                pass  # what hangs is not waited for any longer
            finally:
                over.cancel()
                heard.cancel()
                del self._spoken[run.id]
        return spoken.is_set() or any(task.done() for task in waiting)

    def spoken_to(self, run_id: str) -> None:
        """Somebody has said something to a run: it does not wait for its children before it reads that."""
        if run_id in self._spoken:
            self._spoken[run_id].set()

    def unheard(self, run: Run) -> list[Report]:
        """What its children reported for this message, and it was not told: a call of it was cut short."""
        state, found = run.state, list[Report]()
        for child_id, began in state.children.items():
            cut = began.background or began.call_id.split("/")[0] in state.begun
            before = state.before.children.get(child_id, 0)
            if not cut or child_id in state.notices or state.pieces[child_id] <= before:
                continue
            child = self.state(child_id)
            if child is not None and child.report is not None:
                found.append(child.report)
        return found

    async def dismiss(self, run: Run, reason: str, *, leave: bool = False, answered: bool = False) -> None:
        """A run ends: what is below it ends before, unless it leaves that at work.

        One that has `answered` goes without what they were to report, and its own report says so.
        """
        for live in [] if leave else self.running_below(run.id):
            await self.config.cancelling(live.run.id)
        running = [] if leave else self.running_below(run.id)
        for live in running:
            self.cancel(live.run.id, reason, by=PARENT_ANSWERED if answered else PARENT_ENDED)
        if running:
            await asyncio.wait([live.task for live in running])
        for live in self._below.get(run.id, {}).values():
            if live.task.done() and not live.task.cancelled():
                error = live.task.exception()
                if isinstance(error, Fenced | StoreError):
                    raise error
        self._end_lost(run, reason)

    def _end_lost(self, run: Run, reason: str) -> None:
        """Children from before a restart that were not taken up: their agents are gone, or there was no more
        time for it. Without an end they would seem to be at work for ever."""
        for child_id, began in list(run.state.children.items()):
            past = self.past.get(child_id)
            if child_id in self.live or past is None or past.started is None or past.status in ENDED:
                continue
            by = PARENT_ENDED if run.cancel_reason is None else None
            report = self.end_lost(run, child_id, reason, by=by)
            run.log.commit(child_ended(run.log, began, report, self.past[child_id]))

    def end_lost(self, parent: Run, child_id: str, reason: str, *, by: str | None = None) -> Report:
        """Write the end of a child that is not taken up again. Its parent is not told yet."""
        state, ends = end_below(self.config.store, self.logs, child_id, reason, by=by)
        if state.report is None:
            raise RunError(f"the log of {child_id} has no beginning", run_id=child_id)
        parent.log.commit(*ends)
        self.past[child_id] = self._states[child_id] = remains(state)
        return state.report

    def cancel(self, run_id: str, reason: str, *, by: str = "person") -> None:
        """Stop a run that is live and everything below it. Each keeps its partial work in its report."""
        live = self.live[run_id]
        if not live.stoppable or live.run.cancel_reason is not None:
            return
        if not live.over:
            with contextlib.suppress(Fenced, StoreError):  # a log that takes nothing more keeps no run alive
                live.run.log.write(CancelRequested, reason=reason, by=by)
        stopping = [live]
        while stopping:
            each = stopping.pop()
            stopping += self._below.get(each.run.id, {}).values()
            if each.stoppable and each.run.cancel_reason is None:
                each.run.cancel_reason = reason
                if each.begun:
                    each.task.cancel()

    def write_noted(self) -> None:
        """Put in line what runs have noted and not written yet: its places in their logs are taken."""
        for live in self.live.values():
            if not live.over:
                live.run.log.commit()

    def give_up(self, why: Fenced | StoreError) -> None:
        """Another process works on this tree, or a log of it cannot be written: stop all of it here at once,
        and write nothing more. Whoever takes the tree up must not find half of it still at work."""
        if self._given_up is None:  # each of its runs may find out by itself
            self.shut(why)

    def shut(self, why: Fenced | StoreError) -> list[asyncio.Task[Report]]:
        """Stop every run here without an end. Returns the tasks that were told, without the current one."""
        self._given_up = why
        told: list[asyncio.Task[Report]] = []
        for live in self.live.values():
            _shut_log(live.run, why)
            if not live.task.done() and live.task is not asyncio.current_task():
                live.task.cancel()
                told.append(live.task)
        return told


def _shut_log(run: Run, why: Fenced | StoreError) -> None:
    run.log.shut(why if isinstance(why, StoreError) else type(why)(str(why), run_id=run.id))
