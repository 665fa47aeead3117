"""One `Retinue`: what it is given and made of, how it opens and closes, and what its runs are built from.

The lower part of the front door, `app`; `beginnings` is between the two. Begins nothing by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self
from weakref import WeakValueDictionary

import msgspec

from retinue import settings as configuration
from retinue.agents import Catalogue, Finding, load_agents
from retinue.agents.missing import unusable
from retinue.assembly import Services
from retinue.engine.approve_function import Approve, ApproveFunction
from retinue.engine.config import Answering, WorkflowConfig, shown_before
from retinue.engine.isolation import settle_copies
from retinue.engine.listeners import Listeners
from retinue.engine.outbox import AnswerGiven, Outbox
from retinue.engine.owners import Owners
from retinue.engine.parking_clock import ParkingClock
from retinue.engine.scrub import known_secrets
from retinue.engine.shown import ShownRuns
from retinue.engine.take_back import WorkflowChanges
from retinue.engine.take_up import TakeUp
from retinue.engine.workflows import Workflows
from retinue.errors import ConfigError, RunError
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    Decision,
    LiveEvent,
    RunOptions,
)
from retinue.given import check_approve, one_of, own_agents, own_tools, with_inner
from retinue.guards import InputGuard, OutputGuard
from retinue.loop_thread import LoopThread
from retinue.models.base import Model
from retinue.models.providers import found_model
from retinue.observers import Observer, Observers
from retinue.parameters import check, check_word, listed
from retinue.rules_given import check_rules, with_slips
from retinue.run_options import RunInfo
from retinue.settings import LoadedSettings, Settings
from retinue.store.base import Store
from retinue.threads import in_own_task, only_errors
from retinue.tool_files import ToolFiles
from retinue.tools.base import Function, Tool
from retinue.tools.sheets import Workbook
from retinue.types import AgentSpec, Deps, ModelGiven, TypedSchema, guard_names, models_of
from retinue.workspace import Buffers, one_spelling

if TYPE_CHECKING:
    from retinue.telemetry.live import LiveTelemetry

SHARED = (
    *(
        "db",
        "engine",
        "workers.slots",
        "workers.park_after",
        "workers.grace",
        "plugins",
        "web.",
        "server.",
        "telemetry.",
        "workspace.root",
        "mcp.servers",
    ),
    *("knowledge.request_timeout", "knowledge.contact", "knowledge.extra", "knowledge.base_urls"),
)
"""What is built once for all runs of an instance, and so cannot be set for one of them."""
Approver = Approve
Fallback = Literal["offline"]


class Instance(Generic[Deps]):
    """What every method of a `Retinue` works with: settings, services, owners, and who listens."""

    def __init__(
        self,
        *,
        model: ModelGiven | None = None,
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
        input_guards: Iterable[InputGuard[Deps]] | None = None,
        output_guards: Iterable[OutputGuard[Deps]] | None = None,
        observers: Iterable[Observer] = (),
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
        self._objects: dict[str, Model] = {}
        if isinstance(model, Sequence) and not isinstance(model, str):
            model, self._objects = models_of(model)
        one_of("model", model, "name", "stream")
        one_of("small_model", small_model, "name", "stream")
        self.project = self.cwd if project else None
        self.loaded = self._load(settings, model, small_model, db)
        check_rules(self.loaded)
        check_approve(approve)
        self.approve = approve
        check(Callable | None, deps_factory=deps_factory)
        self._deps_factory = deps_factory
        self._input_guards = guard_names("input_guards", () if input_guards is None else input_guards)
        self._output_guards = guard_names("output_guards", () if output_guards is None else output_guards)
        self._observers = Observers(listed("observers", observers, "functions"))
        self.parking_clock = ParkingClock()
        """What runs wait by whose provider takes nothing more."""
        self.yes = yes
        self.conversations = conversations
        self.answering: Answering = answering or ("ask" if approve else "refuse")
        one_of("db", db, "append", "events")
        self.buffers: Buffers | None = None
        """Who holds files of the project that are not saved yet: an editor. Set by its host."""
        self.tool_files = tool_files or ToolFiles()
        team = with_inner(agents)
        self._own_tools = (*own_tools(tools, team), *self.tool_files.tools)
        names = {each.name for each in self._own_tools}
        self._own_agents = own_agents(team, names, lambda: load_agents(self.project).agents)
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
        self._queues: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Where the turns of conversations wait for each other."""

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
        flags = dict(settings or {})
        if self._objects or not isinstance(model, str | None):
            flags.setdefault("small_model", None)  # that of files or variables is none beside an object
        given = {"model": model, "small_model": small_model, "db": db if isinstance(db, str) else None}
        for name, each in given.items():
            if each is not None:
                flags[name] = each if isinstance(each, str) else each.name
        return self._read_settings(flags)

    def _read_settings(self, flags: Mapping[str, Any]) -> LoadedSettings:
        return configuration.load(
            cwd=self.cwd, environ=self.environ, flags=flags, project=self.project is not None
        )

    @property
    def settings(self) -> Settings:
        """The settings in force, from files, the environment and what the program gave."""
        return self.loaded.settings

    @property
    def services(self) -> Services:
        """What it is made of while it is open: store, models, tools, agents. An error where it is not
        open."""
        if self._services is None:
            raise RunError("use Retinue as a context manager: 'async with Retinue() as retinue'")
        return self._services

    @property
    def store(self) -> Store:
        """The database with the logs of all runs."""
        return self.services.store

    @property
    def outbox(self) -> Outbox:
        """What is said to runs, wherever they run."""
        return Outbox(
            self.store,
            self.owners,
            shown=self.shown,
            publish=self._publish,
            reload=self.reload,
            taking_up=self._workflows.taking_up,
            ended=self._settle_copies,
        )

    async def _settle_copies(self, root_id: str) -> None:
        """After the end of a workflow that its own process could not write."""
        worktrees, undo = self.services.worktrees, self.settings.undo
        await settle_copies(worktrees, self.store, root_id, undo, self._publish)

    def _publish(self, event: LiveEvent) -> None:
        """What is written here to the log of a workflow. Of one that is followed, its log tells."""
        if not self._workflows.is_followed(event.root_id):
            self._listeners.publish(event)

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

    async def open(self) -> Self:
        """The same as entering it with `async with`, for a notebook or a host with its own start and end."""
        return await self.__aenter__()

    async def aclose(self) -> None:
        """The same as leaving it: what still runs is cancelled. Twice does no harm."""
        if self._loop is not None:
            await self.__aexit__()

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
                objects=self._objects,
                tools=self._own_tools,
                agents=self._own_agents,
                tool_files=self.tool_files,
            )
        except BaseException:
            self._loop = None
            raise
        try:
            await self._open_queue()
        except BaseException:
            await self._services.close()
            self._services = self._loop = None
            raise
        self.loaded = self._with_slips(self.loaded)
        self._observers.open(self._listeners)
        if self.settings.telemetry.is_on(self.environ) and not self.hands_over:  # workers tell of their runs
            from retinue.telemetry.live import listening  # not where nothing is sent

            self._telemetry = await listening(
                self.settings.telemetry, self.environ, self.store, self._listeners.hear, self.secrets
            )
        return self

    def secrets(self) -> list[str]:
        """What is blanked out of whatever leaves: see `known_secrets`. Not for the event loop."""
        return known_secrets({**os.environ, **self.environ}, self.settings.keyring)

    @property
    def hands_over(self) -> bool:
        """Whether runs are done by workers, and not by this process."""
        return self.settings.engine == "workers"

    async def _open_queue(self) -> None:
        if not self.hands_over:
            return
        from retinue.store.postgres import PostgresStore  # not where nobody needs it

        if not isinstance(self.store, PostgresStore):
            raise ConfigError(
                'engine = "workers" needs a PostgreSQL database, which the workers have too',
                fix='give db="postgresql://…", or RETINUE_DB, or set engine = "local"',
            )
        await self.store.open_queue()

    async def leave(self) -> None:
        """Stop working on every run of this process without ending it: its log stays as it is.

        What a server does when it is told to stop. Whoever resumes the runs goes on where their logs end,
        and a question that waits for a person still waits.
        """
        await self._workflows.leave()
        await self.owners.release()

    async def __aexit__(self, *_: object) -> None:
        async with contextlib.AsyncExitStack() as ending:  # the last first, each in any case
            ending.callback(self._forget_all)
            if self._services is not None:
                ending.push_async_callback(self._services.close)
            if self._owners is not None:
                ending.push_async_callback(self._owners.release)
            if self._telemetry is not None:
                ending.push_async_callback(self._telemetry.close)
            ending.push_async_callback(self._observers.close)
            ending.callback(self._approve_function.close)
            await self._workflows.stop_all("the program ended")

    def _forget_all(self) -> None:
        self._workflows.clear()
        self._services = self._loop = self._owners = self._take_up = self._telemetry = None

    def reload(self) -> LoadedSettings:
        """Read the settings again. Runs that start from now on go by them; tools and database stay."""
        now = self._values()
        flags = {name: now[name] for name, origin in self.loaded.origins.items() if origin == "flag"}
        loaded = self._read_settings(flags)
        check_rules(loaded)
        self.loaded = self._with_slips(loaded)
        return self.loaded

    def _with_slips(self, loaded: LoadedSettings) -> LoadedSettings:
        return with_slips(loaded, {*self.services.tools, *self.services.specs})

    @property
    def agents(self) -> Catalogue:
        """The agents of files and the built-in ones; those of the program come on top."""
        return self.services.catalogue

    def unusable_agents(self) -> list[Finding]:
        """Agent files whose agents cannot begin here, and why."""
        aliases = (alias for tool in self.tools.values() for alias in tool.aliases)
        lacks = partial(self.services.missing_for, self.settings)
        return unusable(self.agents, {*self.tools, *aliases}, lacks, self.tool_files.withheld)

    async def reread_agents(self) -> None:
        """Look whether agent files or skills have changed, and read them again if so."""
        await asyncio.to_thread(self.services.agent_files.reread)
        await asyncio.to_thread(self.services.skill_files.reread)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Every tool there is, by its name."""
        return self.services.tools

    @property
    def model_name(self) -> str:
        """The model that runs use which name no other."""
        return self.services.models.main(self.settings).name

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

        `approval_id` is that of an `ApprovalRequested`. `decision` is `approve`, `approve_run`,
        `approve_tool`, `approve_always` or `reject`, with a `reason` that the model reads; `arguments`, as
        JSON, replace those of the call; `by` is who answers, for the log. `also` on what is returned are the
        other questions that an answer for more than one call was for.
        """
        return await self.outbox.answer(approval_id, decision, reason=reason, arguments=arguments, by=by)

    def _config(
        self,
        options: RunOptions,
        workbooks: Sequence[Workbook] = (),
        begun: Sequence[AnyEvent] = (),
        *,
        answering: Answering | None = None,
        approve: Approver | None = None,
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
            answering=answering or ("ask" if approve else self.answering),
            ask=partial(self._ask, approve or self.approve, settings.approvals.callback_seconds),
            parking_clock=self.parking_clock,
            kinds=tuple(self._kinds),
        )
        return replace(
            config,
            buffers=self.buffers,
            input_guards=self._input_guards.given,
            output_guards=self._output_guards.given,
        )

    async def _deps(
        self, given: Deps | None, run_id: str, spec: AgentSpec, options: RunOptions
    ) -> Deps | None:
        """What the tools of a workflow are handed: what was given, or what the program's function makes."""
        if given is not None or self._deps_factory is None:
            return given
        with only_errors():
            made = self._deps_factory(RunInfo(run_id=run_id, agent=spec.name, metadata=options.metadata))
            return await in_own_task(made) if inspect.isawaitable(made) else made

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
        values = {**self._values(), **overrides}
        made = configuration.build(values, dict.fromkeys(overrides, "the run's options"))
        for name, provider in made.providers.items() if "providers" in overrides else ():
            if hidden := provider.model_settings.headers.hidden():
                raise ConfigError(
                    f"what is set for one run is kept in its log, and the header {hidden[0]!r} of {name} may "
                    "be a secret",
                    fix="write its value as '${VARIABLE}', or use ModelSettings(extra_headers=…)",
                )
        return made

    def delegating(self, spec: AgentSpec, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a run that begins with the agent `spec`: those `given`, and how the agent says that
        it delegates, where neither they nor the settings of the person say so."""
        said = {*self.loaded.origins, *configuration.flatten(given)}
        policy = configuration.flatten(given).get("delegation.policy") or self.settings.delegation.policy
        found: dict[str, Any] = {}
        if spec.policy and "delegation.policy" not in said:
            found["delegation.policy"] = policy = spec.policy
        number = "delegation.max_children" if policy == "flat" else "delegation.nested_children"
        if spec.children is not None and number not in said:
            found[number] = spec.children
        return {**found, **given}

    def _refuse_shared(self, given: Mapping[str, Any]) -> None:
        """Raise for a setting of what all runs share: for one run it would be without effect."""
        now = configuration.values_of(self.settings)
        for name, value in configuration.flatten(given).items():
            if name.startswith(SHARED) and name in configuration.declared() and value != now.get(name):
                raise ConfigError(
                    f"{name} is for all runs of a Retinue, and cannot be set for one run",
                    fix=f"give it to a Retinue of its own: Retinue(settings={{{name!r}: …}})",
                )

    def _values(self) -> dict[str, Any]:
        """The settings by their dotted names, with what headers hold: what people are shown is without."""
        return {**configuration.values_of(self.settings), "providers": self.settings.providers}

    def _dropped(self, root_id: str) -> None:
        if self._take_up is not None:
            self._take_up.dropped(root_id)

    def _ask(self, approve: Approver | None, seconds: float, asked: ApprovalRequested) -> Callable[[], None]:
        """Put a question to the program's own function, if it has one. Returns how to withdraw it."""
        if approve is None:
            return lambda: None
        return self._approve_function.ask(approve, asked, seconds)


def _is_typed(spec: AgentSpec) -> bool:
    return isinstance(spec.output_schema, TypedSchema)
