"""A workflow in this process: one root run and everything below it, as asyncio tasks.

`Workflow` builds runs, starts them, waits, cancels, and takes a whole tree up again from its log. It is the
`Staff` behind the delegation tools. Everything that comes from outside (answers, messages, cancels) arrives
as letters through the store, whichever process sent it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from retinue import context
from retinue.approvals import Authority
from retinue.budget import Budget, Clock, Slots
from retinue.delegate import ChildInfo, ChildRequest, agent_tool, delegation_tools
from retinue.engine.approve import Desk
from retinue.engine.kit import Kit, review
from retinue.engine.knowledge import knowledge_first
from retinue.engine.private import Private
from retinue.errors import Fenced, RunError, StoreError, ToolError
from retinue.events import (
    AnyEvent,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Event,
    MessageReceived,
    RunResumed,
    RunStarted,
    RunState,
    fold,
)
from retinue.loop import run_agent
from retinue.models.base import Model
from retinue.reports import Framed, cut_with_notice
from retinue.run import Run, RunLog, child_id, storable
from retinue.tools.base import Tool
from retinue.types import ENDED, AgentSpec, Image, ModelRequest, Report, ToolSpec, UserMessage
from retinue.workspace import Files, Workspace


@dataclass(kw_only=True, slots=True, eq=False)
class Live:
    """A run that has a task here, or had one."""

    run: Run
    task: asyncio.Task[Report]
    background: bool = False
    begun: bool = False
    """A task that is cancelled before its first step would never write its end."""


class Workflow:
    """One root and everything below it."""

    def __init__(self, kit: Kit, root_id: str) -> None:
        self.kit = kit
        self.root_id = root_id
        self.live: dict[str, Live] = {}
        self.past: dict[str, RunState] = {}
        self.logs: dict[str, list[AnyEvent]] = {}
        self.private: dict[str, Private] = {}
        self._below: dict[str, list[Live]] = {}
        # The spec is kept so that its id stays its own.
        self._equipped: dict[
            tuple[int, frozenset[str], int], tuple[AgentSpec, dict[str, Tool], tuple[ToolSpec, ...]]
        ] = {}
        self.slots = Slots(kit.settings.delegation.concurrency)
        self.desk = Desk(kit, root_id, self.slots, cancel=self.cancel, message=self._deliver)

    # -- building --------------------------------------------------------------

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """Every tool there is in this workflow, delegation included."""
        made = [*delegation_tools(self), *(agent_tool(spec, self) for spec in self.kit.agents.values())]
        return {**self.kit.tools, **{tool.name: tool for tool in made}}

    def _append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        written = self.kit.store.append(events)

        def publish(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and done.exception() is None:
                for event in events:
                    self.kit.publish(event)  # pyright: ignore[reportArgumentType] # every event class is in the union

        written.add_done_callback(publish)
        return written

    def _build(
        self,
        run_id: str,
        parent: Run | None,
        spec: AgentSpec,
        *,
        authority: Authority,
        budget: Budget,
        state: RunState,
        label: str,
        system: str | None = None,
        model: Model | None = None,
        used: float = 0.0,
    ) -> Run:
        kit, depth = self.kit, 0 if parent is None else parent.depth + 1
        recorded = kit.recorded(run_id) if kit.recorded else None
        if recorded is not None:
            model, system = recorded
        model = model or kit.model(spec.model, parent.model if parent else None)
        held, shown = self._equipment(spec, authority, depth)
        private = Private(kit, spec, self.logs.get(run_id, ()))
        own = {t.name: t for t in private.tools(held, authority) if authority.permits(t.name, t.effect)}
        if own:
            held = {**held, **own}
            shown += tuple(t.spec for t in own.values() if kit.shows(t, spec, authority, depth))
        root = kit.settings.workspace.root
        workspace = Workspace(
            quota=kit.settings.workspace.quota_mb * 1_000_000, root=Path(root) if root else None
        )
        clock = Clock(
            kit.seconds(spec, budget.limits, parent.clock if parent else None),
            parent=parent.clock if parent else None,
            used=used,
        )
        log = RunLog(
            run_id=run_id,
            root_id=self.root_id,
            parent_id=parent.id if parent else None,
            depth=depth,
            append=self._append,
            publish=kit.publish,
            state=state,
        )
        run = Run(
            id=run_id,
            root_id=self.root_id,
            parent_id=parent.id if parent else None,
            depth=depth,
            spec=spec,
            path=(*parent.path, spec.name) if parent else (spec.name,),
            label=label,
            system=self._system(spec, depth) if system is None else system,
            model=model,
            tools=held,
            shown=shown,
            authority=authority,
            budget=budget,
            clock=clock,
            files=Files(project=kit.project, workspace=workspace, writable=authority.writable),
            log=log,
            gate=self.desk.gate,
            limits=kit.settings.limits,
            context=kit.settings.context,
            max_turns=kit.max_turns(spec, depth),
            review=partial(review, strict_sources=kit.strict_sources),
            linger=self._linger,
            dismiss=self._dismiss,
            small=lambda: kit.small(model),
            notes=private.notes.summary,
            corrections=kit.settings.delegation.corrections,
        )
        private.run = run
        self.private[run_id] = private
        return run

    def _equipment(
        self, spec: AgentSpec, authority: Authority, depth: int
    ) -> tuple[dict[str, Tool], tuple[ToolSpec, ...]]:
        """The tools that a run holds, by name and alias, and those that it is shown.

        Worked out once for all children of one kind: a parent may start a thousand of them.
        """
        key = (id(spec), authority.tools, depth)
        if key not in self._equipped:
            held = {n: t for n, t in self.tools.items() if authority.permits(n, t.effect)}
            shown = tuple(t.spec for t in held.values() if self.kit.shows(t, spec, authority, depth))
            aliases = {alias: tool for tool in held.values() for alias in tool.aliases}
            self._equipped[key] = (spec, {**aliases, **held}, shown)
        return self._equipped[key][1:]

    def _system(self, spec: AgentSpec, depth: int) -> str:
        return context.system_prompt(
            spec,
            cwd=self.kit.project.name if self.kit.project else "",
            workspace=True,
            instructions=self.kit.instructions if depth == 0 else "",
            fragments=self.kit.fragments if depth == 0 else (),
        )

    def _started(self, run: Run, prompt: str, **more: Any) -> RunStarted:
        return run.log.stamp(
            RunStarted,
            spec=run.spec,
            prompt=storable(prompt),
            system=storable(run.system),
            label=run.label,
            model=run.model.name,
            limits=run.budget.limits,
            tools=tuple(spec.name for spec in run.shown),
            cwd=str(self.kit.project or ""),
            host=socket.gethostname(),
            pid=os.getpid(),
            **more,
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
        kit = self.kit
        limits = kit.root_limits(spec)
        self.slots.resize(limits.concurrency or kit.settings.delegation.concurrency)
        run = self._build(
            self.root_id,
            None,
            spec,
            authority=kit.root_authority(spec),
            budget=Budget(limits),
            state=RunState(),
            label=label,
        )
        await run.log.commit(
            self._started(run, prompt, rendered=rendered, images=images, options=kit.options)
        )
        await self.desk.open()
        return self._launch(run, background=False)

    def _launch(self, run: Run, *, background: bool) -> asyncio.Task[Report]:
        task = asyncio.create_task(self._live(run), name=f"retinue {run.id}")
        self.live[run.id] = live = Live(run=run, task=task, background=background)
        if run.parent_id is not None:
            self._below.setdefault(run.parent_id, []).append(live)
        return task

    async def _live(self, run: Run) -> Report:
        """A run's whole time here: a slot, the loop, and everything given back at the end."""
        self.live[run.id].begun = True

        async def prepare() -> None:
            if run.cancel_reason is not None:
                raise asyncio.CancelledError
            if run.depth > 0:
                await self.slots.take(run.id)
            await self.private[run.id].open()
            if run.depth == 0 and self.kit.first is not None:
                await knowledge_first(self, run, self.kit.first)

        try:
            report = await run_agent(run, prepare)
        finally:
            self.slots.drop(run.id)
            run.budget.release()
            run.files.close()
            await self.private.pop(run.id).close()
            if run.depth == 0:
                await self.desk.close()
        parent = self.live.get(run.parent_id or "")
        if parent is not None:
            await self._tell(parent.run, report, parent.run.state.children[run.id])
        return report

    async def _tell(self, parent: Run, report: Report, began: ChildStarted) -> None:
        """The end of a child, in its parent's log."""
        notice = ""
        if began.background and parent.cancel_reason is None:
            framed = await self.shorten(parent.id, report)
            notice = (
                f"[The background agent {report.agent} ({report.run_id}) has ended: {report.status}. "
                f"Its report, as data:]\n{framed.text}"
            )
        parent.log.write(
            ChildEnded,
            child_id=began.child_id,
            agent=began.agent,
            status=report.status,
            usage=report.usage,
            label=began.label,
            call_id=began.call_id,
            duration_ms=report.duration_ms,
            notice=notice,
        )

    # -- children: the Staff protocol ------------------------------------------

    async def start(self, parent_id: str, request: ChildRequest) -> str:
        parent = self.live[parent_id].run
        run_id = child_id(parent_id, request.call_id, request.key)
        if run_id in self.live:
            return run_id
        if run_id in parent.state.children:
            await self._take_up_child(parent, run_id)
            return run_id
        self.kit.policy.admit(parent.depth)
        spec = request.spec
        settings = self.kit.settings.delegation
        budget = parent.budget.carve(
            spec.limits,
            sharers=self.kit.policy.sharers,
            name=spec.name,
            turns=self.kit.max_turns(spec, parent.depth + 1) + settings.corrections + 2,
        )
        try:
            parent.budget.admit_child(self.kit.policy.children_limit)
            run = self._build(
                run_id,
                parent,
                spec,
                authority=parent.authority.narrow(spec),
                budget=budget,
                state=RunState(),
                label=request.label,
            )
        except BaseException:
            budget.release()
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
            background=request.background or spec.background,
        )
        started = self._started(run, request.prompt, call_id=request.call_id)
        # In line at once and in one transaction: a child is in its parent's log if and only if it exists.
        written = parent.log.commit(began, started)
        self._launch(run, background=began.background)
        await written
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
        if isinstance(child, Report) or child.task.done():
            raise ToolError(f"the child {child_id} has ended and reads no more messages")
        await child.run.log.write(MessageReceived, text=text, sender="parent")

    def children(self, parent_id: str) -> list[ChildInfo]:
        parent = self.live[parent_id].run
        rows: list[ChildInfo] = []
        for run_id, began in parent.state.children.items():
            live = self.live.get(run_id)
            state = live.run.state if live else self.past.get(run_id)
            doing = ""
            if state is not None and state.status not in ENDED:
                names = ", ".join(called.name for called in state.begun.values())
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
            for spec in self.kit.agents.values()
            if spec.name in run.authority.tools
            and spec.name != run.spec.name
            and self.kit.useful(spec.name, run.authority)
        ]

    def tool_names(self, parent_id: str) -> list[str]:
        run = self.live[parent_id].run
        return sorted(
            {t.name for t in run.tools.values() if t.effect != "delegate" and t.name in self.kit.tools}
        )

    def shown(self, parent_id: str) -> tuple[str, ...]:
        run = self.live[parent_id].run
        return tuple(spec.name for spec in run.shown if run.tools[spec.name].effect != "delegate")

    async def shorten(self, parent_id: str, report: Report) -> Framed:
        """What a parent is shown of a report; the whole text goes to its workspace."""
        parent, most = self.live[parent_id].run, self.kit.settings.limits.report_bytes
        text = report.text
        if len(text.encode("utf-8", "replace")) <= most:
            return Framed(text=text)
        try:
            path = parent.files.save(f"report-{report.run_id}.md", text.encode("utf-8", "replace"))
        except ToolError:
            path, files = f"run {report.run_id}", ()
        else:
            files = (path,)
        if self.kit.settings.delegation.summary == "model":
            asked = ModelRequest(
                system="You shorten reports. Keep every fact, name, path, number, URL and doubt.",
                messages=(UserMessage(text=f"Shorten this report to at most {most} bytes:\n\n{text}"),),
            )
            reply = await context.complete(parent, asked)
            short = cut_with_notice(reply.message.text, most, path)
            return Framed(
                text=f"{short}\n\n[summarised; the whole text is in {path}]", files=files, usage=reply.usage
            )
        return Framed(text=cut_with_notice(text, most, path), files=files)

    # -- the end of things -----------------------------------------------------

    async def _linger(self, run: Run) -> bool:
        """Before a parent's answer counts: wait for its background children, if so set."""
        waiting = [live for live in self._running_children(run.id) if live.background]
        if not waiting or self.kit.settings.delegation.parent_ends == "cancel":
            return False
        self.slots.lend(run.id)
        await asyncio.wait([live.task for live in waiting])
        await self.slots.reclaim(run.id)
        return True

    async def _dismiss(self, run: Run, reason: str) -> None:
        running = self._running_children(run.id)
        for live in running:
            self.cancel(live.run.id, reason, by="parent")
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
        if live is None or live.task.done() or live.run.cancel_reason is not None:
            return
        live.run.log.write(CancelRequested, reason=reason, by=by)
        stopping = [live]
        while stopping:
            each = stopping.pop()
            stopping += self._below.get(each.run.id, ())
            if not each.task.done() and each.run.cancel_reason is None:
                each.run.cancel_reason = reason
                if each.begun:
                    each.task.cancel()

    async def leave(self) -> None:
        """Stop working here and write nothing about it: whoever resumes goes on where the log ends."""
        for live in self.live.values():
            live.run.log.shut(Fenced("this process has stopped working on the run", run_id=live.run.id))
        tasks = [live.task for live in self.live.values() if not live.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _deliver(self, run_id: str, text: str, message_id: str) -> None:
        live = self.live.get(run_id)
        if live is not None and not live.task.done() and message_id not in live.run.state.seen_messages:
            live.run.log.write(MessageReceived, text=text, sender="person", message_id=message_id)

    # -- taking a tree up again ------------------------------------------------

    async def resume(self, *, message: str | None = None) -> asyncio.Task[Report]:
        """Fold the log of the whole tree and go on where it ends."""
        for event in await self.kit.store.events(self.root_id):
            self.logs.setdefault(event.run_id, []).append(event)
        self.past = {run_id: fold(log) for run_id, log in self.logs.items()}
        state = self.past.get(self.root_id)
        if state is None or state.started is None:
            raise RunError(f"there is no run {self.root_id}", run_id=self.root_id)
        for past in self.past.values():
            self.desk.granted |= past.granted
        began = state.started
        self.slots.resize(began.limits.concurrency or self.kit.settings.delegation.concurrency)
        budget = Budget(began.limits)
        run = self._rebuild(state, None, self.kit.root_authority(began.spec), budget)
        await self._take_up(run, message)
        await self.desk.open()
        task = self._launch(run, background=False)
        for child, child_began in list(state.children.items()):
            past = self.past.get(child)
            if child_began.background and (past is None or past.status not in ENDED):
                await self._take_up_child(run, child)
        return task

    async def _take_up(self, run: Run, message: str | None) -> None:
        """The first write fences off any other process that still runs this."""
        events: list[Event] = [run.log.stamp(RunResumed, host=socket.gethostname(), pid=os.getpid())]
        if message is not None:
            events.append(run.log.stamp(MessageReceived, text=message, sender="person"))
        await run.log.commit(*events)

    def _rebuild(self, state: RunState, parent: Run | None, authority: Authority, budget: Budget) -> Run:
        """A run from its log, with everything it and its children used charged again."""
        began = state.started
        if began is None:
            raise RunError("the log has no beginning")
        budget.charge("turns", state.turns)
        budget.charge_usage(state.usage)
        for run_id, child in state.children.items():
            budget.charge("children", 1)
            past = self.past.get(run_id)
            if past is not None and past.status in ENDED:
                self._charge_past(budget, child, past)
        return self._build(
            began.run_id,
            parent,
            began.spec,
            authority=authority,
            budget=budget,
            state=state,
            label=began.label,
            system=began.system,
            model=self.kit.model(began.model, parent.model if parent else None),
            used=0.0,
        )

    def _charge_past(self, budget: Budget, child: ChildStarted, past: RunState) -> None:
        """What an ended child and its own children used."""
        part = budget.adopt(child.reserved, name=child.agent)
        part.charge("turns", past.turns)
        part.charge_usage(past.usage)
        for run_id, grandchild in past.children.items():
            part.charge("children", 1)
            deeper = self.past.get(run_id)
            if deeper is not None:
                self._charge_past(part, grandchild, deeper)
        part.release()

    async def _take_up_child(self, parent: Run, run_id: str) -> None:
        """A child that was started before a restart: its report if it has one, else it goes on."""
        state = self.past.get(run_id)
        began = parent.state.children[run_id]
        if state is None or state.started is None:
            raise RunError(f"the log of {run_id} is missing", run_id=run_id)
        if state.report is not None and state.status != "cancelled":
            if run_id not in parent.state.ended:  # it ended, and then the process did
                await self._tell(parent, state.report, began)
            return
        if run_id in self.live:
            return
        budget = parent.budget.adopt(began.reserved, name=began.agent)
        run = self._rebuild(state, parent, parent.authority.narrow(state.started.spec), budget)
        written = self._take_up(run, None)
        self._launch(run, background=began.background)
        await written
        for child, child_began in list(state.children.items()):
            past = self.past.get(child)
            if child_began.background and (past is None or past.status not in ENDED):
                await self._take_up_child(run, child)
