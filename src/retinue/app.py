"""The front door: start runs, watch them, answer, cancel, resume. The only place that constructs things.

    async with Retinue(model="openai:gpt-5-mini") as retinue:
        report = await retinue.run("code-search", "where are retries decided?")
        print(report.text)

        async for event in retinue.stream("general", "plan the change"):
            ...

Terminal, page, API and hosts are all built on this class and on nothing below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from retinue import context
from retinue import settings as configuration
from retinue.agents import Catalogue, load_agents
from retinue.approvals import Rules
from retinue.assembly import Services
from retinue.attachments import Attachment, render
from retinue.delegate import PROMPT_SCHEMA, prompt_of
from retinue.engine.abandoned import refuse_if_completed, refuse_if_owned
from retinue.engine.approve_function import Approve, ApproveFunction
from retinue.engine.config import WorkflowConfig
from retinue.engine.fork import copied_runs, forked
from retinue.engine.keep import copy_kept
from retinue.engine.listeners import Listeners, next_of
from retinue.engine.outbox import Outbox
from retinue.engine.owners import Owners
from retinue.engine.replay import Replayed, replay
from retinue.engine.resume import Given, read, resume
from retinue.engine.shown import ShownRuns
from retinue.engine.take_up import TakeUp
from retinue.engine.workflow import Workflow
from retinue.errors import ConfigError, Fenced, RunError, unwind
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    Decision,
    Event,
    LiveEvent,
    RunFinished,
    RunOptions,
    RunResumed,
    RunStarted,
)
from retinue.given import check_agent, one_of, own_agents, own_tools
from retinue.instructions import read_instructions
from retinue.loop_thread import LoopThread, call_in
from retinue.models.base import Model
from retinue.models.providers import found_model
from retinue.run import new_id
from retinue.settings import LoadedSettings, Settings
from retinue.store.base import RunFilter, RunRows, Store
from retinue.store.follow import follow
from retinue.tools.base import Function, Tool
from retinue.tools.schemas import schema_problems
from retinue.tools.sheets import Workbook, sheet_guidance, sheet_tools
from retinue.types import AgentSpec, Report

log = logging.getLogger("retinue")
Approver = Approve
REMEMBERED = 60.0
"""Seconds that the outcome of a workflow is kept after its end, for whoever still waits for it."""


class Retinue:
    """One agent with a staff.

    `approve` is asked whatever needs a person; `answering="ask"` waits for answers from elsewhere (the page,
    another process); with neither, what would ask is refused. `yes` approves all that no rule denies or asks
    about. Without a project, nothing of the folder is read: no files, no settings, no agents. Where no model
    is named and the environment has no key, `fallback` is used; without one that is an error.
    """

    def __init__(
        self,
        *,
        model: str | Model | None = None,
        small_model: str | Model | None = None,
        db: str | Store | None = None,
        cwd: str | Path | None = None,
        project: bool = True,
        tools: Iterable[Tool | Function] = (),
        agents: Iterable[AgentSpec] = (),
        approve: Approver | None = None,
        answering: Literal["ask", "refuse"] | None = None,
        yes: bool = False,
        settings: Mapping[str, Any] | LoadedSettings | None = None,
        environ: Mapping[str, str] | None = None,
        fallback: Literal["offline"] | None = None,
    ) -> None:
        self.environ = os.environ if environ is None else environ
        self.cwd = Path(cwd or ".").absolute()
        self.project = self.cwd if project else None
        self.loaded = self._load(settings, model, small_model, db)
        if approve is not None and not callable(approve):
            raise ConfigError(
                f"approve is {type(approve).__name__}, not a function",
                fix="give a function of a question that returns an Answer, or yes=True to approve everything",
            )
        self.approve = approve
        self.yes = yes
        self.answering: Literal["ask", "refuse"] = answering or ("ask" if approve else "refuse")
        for what, given, needs in (
            ("model", model, ("name", "stream")),
            ("small_model", small_model, ("name", "stream")),
            ("db", db, ("append", "events")),
        ):
            one_of(what, given, *needs)
        self._own_tools = own_tools(tools)
        names = {each.name for each in self._own_tools}
        self._own_agents = own_agents(agents, names, lambda: load_agents(self.project).agents)
        self._given_model = None if isinstance(model, str) else model
        self._given_small = None if isinstance(small_model, str) else small_model
        self._given_store = None if isinstance(db, str) else db
        if model is None and fallback is None and found_model(self.settings, self.environ) is None:
            raise ConfigError(
                "no model is given, and the environment has no key and no address of one",
                fix='give model="provider:model", or set a key such as OPENAI_API_KEY; model="offline" works '
                "by fixed rules and needs none",
            )
        self._workflows: dict[str, tuple[Workflow, asyncio.Task[Report]]] = {}
        self._ended: dict[str, asyncio.Task[Report]] = {}
        self._waiting: Counter[str] = Counter()
        """How many wait for a workflow: it ends early only when nobody does any more."""
        self._listeners = Listeners()
        self._approve_function = ApproveFunction(self.answer)
        self._services: Services | None = None
        self._owners: Owners | None = None
        self._take_up: TakeUp | None = None
        self._resuming: set[str] = set()
        self._told: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one event loop that this instance is open in."""
        self._entering = threading.Lock()
        self._calls = LoopThread(self)

    def _load(
        self,
        settings: Mapping[str, Any] | LoadedSettings | None,
        model: str | Model | None,
        small_model: str | Model | None,
        db: str | Store | None,
    ) -> LoadedSettings:
        if isinstance(settings, LoadedSettings):
            return settings
        if not self.cwd.is_dir():
            raise ConfigError(f"there is no folder {self.cwd}")
        named = {"model": model, "small_model": small_model, "db": db}
        flags = {**(settings or {}), **{k: v for k, v in named.items() if isinstance(v, str)}}
        return self._read_settings(flags)

    def _read_settings(self, flags: Mapping[str, Any]) -> LoadedSettings:
        return configuration.load(
            cwd=self.cwd, environ=self.environ, flags=flags, project=self.project is not None
        )

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def services(self) -> Services:
        if self._services is None:
            raise RunError("use Retinue as a context manager: 'async with Retinue() as retinue'")
        return self._services

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def outbox(self) -> Outbox:
        """What is said to runs, wherever they run."""
        return Outbox(self.store, self.owners, shown=self.shown, publish=self._publish)

    @property
    def shown(self) -> ShownRuns:
        """Records of runs, with the outcome that people are shown."""
        return ShownRuns(self.store, self.owners, working=self._working)

    def _working(self) -> list[str]:
        return [root_id for root_id in self._workflows if self.is_running(root_id)]

    @property
    def owners(self) -> Owners:
        """Who works on the runs of this store, this instance among them."""
        if self._owners is None:
            self._owners = Owners(self.store, busy=lambda: bool(self._workflows))
        return self._owners

    @property
    def take_up(self) -> TakeUp:
        """What takes up runs that were left behind."""
        if self._take_up is None:
            self._take_up = TakeUp(
                self.store,
                self.owners,
                cwd=str(self.project or ""),
                is_running=self.is_running,
                resume=self.resume,
                cancel=self.cancel,
            )
        return self._take_up

    async def __aenter__(self) -> Retinue:
        with self._entering:
            if self._loop is not None and not self._loop.is_closed():
                raise RunError("this Retinue is open already: open it once, or make another one")
            self._loop = asyncio.get_running_loop()
        self._workflows.clear()  # of a loop that died: their tasks would never end in this one
        if self._owners is not None:
            self._owners.forget()
        self._owners = self._take_up = None
        try:
            self._services = await Services.assemble(
                self.loaded,
                environ=self.environ,
                project=self.project,
                store=self._given_store,
                model=self._given_model,
                small=self._given_small,
                tools=self._own_tools,
                agents=self._own_agents,
            )
        except BaseException:
            self._loop = None
            raise
        return self

    async def leave(self) -> None:
        """Stop working on every run of this process without ending it: its log stays as it is.

        What a server does when it is told to stop. Whoever resumes the runs goes on where their logs end,
        and a question that waits for a person still waits.
        """
        for workflow, _ in list(self._workflows.values()):
            await workflow.leave()
        await self.owners.release()

    async def __aexit__(self, *_: object) -> None:
        try:
            for run_id in list(self._workflows):
                await self._stop(run_id, "the program ended")
            self._approve_function.close()
            if self._owners is not None:
                await self._owners.release()
            if self._services is not None:
                await self._services.close()
        finally:
            self._services = self._loop = self._owners = self._take_up = None

    def reload(self) -> LoadedSettings:
        """Read the settings again. Runs that start from now on go by them; tools and database stay."""
        now = configuration.values_of(self.settings)
        flags = {name: now[name] for name, origin in self.loaded.origins.items() if origin == "flag"}
        self.loaded = self._read_settings(flags)
        return self.loaded

    # -- agents and tools ------------------------------------------------------

    @property
    def agents(self) -> Catalogue:
        return self.services.catalogue

    async def reread_agents(self) -> None:
        """Look whether agent files have changed, and read them again if so. Costs a look at the folders."""
        await asyncio.to_thread(self.services.agent_files.reread)

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self.services.tools

    @property
    def model_name(self) -> str:
        return self.services.models.main(self.settings).name

    # -- runs ------------------------------------------------------------------

    async def run(self, agent: str | AgentSpec, prompt: str | Mapping[str, Any], **options: Any) -> Report:
        """Run an agent to its report."""
        return await self.wait(await self.start(agent, prompt, **options))

    def run_sync(self, agent: str | AgentSpec, prompt: str | Mapping[str, Any], **options: Any) -> Report:
        """Run an agent to its report: for a program that is not async, from any number of threads at once.

        Opens before the first run and closes after the last that is under way. Where the instance is open
        already, in the loop of another thread, the run takes place there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RunError("an event loop runs here already: 'await retinue.run(…)' instead of run_sync")
        loop = self._loop
        run = partial(self.run, agent, prompt, **options)
        if loop is None or loop.is_closed() or self._calls.owns(loop):
            return self._calls.call(run)
        return call_in(loop, run)

    async def ask(self, prompt: str, **options: Any) -> Report:
        """Run the default agent."""
        return await self.run(self.settings.default_agent, prompt, **options)

    async def stream(
        self, agent: str | AgentSpec, prompt: str | Mapping[str, Any], **options: Any
    ) -> AsyncGenerator[LiveEvent]:
        """Run an agent and yield every event of its tree as it happens. Ends with the root's `RunFinished`.

        Leaving the loop early cancels the run.
        """
        run_id = new_id()
        queue = self._listeners.listen(run_id)
        try:
            await self.start(agent, prompt, run_id=run_id, **options)
            task = self._workflows[run_id][1]
            while not (task.done() and queue.empty()):
                event = await next_of(queue, task)
                if event is None:
                    continue
                yield event
                if isinstance(event, RunFinished) and event.run_id == run_id:
                    return
            await task  # it died without an end: whoever listens is told why
        finally:
            self._listeners.leave(run_id, queue)
            if not self._waiting[run_id]:
                await self._stop(run_id, "nobody listens any more")

    async def start(
        self,
        agent: str | AgentSpec,
        prompt: str | Mapping[str, Any],
        *,
        run_id: str | None = None,
        label: str = "",
        attachments: Sequence[Attachment] = (),
        settings: Mapping[str, Any] | None = None,
        yes: bool | None = None,
        strict_sources: bool = False,
    ) -> str:
        """Begin a run and return its id; it goes on by itself. `settings` are dotted names, for this run.

        `strict_sources` sends an answer back to be mended that cites what was never fetched or read.
        """
        spec = self.services.agent(agent) if isinstance(agent, str) else agent
        if isinstance(agent, AgentSpec):
            own = {each.name for each in self._own_tools}
            check_agent(spec, {*self.tools, *self.services.specs}, own, lambda: ())
        text = _prompt(spec, prompt)
        chosen = self._settings_for(settings or {})
        options = RunOptions(
            settings=dict(settings or {}),
            yes=self.yes if yes is None else yes,
            strict_sources=strict_sources,
            first=self._knowledge_first(spec, text, chosen),
        )
        workbooks = [each.workbook for each in attachments if each.workbook is not None]
        config = self._config(options, workbooks)
        config.check_agents(spec)
        attached, images = render(attachments, most=chosen.context.attachment_tokens * 4)
        rendered = f"{text}\n\n{attached}" if attached else ""
        async with self._under(run_id) as run_id, self.owners.working() as owner:
            if workbooks:
                await keep_workbooks(self.store, run_id, workbooks)
            workflow = Workflow(replace(config, owner=owner), run_id)
            task = await workflow.start_root(spec, text, label=label, rendered=rendered, images=images)
            self._keep(workflow, task)
        return run_id

    @contextlib.asynccontextmanager
    async def _under(self, run_id: str | None) -> AsyncGenerator[str]:
        """The id that a new workflow begins under: the one that is asked for, if it is free, or a new one."""
        if run_id is None:
            yield new_id()
            return
        if self.is_running(run_id):
            raise _taken(run_id)
        self._resuming.add(run_id)
        try:
            if await self.store.run(run_id) is not None:
                raise _taken(run_id)
            yield run_id
        except Fenced:  # its very first event: a run of another process was a moment faster
            raise _taken(run_id) from None
        finally:
            self._resuming.discard(run_id)

    async def sections(self, run_id: str) -> list[context.Section]:
        """What the model of a run that was just started is told, part by part."""
        row = await self.outbox.row(run_id)
        began = (await self.store.events(row.root_id, run_id=run_id, limit=1))[0]
        if not isinstance(began, RunStarted):
            raise RunError(f"the log of {run_id} has no beginning", run_id=run_id)
        workflow, _ = self._workflows.get(row.root_id, (None, None))
        live = workflow.tree.live.get(run_id) if workflow is not None else None
        if workflow is None or live is None:
            known = [self.tools[name].spec for name in began.tools if name in self.tools]
            return context.sections(began, known, self.settings.context)
        if not live.over:
            await live.resources.open()
        found = context.sections(began, live.run.shown, live.run.context)
        return [*found, *context.reminders(live.run)]

    async def resume(
        self,
        run_id: str,
        *,
        message: str | None = None,
        take_over: bool = False,
        yes: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> str:
        """Take a whole workflow up again where its log ends. Returns the root's id.

        With `message`, a finished conversation goes on. `yes` is as for `start`: that a run was started with
        every approval given does not hold for whoever takes it up. `settings` are for this run from here on,
        over those it was started with; `model` is the root's from here on.
        """
        given = Given(settings=dict(settings or {}), model=self._model_known(model))
        root_id = (await self.outbox.row(run_id)).root_id
        held = self._workflows.get(root_id)
        if held is not None and not held[1].done() and held[0].tree.live[root_id].over:
            await asyncio.wait([held[1]])  # it has ended, and gives its things back
        if self.is_running(root_id):
            raise RunError(f"{root_id} is already running here", run_id=root_id)
        self._resuming.add(root_id)
        try:
            async with self.owners.working() as owner:
                self._keep(*await self._resume(root_id, owner, message, yes, given, take_over=take_over))
        finally:
            self._resuming.discard(root_id)
        return root_id

    def _model_known(self, model: str | None) -> str:
        """The full name of a model that a run is given, or an error that says what is wrong with it."""
        return "" if model is None else self.services.models.of(self.settings, model, None).name

    async def _resume(
        self,
        root_id: str,
        owner: str,
        message: str | None,
        yes: bool | None,
        given: Given,
        *,
        take_over: bool,
    ) -> tuple[Workflow, asyncio.Task[Report]]:
        found = await read(self.store, root_id)
        settings = found.began.options.settings
        for event in found.events:
            if isinstance(event, RunResumed):
                settings = {**settings, **event.settings}
        options = msgspec.structs.replace(
            found.began.options,
            yes=self.yes if yes is None else yes,
            settings={**settings, **given.settings},
        )
        workbooks = await kept_workbooks(self.store, root_id)
        workflow = Workflow(replace(self._config(options, workbooks, [found.began]), owner=owner), root_id)

        async def check(events: Sequence[AnyEvent]) -> None:
            if message is None:
                refuse_if_completed(events, root_id)
            if not take_over:
                await refuse_if_owned(self.owners, events, root_id)

        return workflow, await resume(
            workflow, found, message=message, yes=options.yes, check=check, given=given
        )

    async def resume_abandoned(self) -> list[str]:
        """Take up every workflow of this folder that nobody works on any more. Returns those that go on.

        Once. `take_up.keep()` does so for as long as it runs, as the server does.
        """
        return await self.take_up.all()

    async def fork(
        self, run_id: str, *, at: int | None = None, message: str | None = None, model: str | None = None
    ) -> str:
        """Begin a new workflow with the events of another up to the place `at`, and go on from there.

        The old one is untouched. Returns the new root's id.
        """
        root_id = (await self.outbox.row(run_id)).root_id
        events = [e for e in await self.store.events(root_id) if at is None or e.pos <= at]
        if not events:
            raise ConfigError(
                f"{root_id} has no event up to {at}",
                fix="'at' is the pos of an event: watch(run_id) yields them",
            )
        last = events[-1]
        if isinstance(last, RunFinished) and last.run_id == root_id and message is None:
            raise ConfigError(
                f"{root_id} is finished at that point",
                fix="say how it should go on with message=…, or fork at an earlier event with at=…",
            )
        new_root = new_id()
        copies = forked(events, new_root, model=model)
        began = copies[0]
        if isinstance(began, RunStarted):  # a model that there is not is told of before there is a copy
            self._config(began.options).model(began.spec.model, None)
        await copy_kept(self.store, root_id, new_root, copied_runs(events, copies))
        await self.store.append(copies)
        return await self.resume(new_root, message=message, take_over=True)

    async def replay(self, run_id: str, *, live_tools: Iterable[str] = ()) -> Replayed:
        """Run a stored workflow again from its record, without network or key, and compare."""
        root_id = (await self.outbox.row(run_id)).root_id
        return await self.replay_events(await self.store.events(root_id), live_tools=live_tools)

    async def replay_events(self, events: Sequence[AnyEvent], *, live_tools: Iterable[str] = ()) -> Replayed:
        began = next(event for event in events if isinstance(event, RunStarted))
        config = replace(self._config(began.options, begun=events), publish=_nobody)
        return await replay(events, config, live_tools=frozenset(live_tools))

    async def wait(self, run_id: str) -> Report:
        """The report of a run, once it has one. Cancelling the last wait cancels a run of this process."""
        held = self._workflows.get(run_id)
        task = held[1] if held is not None else self._ended.get(run_id)
        if task is None:
            async with contextlib.aclosing(self.watch(run_id)) as events:
                async for event in events:
                    if isinstance(event, RunFinished) and event.run_id == run_id:
                        return event.report
            raise RunError(f"{run_id} has no report", run_id=run_id)
        self._waiting[run_id] += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._waiting[run_id] == 1:
                await self._stop(run_id, "cancelled")
            raise
        finally:
            self._waiting[run_id] -= 1
            if not self._waiting[run_id]:
                del self._waiting[run_id]
            held = task = None  # the error of a run knows this frame, which must not know the run then

    async def watch(self, run_id: str, *, after: int = 0) -> AsyncGenerator[LiveEvent]:
        """A workflow's events from a cursor on: what is stored first, then what happens. Ends with the root.

        Text as it arrives rides along for runs of this process.
        """
        root_id = (await self.outbox.row(run_id)).root_id
        queue = self._listeners.listen(root_id)
        try:
            held = self._workflows.get(root_id)
            if held is None or held[1].done():
                async with contextlib.aclosing(follow(self.store, root_id, after)) as events:
                    async for event in events:
                        yield event
                        if isinstance(event, RunFinished) and event.run_id == root_id:
                            return
                return
            for event in await self.store.events(root_id, after=after):
                after = event.pos
                yield event
            while not (held[1].done() and queue.empty()):
                live = await next_of(queue, held[1])
                if live is None:
                    continue
                if isinstance(live, Event):
                    if live.pos <= after:
                        continue
                    after = live.pos
                yield live
        finally:
            self._listeners.leave(root_id, queue)

    def hear(self, hear: Callable[[LiveEvent], None]) -> Callable[[], None]:
        """Call `hear` with whatever happens in any workflow of this process. Returns how to stop that."""
        return self._listeners.hear(hear)

    def is_running(self, root_id: str) -> bool:
        """Whether this process works on that workflow, or is about to."""
        held = self._workflows.get(root_id)
        return root_id in self._resuming or (held is not None and not held[1].done())

    # -- speaking to runs ------------------------------------------------------

    async def cancel(self, run_id: str, reason: str = "cancelled") -> bool:
        """Stop a run and everything below it, wherever it runs. False if it had ended."""
        return await self.outbox.cancel(run_id, reason)

    async def answer(
        self,
        approval_id: str,
        decision: Decision,
        *,
        reason: str = "",
        arguments: str | None = None,
        by: str = "person",
    ) -> bool:
        """Answer a question. False if it waits no more: the first answer wins, and a run may have ended."""
        return await self.outbox.answer(approval_id, decision, reason=reason, arguments=arguments, by=by)

    async def message(self, run_id: str, text: str) -> bool:
        """Tell a run something; it reads it before its next step. False if that is too late: it has ended.

        What is said while nobody works on the run is read when it is taken up again.
        """
        return await self.outbox.message(run_id, text)

    async def abandoned(self, root_id: str) -> bool:
        """Whether a workflow is unfinished and nobody seems to work on it any more."""
        return await self.outbox.abandoned(root_id)

    async def approvals(self) -> list[ApprovalRequested]:
        """Every question that waits for an answer."""
        return await self.store.waiting()

    async def runs(self, which: RunFilter | None = None) -> RunRows:
        """Runs, newest first: as many as the filter's `limit` says. `more` on the list tells of others.

        What nobody works on any more is `interrupted`.
        """
        which = which or RunFilter()
        rows = await self.shown.runs(msgspec.structs.replace(which, limit=which.limit + 1))
        found = RunRows(rows[: which.limit], more=len(rows) > which.limit)
        if found.more and which.limit == RunFilter().limit:
            log.warning(
                "runs() returned the newest %d runs, and there are more: give RunFilter(limit=…), or page "
                "with before= and before_id= of the last row",
                which.limit,
            )
        return found

    # -- inside ----------------------------------------------------------------

    def _config(
        self, options: RunOptions, workbooks: Sequence[Workbook] = (), begun: Sequence[AnyEvent] = ()
    ) -> WorkflowConfig:
        """`begun` is what is in the log of a workflow that is taken up or replayed."""
        settings = self._settings_for(options.settings)
        services = self.services
        code = services.sandboxes.here(settings.code)
        settings = settings if code is settings.code else msgspec.structs.replace(settings, code=code)
        sheets = sheet_tools(workbooks) if workbooks and settings.sheets.enabled else []
        return WorkflowConfig(
            settings=settings,
            store=services.store,
            agents=services.specs,
            tools={**services.tools, **{tool.name: tool for tool in sheets}},
            attached=frozenset(tool.name for tool in (*sheets, *self._own_tools)),
            own=self._given(settings, options) | _shown_before(begun),
            fragments=tuple(part for part in (sheet_guidance(workbooks, settings.sheets),) if part),
            model=lambda name, parent: services.models.of(settings, name, parent),
            small=lambda model: services.models.small(settings, model),
            project=self.project,
            publish=self._publish,
            rules=Rules.of(settings.approvals, allow_all=options.yes),
            answering=self.answering,
            ask=partial(self._ask, settings.approvals.callback_seconds),
            instructions=self._instructions(settings),
            sandbox=lambda: services.sandboxes.session(code),
            strict_sources=options.strict_sources,
            options=options,
        )

    def _given(self, settings: Settings, options: RunOptions) -> frozenset[str]:
        """What the program itself gave its agents: its tools, its agents, ways to delegate that it set."""
        given = {each.name for each in (*self._own_tools, *self._own_agents)}
        name = "delegation.tools"
        if name in options.settings or self.loaded.origins.get(name) == "flag":
            given |= {*settings.delegation.tools}
        return frozenset(given)

    def _knowledge_first(self, spec: AgentSpec, question: str, settings: Settings) -> str | None:
        """The knowledge agent, if it is to look this question up first."""
        agent = settings.knowledge.agent
        if not settings.knowledge.first or spec.name != settings.default_agent or agent == spec.name:
            return None
        from retinue.tools.knowledge.trigger import needs_knowledge

        return agent if needs_knowledge(question) else None

    def _settings_for(self, overrides: Mapping[str, Any]) -> Settings:
        if not overrides:
            return self.settings
        values = {**configuration.values_of(self.settings), **overrides}
        return configuration.build(values, dict.fromkeys(overrides, "the run's options"))

    def _instructions(self, settings: Settings) -> str:
        if not settings.context.instructions or self.project is None:
            return ""
        found = read_instructions(self.project)
        if found.notice and found.notice not in self._told:
            self._told.add(found.notice)
            log.warning(found.notice)
        return found.text

    def _keep(self, workflow: Workflow, task: asyncio.Task[Report]) -> None:
        """Keep a workflow while it runs, its outcome a moment longer for whoever waits, then nothing.

        The log has everything, and what a run has read in memory is not to outlive it.
        """
        root_id = workflow.tree.root_id
        self._workflows[root_id] = held = (workflow, task)
        self._ended.pop(root_id, None)

        def ended(done: asyncio.Task[Report]) -> None:
            error = None if done.cancelled() else done.exception()  # whoever waits gets it; nobody has to
            if error is not None and not isinstance(error, Fenced) and self._take_up is not None:
                self._take_up.dropped(root_id)  # it has no end, and nobody works on it
            if self._workflows.get(root_id) is held:
                del self._workflows[root_id]
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

    async def _stop(self, root_id: str, reason: str) -> None:
        held = self._workflows.get(root_id)
        if held is not None and not held[1].done():
            held[0].cancel(root_id, reason)
            await asyncio.wait([held[1]])

    def _publish(self, event: LiveEvent) -> None:
        self._listeners.publish(event)

    def _ask(self, seconds: float, asked: ApprovalRequested) -> Callable[[], None]:
        """Put a question to the program's own function, if it has one. Returns how to withdraw it."""
        if self.approve is None:
            return lambda: None
        return self._approve_function.ask(self.approve, asked, seconds)


WORKBOOK_DAYS = 90


async def keep_workbooks(store: Store, root_id: str, workbooks: Sequence[Workbook]) -> None:
    """Attached workbooks outlive the process, so that a resumed run still has them."""
    await store.cache("workbooks", root_id, msgspec.json.encode(workbooks), WORKBOOK_DAYS * 86400)


async def kept_workbooks(store: Store, root_id: str) -> list[Workbook]:
    found = await store.cached("workbooks", root_id)
    return [] if found is None else msgspec.json.decode(found[0], type=list[Workbook])


def _shown_before(begun: Sequence[AnyEvent]) -> frozenset[str]:
    """What a program's agents had that name no tools: whoever takes them up may be another program."""
    return frozenset(
        name
        for event in begun
        if isinstance(event, RunStarted) and event.spec.origin == "code" and event.spec.tools is None
        for name in event.tools
    )


def _taken(run_id: str) -> ConfigError:
    return ConfigError(
        f"the run_id {run_id!r} is taken: there is a run of that id",
        fix="leave it out to have one made, or go on with that run: resume(run_id, message=…)",
    )


def _nobody(event: LiveEvent) -> None:
    """Nobody watches a replay."""


def _prompt(spec: AgentSpec, prompt: str | Mapping[str, Any]) -> str:
    """The first message: a text as it is, or arguments that fit the agent's input schema."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigError("the prompt is empty", fix="say what the agent should do")
        return prompt
    problems = schema_problems(dict(prompt), spec.input_schema or PROMPT_SCHEMA)
    if problems:
        raise ConfigError(f"{spec.name} cannot use these arguments: {'; '.join(problems)}")
    return prompt_of(spec, dict(prompt))
