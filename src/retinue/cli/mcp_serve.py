"""`retinue mcp serve`: the agents for other programs, over stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.service import (
    Grants,
    Host,
    ListenOptions,
    Names,
    Port,
    ServiceOptions,
    WithoutTokens,
    log_service,
)
from retinue.errors import ConfigError


def mcp_serve(
    http: Annotated[
        bool, typer.Option("--http", help="Serve at /mcp of an address instead, with the page and the API.")
    ] = False,
    host: Host = None,
    port: Port = None,
    token: Grants = None,
    without_tokens: WithoutTokens = False,
    allow_host: Names = None,
    wait_approvals: Annotated[
        bool,
        typer.Option(
            "--wait-approvals",
            help="Where a program has no forms: wait for an answer on the page or by 'retinue approvals'.",
        ),
    ] = False,
    model: o.Model = None,
    tools: o.Tools = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
) -> int:
    """Offer the agents to other programs as an MCP server, for this folder.

    Programs start it themselves: give them this command. It speaks over stdin and stdout, and logs to stderr.
    With --http it is a server for several of them: without tokens for this machine alone.

    \b
    Examples:
      retinue mcp serve
      retinue mcp serve --cwd ~/code/shop --model anthropic:claude-sonnet-5-5
      retinue mcp serve --http --host 0.0.0.0 --token alice:approve --allow-host agents.example.org
    """
    if not http and (host or port is not None or token or without_tokens or allow_host):
        raise ConfigError(
            "--host, --port, --token, --without-tokens and --allow-host are for a server", fix="add --http"
        )
    log_service("INFO" if http else "WARNING", ("httpx", "asyncio", "mcp", "uvicorn"), "ERROR")
    service = ServiceOptions(model=model, tools=tools, cwd=cwd, db=db)
    if not http:
        return asyncio.run(_over_stdio(service, waits=wait_approvals))
    listen = ListenOptions(
        host=host, port=port, token=token, without_tokens=without_tokens, allow_host=allow_host
    )
    return asyncio.run(_over_http(service, listen, waits=wait_approvals))


async def _over_stdio(service: ServiceOptions, *, waits: bool) -> int:
    from retinue.cli.process import make_room
    from retinue.mcp_server.hosted import HostedRuns
    from retinue.mcp_server.server import create_server
    from retinue.mcp_server.stdio import serve_stdio

    async with service.opened(answering="refuse") as retinue:
        hosted = HostedRuns(retinue, waits=waits)
        server = create_server(hosted)
        make_room()
        await serve_stdio(hosted, server)
    return exits.OK


async def _over_http(service: ServiceOptions, listen: ListenOptions, *, waits: bool) -> int:
    from retinue.cli.process import make_room
    from retinue.mcp_server.hosted import HostedRuns
    from retinue.mcp_server.http import StartRate, endpoint
    from retinue.server.limits import RateLimits
    from retinue.server.serving import serve
    from retinue.view.paint import note

    async with service.opened(answering="ask") as retinue:
        limits = RateLimits()
        hosted = HostedRuns(retinue, admit=StartRate(limits), waits=waits)
        listening = listen.bind(retinue)
        async with endpoint(hosted, limits) as route:
            app = listen.app(retinue, limits=limits, routes=[route], stopping=hosted.leave)
            make_room()
            await serve(
                retinue,
                app,
                listening=listening,
                ready=lambda url: note(f"{retinue.cwd} is served at {url}/mcp, the page at {url}/", "green"),
            )
    return exits.OK
