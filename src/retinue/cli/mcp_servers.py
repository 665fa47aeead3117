"""The MCP servers of a folder, for the commands of `retinue mcp`. Starts nothing."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from retinue.mcp.config import ServerConfig
    from retinue.mcp.servers import AppServers
    from retinue.settings import LoadedSettings

Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name.", show_default=False)]


def servers_of(cwd: Path | None, loaded: LoadedSettings | None = None) -> AppServers:
    """What is configured for a folder, with its settings or those that are given. Starts nothing."""
    from retinue import settings
    from retinue.agents import load_agents
    from retinue.mcp.servers import AppServers
    from retinue.sandbox.commands.launch import Commands

    folder = (cwd or Path()).absolute()
    loaded = loaded or settings.load(cwd=folder)
    return AppServers(
        loaded,
        project=folder,
        agents=load_agents(folder, trusted=loaded.trusted),
        environ=os.environ,
        commands=Commands(),
    )


def named_server(servers: AppServers, name: str) -> ServerConfig:
    from retinue.errors import ConfigError

    if name in servers.servers:
        return servers.servers[name]
    near = get_close_matches(name, servers.servers, n=1)
    known = ", ".join(servers.servers) or "none"
    raise ConfigError(
        f"there is no MCP server {name!r}; known: {known}",
        fix=f"did you mean '{near[0]}'?" if near else "'retinue mcp add' writes one",
    )


def require_start(servers: AppServers, server: ServerConfig) -> None:
    from retinue.errors import ConfigError

    if not servers.trust.may_start(server):
        raise ConfigError(
            f"{server.name} of {server.origin} would start: {server.command_line}",
            fix=f"read that, then 'retinue mcp trust {server.name}'",
        )
