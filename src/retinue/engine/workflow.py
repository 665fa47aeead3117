"""A workflow in this process: one root run and everything below it, as asyncio tasks.

`Workflow` is the life of its runs: it starts the root, launches each run, gives back what a run held, tells
its parent, stops. Its runs are in its `RunTree`, what arrives for them in its `Inbox`, and what the
delegation tools call in its `Children`. Made by the app and by a replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from retinue.engine.bring import bring
from retinue.engine.build import Toolbox, build, started
from retinue.engine.children import Children
from retinue.engine.config import WorkflowConfig
from retinue.engine.hand_over import Parked, ToWorkers, Why, marks, unended
from retinue.engine.inbox import Inbox
from retinue.engine.isolation import Isolation
from retinue.engine.keep import KeptFiles
from retinue.engine.knowledge import knowledge_first
from retinue.engine.questions import Questions
from retinue.engine.recorder import Recorder
from retinue.engine.resources import RunResources
from retinue.engine.tree import LiveRun, RunTree
from retinue.errors import Fenced, StoreError, Withdrawn
from retinue.events import Event, GuardSpoke
from retinue.guards import Looked
from retinue.loop import run_agent
from retinue.run import Run
from retinue.run_log import storable
from retinue.run_state import RunState
from retinue.threads import undisturbed
from retinue.types import AgentSpec, Image, Message, Report

log = logging.getLogger("retinue")


@dataclass(frozen=True, kw_only=True, slots=True)
class Root:
    """What a root is begun with: who is asked what, and what was said before."""

    spec: AgentSpec
    prompt: str
    label: str = ""
    rendered: str = ""
    images: tuple[Image, ...] = ()
    history: tuple[Message, ...] = ()
    guarded: Looked | None = None


class Workflow:
    """One root and everything below it."""

    def __init__(self, config: WorkflowConfig, root_id: str) -> None:
        self.tree = RunTree(config, root_id)
        self.questions = Questions(self.tree)
        self.inbox = Inbox(self.tree, self.questions)
        self.kept = KeptFiles(self.tree)
        self.recorder = Recorder(self.tree)
        self.isolation = Isolation(self.tree)
        self.children = Children(self.tree, weakref.proxy(self))
        self.inbox.ask_for_people = self.children.ask_for_people
        self.toolbox = Toolbox(config, self.children)
        self._deaf: Callable[[], None] = _nothing
        self._awaited: list[asyncio.Future[Report]] = []
        """Who waits for the next answer of the root."""

    async def start_root(self, root: Root) -> asyncio.Task[Report]:
        """Log the start and begin. Returns once the run is durable."""
        run, resources, first = await self._built(root)
        return await self._begun(run, resources, *first)

    async def queue_root(self, to: ToWorkers, root: Root) -> int:
        """Log the start, and in the same transaction put it into the queue. Nothing of it is done here.
        Returns how far its log is."""
        run, resources, first = await self._built(root)
        resources.run = run
        queued = marks([run.state], to, "started")
        try:
            await undisturbed(_stored(run, *first, *queued))
        finally:
            await self._give_back(run, resources)
        return queued[0].pos

    async def _built(self, root: Root) -> tuple[Run, RunResources, list[Event]]:
        """The root, ready to be begun, and what its log begins with."""
        config, tree = self.tree.config, self.tree
        spec, rendered, guarded = root.spec, root.rendered, root.guarded
        budget = config.root_budget(spec)
        tree.slots.resize(budget.limits.concurrency or config.settings.delegation.concurrency)
        # A server that does not say which model it has is asked in the run's own time.
        began = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(config.seconds(spec, budget.limits, root=True)):
                await config.identify(spec, None)
        await self.isolation.prepare(tree.root_id, spec, None)
        run, resources = build(
            self,
            tree.root_id,
            None,
            spec,
            authority=config.root_authority(spec),
            budget=budget,
            state=RunState(),
            used=time.monotonic() - began,
            label=root.label,
        )
        question = len(storable(root.prompt)) if rendered else 0
        first = started(
            config,
            run,
            root.prompt,
            rendered=rendered,
            images=root.images,
            history=root.history,
            guarded=guarded is not None,
            options=config.options,
            question=question,
        )
        spoken = [run.log.stamp(GuardSpoke, **asdict(said)) for said in guarded.said] if guarded else []
        return run, resources, [first, *spoken]

    async def _begun(self, run: Run, resources: RunResources, *first: Event) -> asyncio.Task[Report]:
        """The root at work. What is in the log has an end, also if whoever starts it is cancelled meanwhile:
        nobody would know its id, and it would be taken up and paid for by itself."""

        async def begin() -> None:
            await run.log.commit(*first)
            await self.inbox.open()

        try:
            await undisturbed(begin())
        except asyncio.CancelledError:
            task = self.launch(run, resources, background=False)
            await self.call_off(task, reason="cancelled while it was being started")  # before its first step
            raise
        return self.launch(run, resources, background=False)

    async def call_off(self, *tasks: asyncio.Future[Any], reason: str) -> None:
        """Stop a root that was launched for somebody who is cancelled meanwhile, and wait for its tasks."""
        self.cancel(self.tree.root_id, reason)
        await undisturbed(asyncio.wait(tasks))
        self.tree.clear()

    def launch(
        self,
        run: Run,
        resources: RunResources,
        *,
        background: bool,
        stored: asyncio.Future[None] | None = None,
    ) -> asyncio.Task[Report]:
        task = asyncio.create_task(self._live(run), name=f"retinue {run.id}")
        resources.run = run
        live = LiveRun(run=run, resources=resources, task=task, background=background, stored=stored)
        self.tree.add(live)
        if run.depth == 0:
            run.reported = self._reported
            self._deaf = self.tree.config.store.on_outage(self.tree.outage)
        self.inbox.hand_over(run.id)
        task.add_done_callback(_noticed)
        if run.depth > 0:
            task.add_done_callback(partial(_retired, self.tree, live))
        return task

    async def _live(self, run: Run) -> Report:
        """A run's whole time here: a slot, the loop, and everything given back at the end."""
        # No name for its own task in here: the error of a task knows the frames that it went through.
        live, resources = self.tree.live, self.tree.live[run.id].resources
        live[run.id].begun = True
        try:
            report = await run_agent(run, partial(self._prepare, run))
        except (Fenced, StoreError) as error:
            self.tree.give_up(error)
            raise
        finally:
            await self._give_back(run, resources)
        if run.depth == 0:  # its end is in the log: a workflow that somebody took over is theirs to clear up
            await self.isolation.sweep()
        parent = live.get(run.parent_id or "")
        if parent is not None:
            began, live[run.id].telling = parent.run.state.children[run.id], True
            try:
                await self.children.tell(parent.run, report, began)
            except asyncio.CancelledError:  # while its report was being shortened: that it ended is told
                await self.children.tell(parent.run, report, began, brief=True)
                if run.cancel_reason is None:
                    raise
            except (Fenced, StoreError):
                raise
            except Exception as error:  # of what makes its report ready: that it ended is told all the same
                log.warning("%s: its parent is told of its end alone: %r", run.id, error)
                await self.children.tell(parent.run, report, began, brief=True)
        return report

    async def _prepare(self, run: Run) -> None:
        """What a run has to have before its first step."""
        stored, resources = self.tree.live[run.id].stored, self.tree.live[run.id].resources
        if stored is not None:
            await _durable(run, stored)
        if run.cancel_reason is not None:
            raise asyncio.CancelledError
        # In a replay the order of the record says who works when. Who had which slot then, nothing says.
        if run.depth > 0 and self.tree.config.recorded is None:
            await self.tree.slots.take(run.id)
        await resources.open()
        if run.id in self.tree.logs or self.tree.config.recorded is not None:
            await self.kept.restore(run)
        bring(run, self.tree)
        first = self.tree.config.first
        if run.depth == 0 and first is not None:
            await knowledge_first(self.children, run, first)

    async def _give_back(self, run: Run, resources: RunResources) -> None:
        """What a run held, whatever became of it."""
        self.tree.slots.drop(run.id)
        self.questions.settled()
        run.budget.release()
        run.files.close()
        try:
            await resources.close()
        finally:
            if run.depth == 0:
                self._deaf()
                await self.inbox.close()
            await self._close_servers(run)

    async def _close_servers(self, run: Run) -> None:
        servers = self.tree.config.servers
        if servers is not None:
            await (servers.close() if run.depth == 0 else servers.close_run(run.id))

    @property
    def answer(self) -> Report | None:
        """The last answer of a root that has left children at work and waits for what comes next."""
        root = self.tree.live.get(self.tree.root_id)
        state = root.run.state if root is not None and root.run.leaves else None
        return state.finished.report if state is not None and state.at_work and state.finished else None

    def next_answer(self) -> asyncio.Future[Report]:
        """The next answer that the root gives while children are at work. Nothing comes if it gives none.

        Whoever gives up waiting cancels it.
        """
        self._awaited = [each for each in self._awaited if not each.done()]
        awaited: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self._awaited.append(awaited)
        return awaited

    def _reported(self, report: Report) -> None:
        root = self.tree.live[self.tree.root_id].run
        if not report.at_work or not root.leaves:
            return  # the last one comes with the end of its task, when everything is cleared up
        waiting, self._awaited = self._awaited, []
        for awaited in waiting:
            if not awaited.done():
                awaited.set_result(report)

    def cancel(self, run_id: str, reason: str, *, by: str = "person") -> None:
        """Stop a run and everything below it, now. Each keeps its partial work in its report."""
        self.inbox.cancel(run_id, reason, by=by)

    async def leave(self) -> None:
        """Stop working here and write nothing about it: whoever resumes goes on where the log ends."""
        tasks = self.tree.shut(Withdrawn("this process has stopped working on the run"))
        if tasks:
            await asyncio.wait(tasks)
        self._deaf()
        await self.inbox.close()  # a root that had not begun never does it

    async def hand_over(
        self, to: ToWorkers, why: Why, *, signals: int | None = None, until: float | None = None
    ) -> None:
        """Leave, and put the workflow into the queue: at once, or `parked` until `until`, or until there is a
        signal after `signals`. What is in flight is cut off, as when the process ended."""
        signals, store = self.inbox.last if signals is None else signals, self.tree.config.store
        parked = Parked(signals=signals, until=until) if why == "parked" else None
        self.tree.write_noted()
        queued = marks(unended(self.tree.states()), to, why, parked=parked, signals=signals)
        await self.leave()
        await store.append(queued)


def _nothing() -> None:
    """Nobody listens yet."""


async def _stored(run: Run, *events: Event) -> None:
    await run.log.commit(*events)


async def _durable(run: Run, stored: asyncio.Future[None]) -> None:
    """Wait until the start of a run is in the log. If it never will be, nothing else may be."""
    if not stored.done():
        await asyncio.wait([stored])
    failure = None if stored.cancelled() else stored.exception()
    if failure is not None:
        run.log.shut(failure)
        raise failure


def _retired(tree: RunTree, live: LiveRun, task: asyncio.Task[Report]) -> None:
    """Its parent has its report. What it read need not be held for as long as the workflow lives."""
    if not task.cancelled() and task.exception() is None:
        tree.retire(live)


def _noticed(task: asyncio.Task[Report]) -> None:
    """Whoever waits for a run gets its error. Where nobody does, nobody needs to be warned of that."""
    if not task.cancelled():
        task.exception()
