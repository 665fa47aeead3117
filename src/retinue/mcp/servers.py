"""The MCP servers of an app and of a tree: what is known of them, and the connections that are open.

`AppServers` belongs to the app: which servers there are, which of them may start, what each offers. It hands
every workflow a `TreeServers`, which opens a connection at the first call, shares it in the tree or keeps one
for each run, opens it again when it has ended, and closes all of them with the workflow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from retinue.agents import Catalogue
from retinue.builtin_tools import is_installed
from retinue.errors import ConfigError, Refused, ToolError
from retinue.mcp.config import Configured, ServerConfig, configured
from retinue.mcp.listing import ListedTool, Listing, keep_listing, known_listing
from retinue.mcp.tools import server_of, tools_of
from retinue.mcp.trust import STATES, Trust, fingerprint
from retinue.mcp.ways_out import is_changed_in
from retinue.settings import LoadedSettings, McpSettings
from retinue.tools.base import Tool
from retinue.types import AgentSpec

if TYPE_CHECKING:
    from retinue.mcp.connection import Means, ServerConnection
    from retinue.sandbox.commands.launch import Commands

T = TypeVar("T")
log = logging.getLogger("retinue")
MOST_STARTS = 5
"""How often one server is started in a tree."""
INSTALL = "pip install 'retinue[mcp]'"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerStatus:
    """A server as people are shown it."""

    name: str
    origin: str
    scope: str
    command: str
    transport: str
    trust: str
    trust_says: str
    state: str
    tools: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    problem: str = ""


class AppServers:
    """Which servers there are, what they offer, and which of them run."""

    def __init__(
        self,
        loaded: LoadedSettings,
        *,
        project: Path | None,
        agents: Catalogue,
        environ: Mapping[str, str],
        commands: Commands,
    ) -> None:
        self._loaded, self._project, self._environ = loaded, project, environ
        self._commands = commands
        self.configured = Configured()
        self.trust = Trust()
        self.listings: dict[str, Listing] = {}
        self.trees: set[TreeServers] = set()
        self._listing: dict[str, asyncio.Task[None]] = {}
        self.read(agents)

    def read(self, agents: Catalogue) -> None:
        """Look what is configured, trusted and known of each."""
        self.configured = configured(self._loaded, self._project, agents, self._environ)
        self.trust.reread()
        self.listings = {}
        for server in self.servers.values():
            found = known_listing(server)
            if found is not None and not found.stale:
                self.listings[server.name] = found

    @property
    def servers(self) -> Mapping[str, ServerConfig]:
        return self.configured.servers

    @property
    def usable(self) -> dict[str, ServerConfig]:
        """Those that may start."""
        return {name: each for name, each in self.servers.items() if self.trust.may_start(each)}

    @property
    def waiting(self) -> list[ServerConfig]:
        """Those that nobody has trusted yet."""
        return [each for each in self.servers.values() if not self.trust.may_start(each)]

    def means(self, settings: McpSettings) -> Means:
        from retinue.mcp.connection import Means

        return Means(
            settings=settings,
            commands=self._commands,
            environ=self._environ,
            project=self._project,
            admit=self.trust.require,
        )

    def named_files(self) -> list[str]:
        """The files of repositories that the commands of servers name which may start: nobody asks again."""
        return list(dict.fromkeys(path for each in self.usable.values() for path in each.files.named))

    def started_from(self, folder: Path) -> list[str]:
        """The servers that are started, without anybody being asked, from what may be changed in a folder.

        A person may have trusted one since this process began. That one was trusted counts, not that it is as
        it was then: whoever changes a file can change it back.
        """
        with contextlib.suppress(ConfigError):  # what was read before counts
            self.trust.reread()
        return [
            name
            for name, each in self.servers.items()
            if (not each.of_repository or self.trust.knows(each))
            and is_changed_in(folder, each, self._environ, self._project)
        ]

    def reached_by(self, spec: AgentSpec) -> list[str]:
        """The servers whose tools an agent may hold, as far as its own lists say."""
        return [
            name
            for name in self.usable
            if (spec.mcp_servers is None or name in spec.mcp_servers)
            and (spec.tools is None or bool(spec.mcp_servers) or _names_tools(spec.tools, name))
        ]

    async def prepare(self, names: Iterable[str], settings: McpSettings) -> None:
        """Have those listed that never were. A server that cannot be listed is left out, and that is said."""
        wanted = [each for name in names if (each := self.usable.get(name)) and name not in self.listings]
        if wanted and not is_installed("mcp"):
            names = ", ".join(each.name for each in wanted)
            log.warning("the MCP servers %s are not used: %s", names, INSTALL)
            return
        for each in wanted:
            if each.name not in self._listing:
                task = asyncio.create_task(self.list_now(each, settings))
                self._listing[each.name] = task
                task.add_done_callback(lambda _, name=each.name: self._listing.pop(name, None))
        tasks = [self._listing[each.name] for each in wanted if each.name in self._listing]
        if tasks:
            await asyncio.wait(tasks)

    async def list_now(self, server: ServerConfig, settings: McpSettings) -> None:
        """Start a server, or reach it, only to see what it offers."""
        try:
            await load_package()
            listing = await list_server(server, self.means(settings))
        except ToolError as error:
            listing = Listing(at=time.time(), failed=str(error))
            log.warning("%s", error)
        self.keep(server, listing)

    def keep(self, server: ServerConfig, listing: Listing) -> None:
        self.listings[server.name] = listing
        keep_listing(server, listing)

    def tree(self, settings: McpSettings) -> TreeServers:
        """The connections of a workflow."""
        return TreeServers(self, settings)

    def status(self) -> list[ServerStatus]:
        running = {name for tree in self.trees for name in tree.running}
        return [self._status(each, running) for each in self.servers.values()]

    def _status(self, server: ServerConfig, running: set[str]) -> ServerStatus:
        trust, listing = self.trust.state(server), self.listings.get(server.name)
        known = "not listed yet" if listing is None else "failed" if listing.failed else "ready"
        return ServerStatus(
            name=server.name,
            origin=server.origin,
            scope=server.scope,
            command=server.command_line,
            transport=server.transport,
            trust=trust,
            trust_says=STATES[trust],
            state="running" if server.name in running else known if self.trust.may_start(server) else "waits",
            tools=() if listing is None else tuple(tool.name for tool in listing.tools),
            variables=server.needs,
            problem="" if listing is None else listing.failed,
        )

    async def close(self) -> None:
        for task in list(self._listing.values()):
            task.cancel()
        if self._listing:
            await asyncio.wait(list(self._listing.values()))
        for tree in list(self.trees):
            await tree.close()


async def load_package() -> None:
    """Import the package, which takes a while: not in the way of what else runs."""
    await asyncio.to_thread(import_module, "retinue.mcp.connection")


def _names_tools(patterns: Iterable[str], server: str) -> bool:
    begins = f"mcp__{server}__"
    return any(each.startswith(begins) or fnmatchcase(f"{begins}x", each) for each in patterns)


async def list_server(server: ServerConfig, means: Means) -> Listing:
    """What a server offers, with a connection of its own. Raises `ToolError`."""
    from retinue.mcp.connection import ServerConnection

    connection = ServerConnection(server, means)
    try:
        await connection.open()
        async with asyncio.timeout(means.settings.start_timeout):
            return await connection.listing()
    except TimeoutError:
        raise ToolError(
            f"the MCP server {server.name} did not list its tools within {means.settings.start_timeout:g} s"
        ) from None
    finally:
        await connection.close()


@dataclass(kw_only=True, eq=False)
class _Place:
    """Where one server is reached from: for the tree, or for one run."""

    connection: ServerConnection | None = None
    opening: asyncio.Task[ServerConnection] | None = None
    starts: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])


class TreeServers:
    """The connections of one workflow. `version` grows whenever what the servers offer is another."""

    def __init__(self, app: AppServers, settings: McpSettings) -> None:
        self._app, self._settings = app, settings
        self._places: dict[tuple[str, str], _Place] = {}
        self.version = 0
        self._tools: dict[str, Tool] = {}
        self._remake()

    def _remake(self) -> None:
        self._tools = {}
        for server in self._app.usable.values():
            listing = self._app.listings.get(server.name)
            if listing is not None and is_installed("mcp"):
                self._tools |= {t.name: t for t in tools_of(server, listing, self._app.trust, self)}

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What the servers that may start offer, by name, as far as that is known."""
        return self._tools

    @property
    def given(self) -> frozenset[str]:
        """The tools of servers that the program itself gave."""
        own = {each.name for each in self._app.servers.values() if each.scope == "program"}
        return frozenset(name for name in self._tools if server_of(name) in own)

    @property
    def names(self) -> frozenset[str]:
        """The servers that may start."""
        return frozenset(self._app.usable)

    @property
    def of_agents(self) -> Mapping[str, str]:
        """The servers that an agent's own file defines, and that agent."""
        return {each.name: each.agent for each in self._app.servers.values() if each.agent}

    @property
    def running(self) -> set[str]:
        return {
            name for (name, _), place in self._places.items() if place.connection and place.connection.alive
        }

    def instructions(self, names: Iterable[str]) -> dict[str, str]:
        """What servers say of themselves to whoever holds their tools."""
        found = ((name, self._app.listings.get(name)) for name in names)
        return {name: each.instructions for name, each in found if each is not None and each.instructions}

    async def use(
        self,
        server: ServerConfig,
        run_id: str,
        work: Callable[[ServerConnection], Awaitable[T]],
        *,
        again: bool,
        tool: ListedTool | None = None,
    ) -> T:
        """Do something with a connection. What may be repeated is done again where the server ended."""
        from retinue.mcp.connection import ServerGone

        connection = await self._connected(server, run_id)
        self._same(server, tool)
        try:
            return await work(connection)
        except ServerGone:
            if not again:
                raise
        connection = await self._connected(server, run_id)
        self._same(server, tool)
        return await work(connection)

    def _same(self, server: ServerConfig, tool: ListedTool | None) -> None:
        """Refuse a call of a tool that is another one than the one that was judged."""
        listing = self._app.listings.get(server.name)
        if tool is None or listing is None:
            return
        now = next((each for each in listing.tools if each.name == tool.name), None)
        if now is None:
            names = ", ".join(each.name for each in listing.tools) or "none"
            raise ToolError(
                f"not called: the MCP server {server.name} does not offer {tool.name} any more. Its tools: "
                f"{names[:1000]}",
                not_run="unknown_tool",
            )
        if fingerprint(now) != fingerprint(tool):
            raise ToolError(
                f"not called: the MCP server {server.name} has changed what {tool.name} is or takes. Call it "
                "again, as it is described now.",
                not_run="bad_arguments",
            )

    async def _connected(self, server: ServerConfig, run_id: str) -> ServerConnection:
        key = (server.name, run_id if server.written.share == "run" else "")
        self._app.trees.add(self)
        place = self._places.setdefault(key, _Place())
        if place.connection is not None and place.connection.alive:
            if place.tasks:  # it said that its tools are others now: what they are is known first
                await asyncio.wait(list(place.tasks))
            return place.connection
        if place.opening is None or place.opening.done():
            place.opening = asyncio.create_task(self._open(server, place))
        return await asyncio.shield(place.opening)  # others may wait for it as well

    async def _open(self, server: ServerConfig, place: _Place) -> ServerConnection:
        await load_package()
        from retinue.mcp.connection import ServerConnection

        if place.connection is not None:
            await place.connection.close()
        if place.starts >= MOST_STARTS:
            raise ToolError(
                f"the MCP server {server.name} has ended {place.starts} times in this run and is not started "
                "again. Do without it."
            )
        place.starts += 1
        connection = ServerConnection(server, self._app.means(self._settings))
        connection.changed = partial(self._changes, server, place, connection)
        place.connection = connection
        try:
            await connection.open()
            self._take(server, await connection.listing())
        except BaseException as error:
            if isinstance(error, Refused):  # a person may say otherwise meanwhile
                place.starts -= 1
            await connection.close()
            raise
        return connection

    def _take(self, server: ServerConfig, listing: Listing) -> None:
        before = self._app.listings.get(server.name)
        self._app.keep(server, listing)
        offered = (listing.tools, listing.prompts, listing.resources)
        if before is None or (before.tools, before.prompts, before.resources) != offered:
            self._remake()
            self.version += 1

    def _changes(self, server: ServerConfig, place: _Place, connection: ServerConnection) -> None:
        """The server says that its tools are others now."""

        async def look() -> None:
            with contextlib.suppress(ToolError):
                self._take(server, await connection.listing())

        if len(place.tasks) < 2:  # one that looks, and one that looks after it
            task = asyncio.create_task(look())
            place.tasks.add(task)
            task.add_done_callback(place.tasks.discard)

    async def close_run(self, run_id: str) -> None:
        """End what one run had to itself."""
        for key in [key for key in self._places if key[1] == run_id]:
            await _closed(self._places.pop(key))

    async def close(self) -> None:
        """End all of them."""
        self._app.trees.discard(self)
        places, self._places = list(self._places.values()), {}
        await asyncio.gather(*map(_closed, places))


async def _closed(place: _Place) -> None:
    for task in (*place.tasks, *([place.opening] if place.opening is not None else [])):
        task.cancel()
        await asyncio.wait([task])
    if place.connection is not None:
        await place.connection.close()
