"""What the app is put together from: store, models, tools, agents. Built once, closed once."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import msgspec

from retinue.agents import Catalogue, load_agents, stamp
from retinue.approvals import Rules
from retinue.builtin_tools import BUILT_IN, is_installed
from retinue.engine.config import Answering, WorkflowConfig
from retinue.engine.parking_clock import ParkingClock
from retinue.engine.shadows import Shadows, own_paths
from retinue.engine.worktrees import Worktrees
from retinue.errors import ConfigError, NoKey
from retinue.events import ApprovalRequested, LiveEvent, RunOptions
from retinue.instructions import read_instructions
from retinue.kept_files import kept_by
from retinue.mcp.servers import AppServers
from retinue.models import providers
from retinue.models.base import Model
from retinue.models.fallback import FallbackModel
from retinue.models.http import Client
from retinue.reading import Kept, nothing_kept
from retinue.sandbox.base import Engine, Sandbox
from retinue.sandbox.commands.launch import Commands
from retinue.settings import CodeSettings, LoadedSettings, Settings
from retinue.settings.trusted_folders import TrustedFolders
from retinue.skills import SkillFiles
from retinue.store.base import Store
from retinue.threads import to_its_end
from retinue.tool_files import ToolFiles
from retinue.tools.base import Tool
from retinue.tools.knowledge import EXTRA as EXTRA_SOURCES
from retinue.tools.sheets import Workbook, sheet_guidance, sheet_tools
from retinue.types import AgentSpec, TypedSchema
from retinue.workspace_folder import sweep

log = logging.getLogger("retinue")
TEXT = "text:"
"""Before a model's name: speak to it in tags instead of native tool calls."""


@dataclass(kw_only=True)
class Services:
    """Everything with a life of its own. `close` ends it."""

    store: Store
    agent_files: AgentFiles
    skill_files: SkillFiles
    tools: Mapping[str, Tool]
    brought: frozenset[str]
    """Those among them that the program itself brought."""
    models: Models
    sandboxes: Sandboxes
    shadows: Shadows
    worktrees: Worktrees
    mcp: AppServers
    """The MCP servers there are."""
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list[Callable[[], Awaitable[None]]])
    _told: set[str] = field(default_factory=set[str])

    @classmethod
    async def assemble(
        cls,
        loaded: LoadedSettings,
        *,
        environ: Mapping[str, str],
        project: Path | None,
        store: Store | None,
        model: Model | None,
        small: Model | None,
        objects: Mapping[str, Model],
        tools: Collection[Tool],
        agents: Iterable[AgentSpec],
        tool_files: ToolFiles,
    ) -> Services:
        from retinue.store.connect import connect, default_url
        from retinue.tools.shell import shell_tools

        settings = loaded.settings
        models = Models(settings, environ=environ, given=model, given_small=small, objects=objects)
        opened = store or connect(settings.db or default_url())
        await opened.open()
        root = settings.workspace.root
        await to_its_end(sweep, Path(root) if root else None)
        kept = kept_by(Rules.of(settings.approvals), project)
        agent_files = await asyncio.to_thread(
            AgentFiles,
            project,
            agents,
            kept=kept,
            trusted=loaded.trusted,
            tools=[each.name for each in tools],
            extra=[EXTRA_SOURCES[name] for name in settings.knowledge.extra],
        )
        sandboxes, shadows = Sandboxes(), Shadows(opened)
        commands = Commands()
        mcp = await asyncio.to_thread(
            AppServers,
            loaded,
            project=project,
            agents=agent_files.catalogue,
            environ=environ,
            commands=commands,
        )

        def started_from(folder: Path) -> list[str]:
            return [
                *(f"the MCP server {each}" for each in mcp.started_from(folder)),
                *tool_files.started_from(folder),
            ]

        shell = shell_tools(
            commands,
            hidden=own_paths(opened),
            guarded=mcp.named_files,
            started_from=started_from,
            environ=environ,
        )
        built_in, closers = _built_in_tools(settings, opened, environ, commands, shell, models.client)
        return cls(
            store=opened,
            agent_files=agent_files,
            skill_files=await asyncio.to_thread(SkillFiles, project, kept),
            tools={tool.name: tool for tool in (*map(_separate, built_in), *tools)},
            brought=frozenset(tool.name for tool in tools),
            models=models,
            sandboxes=sandboxes,
            shadows=shadows,
            worktrees=Worktrees(shadows),
            mcp=mcp,
            closers=[*closers, mcp.close, sandboxes.close, models.close, opened.close, shadows.close],
        )

    @property
    def catalogue(self) -> Catalogue:
        return self.agent_files.catalogue

    @property
    def specs(self) -> Mapping[str, AgentSpec]:
        return self.agent_files.specs

    def agent(self, name: str) -> AgentSpec:
        """Raises `ConfigError` that lists the known ones."""
        if name in self.specs:
            return self.specs[name]
        own = self.specs.keys() - self.catalogue.agents.keys()
        return self.catalogue.get(name, own).spec

    def config(
        self,
        settings: Settings,
        options: RunOptions,
        workbooks: Sequence[Workbook],
        *,
        project: Path | None,
        publish: Callable[[LiveEvent], None],
        answering: Answering,
        ask: Callable[[ApprovalRequested], Callable[[], None]],
        own: frozenset[str],
        lent: frozenset[str],
        withheld: Mapping[str, str],
        parking_clock: ParkingClock,
        kinds: tuple[TypedSchema, ...],
    ) -> WorkflowConfig:
        """What the runs of one workflow are built from."""
        code = self.sandboxes.here(settings.code)
        settings = settings if code is settings.code else msgspec.structs.replace(settings, code=code)
        sheets = sheet_tools(workbooks) if workbooks and settings.sheets.enabled else []
        rules = Rules.of(settings.approvals, allow_all=options.yes)
        servers = self.mcp.tree(settings.mcp)
        return WorkflowConfig(
            settings=settings,
            store=self.store,
            agents=self.specs,
            tools={**self.tools, **{tool.name: tool for tool in sheets}, **servers.tools},
            servers=servers,
            attached=self.brought | {tool.name for tool in sheets},
            own=own | servers.given,
            lent=lent,
            withheld=withheld,
            lacks=partial(self.missing_for, settings),
            fragments=tuple(filter(None, (options.instructions, sheet_guidance(workbooks, settings.sheets)))),
            model=lambda name, parent, known: self.models.of(settings, name, parent, known),
            small=lambda model: self.models.small(settings, model),
            project=project,
            publish=publish,
            rules=rules,
            environ={**os.environ, **self.models.environ},  # as commands have it
            answering=answering,
            ask=ask,
            parking_clock=parking_clock,
            kinds=kinds,
            instructions=self._instructions(project, rules) if settings.context.instructions else "",
            skill_files=self.skill_files,
            sandbox=lambda: self.sandboxes.session(code),
            worktrees=self.worktrees,
            shadow=lambda: self.shadows.of(project, settings.undo),
            strict_sources=options.strict_sources,
            options=options,
        )

    def _instructions(self, project: Path | None, rules: Rules) -> str:
        if project is None:
            return ""
        found = read_instructions(project, rules)
        if found.notice and found.notice not in self._told:
            self._told.add(found.notice)
            log.warning(found.notice)
        return found.text

    def missing_for(self, settings: Settings, spec: AgentSpec) -> list[tuple[str, ConfigError]]:
        """What keeps an agent from beginning, or from using what it names: the field, and what is wrong."""
        found = [("skills", error) for error in self.skill_files.offered(spec, root=True)[1]]
        for name in spec.mcp_servers or ():
            if name not in self.mcp.servers:
                near = get_close_matches(name, self.mcp.servers, 1)
                fix = f"did you mean {near[0]!r}?" if near else "'retinue mcp list' shows those there are"
                found.append(("mcp_servers", ConfigError(f"there is no MCP server {name[:80]!r}", fix=fix)))
        try:
            self.models.check(settings, spec.model)
        except NoKey:
            pass  # the file is right: it is said when it is asked
        except ConfigError as error:
            found.append(("model", error))
        return found

    async def close(self) -> None:
        async with contextlib.AsyncExitStack() as stack:  # each is closed, whatever becomes of the others
            for close in reversed(self.closers):
                stack.push_async_callback(close)


ASK_SOURCES = ("web-knowledge", "science-research")
"""The built-in agents that are given the sources of `knowledge.extra` as well."""


class AgentFiles:
    """The agents of the files, and those that the program itself brings. Read at the start, and when told."""

    def __init__(
        self,
        project: Path | None,
        own: Iterable[AgentSpec],
        *,
        trusted: TrustedFolders,
        kept: Kept = nothing_kept,
        tools: Collection[str] = (),
        extra: Collection[str] = (),
    ) -> None:
        self._kept = kept
        self.project, self.trusted, self.tools, self.extra = project, trusted, tools, tuple(extra)
        self.own = {spec.name: spec for spec in own}
        self._read(stamp(project))

    def _read(self, stamped: object) -> None:
        self._stamp = stamped
        self.catalogue = load_agents(self.project, trusted=self.trusted, kept=self._kept)
        found = {name: found.spec for name, found in self.catalogue.agents.items()}
        for name in found.keys() & {*ASK_SOURCES}:
            found[name] = self._with_extra(found[name])
        for name in found.keys() & {*self.tools}:
            log.warning("the agent %s is not offered: the program has a tool of that name", name)
            del found[name]
        self.specs = found | self.own

    def _with_extra(self, spec: AgentSpec) -> AgentSpec:
        """Whoever switches a source on wants it asked. An agent of one's own names its tools itself."""
        if spec.origin != "builtin" or spec.tools is None:
            return spec
        return msgspec.structs.replace(spec, tools=(*spec.tools, *self.extra))

    def reread(self) -> None:
        """Read the files again if any was added, changed or removed. Runs that go on keep what they have."""
        stamped = stamp(self.project)
        if stamped != self._stamp:
            self._read(stamped)


def _built_in_tools(
    settings: Settings,
    store: Store,
    environ: Mapping[str, str],
    commands: Commands,
    shell: Iterable[Tool],
    client: Client,
) -> tuple[list[Tool], list[Callable[[], Awaitable[None]]]]:
    """Every tool that is installed. What an extra brings is left out where the extra is."""
    from retinue.tools.files import file_tools

    tools = [*file_tools(), *shell]
    closers: list[Callable[[], Awaitable[None]]] = [commands.close]
    read, view = _read_and_view(next(tool for tool in tools if tool.name == "read"))
    tools = [*(read if tool.name == "read" else tool for tool in tools), view]
    if is_installed("web"):
        from retinue.tools.web import web_tools
        from retinue.web.fetch import Web

        web = Web(
            settings.web,
            cached=store.cached,
            cache=store.cache,
            recache=store.recache,
            environ=environ,
            contact=settings.knowledge.contact,
        )
        tools += web_tools(web)
        client.picture = web.picture
        closers.append(web.close)
        from retinue.tools.knowledge import knowledge_tools
        from retinue.tools.knowledge.client import KnowledgeClient

        knowledge = KnowledgeClient(
            settings.knowledge,
            cached=store.cached,
            cache=store.cache,
            recache=store.recache,
            environ=environ,
            warn=log.warning,
        )
        tools += knowledge_tools(knowledge)
        closers.append(knowledge.close)
    return tools, closers


def _separate(tool: Tool) -> Tool:
    """A tool with a schema of its own: each app has the built-in tools, and may change its own."""
    return replace(tool, schema=copy.deepcopy(tool.schema))


def _read_and_view(read: Tool) -> tuple[Tool, Tool]:
    """Agents that work on saved pages know reading by another name. It stays one tool to rules and lists."""
    return (
        replace(read, same=("view", *BUILT_IN["view"].aliases)),
        replace(read, name="view", aliases=BUILT_IN["view"].aliases, same=("read", *read.aliases)),
    )


class Sandboxes:
    """The engines for code, each opened when the first code runs in it."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        self._told: set[str] = set()

    def here(self, settings: CodeSettings) -> CodeSettings:
        """The settings with the engine that this machine really has: what the model is told must be so."""
        from retinue.sandbox import engine_here

        name, notice = engine_here(settings)
        if notice and notice not in self._told:
            self._told.add(notice)
            log.warning(notice)
        return settings if name == settings.engine else msgspec.structs.replace(settings, engine=name)

    def session(self, settings: CodeSettings) -> Sandbox:
        from retinue.sandbox import open_engine
        from retinue.sandbox.base import SandboxLimits

        if settings.engine not in self._engines:
            self._engines[settings.engine], _ = open_engine(settings)
        return self._engines[settings.engine].session(SandboxLimits.of(settings))

    async def close(self) -> None:
        for engine in self._engines.values():
            await engine.close()


class Models:
    """One client for the whole tree; models by name, each made once."""

    def __init__(
        self,
        settings: Settings,
        *,
        environ: Mapping[str, str],
        given: Model | None,
        given_small: Model | None,
        objects: Mapping[str, Model] | None = None,
    ) -> None:
        self.environ = environ
        self.objects = dict(objects or {})
        """Models that the program gave as parts of a chain, by name."""
        self._resting: dict[str, float] = {}
        self.given, self.given_small = given, given_small
        self._set = (settings.model, settings.small_model)
        """What is set beside the models that were given: whatever is set later, for one run, is meant."""
        self.client = Client(environ=environ)
        self._made: dict[tuple[str, str], Model] = {}
        self.name, self.why = (given.name, "given") if given else providers.default_model(settings, environ)

    async def look_up(self, settings: Settings) -> None:
        """Ask the keyring for keys beside the loop, before models are made: it may wait for a person."""
        if accounts := providers.kept_accounts(settings, self.environ):
            from retinue.models.kept_keys import look_up

            await asyncio.to_thread(look_up, accounts)

    def main(self, settings: Settings) -> Model:
        """The root's model. Raises `ConfigError` for one that cannot be had."""
        if self.given is not None and settings.model in (None, self._set[0]):
            return self.given
        return self.make(providers.default_model(settings, self.environ)[0], settings)

    def of(
        self,
        settings: Settings,
        name: str,
        parent: Model | None,
        known: Mapping[str, Model] | None = None,
    ) -> Model:
        """The model an agent names: its own, or the one it inherits; of several, a chain. `known` are those
        that it was given itself."""
        if known and name in known:
            return known[name]
        if self.given is not None and name == self.given.name:
            return self.given
        if "," in name:
            parts = [part.strip() for part in name.split(",") if part.strip()]
            return self._chain([self.of(settings, part, parent, known) for part in parts])
        if name in self.objects:
            return self.objects[name]
        current = parent or self.main(settings)
        resolved = providers.resolve(name, current=current.name)
        if resolved == "small":
            return self.small(settings, current)
        return current if resolved == current.name else self.make(resolved, settings)

    def check(self, settings: Settings, name: str) -> None:
        """Raise for a model that an agent names by itself and that cannot be had. A wrong one of the settings
        is no fault of the agents that go by it."""
        there = {*providers.RELATIVE, *self.objects, *([self.given.name] if self.given else ())}
        for part in (each.strip() for each in name.split(",")):
            if part not in there:
                self.make(part, settings)

    def small(self, settings: Settings, model: Model) -> Model:
        """The cheap model beside another one. A model that a program gave as an object has none but
        itself."""
        if self.given_small is not None and settings.small_model in (None, self._set[1]):
            return self.given_small
        if settings.small_model is None:
            if isinstance(model, FallbackModel):
                return self._chain([self.small(settings, each) for each in model.models])
            if not any(model is each for each in self._made.values()):
                return model
        name = providers.small_model(model.name, settings=settings, environ=self.environ)
        return model if name == model.name else self.make(name, settings)

    def _chain(self, models: Sequence[Model]) -> Model:
        unlike = {model.name: model for model in models}
        return models[0] if len(unlike) == 1 else FallbackModel([*unlike.values()], resting=self._resting)

    def make(self, name: str, settings: Settings) -> Model:
        from retinue.models.connect import connect

        if "," in name:
            return self._chain(
                [self.make(part.strip(), settings) for part in name.split(",") if part.strip()]
            )
        if name in self.objects:
            return self.objects[name]
        if name.startswith(TEXT):  # a model without tool calls of its own
            from retinue.models.text_protocol import TextProtocol

            return TextProtocol(self.make(name.removeprefix(TEXT), settings))
        key = (name, repr((settings.providers, settings.prices)))
        if key not in self._made:
            self._made[key] = connect(name, settings=settings, client=self.client, environ=self.environ)
        return self._made[key]

    async def close(self) -> None:
        await self.client.close()
