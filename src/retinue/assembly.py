"""What the app is put together from: store, models, tools, agents. Built once, closed once."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from retinue.agents import Catalogue, load_agents
from retinue.models import providers
from retinue.models.base import Model
from retinue.sandbox.base import Engine, Sandbox
from retinue.settings import Loaded, Settings
from retinue.store.base import Store
from retinue.tools.base import Tool
from retinue.types import AgentSpec
from retinue.workspace import sweep

log = logging.getLogger("retinue")
TEXT = "text:"
"""Before a model's name: speak to it in tags instead of native tool calls."""


@dataclass(kw_only=True)
class Parts:
    """Everything with a life of its own. `close` ends it."""

    store: Store
    catalogue: Catalogue
    specs: Mapping[str, AgentSpec]
    tools: Mapping[str, Tool]
    models: Models
    sandboxes: Sandboxes
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list[Callable[[], Awaitable[None]]])

    @classmethod
    async def assemble(
        cls,
        loaded: Loaded,
        *,
        environ: Mapping[str, str],
        cwd: Path,
        store: Store | None,
        model: Model | None,
        small: Model | None,
        tools: Iterable[Tool],
        agents: Iterable[AgentSpec],
    ) -> Parts:
        from retinue.store.connect import connect, default_url

        settings = loaded.settings
        models = Models(settings, environ=environ, given=model, given_small=small)
        opened = store or connect(settings.db or default_url())
        await opened.open()
        root = settings.workspace.root
        await asyncio.to_thread(sweep, Path(root) if root else None)
        catalogue = await asyncio.to_thread(load_agents, cwd, trusted=loaded.trusted)
        own = {spec.name: spec for spec in agents}
        sandboxes = Sandboxes(settings)
        built_in, closers = _built_in_tools(settings, opened, environ)
        return cls(
            store=opened,
            catalogue=catalogue,
            specs={name: found.spec for name, found in catalogue.agents.items()} | own,
            tools={tool.name: tool for tool in (*built_in, *tools)},
            models=models,
            sandboxes=sandboxes,
            closers=[*closers, sandboxes.close, models.close, opened.close],
        )

    def agent(self, name: str) -> AgentSpec:
        """Raises `ConfigError` that lists the known ones."""
        return self.specs[name] if name in self.specs else self.catalogue.get(name).spec

    async def close(self) -> None:
        for close in self.closers:
            await close()


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _built_in_tools(
    settings: Settings, store: Store, environ: Mapping[str, str]
) -> tuple[list[Tool], list[Callable[[], Awaitable[None]]]]:
    """Every tool that is installed. What an extra brings is left out where the extra is."""
    from retinue.tools.files import file_tools
    from retinue.tools.shell import shell_tools

    tools, closers = [*file_tools(), *shell_tools()], list[Callable[[], Awaitable[None]]]()
    # Agents that work on saved pages know reading by this name.
    tools += [replace(tool, name="view", aliases=("View",)) for tool in tools if tool.name == "read"]
    if _installed("html_to_markdown", "protego", "charset_normalizer"):
        from retinue.tools.web import web_tools
        from retinue.web.fetch import Web

        web = Web(
            settings.web,
            cached=store.cached,
            cache=store.cache,
            environ=environ,
            contact=settings.knowledge.contact,
        )
        tools += web_tools(web)
        closers.append(web.close)
    if _installed("defusedxml"):
        from retinue.tools.knowledge import knowledge_tools
        from retinue.tools.knowledge.client import Knowledge

        knowledge = Knowledge(
            settings.knowledge, cached=store.cached, cache=store.cache, environ=environ, warn=log.warning
        )
        tools += knowledge_tools(knowledge)
        closers.append(knowledge.close)
    return tools, closers


class Sandboxes:
    """The engine for code, opened when the first code runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.code
        self._engine: Engine | None = None

    def session(self) -> Sandbox:
        from retinue.sandbox import open_engine
        from retinue.sandbox.base import SandboxLimits

        if self._engine is None:
            self._engine, notice = open_engine(self.settings)
            if notice:
                log.warning(notice)
        return self._engine.session(SandboxLimits.of(self.settings))

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()


class Models:
    """One client for the whole tree; models by name, each made once."""

    def __init__(
        self,
        settings: Settings,
        *,
        environ: Mapping[str, str],
        given: Model | None,
        given_small: Model | None,
    ) -> None:
        from retinue.models.http import Client

        self.environ = environ
        self.given, self.given_small = given, given_small
        self.client = Client(environ=environ)
        self._made: dict[tuple[str, int], Model] = {}
        self.name, self.why = (given.name, "given") if given else providers.default_model(settings, environ)

    def main(self, settings: Settings) -> Model:
        """The root's model. Raises `ConfigError` for one that cannot be had."""
        if self.given is not None and settings.model is None:
            return self.given
        return self.make(providers.default_model(settings, self.environ)[0], settings)

    def of(self, settings: Settings, name: str, parent: Model | None) -> Model:
        """The model an agent names: its own, or the one it inherits."""
        current = parent or self.main(settings)
        if self.given is not None and name == self.given.name:
            return self.given
        if name == "small":
            return self.small(settings, current)
        resolved = providers.resolve(name, current=current.name, settings=settings, environ=self.environ)
        return current if resolved == current.name else self.make(resolved, settings)

    def small(self, settings: Settings, model: Model) -> Model:
        """The cheap model beside another one."""
        if self.given_small is not None:
            return self.given_small
        if model is self.given and settings.small_model is None:
            return model
        name = providers.small_model(model.name, settings=settings, environ=self.environ)
        return model if name == model.name else self.make(name, settings)

    def make(self, name: str, settings: Settings) -> Model:
        from retinue.models.connect import connect

        if name.startswith(TEXT):  # a model without tool calls of its own
            from retinue.models.text_protocol import TextProtocol

            return TextProtocol(self.make(name.removeprefix(TEXT), settings))
        key = (name, hash(settings.model_dump_json(include={"providers", "prices"})))
        if key not in self._made:
            self._made[key] = connect(name, settings=settings, client=self.client, environ=self.environ)
        return self._made[key]

    async def close(self) -> None:
        await self.client.close()
