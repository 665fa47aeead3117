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
import inspect
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, Unpack, cast, overload

import msgspec

from retinue import context
from retinue import settings as configuration
from retinue.agents import Catalogue, load_agents
from retinue.assembly import Services
from retinue.attachments import Attachment, render
from retinue.delegate import first_message
from retinue.engine.abandoned import refuse_if_completed, refuse_if_owned
from retinue.engine.approve_function import Approve, ApproveFunction
from retinue.engine.config import Answering, WorkflowConfig, shown_before
from retinue.engine.fork import beginning, copied_runs, forked
from retinue.engine.keep import copy_kept, drop_kept
from retinue.engine.knowledge import first_agent
from retinue.engine.listeners import Listeners, next_of
from retinue.engine.outbox import AnswerGiven, Outbox
from retinue.engine.owners import Owners
from retinue.engine.parking_clock import ParkingClock
from retinue.engine.replay import Replayed, replay
from retinue.engine.resume import TakenUpWith, read, resume
from retinue.engine.shown import ShownRuns
from retinue.engine.take_back import WorkflowChanges
from retinue.engine.take_up import TakeUp
from retinue.engine.watch import report_of, watch
from retinue.engine.workbooks import copy_workbooks, keep_workbooks, kept_workbooks
from retinue.engine.workflow import Workflow
from retinue.engine.workflows import Workflows
from retinue.errors import AlreadyRunning, ConfigError, RunError, RunIdTaken
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    Decision,
    LiveEvent,
    RunFinished,
    RunOptions,
    RunStarted,
)
from retinue.given import check_agent, one_of, own_agents, own_attachments, own_tools
from retinue.loop_thread import LoopThread, call_in
from retinue.map_batch import Input, MapBatch, Prompt
from retinue.models.base import Model
from retinue.models.providers import found_model
from retinue.parameters import check, check_word, listed, shown, texts
from retinue.rules_given import check_rules, with_slips
from retinue.run import new_id
from retinue.run_options import Metadata, RunInfo, RunWith
from retinue.settings import LoadedSettings, Settings
from retinue.store.base import RunFilter, RunRows, Store
from retinue.tool_files import ToolFiles
from retinue.tools.base import Function, Tool
from retinue.tools.sheets import Workbook
from retinue.types import ENDED, AgentSpec, Deps, Effort, Level, Output, Report, TypedSchema
from retinue.workspace import Buffers, one_spelling

if TYPE_CHECKING:
    from retinue.telemetry.live import LiveTelemetry

log = logging.getLogger("retinue")
Approver = Approve
Fallback = Literal["offline"]


class Retinue(Generic[Deps]):
    """One agent with a staff. `Retinue[Deps]` is one whose tools are handed a `Deps`.

    `approve` is asked whatever needs a person; `answering="ask"` waits for answers from elsewhere (the page,
    another process); with neither, what would ask is refused. `yes` approves all that no rule denies or asks
    about. Without a project, nothing of the folder is read: no files, no settings, no agents. Where no model
    is named and the environment has no key, `fallback` is used; without one that is an error.
    `conversations` is for a program that stays, and hears what is said next: there background children
    outlive an answer (`delegation.parent_ends = "leave"`) unless something else is set. With False they never
    do.
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
        tool_files: ToolFiles | None = None,
        agents: Iterable[AgentSpec] = (),
        approve: Approver | None = None,
        answering: Answering | None = None,
        yes: bool = False,
        settings: Mapping[str, Any] | LoadedSettings | None = None,
        environ: Mapping[str, str] | None = None,
        fallback: Fallback | None = None,
        deps_factory: Callable[[RunInfo], Deps | Awaitable[Deps]] | None = None,
        conversations: bool | None = None,
    ) -> None:
        check(bool, project=project, yes=yes)
        check(bool | None, conversations=conversations)
        check(Mapping | None, environ=environ)
        if not isinstance(settings, LoadedSettings):
            check(Mapping | None, settings=settings)
        for name, word, words in (("answering", answering, Answering), ("fallback", fallback, Fallback)):
            if word is not None:
                check_word(name, word, words)
        self.environ = os.environ if environ is None else environ
        self.cwd = one_spelling(Path(cwd or "."))
        self.project = self.cwd if project else None
        self.loaded = self._load(settings, model, small_model, db)
        check_rules(self.loaded)
        if approve is not None and not callable(approve):
            raise ConfigError(
                f"approve is {type(approve).__name__}, not a function",
                fix="give a function of a question that returns an Answer, or yes=True to approve everything",
            )
        self.approve = approve
        check(Callable | None, deps_factory=deps_factory)
        self._deps_factory = deps_factory
        self.parking_clock = ParkingClock()
        """What runs wait by whose provider takes nothing more."""
        self.yes = yes
        self.conversations = conversations
        self.answering: Answering = answering or ("ask" if approve else "refuse")
        for what, given, needs in (
            ("model", model, ("name", "stream")),
            ("small_model", small_model, ("name", "stream")),
            ("db", db, ("append", "events")),
        ):
            one_of(what, given, *needs)
        self.buffers: Buffers | None = None
        """Who holds files of the project that are not saved yet: an editor. Set by its host."""
        self.tool_files = tool_files or ToolFiles()
        self._own_tools = (*own_tools(tools), *self.tool_files.tools)
        names = {each.name for each in self._own_tools}
        self._own_agents = own_agents(agents, names, lambda: load_agents(self.project).agents)
        self._kinds = [spec.output_schema for spec in self._own_agents if _is_typed(spec)]
        self._given_model = None if isinstance(model, str) else model
        self._given_small = None if isinstance(small_model, str) else small_model
        self._given_store = None if isinstance(db, str) else db
        if model is None and fallback is None and found_model(self.settings, self.environ) is None:
            raise ConfigError(
                "no model is given, and the environment has no key and no address of one",
                fix='give model="provider:model", or set a key such as OPENAI_API_KEY; model="offline" works '
                "by fixed rules and needs none",
            )
        self._workflows = Workflows(self._dropped)
        self._listeners = Listeners()
        self._approve_function = ApproveFunction(self.answer)
        self._services: Services | None = None
        self._owners: Owners | None = None
        self._take_up: TakeUp | None = None
        self._telemetry: LiveTelemetry | None = None
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
        return Outbox(
            self.store,
            self.owners,
            shown=self.shown,
            publish=self._listeners.publish,
            reload=self.reload,
            taking_up=self._workflows.taking_up,
        )

    @property
    def changes(self) -> WorkflowChanges:
        """What runs changed in their projects: `of` tells it, `undo` takes it back."""
        return WorkflowChanges(
            self.store,
            self.services.shadows,
            self.shown,
            settings=self.settings.undo,
            taking_up=self._workflows.taking_up,
            publish=self._listeners.publish,
        )

    @property
    def shown(self) -> ShownRuns:
        """Records of runs, with the outcome that people are shown."""
        return ShownRuns(self.store, self.owners, working=self._workflows.worked_on)

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

    async def __aenter__(self) -> Self:
        with self._entering:
            if self._loop is not None and not self._loop.is_closed():
                raise RunError("this Retinue is open already: open it once, or make another one")
            self._loop = asyncio.get_running_loop()
        self._workflows.clear()
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
        self.loaded = self._with_slips(self.loaded)
        if self.settings.telemetry.is_on(self.environ):
            from retinue.telemetry.live import listening  # not where nothing is sent

            self._telemetry = listening(
                self.settings.telemetry, self.environ, self.store, self._listeners.hear
            )
        return self

    async def leave(self) -> None:
        """Stop working on every run of this process without ending it: its log stays as it is.

        What a server does when it is told to stop. Whoever resumes the runs goes on where their logs end,
        and a question that waits for a person still waits.
        """
        await self._workflows.leave()
        await self.owners.release()

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._workflows.stop_all("the program ended")
            self._approve_function.close()
            if self._telemetry is not None:
                await self._telemetry.close()
            if self._owners is not None:
                await self._owners.release()
            if self._services is not None:
                await self._services.close()
        finally:
            self._workflows.clear()
            self._services = self._loop = self._owners = self._take_up = self._telemetry = None

    def reload(self) -> LoadedSettings:
        """Read the settings again. Runs that start from now on go by them; tools and database stay."""
        now = configuration.values_of(self.settings)
        flags = {name: now[name] for name, origin in self.loaded.origins.items() if origin == "flag"}
        loaded = self._read_settings(flags)
        check_rules(loaded)
        self.loaded = self._with_slips(loaded)
        return self.loaded

    def _with_slips(self, loaded: LoadedSettings) -> LoadedSettings:
        return with_slips(loaded, {*self.services.tools, *self.services.specs})

    # -- agents and tools ------------------------------------------------------

    @property
    def agents(self) -> Catalogue:
        return self.services.catalogue

    async def reread_agents(self) -> None:
        """Look whether agent files or skills have changed, and read them again if so."""
        await asyncio.to_thread(self.services.agent_files.reread)
        await asyncio.to_thread(self.services.skill_files.reread)

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self.services.tools

    @property
    def model_name(self) -> str:
        return self.services.models.main(self.settings).name

    # -- runs ------------------------------------------------------------------

    @overload
    async def run(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Output],
        deps: Deps | None = None,
        run_id: str | None = None,
        **options: Unpack[RunWith],
    ) -> Report[Output]: ...

    @overload
    async def run(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: None = None,
        deps: Deps | None = None,
        run_id: str | None = None,
        **options: Unpack[RunWith],
    ) -> Report: ...

    async def run(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        deps: Deps | None = None,
        run_id: str | None = None,
        **options: Unpack[RunWith],
    ) -> Report[Any]:
        """Run an agent to its report. With `output` its answer has to be of that type: `report.output`."""
        begun = await self.start(agent, prompt, output=output, deps=deps, run_id=run_id, **options)
        report = await self.wait(begun)
        return report if output is None else report.of_type(output)

    @overload
    def run_sync(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Output],
        deps: Deps | None = None,
        run_id: str | None = None,
        **options: Unpack[RunWith],
    ) -> Report[Output]: ...

    @overload
    def run_sync(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: None = None,
        deps: Deps | None = None,
        run_id: str | None = None,
        **options: Unpack[RunWith],
    ) -> Report: ...

    def run_sync(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        deps: Deps | None = None,
        run_id: str | None = None,
        **options: Unpack[RunWith],
    ) -> Report[Any]:
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

        async def run() -> Report[Any]:
            kind = cast("Any", output)
            return await self.run(agent, prompt, output=kind, deps=deps, run_id=run_id, **options)

        if loop is None or loop.is_closed() or self._calls.owns(loop):
            return self._calls.call(run)
        return call_in(loop, run)

    async def ask(self, prompt: str, *, deps: Deps | None = None, **options: Unpack[RunWith]) -> Report:
        """Run the default agent."""
        return await self.run(self.settings.default_agent, prompt, deps=deps, **options)

    async def once(
        self,
        run_id: str,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        deps: Deps | None = None,
        **options: Unpack[RunWith],
    ) -> Report:
        """Run an agent to its report under an id of yours, once: a second call gives the same report.

        What has not ended goes on where its log ends, and so does what ended with an error or was cancelled:
        what was paid for is not paid again. A run of another process is waited for.
        """
        while (row := await self.store.run(run_id)) is None:
            try:
                return await self.run(agent, prompt, deps=deps, run_id=run_id, **options)
            except RunIdTaken:  # the same call, here or in another process, was a moment faster
                await self._workflows.begun(run_id)
        await self._workflows.begun(run_id)
        if self.is_running(run_id):
            return await self.wait(run_id)
        failed = row.status in ENDED and row.status != "completed"
        if failed or (row.completed_at is None and await self.abandoned(run_id)):
            try:
                await self.resume(run_id, yes=options.get("yes"), deps=deps)
            except AlreadyRunning:  # as above
                await self._workflows.begun(run_id)
        return await self.wait(run_id)

    def map(
        self,
        agent: str | AgentSpec,
        inputs: Iterable[Input] | AsyncIterable[Input],
        *,
        name: str = "",
        key: Callable[[Input], str] | None = None,
        prompt: Callable[[Input], str | Mapping[str, Any]] | None = None,
        concurrency: int = 10,
        ordered: bool = False,
        deps: Deps | None = None,
        **options: Unpack[RunWith],
    ) -> MapBatch[Input]:
        """Run an agent on each of many inputs, so many at once: `async for item in retinue.map(…)`.

        Each input is a run of its own. Its id follows from `name` (the agent's, if it is not given), the
        agent, the folder, the input's `key` and what is asked: the same batch, started again after a crash or
        by another process, does only what is missing. Another `name` does all of it anew. `prompt` makes the
        prompt of an input; without it the input is the prompt. Items come as they end, or with `ordered` as
        the inputs came.
        `options` are those of `start`, for each run.
        """
        title = agent.name if isinstance(agent, AgentSpec) else agent

        async def work(run_id: str, label: str, asked: str | Mapping[str, Any]) -> Report:
            each = options.copy()
            each.setdefault("label", label)
            return await self.once(run_id, agent, asked, deps=deps, **each)

        return MapBatch(
            work,
            inputs,
            name=name or title,
            scope=f"{title} {self.project or ''} {sorted(texts(options.get('metadata', {})).items())}",
            key=key,
            prompt=prompt,
            concurrency=concurrency,
            ordered=ordered,
        )

    async def stream(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        deps: Deps | None = None,
        run_id: str | None = None,
        **options: Unpack[RunWith],
    ) -> AsyncGenerator[LiveEvent]:
        """Run an agent and yield every event of its tree as it happens. Ends with the root's `RunFinished`.

        Leaving the loop early cancels the run.
        """
        run_id, answered = run_id or new_id(), False
        queue = self._listeners.listen(run_id)
        try:
            await self.start(agent, prompt, output=output, deps=deps, run_id=run_id, **options)
            task = self._workflows.task(run_id)
            while task is not None and not (task.done() and queue.empty()):
                event = await next_of(queue, task)
                if event is None:
                    continue
                answered = isinstance(event, RunFinished) and event.run_id == run_id
                yield event
                if answered:
                    return
            await self.wait(run_id)  # it died without an end: whoever listens is told why
        finally:
            self._listeners.leave(run_id, queue)
            if not answered:  # else its children may still be at work
                await self._workflows.leave_alone(run_id, "nobody listens any more")

    async def start(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        deps: Deps | None = None,
        run_id: str | None = None,
        label: str = "",
        attachments: Sequence[Attachment | str | Path] = (),
        settings: Mapping[str, Any] | None = None,
        yes: bool | None = None,
        strict_sources: bool = False,
        effort: Effort = "",
        answering: Answering | None = None,
        client: str = "",
        metadata: Metadata | None = None,
    ) -> str:
        """Begin a run and return its id; it goes on by itself. `RunWith` tells of the options.

        With `output` the answer has to be of that type. `deps` is handed to the tools of the run and of its
        children; without it, what `deps_factory` makes.
        `answering` is for this run what it is for the instance; `client` is who had another program start it.
        """
        check(bool | None, yes=yes)
        check(bool, strict_sources=strict_sources)
        check(str | None, run_id=run_id)
        check(str, label=label, client=client)
        if answering is not None:
            check_word("answering", answering, Answering)
        check(Mapping | None, settings=settings)
        spec = self.services.agent(agent) if isinstance(agent, str) else agent
        if not isinstance(cast("Any", spec), AgentSpec):
            raise TypeError(f"agent is {shown(agent)}: give the name of an agent, or an AgentSpec")
        if effort:
            check_word("effort", effort, Level)
            spec = msgspec.structs.replace(spec, effort=effort)
        if isinstance(agent, AgentSpec):
            own = {each.name for each in self._own_tools}
            check_agent(spec, {*self.tools, *self.services.specs}, own, lambda: ())
        if output is not None:
            spec = msgspec.structs.replace(spec, output_schema=output, output_format="json")
            self._kinds = [spec.output_schema, *(kind for kind in self._kinds if kind != spec.output_schema)]
        text = first_message(spec, prompt)
        chosen = self._settings_for(settings or {})
        options = RunOptions(
            settings=dict(settings or {}),
            yes=self.yes if yes is None else yes,
            strict_sources=strict_sources,
            first=first_agent(spec, text, chosen),
            tools=dict(self.tool_files.origins),
            client=client,
            metadata=texts(metadata or {}),
        )
        files = await own_attachments(attachments, self.cwd)
        workbooks = [each.workbook for each in files if each.workbook is not None]
        own_id = run_id or new_id()
        await self.services.mcp.prepare(self.services.mcp.reached_by(spec), chosen.mcp)
        config = self._config(options, workbooks, answering=answering)
        config = replace(config, deps=await self._deps(deps, own_id, spec, options))
        config.check_agents(spec)
        config.check_deps(spec)
        attached, images = render(files, most=chosen.context.attachment_tokens * 4)
        rendered = f"{text}\n\n{attached}" if attached else ""
        begun = self._workflows.under(self.store, own_id, new=run_id is None)
        async with begun, self.owners.working() as owner:
            if workbooks:
                await keep_workbooks(self.store, own_id, workbooks)
            workflow = Workflow(replace(config, owner=owner), own_id)
            try:
                task = await workflow.start_root(spec, text, label=label, rendered=rendered, images=images)
            except BaseException:
                if workbooks:
                    await drop_kept(self.store, own_id)
                raise
            self._workflows.add(workflow, task)
        return own_id

    async def sections(self, run_id: str) -> list[context.Section]:
        """What the model of a run that was just started is told, part by part."""
        row = await self.outbox.row(run_id)
        began = (await self.store.events(row.root_id, run_id=run_id, limit=1))[0]
        if not isinstance(began, RunStarted):
            raise RunError(f"the log of {run_id} has no beginning", run_id=run_id)
        live = self._workflows.live(row.root_id, run_id)
        if live is None:
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
        answering: Answering | None = None,
        deps: Deps | None = None,
        show_past: Callable[[Sequence[AnyEvent]], None] | None = None,
    ) -> str:
        """Take a whole workflow up again where its log ends. Returns the root's id.

        With `message`, a finished conversation goes on: with the root, or with a child of it that has ended,
        if that is named: it is asked again, and the root hears what it found. `yes` is as for `start`: that a
        run was started with every approval given does not hold for whoever takes it up. `settings` are for
        this run from here on, over those it was started with; `model` is the root's from here on. `answering`
        is for this run what it is for the instance. `show_past` is handed the log. A workflow of this process
        that has answered and has children at work is told the message, and goes on with what it was given.
        """
        check(bool, take_over=take_over)
        check(bool | None, yes=yes)
        check(str | None, message=message, model=model)
        check(Mapping | None, settings=settings)
        if answering is not None:
            check_word("answering", answering, Answering)
        given = TakenUpWith(settings=dict(settings or {}), model=self._model_known(model))
        row = await self.outbox.row(run_id)
        if message is not None and not (settings or model) and self._workflows.has_answered(row.root_id):
            if show_past is not None:
                show_past(await self.store.events(row.root_id))
            if await self.message(run_id, message):
                return row.root_id
            row = await self.outbox.row(run_id)  # it has ended meanwhile, and is taken up
        child = message is not None and row.parent_id is not None and row.status in ENDED
        root_id, asks = row.root_id, run_id if child else ""
        if asks and row.parent_id != root_id:
            raise ConfigError(
                f"{run_id} was started by {row.parent_id}, which has ended as well",
                fix=f"speak to {row.parent_id} or to {root_id}",
            )

        async def may_go_on(events: Sequence[AnyEvent]) -> None:
            if message is None:
                refuse_if_completed(events, root_id)
            if not take_over:
                await refuse_if_owned(self.owners, events, root_id)

        async with self._workflows.taking_up(root_id), self.owners.working() as owner:
            found = await read(self.store, root_id)
            self._refuse_missing(found.began)
            if show_past is not None:
                show_past(found.events)
            options = msgspec.structs.replace(
                found.began.options,
                yes=self.yes if yes is None else yes,
                settings={**found.settings, **given.settings},
            )
            workbooks = await kept_workbooks(self.store, root_id)
            reached = self.services.mcp.reached_by(found.began.spec)
            await self.services.mcp.prepare(reached, self.settings.mcp)
            config = self._config(options, workbooks, [found.began], answering=answering)
            handed = await self._deps(deps, root_id, found.began.spec, options)
            config = replace(config, owner=owner, deps=handed)
            config.check_deps(found.began.spec)
            workflow = Workflow(config, root_id)
            task = await resume(
                workflow, found, message=message, asks=asks, yes=options.yes, check=may_go_on, given=given
            )
            self._workflows.add(workflow, task)
        return root_id

    def _refuse_missing(self, began: RunStarted) -> None:
        """Refuse to take up a run whose tools were loaded from files and are not here now."""
        for name, origin in began.options.tools.items():
            if name in self.tools:
                continue
            why = self.tool_files.withheld.get(name)
            again = f"give '{origin}' again" if origin.startswith("--tools") else f"it was in {origin}"
            raise ConfigError(
                f"the run was started with the tool {name!r}, which is missing now"
                + (f": {why}" if why else ""),
                fix=again,
            )

    def _model_known(self, model: str | None) -> str:
        """The full name of a model that a run is given, or an error that says what is wrong with it."""
        return "" if model is None else self.services.models.of(self.settings, model, None).name

    async def resume_abandoned(self) -> list[str]:
        """Take up every workflow of this folder that nobody works on any more. Returns those that go on.

        Once. `take_up.keep()` does so for as long as it runs, as the server does.
        """
        return await self.take_up.all()

    async def fork(
        self,
        run_id: str,
        *,
        at: int | None = None,
        message: str | None = None,
        model: str | None = None,
        new_run_id: str | None = None,
    ) -> str:
        """Begin a new workflow with the events of another up to the place `at`, and go on from there.

        The old one is untouched. Returns the new root's id, which is `new_run_id` if that is given.
        """
        check(int | None, at=at)
        check(str | None, message=message, model=model, new_run_id=new_run_id)
        root_id = (await self.outbox.row(run_id)).root_id
        events = beginning(await self.store.events(root_id), at, goes_on=message is not None)
        new_root = new_run_id or new_id()
        copies = forked(events, new_root, at=time.time(), model=model)
        began = copies[0]
        if isinstance(began, RunStarted):  # a model or a tool that is missing is told before there is a copy
            self._refuse_missing(began)
            self._config(began.options).model(began.spec.model, None)
        try:
            await copy_kept(self.store, root_id, new_root, copied_runs(events, copies))
            await copy_workbooks(self.store, root_id, new_root)
            await self.store.append(copies)
        except BaseException:
            await drop_kept(self.store, new_root)
            raise
        return await self.resume(new_root, message=message, take_over=True)

    async def replay(self, run_id: str, *, live_tools: Iterable[str] = ()) -> Replayed:
        """Run a stored workflow again from its record, without network or key, and compare."""
        live_tools = listed("live_tools", live_tools, "names of tools")
        root_id = (await self.outbox.row(run_id)).root_id
        return await self.replay_events(await self.store.events(root_id), live_tools=live_tools)

    async def replay_events(self, events: Sequence[AnyEvent], *, live_tools: Iterable[str] = ()) -> Replayed:
        began = next(event for event in events if isinstance(event, RunStarted))
        config = replace(self._config(began.options, begun=events), publish=_nobody)
        return await replay(events, config, live_tools=frozenset(live_tools))

    async def wait(self, run_id: str) -> Report:
        """The report of a run, once it has one: of a conversation that goes on, that of the turn under way.

        Cancelling the last wait cancels a run of this process.
        """
        if self._workflows.is_running(run_id) and (report := await self._workflows.wait(run_id)) is not None:
            return report
        if (report := await report_of(self.store, await self.outbox.row(run_id))) is not None:
            return report
        await self._workflows.wait(run_id)  # raises what it died of, if it was here
        async with contextlib.aclosing(self.watch(run_id)) as events:
            async for event in events:
                if isinstance(event, RunFinished) and event.run_id == run_id:
                    report = await report_of(self.store, await self.outbox.row(run_id))
                    if report is not None:  # else it has gone on since
                        return report
        raise RunError(f"{run_id} has no report", run_id=run_id)

    async def watch(self, run_id: str, *, after: int = 0) -> AsyncGenerator[LiveEvent]:
        """A workflow's events from a cursor on: what is stored first, then what happens. Ends with the root.

        A conversation is followed to the end of its last turn, and what nobody works on until it has one.
        Text as it arrives rides along for runs of this process.
        """
        check(int, after=after)
        root_id = (await self.outbox.row(run_id)).root_id
        task = partial(self._workflows.task, root_id)
        async with contextlib.aclosing(watch(self.store, self._listeners, root_id, task, after)) as events:
            async for event in events:
                yield event

    def hear(self, hear: Callable[[LiveEvent], None]) -> Callable[[], None]:
        """Call `hear` with whatever happens in any workflow of this process. Returns how to stop that."""
        return self._listeners.hear(hear)

    def is_running(self, root_id: str) -> bool:
        """Whether this process works on that workflow, or is about to."""
        return self._workflows.is_running(root_id)

    # -- speaking to runs ------------------------------------------------------

    async def cancel(self, run_id: str, reason: str = "cancelled") -> bool:
        """Stop a run and everything below it, wherever it runs. False if it had ended."""
        check(str, reason=reason)
        return await self.outbox.cancel(run_id, reason)

    async def answer(
        self,
        approval_id: str,
        decision: Decision,
        *,
        reason: str = "",
        arguments: str | None = None,
        by: str = "person",
    ) -> AnswerGiven:
        """Answer a question. False if it waits no more: the first answer wins, and a run may have ended.

        `also` on what is returned are the other questions that an answer for more than one call was for.
        """
        return await self.outbox.answer(approval_id, decision, reason=reason, arguments=arguments, by=by)

    async def message(self, run_id: str, text: str) -> bool:
        """Tell a run something; it reads it before its next step. False if that is too late: it has ended.

        What is said while nobody works on the run is read when it is taken up again.
        """
        check(str, text=text)
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
        if which is None:
            which = RunFilter()
        elif not isinstance(cast("Any", which), RunFilter):
            raise TypeError(f"which is {shown(which)}: give a RunFilter")
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
        self,
        options: RunOptions,
        workbooks: Sequence[Workbook] = (),
        begun: Sequence[AnyEvent] = (),
        *,
        answering: Answering | None = None,
    ) -> WorkflowConfig:
        """`begun` is what is in the log of a workflow that is taken up or replayed."""
        settings = self._in_manner(self._settings_for(options.settings), options)
        config = self.services.config(
            settings,
            options,
            workbooks,
            project=self.project,
            own=self._given(settings, options) | shown_before(begun),
            withheld=self.tool_files.withheld,
            lent=frozenset(name for spec in self._own_agents for name in spec.tools or ()),
            publish=self._listeners.publish,
            answering=answering or self.answering,
            ask=partial(self._ask, settings.approvals.callback_seconds),
            parking_clock=self.parking_clock,
            kinds=tuple(self._kinds),
        )
        return replace(config, buffers=self.buffers)

    async def _deps(
        self, given: Deps | None, run_id: str, spec: AgentSpec, options: RunOptions
    ) -> Deps | None:
        """What the tools of a workflow are handed: what was given, or what the program's function makes."""
        if given is not None or self._deps_factory is None:
            return given
        made = self._deps_factory(RunInfo(run_id=run_id, agent=spec.name, metadata=options.metadata))
        return await made if inspect.isawaitable(made) else made

    def _given(self, settings: Settings, options: RunOptions) -> frozenset[str]:
        """What the program itself gave its agents: its tools, its agents, ways to delegate that it set."""
        given = {each.name for each in (*self._own_tools, *self._own_agents)}
        name = "delegation.tools"
        if name in options.settings or self.loaded.origins.get(name) == "flag":
            given |= {*settings.delegation.ways}
        return frozenset(given)

    def _in_manner(self, settings: Settings, options: RunOptions) -> Settings:
        """Whether children outlive an answer depends on who works on a run: only who stays can be told."""
        name, ends = "delegation.parent_ends", settings.delegation.parent_ends
        is_set = name in options.settings or name in self.loaded.origins
        if self.conversations and not is_set:
            ends = "leave"
        elif self.conversations is False and ends == "leave":
            ends = "wait"
        delegation = msgspec.structs.replace(settings.delegation, parent_ends=ends)
        return msgspec.structs.replace(settings, delegation=delegation)

    def _settings_for(self, overrides: Mapping[str, Any]) -> Settings:
        if not overrides:
            return self.settings
        values = {**configuration.values_of(self.settings), **overrides}
        return configuration.build(values, dict.fromkeys(overrides, "the run's options"))

    def _dropped(self, root_id: str) -> None:
        if self._take_up is not None:
            self._take_up.dropped(root_id)

    def _ask(self, seconds: float, asked: ApprovalRequested) -> Callable[[], None]:
        """Put a question to the program's own function, if it has one. Returns how to withdraw it."""
        if self.approve is None:
            return lambda: None
        return self._approve_function.ask(self.approve, asked, seconds)


def _is_typed(spec: AgentSpec) -> bool:
    return isinstance(spec.output_schema, TypedSchema)


def _nobody(event: LiveEvent) -> None:
    """Nobody watches a replay."""
