"""The MCP servers that an editor hands over with a session, as settings of its app.

They come from the person's own editor, so they count as given by a program: above all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp import schema

from retinue import settings

McpServer = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio
SETTING = "mcp.servers"


def can_be_used() -> bool:
    """Whether this version of ours is a client of MCP servers."""
    return SETTING in settings.declared()


def handed_over(servers: Sequence[McpServer]) -> tuple[dict[str, Any], list[str]]:
    """The settings of an app with these servers, and the names of those that it goes without."""
    if not can_be_used():
        return {}, [server.name for server in servers]
    known = {server.name: written for server in servers if (written := _written(server)) is not None}
    without = [server.name for server in servers if server.name not in known]
    return ({SETTING: known} if known else {}), without


def _written(server: McpServer) -> dict[str, Any] | None:
    """As `.mcp.json` would have it. One that only the editor itself can reach has no such form."""
    match server:
        case schema.McpServerStdio():
            env = {each.name: each.value for each in server.env}
            return {"command": server.command, "args": list(server.args), "env": env}
        case schema.HttpMcpServer() | schema.SseMcpServer():
            headers = {each.name: each.value for each in server.headers}
            return {"type": server.type, "url": server.url, "headers": headers}
        case schema.AcpMcpServer():
            return None
