"""A workflow in this process: one root run and everything below it, as asyncio tasks.

`Workflow` builds runs, starts them, waits, cancels, and takes a whole tree up again from its log. It is the
`ChildRunner` behind the delegation tools. Everything that comes from outside (answers, messages, cancels)
arrives as signals through the store, whichever process sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from retinue import context
from retinue.budget import Budget, Slots
from retinue.delegate import ChildInfo, ChildRequest
from retinue.engine.bring import bring
from retinue.engine.build import Builder
from retinue.engine.config import WorkflowConfig
from retinue.engine.inbox import Inbox
from retinue.engine.keep import KeptFiles
from retinue.engine.knowledge import knowledge_first
from retinue.engine.resume import PARENT_ENDED, take_up_child
from retinue.engine.weakly import weakly
from retinue.errors import Fenced, RetinueError, StoreError, ToolError
from retinue.events import (
    KNOWLEDGE_FIRST,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    MessageReceived,
)
from retinue.fold import RunState
from retinue.loop import run_agent
from retinue.reports import Framed, cut_with_notice, ending_with, frame, length
from retinue.run import Run, child_id, storable
from retinue.store.rows import fenced
from retinue.types import ENDED, AgentSpec, Image, ModelRequest, Report, Shortfall, UserMessage
from retinue.workspace import Files

log = logging.getLogger("retinue")


@dataclass(kw_only=True, slots=True, eq=False)
class Live:
    """A run that has a task here, or had one."""

    run: Run
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


class Workflow:
    """One root and everything below it."""

    def __init__(self, config: WorkflowConfig, root_id: str) -> None:
        self.config = config
        self.root_id = root_id
        self.live: dict[str, Live] = {}
        self.past: dict[str, RunState] = {}
        self._below: dict[str, list[Live]] = {}
        self._held: dict[str, list[tuple[str, str]]] = {}
        self._cancelled: dict[str, tuple[str, str]] = {}
        self._given_up = False
        self.slots = Slots(config.settings.delegation.concurrency)
        # What belongs to a workflow knows it without keeping it: when its last task ends, all of it goes.
        self.inbox = Inbox(
            config,
            root_id,
            self.slots,
            cancel=weakly(self.cancel),
            message=weakly(self._deliver),
            look=weakly(self._look),
            states=weakly(self._states),
        )
        self.builder = Builder(
            config,
            root_id,
            weakref.proxy(self),
            gate=self.inbox.gate,
            judge=self.inbox.judge,
            linger=weakly(self._linger),
            dismiss=weakly(self._dismiss),
            keep=weakly(self._keep),
        )
        self.kept = KeptFiles(
            config.store, root_id, config.settings.workspace.kept_mb * 1_000_000, over=weakly(self._is_over)
        )

    # -- roots -----------------------------------------------------------------

    async def start_root(
        self,
        spec: AgentSpec,
        prompt: str,
        *,
        label: str = "",
        rendered: str = "",
        images: tuple[Image, ...] = (),
    ) -> asyncio.Task[Report]:
        """Log the start and begin. Returns once the run is durable."""
        config = self.config
        limits = config.root_limits(spec)
        self.slots.resize(limits.concurrency or config.settings.delegation.concurrency)
        await self.builder.identify(spec, None)
        run = self.builder.build(
            self.root_id,
            None,
            spec,
            authority=config.root_authority(spec),
            budget=Budget(limits),
            state=RunState(),
            label=label,
        )
        question = len(storable(prompt)) if rendered else 0
        await run.log.commit(
            self.builder.started(
                run, prompt, rendered=rendered, images=images, options=config.options, question=question
            )
        )
        await self.inbox.open()
        return self.launch(run, background=False)

    def launch(
        self, run: Run, *, background: bool, stored: asyncio.Future[None] | None = None
    ) -> asyncio.Task[Report]:
        task = asyncio.create_task(self._live(run), name=f"retinue {run.id}")
        self.live[run.id] = live = Live(run=run, task=task, background=background, stored=stored)
        if run.parent_id is not None:
            self._below.setdefault(run.parent_id, []).append(live)
            # Now and not when its turn comes: what it had in the background may be taken up before that.
            self.slots.place(run.id, run.parent_id, run.budget.limits.concurrency)
        for text, message_id in self._held.pop(run.id, ()):
            self._deliver(run.id, text, message_id)
        if run.id in self._cancelled:
            reason, by = self._cancelled.pop(run.id)
            self.cancel(run.id, reason, by=by)
        task.add_done_callback(_noticed)
        return task

    async def _live(self, run: Run) -> Report:
        """A run's whole time here: a slot, the loop, and everything given back at the end."""
        # No name for its own task in here: the error of a task knows the frames that it went through.
        self.live[run.id].begun = True
        try:
            report = await run_agent(run, partial(self._prepare, run))
        except (Fenced, StoreError) as error:
            self._give_up(error)
            raise
        finally:
            await self._give_back(run)
        parent = self.live.get(run.parent_id or "")
        if parent is not None:
            began, self.live[run.id].telling = parent.run.state.children[run.id], True
            try:
                await self.tell(parent.run, report, began)
            except asyncio.CancelledError:  # while its report was being shortened: that it ended is told
                await self.tell(parent.run, report, began, brief=True)
                if run.cancel_reason is None:
                    raise
        return report

    async def _prepare(self, run: Run) -> None:
        """What a run has to have before its first step."""
        stored = self.live[run.id].stored
        if stored is not None:
            await _durable(run, stored)
        if run.cancel_reason is not None:
            raise asyncio.CancelledError
        if run.depth > 0:
            await self.slots.take(run.id)
        await self.builder.resources[run.id].open()
        if run.id in self.builder.logs:
            await self.kept.restore(run)
        self._bring(run)
        if run.depth == 0 and self.config.first is not None:
            await knowledge_first(self, run, self.config.first)

    async def _keep(self, run: Run, paths: Sequence[str]) -> None:
        await self.kept.keep(run, paths)

    def _is_over(self, run_id: str) -> bool:
        live = self.live.get(run_id)
        return run_id != self.root_id and (live is None or live.over)

    def _states(self) -> list[RunState]:
        """What the logs of all runs of this workflow mean, of those before a restart as well."""
        states = {**self.past, **{run_id: live.run.state for run_id, live in self.live.items()}}
        return list(states.values())

    def _bring(self, run: Run) -> None:
        """Files that a person named, for a run that does not see the project."""
        if self.config.project is None or run.authority.project:
            return
        project = Files(project=self.config.project, workspace=None)
        try:
            bring(run, project, self._states())
        finally:
            project.close()

    async def _give_back(self, run: Run) -> None:
        """What a run held, whatever became of it."""
        self.slots.drop(run.id)
        run.budget.release()
        run.files.close()
        try:
            await self.builder.resources.pop(run.id).close()
        finally:
            if run.depth == 0:
                await self.inbox.close()

    async def tell(self, parent: Run, report: Report, began: ChildStarted, *, brief: bool = False) -> None:
        """The end of a child, in its parent's log; with its report for a parent that does not wait for it."""
        notice, usage = "", report.usage
        if began.background and parent.cancel_reason is None and not brief:
            framed = await self.shorten(parent.id, report)
            usage = usage + framed.usage
            ended = f"[The background agent {report.agent} ({report.run_id}) has ended: {report.status}.]"
            notice = f"{ended}\n{frame(report, framed.text)}"
        parent.log.write(
            ChildEnded,
            child_id=began.child_id,
            agent=began.agent,
            status=report.status,
            usage=usage,
            label=began.label,
            call_id=began.call_id,
            duration_ms=report.duration_ms,
            notice=notice,
            shortfall=self._shortfall(report, began),
            private=self._read_by(report.run_id),
        )

    def _read_by(self, run_id: str) -> tuple[str, ...]:
        live = self.live.get(run_id)
        state = live.run.state if live is not None else self.past.get(run_id)
        return () if state is None else tuple(state.private)

    def _shortfall(self, report: Report, began: ChildStarted) -> Shortfall:
        """What a parent goes without because of this child; it does not miss what it stopped itself.

        Nor does it miss what was looked up for it unasked.
        """
        if began.call_id == KNOWLEDGE_FIRST:
            return Shortfall()
        live = self.live.get(report.run_id)
        state = live.run.state if live is not None else self.past.get(report.run_id)
        stopped = state.cancelled if state is not None else None
        unwanted = stopped is not None and stopped.by in ("parent", PARENT_ENDED)
        failed = report.status != "completed" and not unwanted
        return report.shortfall + Shortfall(
            failed=int(failed), incomplete=int(report.status == "completed" and bool(report.incomplete))
        )

    # -- children: the ChildRunner protocol ------------------------------------

    def admit(self, parent_id: str, *, counted: bool = True) -> None:
        parent = self.live[parent_id].run
        self.config.policy.admit(parent.depth)
        if counted:
            parent.budget.check_children(self.config.policy.children_limit)

    async def start(self, parent_id: str, request: ChildRequest) -> str:
        parent = self.live[parent_id].run
        run_id = child_id(parent_id, request.call_id, request.key)
        if run_id in self.live:
            return run_id
        if run_id in parent.state.children:
            await take_up_child(self, parent, run_id)
            return run_id
        self.config.policy.admit(parent.depth)
        spec = request.spec
        await self.builder.identify(spec, parent)
        settings = self.config.settings.delegation
        budget = parent.budget.carve(
            spec.limits,
            sharers=self.config.policy.sharers,
            name=spec.name,
            turns=self.config.max_turns(spec, parent.depth + 1) + settings.corrections + 2,
        )
        try:
            run = self.builder.build(
                run_id,
                parent,
                spec,
                authority=parent.authority.narrow(spec),
                budget=budget,
                state=RunState(),
                label=request.label,
            )
            # Counted last: a child that cannot be built (its model is not to be had) has not been started.
            parent.budget.admit_child(self.config.policy.children_limit)
            # Before its parent's: where this cannot be written, the parent's log must not have begun it.
            started = self.builder.started(
                run, request.prompt, call_id=request.call_id, private=parent.state.private
            )
        except BaseException:
            budget.release()
            self.builder.resources.pop(run_id, None)
            raise
        began = parent.log.stamp(
            ChildStarted,
            child_id=run_id,
            agent=spec.name,
            prompt=request.prompt,
            label=request.label,
            call_id=request.call_id,
            key=request.key,
            reserved=budget.limits,
            background=request.background,
        )
        # In line at once and in one transaction: a child is in its parent's log if and only if it exists.
        written = parent.log.commit(began, started)
        self.launch(run, background=began.background, stored=written)
        await asyncio.shield(written)  # the child waits for it too, and is not to lose it with its parent
        return run_id

    async def wait(self, parent_id: str, child_id: str) -> Report:
        """A child's report. The parent lends its slot while it waits."""
        child = self._child(parent_id, child_id)
        if isinstance(child, Report):
            return child
        self.slots.lend(parent_id)
        # If the parent is stopped meanwhile, the slot is not claimed again: it needs none to end.
        await asyncio.wait([child.task])
        await self.slots.reclaim(parent_id)
        if child.task.cancelled():
            raise ToolError(f"the child {child_id} was stopped")
        return child.task.result()

    def _child(self, parent_id: str, child_id: str) -> Live | Report:
        parent = self.live[parent_id].run
        if child_id not in parent.state.children:
            known = ", ".join(parent.state.children) or "none"
            raise ToolError(f"there is no child {child_id!r} of yours. Your children: {known}")
        live = self.live.get(child_id)
        if live is not None:
            return live
        report = self.past[child_id].report if child_id in self.past else None
        if report is None:
            raise ToolError(f"the child {child_id} is not running")
        return report

    async def cancel_child(self, parent_id: str, child_id: str, reason: str) -> Report:
        child = self._child(parent_id, child_id)
        if isinstance(child, Report):
            return child
        self.cancel(child_id, reason, by="parent")
        return await self.wait(parent_id, child_id)

    async def message_child(self, parent_id: str, child_id: str, text: str) -> None:
        child = self._child(parent_id, child_id)
        if isinstance(child, Report) or child.over:
            raise ToolError(f"the child {child_id} has ended and reads no more messages")
        read = tuple(self.live[parent_id].run.state.private)
        await child.run.log.write(MessageReceived, text=text, sender="parent", private=read)

    def children(self, parent_id: str) -> list[ChildInfo]:
        parent = self.live[parent_id].run
        rows: list[ChildInfo] = []
        for run_id, began in parent.state.children.items():
            live = self.live.get(run_id)
            state = live.run.state if live else self.past.get(run_id)
            doing = ""
            if state is not None and state.status not in ENDED:
                # By names of ours: a model calls tools by any name it likes, and its parent reads this.
                known = live.run.tools if live else self.config.tools
                names = ", ".join(
                    known[called.name].name if called.name in known else "an unknown tool"
                    for called in state.begun.values()
                )
                doing = f"step {state.step}" + (f", running {names}" if names else "")
            rows.append(
                ChildInfo(
                    child_id=run_id,
                    agent=began.agent,
                    label=began.label,
                    status=state.status if state else "pending",
                    background=began.background,
                    doing=doing,
                )
            )
        return rows

    def agents(self, parent_id: str) -> list[AgentSpec]:
        run = self.live[parent_id].run
        return [
            spec
            for spec in self.config.agents.values()
            if spec.name in run.authority.tools
            and spec.name != run.spec.name
            and self.config.useful(spec.name, run.authority)
        ]

    def taken(self, name: str) -> bool:
        return name.casefold() in {known.casefold() for known in self.config.agents}

    def mcp_servers(self, parent_id: str) -> frozenset[str]:
        return self.live[parent_id].run.authority.mcp_servers

    def tool_names(self, parent_id: str) -> dict[str, str]:
        tools = self.live[parent_id].run.tools.items()
        return {word: t.name for word, t in tools if t.effect != "delegate" and t.name in self.config.tools}

    def shown(self, parent_id: str) -> tuple[str, ...]:
        run = self.live[parent_id].run
        return tuple(spec.name for spec in run.shown if run.tools[spec.name].effect != "delegate")

    def told(self, parent_id: str, child_id: str) -> bool:
        state = self.live[parent_id].run.state
        notice = state.notices.get(child_id)
        return notice is not None and any(m is notice for m in (*state.messages, *state.queued))

    async def shorten(self, parent_id: str, report: Report, *, quoted: bool = False) -> Framed:
        """What a parent is shown of a report; the whole text goes to its workspace."""
        parent, most = self.live[parent_id].run, self.config.settings.limits.report_bytes
        text = report.text
        if length(text, quoted=quoted) <= most:
            return Framed(text=text)
        try:
            path = parent.files.save(f"report-{report.run_id}.md", text.encode("utf-8", "replace"))
        except ToolError:
            path, files = f"run {report.run_id}", ()
        else:
            files = (path,)
            await self.kept.keep(parent, files)
        if self.config.settings.delegation.summary == "model":
            asked = ModelRequest(
                system="You shorten reports. Keep every fact, name, path, number, URL and doubt.",
                messages=(UserMessage(text=f"Shorten this report to at most {most} bytes:\n\n{text}"),),
            )
            try:
                reply = await context.complete(parent, asked)
            except (Fenced, StoreError):
                raise
            except RetinueError as error:  # a report that cannot be shortened is still a report
                log.warning("a report was cut, since it could not be summarised: %s", error)
            else:
                notice = f"\n\n[summarised; the whole text is in {path}]"
                text = ending_with(notice, reply.message.text, most, quoted=quoted)
                return Framed(text=text, files=files, usage=reply.usage)
        return Framed(text=cut_with_notice(text, most, path, quoted=quoted), files=files)

    # -- the end of things -----------------------------------------------------

    async def _linger(self, run: Run) -> bool:
        """Before a parent's answer counts: wait for its background children, if so set."""
        waiting = [live for live in self._running_children(run.id) if live.background]
        if not waiting or self.config.settings.delegation.parent_ends == "cancel":
            return False
        self.slots.lend(run.id)
        await asyncio.wait([live.task for live in waiting])
        await self.slots.reclaim(run.id)
        return True

    async def _dismiss(self, run: Run, reason: str) -> None:
        running = self._running_children(run.id)
        for live in running:
            self.cancel(live.run.id, reason, by=PARENT_ENDED)
        if running:
            await asyncio.wait([live.task for live in running])
        for live in self._below.get(run.id, ()):
            if live.task.done() and not live.task.cancelled():
                error = live.task.exception()
                if isinstance(error, Fenced | StoreError):
                    raise error

    def _running_children(self, run_id: str) -> list[Live]:
        return [live for live in self._below.get(run_id, ()) if not live.task.done()]

    def cancel(self, run_id: str, reason: str, *, by: str = "person") -> None:
        """Stop a run and everything below it, now. Each keeps its partial work in its report."""
        live = self.live.get(run_id)
        if live is None:  # told before the run is begun or taken up
            self._cancelled[run_id] = (reason, by)
            return
        if not live.stoppable or live.run.cancel_reason is not None:
            return
        if not live.over:
            with contextlib.suppress(Fenced, StoreError):  # a log that takes nothing more keeps no run alive
                live.run.log.write(CancelRequested, reason=reason, by=by)
        stopping = [live]
        while stopping:
            each = stopping.pop()
            stopping += self._below.get(each.run.id, ())
            if each.stoppable and each.run.cancel_reason is None:
                each.run.cancel_reason = reason
                if each.begun:
                    each.task.cancel()

    def forget(self) -> None:
        """Let go of every run, once all have ended: an error that is kept leads back to its workflow."""
        self.live.clear()
        self.past.clear()
        self._below.clear()
        self.builder.logs.clear()
        self.builder.resources.clear()

    async def leave(self) -> None:
        """Stop working here and write nothing about it: whoever resumes goes on where the log ends."""
        self._given_up = True
        for live in self.live.values():
            live.run.log.shut(Fenced("this process has stopped working on the run", run_id=live.run.id))
        tasks = [live.task for live in self.live.values() if not live.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.inbox.close()  # a root that had not begun never does it

    async def _look(self) -> None:
        """Another process has written here. If it was to the root's log, that one is its owner now."""
        root = self.live.get(self.root_id)
        if root is None or root.task.done():
            return
        last = await self.config.store.tail(self.root_id, limit=1, run_id=self.root_id)
        if last and last[0].seq > root.run.state.seq:
            self._give_up(fenced(self.root_id, last[0].seq))

    def _give_up(self, why: Fenced | StoreError) -> None:
        """Another process works on this tree, or a log of it cannot be written: stop all of it here at once,
        and write nothing more. Whoever takes the tree up must not find half of it still at work."""
        if self._given_up:  # each of its runs may find out by itself
            return
        self._given_up = True
        for live in self.live.values():
            live.run.log.shut(why if isinstance(why, StoreError) else Fenced(str(why), run_id=live.run.id))
            if not live.task.done() and live.task is not asyncio.current_task():
                live.task.cancel()

    def _deliver(self, run_id: str, text: str, message_id: str) -> None:
        live = self.live.get(run_id)
        if live is None:  # said while nothing ran, and read before the run is taken up
            self._held.setdefault(run_id, []).append((text, message_id))
        elif not live.over and message_id not in live.run.state.seen_messages:
            live.run.log.write(MessageReceived, text=text, sender="person", message_id=message_id)
            self._bring(live.run)


async def _durable(run: Run, stored: asyncio.Future[None]) -> None:
    """Wait until the start of a run is in the log. If it never will be, nothing else may be."""
    if not stored.done():
        await asyncio.wait([stored])
    failure = None if stored.cancelled() else stored.exception()
    if failure is not None:
        run.log.shut(failure)
        raise failure


def _noticed(task: asyncio.Task[Report]) -> None:
    """Whoever waits for a run gets its error. Where nobody does, nobody needs to be warned of that."""
    if not task.cancelled():
        task.exception()
