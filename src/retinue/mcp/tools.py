"""The tools of MCP servers as tools of ours: their names, effects and risks, and how one is called.

What a server says of its tools is a hint. It decides what a call asks only where a person trusts it, and only
for a tool that is still the one that was trusted; else every call asks, and counts as a way out.

What a server returns is private, unless a person has said that it is public. Nothing that is written of a
server tells whether it has a login: that may be kept elsewhere, stand in its address, or lie in the home
folder where the program finds it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from retinue.authority.flows import Out
from retinue.mcp.config import ServerConfig
from retinue.mcp.listing import ListedTool, Listing
from retinue.mcp.trust import Trust
from retinue.tools.base import ShownCall, Tool, ToolContext, ToolResult, tool_from_schema
from retinue.types import Effect, Risk
from retinue.workspace import Files

if TYPE_CHECKING:
    from retinue.mcp.connection import ServerConnection

T = TypeVar("T")
MOST_NAME = 64
"""Characters of a tool's name that every provider takes."""
LIST, READ, PROMPT = "list_resources", "read_resource", "get_prompt"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class Uses(Protocol):
    """What opens a connection when it is needed."""

    async def use(
        self,
        server: ServerConfig,
        run_id: str,
        work: Callable[[ServerConnection], Awaitable[T]],
        *,
        again: bool,
        tool: ListedTool | None = None,
    ) -> T: ...


def tool_name(server: str, tool: str) -> str:
    """`mcp__server__tool`, cut and made its own by a hash where it would be too long."""
    plain = _NOT_IN_NAMES.sub("_", tool)
    name = f"mcp__{server}__{plain}"
    if len(name) <= MOST_NAME and plain == tool:
        return name
    code = hashlib.sha256(tool.encode()).hexdigest()[:6]
    return f"{name[: MOST_NAME - 7]}_{code}"


def server_of(name: str) -> str:
    """The server that a tool's name is of, or nothing."""
    return name.split("__")[1] if name.startswith("mcp__") and name.count("__") >= 2 else ""


def tools_of(server: ServerConfig, listing: Listing, trust: Trust, uses: Uses) -> list[Tool]:
    """Every tool of a server, those over its resources and prompts included."""
    made = [_tool(server, each, trust, uses) for each in listing.tools]
    names = {tool.name for tool in made}
    more: list[Tool] = []
    outside = _reaches_out(server, listing, trust)
    if listing.resources:
        more.append(_list_resources(server, uses, trust))
        more.append(_read_resource(server, uses, trust, outside=outside))
    if listing.prompts:
        more.append(_get_prompt(server, listing, uses, trust, outside=outside))
    return [*made, *(tool for tool in more if tool.name not in names)]


def unasked(server: ServerConfig, listing: Listing, trust: Trust) -> tuple[list[str], list[str]]:
    """What is called without asking: always, and only until private data was read."""
    if trust.state(server) != "trusted":
        return [], []
    outs: dict[str, Out] = {}
    over: Out = "anywhere" if _reaches_out(server, listing, trust) else "nowhere"
    if listing.resources:
        outs |= {LIST: "nowhere" if server.written.url is None else "anywhere", READ: over}
    if listing.prompts:
        outs[PROMPT] = over
    for each in listing.tools:
        outs.pop(each.name, None)
        effect, _, _, out = _said(server, each, believed=trust.believes(server, each))
        if effect in ("read", "network"):
            outs[each.name] = out
    always = [name for name, out in outs.items() if out == "nowhere"]
    return always, [name for name in outs if name not in always]


def _reaches_out(server: ServerConfig, listing: Listing, trust: Trust) -> bool:
    """Whether what its resources and prompts are asked for can go to others.

    A server says that of its tools alone: they are as open as the most open one of them.
    """
    if server.written.url is not None or not listing.tools:
        return True
    said = [_said(server, each, believed=trust.believes(server, each)) for each in listing.tools]
    return any(out != "nowhere" for _, _, _, out in said)


def _tool(server: ServerConfig, listed: ListedTool, trust: Trust, uses: Uses) -> Tool:
    believed = trust.believes(server, listed)
    changed = trust.changed(server, listed)
    effect, risk, repeatable, out = _said(server, listed, believed=believed)
    name = tool_name(server.name, listed.name)

    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolResult:
        from retinue.mcp.results import called

        async def work(connection: ServerConnection) -> ToolResult:
            answer = await connection.call(listed.name, arguments, context)
            return called(server.name, listed.name, answer, context.files, connection.masked)

        return await uses.use(server, context.run_id, work, again=repeatable, tool=listed)

    def preview(arguments: dict[str, Any], files: Files) -> ShownCall:
        said = "Its description or schema is not the one that you trusted. It now says:"
        more = (said, listed.description or "(nothing)") if changed else ()
        return _shown(server, listed.name, arguments, *more)

    made = tool_from_schema(
        name=name,
        description=listed.description or f"{listed.name} of the MCP server {server.name}",
        schema=_schema(listed),
        effect=effect,
        call=call,
        repeatable=repeatable,
        timeout=server.written.timeout or "default",
        risk=risk,
        private=not (believed and trust.is_public(server)),
        out=out,
    )
    return replace(made, preview=preview)


def _shown(server: ServerConfig, name: str, arguments: dict[str, Any], *more: str) -> ShownCall:
    """What is called, and with what. What the server does then, nobody sees."""
    what = f"{name} of the MCP server {server.name} ({server.command_line})"
    return ShownCall(
        text="\n".join([what, *more, json.dumps(arguments, ensure_ascii=False, indent=1)]), whole=False
    )


def _said(server: ServerConfig, listed: ListedTool, *, believed: bool) -> tuple[Effect, Risk, bool, Out]:
    """Effect, risk, whether it may be repeated, and where what it is told can go."""
    said = listed.annotations if believed else None
    if said is None:
        return "execute", "high", False, "anywhere"
    outside = server.written.url is not None or said.open_world is not False
    out: Out = "anywhere" if outside else "nowhere"
    if said.read_only:
        return "network" if outside else "read", "low", True, out
    repeatable = bool(said.idempotent)
    if said.destructive is False:
        return "write", "medium", repeatable, out
    return "execute", "high", repeatable, out


def _schema(listed: ListedTool) -> dict[str, Any]:
    schema = dict(listed.schema)
    schema.setdefault("type", "object")
    return schema


def _over(
    server: ServerConfig,
    name: str,
    description: str,
    properties: dict[str, Any],
    call: Callable[[dict[str, Any], ToolContext[Any]], Awaitable[ToolResult]],
    *,
    trust: Trust,
    outside: bool,
) -> Tool:
    trusted = trust.state(server) == "trusted"
    effect: Effect = ("network" if outside else "read") if trusted else "execute"
    out: Out = "anywhere" if outside or not trusted else "nowhere"

    def preview(arguments: dict[str, Any], files: Files) -> ShownCall:
        return _shown(server, name, arguments)

    made = tool_from_schema(
        name=tool_name(server.name, name),
        description=description,
        schema={
            "type": "object",
            "properties": properties,
            "required": [each for each in properties if each in ("uri", "name")],
        },
        effect=effect,
        call=call,
        repeatable=True,
        timeout=server.written.timeout or "default",
        risk="low" if trusted else "medium",
        private=not trust.is_public(server),
        out=out,
    )
    return replace(made, preview=preview)


def _list_resources(server: ServerConfig, uses: Uses, trust: Trust) -> Tool:
    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolResult:
        from retinue.mcp.results import listed_resources

        async def work(connection: ServerConnection) -> ToolResult:
            found = await connection.resources()
            return listed_resources(server.name, found, context.files, connection.masked)

        return await uses.use(server, context.run_id, work, again=True)

    about = f"List the resources that the MCP server {server.name} has: their URIs, names and descriptions."
    outside = server.written.url is not None  # a program is told nothing by it
    return _over(server, LIST, about, {}, call, trust=trust, outside=outside)


def _read_resource(server: ServerConfig, uses: Uses, trust: Trust, *, outside: bool) -> Tool:
    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolResult:
        from retinue.mcp.results import read_resource

        async def work(connection: ServerConnection) -> ToolResult:
            answer = await connection.read(str(arguments["uri"]), context)
            return read_resource(server.name, answer, context.files, connection.masked)

        return await uses.use(server, context.run_id, work, again=True)

    about = f"Read a resource of the MCP server {server.name} by its URI, as {LIST} names it."
    return _over(server, READ, about, {"uri": {"type": "string"}}, call, trust=trust, outside=outside)


def _get_prompt(server: ServerConfig, listing: Listing, uses: Uses, trust: Trust, *, outside: bool) -> Tool:
    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolResult:
        from retinue.mcp.results import prompt

        given: dict[str, Any] = arguments.get("arguments") or {}

        async def work(connection: ServerConnection) -> ToolResult:
            texts = {str(key): str(value) for key, value in given.items()}
            answer = await connection.prompt(str(arguments["name"]), texts, context)
            return prompt(server.name, answer, context.files, connection.masked)

        return await uses.use(server, context.run_id, work, again=True)

    known = "\n".join(
        f"- {each.name}({', '.join(each.arguments)}): {each.description}"[:300]
        for each in listing.prompts[:50]
    )
    about = f"Get a prompt that the MCP server {server.name} offers, filled in. It has:\n{known}"
    properties = {
        "name": {"type": "string", "enum": [each.name for each in listing.prompts]},
        "arguments": {"type": "object", "description": "its arguments, all of them texts"},
    }
    return _over(server, PROMPT, about, properties, call, trust=trust, outside=outside)
