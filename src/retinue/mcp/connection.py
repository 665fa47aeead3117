"""One connection to an MCP server, over the official package. Imported when the first server is used.

A task of its own opens it, holds it and closes it: what the package opens has to be closed by the same task.
Calls come from whichever run. What goes wrong is a `ToolError` with what to do next, without the values of
variables that the server was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import mcp_types
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from retinue.errors import ConfigError, ToolError, told
from retinue.mcp.config import ServerConfig
from retinue.mcp.listing import (
    MOST_DESCRIPTION,
    MOST_INSTRUCTIONS,
    MOST_TOOLS,
    Annotations,
    ListedPrompt,
    ListedTool,
    Listing,
)
from retinue.mcp.login import Person, ServerLogin
from retinue.mcp.sampling import asked_of_model
from retinue.mcp.stdio import StdioTransport
from retinue.mcp.unread import refusal
from retinue.mcp.web import http_client
from retinue.programs import path_outside
from retinue.sandbox.commands.hide import harmless
from retinue.sandbox.commands.launch import Commands
from retinue.settings import McpSettings
from retinue.tools.base import FormQuestion, SampleRequest, ToolContext

T = TypeVar("T")
MOST_PAGES = 100
CLOSING = 10.0
"""Seconds a connection may take to close by itself."""
STARS = "***"
for _name in ("mcp", "client"):  # what the package logs is for whoever asks for it
    logging.getLogger(_name).addHandler(logging.NullHandler())


class ServerGone(ToolError):
    """The connection ended. Another one may be opened."""


@dataclass(kw_only=True, eq=False)
class UnderWay:
    """A call that has not come back, and what is done for the sake of it meanwhile."""

    context: ToolContext[Any]
    work: set[asyncio.Future[Any]] = field(default_factory=set[asyncio.Future[Any]])

    async def during(self, work: Awaitable[T]) -> T:
        """Do it as long as the call lasts: over pipes it is no part of the task that waits for the call."""
        task = asyncio.ensure_future(work)
        self.work.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self.work.discard(task)
        if task.cancelled():
            raise ToolError("the call has ended meanwhile")
        return task.result()


_current: ContextVar[UnderWay | None] = ContextVar("current call of an MCP server", default=None)


@dataclass(kw_only=True, frozen=True)
class Means:
    """What a connection is opened with."""

    settings: McpSettings
    commands: Commands
    environ: Mapping[str, str]
    project: Path | None
    admit: Callable[[ServerConfig], None]
    """Raises `Refused` for a server that may not start as it is now. Reads files: not for an event loop."""
    person: Person | None = None
    """Who can log in, should the server want that."""


class ServerConnection:
    """A server that runs, or is reached. `changed` is told when it says that its tools are others now."""

    def __init__(self, server: ServerConfig, means: Means) -> None:
        self.server, self._means = server, means
        self.changed: Callable[[], None] = lambda: None
        self._secrets = server.secrets(means.environ)
        self._client: Client | None = None
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._pipe: StdioTransport | None = None
        self._fault = ""
        self._login: ServerLogin | None = None
        self._calls: list[UnderWay] = []
        self._asking, self._fewer = 0, asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done() and not self._ended

    @property
    def _ended(self) -> bool:
        return bool(self._fault) or (self._pipe is not None and self._pipe.ended.is_set())

    async def open(self) -> None:
        """Start it, or reach it. Raises `ToolError` that says why that did not work."""
        seconds = self._means.settings.start_timeout
        self._task = asyncio.create_task(self._hold(), name=f"mcp {self.server.name}")
        done, _ = await asyncio.wait([self._opened], timeout=seconds)
        if not done:
            await self.close()
            raise self._failed(
                f"did not answer within {seconds:g} s (mcp.start_timeout)",
                "look at its command with 'retinue mcp test'",
            )
        try:
            self._client = self._opened.result()
        except ToolError:
            raise
        except BaseException as error:
            self._require_login()
            raise self._failed(f"could not be started: {_inner(error)}", _advice(error)) from None

    async def close(self) -> None:
        self._stop.set()
        if self._task is None:
            return
        if not self._opened.done():
            self._task.cancel()
        done, _ = await asyncio.wait([self._task], timeout=CLOSING)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _hold(self) -> None:
        """Open, wait, close: all in this one task."""
        opened = self._opened
        try:
            async with self._transport() as transport, self._new_client(transport) as client:
                if not opened.done():
                    opened.set_result(client)
                await self._until_over(client)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
        finally:
            if not opened.done():
                opened.cancel()
            elif not opened.cancelled():
                opened.exception()  # somebody has it, or nobody waits any more

    async def _until_over(self, client: Client) -> None:
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._stop.wait())]
        if self._pipe is not None:
            waits.append(asyncio.create_task(self._pipe.ended.wait()))
        tools = client.server_capabilities.tools
        if tools is not None and tools.list_changed and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            waits.append(asyncio.create_task(self._follow(client)))
        try:
            await asyncio.wait(waits[:2] if self._pipe else waits[:1], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _follow(self, client: Client) -> None:
        """In the current revision a client asks to be told of changes."""
        with contextlib.suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.changed()

    def _new_client(self, transport: Any) -> Client:
        return Client(
            transport,
            client_info=mcp_types.Implementation(name="retinue", version=_version()),
            message_handler=self._heard,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample if self._means.settings.sampling == "ask" else None,
            cache=None,
        )

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any]:
        filled, settings = self.server.filled(self._means.environ), self._means.settings
        most = settings.message_mb * 1_000_000
        if filled.url is None:
            given = {name: value for name, value in self._means.environ.items() if harmless(name)}
            outside = None if self.server.of_repository else self._means.project
            if outside is not None and "PATH" in given:  # what it starts is no program of the project either
                given["PATH"] = path_outside(outside, path=given["PATH"])
            self._pipe = StdioTransport(
                self._means.commands,
                [filled.command or "", *filled.args],
                env={**given, **self._bytecode(), **filled.env},
                folder=self.server.start_folder(self._means.environ, self._means.project),
                most=most,
                admit=self._admit,
                outside=outside,
            )
            yield self._pipe
            return
        await self._admit()
        if not any(name.lower() == "authorization" for name in filled.headers):
            self._login = ServerLogin(self.server.name, filled.url, self._means.person)
        if self.server.transport == "sse":
            yield sse_client(filled.url, headers=dict(filled.headers), auth=self._login)
        else:
            async with http_client(self.server, filled, most, self._login) as client:
                yield streamable_http_client(filled.url, http_client=client, max_sse_event_size=most)

    async def _admit(self) -> None:
        """At every start, of the files as they are now: a run may have changed them since it began."""
        await asyncio.to_thread(self._means.admit, self.server)

    def _bytecode(self) -> dict[str, str]:
        """Compiled modules of a repository come from where no command of an agent can have put them."""
        if not self.server.of_repository:
            return {}
        from platformdirs import user_cache_path

        return {"PYTHONPYCACHEPREFIX": str(user_cache_path("retinue", appauthor=False) / "mcp-bytecode")}

    async def _heard(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.changed()
        elif isinstance(message, ValueError) and self.server.transport == "sse":
            # One stream carries all answers, and nobody says whose this one was.
            self._fault = f"it sent what cannot be read: {refusal(None, message).error.message}"
            self._stop.set()

    async def _elicit(
        self, context: Any, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        """Put what a server wants to know to the person whose call it is."""
        call = await self._asker()
        if call is None and self._calls:
            return mcp_types.ElicitResult(action="cancel")
        if call is None:
            return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="no call is under way")
        if isinstance(params, mcp_types.ElicitRequestURLParams):
            question = FormQuestion(asker=self.server.name, text=self.masked(params.message), url=params.url)
        else:
            question = FormQuestion(
                asker=self.server.name, text=self.masked(params.message), schema=params.requested_schema
            )
        try:
            answer = await call.context.inquire(question)
        except ToolError:
            return mcp_types.ElicitResult(action="cancel")
        if answer.action != "accept":
            return mcp_types.ElicitResult(action=answer.action)
        return mcp_types.ElicitResult(action="accept", content=None if question.url else answer.content)

    async def _sample(
        self, context: Any, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult | mcp_types.ErrorData:
        """Have the small model write for a server, if the person whose call it is agrees."""
        call = await self._asker()
        if call is None:
            return _not_sampled("nobody knows for which call that is")
        try:
            asked = SampleRequest(asker=self.server.name, request=asked_of_model(params))
            reply = await call.during(call.context.sample(asked))
        except ToolError as error:
            return _not_sampled(self.masked(str(error)))
        stopped = {"end": "endTurn", "length": "maxTokens"}.get(reply.stop, reply.stop)
        content = mcp_types.TextContent(type="text", text=reply.message.text)
        return mcp_types.CreateMessageResult(
            role="assistant", content=content, model=reply.model, stop_reason=stopped
        )

    async def _asker(self) -> UnderWay | None:
        """The call for whose sake a server asks. Over pipes it does not say. Where all that are under way are
        of one run, it is the first of them: the person and the rules are the same. Else a call that asks does
        not end meanwhile, so the others are waited for; if all of them ask, nobody knows: None."""
        if (call := _current.get()) is not None:
            return call
        self._asking += 1
        try:
            while len({call.context.run_id for call in self._calls}) > 1:
                if self._asking >= len(self._calls):
                    return None
                self._fewer.clear()
                await self._fewer.wait()
            return self._calls[0] if self._calls else None
        finally:
            self._asking -= 1

    # -- what is asked of it ---------------------------------------------------

    async def listing(self) -> Listing:
        """All that it offers."""
        return await self._guarded(self._list())

    async def _list(self) -> Listing:
        client = self._known_client()
        offers = client.server_capabilities
        tools: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES if offers.tools is not None else 0):
            page = await client.list_tools(cursor=cursor)
            tools += map(_listed, page.tools)
            cursor = page.next_cursor
            if cursor is None or len(tools) >= MOST_TOOLS:
                break
        prompts: list[ListedPrompt] = []
        if offers.prompts is not None:
            with contextlib.suppress(MCPError):
                prompts = [_prompt(each) for each in (await client.list_prompts()).prompts]
        about = client.server_info
        return Listing(
            at=time.time(),
            tools=tuple(tools[:MOST_TOOLS]),
            prompts=tuple(prompts[:MOST_TOOLS]),
            resources=offers.resources is not None,
            instructions=(client.instructions or "")[:MOST_INSTRUCTIONS],
            protocol=client.protocol_version,
            title="" if about is None else f"{about.title or about.name} {about.version}",
        )

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        context: ToolContext[Any],
    ) -> mcp_types.CallToolResult:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            of = "" if total is None else f" of {total:g}"
            context.progress(self.masked(f"{progress:g}{of}{': ' + message if message else ''}"[:500]))

        with self._under_way(context):
            return await self._guarded(
                self._known_client().call_tool(tool, arguments, progress_callback=tell), tool
            )

    async def resources(self) -> list[mcp_types.Resource | mcp_types.ResourceTemplate]:
        async def ask() -> list[mcp_types.Resource | mcp_types.ResourceTemplate]:
            client = self._known_client()
            found: list[mcp_types.Resource | mcp_types.ResourceTemplate] = []
            cursor: str | None = None
            for _ in range(MOST_PAGES):
                page = await client.list_resources(cursor=cursor)
                found += page.resources
                cursor = page.next_cursor
                if cursor is None or len(found) >= MOST_TOOLS:
                    break
            with contextlib.suppress(MCPError):
                found += (await client.list_resource_templates()).resource_templates
            return found

        return await self._guarded(ask())

    async def read(self, uri: str, context: ToolContext[Any]) -> mcp_types.ReadResourceResult:
        with self._under_way(context):
            return await self._guarded(self._known_client().read_resource(uri))

    async def prompt(
        self, name: str, arguments: dict[str, str], context: ToolContext[Any]
    ) -> mcp_types.GetPromptResult:
        with self._under_way(context):
            return await self._guarded(self._known_client().get_prompt(name, arguments))

    @contextlib.contextmanager
    def _under_way(self, context: ToolContext[Any]) -> Generator[None]:
        call = UnderWay(context=context)
        self._calls.append(call)
        token = _current.set(call)
        try:
            yield
        finally:
            _current.reset(token)
            self._calls.remove(call)
            self._fewer.set()
            for work in call.work:
                work.cancel()

    def _known_client(self) -> Client:
        if self._client is None or not self.alive:
            raise self._gone()
        return self._client

    async def _guarded(self, work: Awaitable[T], tool: str = "") -> T:
        """What goes wrong, in words that a model can act on."""
        try:
            return await work
        except MCPError as error:
            self._require_login()
            if error.code == mcp_types.CONNECTION_CLOSED or not self.alive:
                raise self._gone() from None
            said = f"{self.server.name} answered with error {error.code}"
            if error.code == mcp_types.PARSE_ERROR:
                said = f"what {self.server.name} answered{f' to {tool}' * bool(tool)} cannot be read"
            raise ToolError(self.masked(f"{said}: {error.message[:2000]}")) from None
        except (asyncio.CancelledError, ToolError):
            raise
        except Exception as error:
            if not self.alive:
                raise self._gone() from None
            what = f" to {tool}" if tool else ""
            raise ToolError(
                self.masked(f"what {self.server.name} answered{what} cannot be used: {_inner(error)[:2000]}")
            ) from None

    def _require_login(self) -> None:
        if self._login is not None and self._login.asks:
            raise ToolError(self._login.asks)

    def masked(self, text: str) -> str:
        """Without the values that the server was given."""
        for value in (*self._secrets, *(() if self._login is None else self._login.secrets)):
            text = text.replace(value, STARS)
        return text

    def _gone(self) -> ServerGone:
        why = self._pipe.fault if self._pipe is not None else self._fault
        words = self._pipe.last_words() if self._pipe is not None and not why else ""
        said = f". The last it wrote to stderr: {words}" if words else ""
        text = f"the MCP server {self.server.name} ended while it was used" + (f": {why}" if why else "")
        return ServerGone(self.masked(f"{text}{said}"))

    def _failed(self, what: str, fix: str = "") -> ToolError:
        words = self._pipe.last_words() if self._pipe is not None else ""
        said = f". It wrote to stderr: {words}" if words else ""
        then = f". {fix}" if fix else ""
        return ToolError(self.masked(f"the MCP server {self.server.name} {what}{said}{then}"))


def _not_sampled(why: str) -> mcp_types.ErrorData:
    return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=f"nothing was written: {why}")


def _inner(error: BaseException) -> str:
    """The error that a group of them is about."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ConfigError | ToolError | MCPError):
        return str(error)
    return told(error)


def _advice(error: BaseException) -> str:
    return "" if isinstance(error, ConfigError) else "'retinue mcp test' shows more"


def _listed(tool: mcp_types.Tool) -> ListedTool:
    said = tool.annotations
    return ListedTool(
        name=tool.name,
        description=(tool.description or tool.title or "")[:MOST_DESCRIPTION],
        schema=tool.input_schema,
        annotations=None
        if said is None
        else Annotations(
            read_only=said.read_only_hint,
            destructive=said.destructive_hint,
            idempotent=said.idempotent_hint,
            open_world=said.open_world_hint,
        ),
    )


def _prompt(prompt: mcp_types.Prompt) -> ListedPrompt:
    return ListedPrompt(
        name=prompt.name,
        description=(prompt.description or "")[:500],
        arguments=tuple(f"{a.name}{'' if a.required else '?'}" for a in prompt.arguments or ()),
    )


def _version() -> str:
    from importlib.metadata import version

    return version("retinue")
