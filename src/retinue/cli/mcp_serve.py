"""`retinue mcp serve`: the agents for other programs, over stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.serve import Grants, Host, Names, Port, WithoutTokens
from retinue.errors import ConfigError

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.engine.config import Answering


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """What the command was told."""

    host: str | None
    port: int | None
    grants: tuple[str, ...]
    without_tokens: bool
    names: tuple[str, ...]
    waits: bool
    model: str | None
    tools: tuple[str, ...]
    cwd: Path | None
    db: str | None


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
    from retinue.cli.process import log_to_stderr

    if not http and (host or port is not None or token or without_tokens or allow_host):
        raise ConfigError(
            "--host, --port, --token, --without-tokens and --allow-host are for a server", fix="add --http"
        )
    log_to_stderr("INFO" if http else "WARNING", "%(asctime)s %(message)s")
    for name in ("httpx", "asyncio", "mcp", "uvicorn"):
        logging.getLogger(name).setLevel(logging.ERROR)
    hosting = Hosting(
        host=host,
        port=port,
        grants=tuple(token or ()),
        without_tokens=without_tokens,
        names=tuple(allow_host or ()),
        waits=wait_approvals,
        model=model,
        tools=tuple(tools or ()),
        cwd=cwd,
        db=db,
    )
    return asyncio.run(_over_http(hosting) if http else _over_stdio(hosting))


@asynccontextmanager
async def _opened(hosting: Hosting, answering: Answering) -> AsyncGenerator[Retinue]:
    from retinue.app import Retinue
    from retinue.cli.foreground import warn
    from retinue.cli.own_tools import tools_of

    async with Retinue(
        model=hosting.model,
        db=hosting.db,
        cwd=hosting.cwd,
        tool_files=tools_of(hosting.cwd, hosting.tools),
        answering=answering,
        fallback="offline",
    ) as retinue:
        warn(retinue, quiet=False)
        yield retinue


async def _over_stdio(hosting: Hosting) -> int:
    from retinue.cli.process import make_room
    from retinue.mcp_server.hosted import HostedRuns
    from retinue.mcp_server.server import create_server
    from retinue.mcp_server.stdio import serve_stdio

    async with _opened(hosting, "refuse") as retinue:
        hosted = HostedRuns(retinue, waits=hosting.waits)
        server = create_server(hosted)
        make_room()
        await serve_stdio(hosted, server)
    return exits.OK


async def _over_http(hosting: Hosting) -> int:
    from retinue.cli.process import make_room
    from retinue.cli.serve import tokens_for
    from retinue.mcp_server.hosted import HostedRuns
    from retinue.mcp_server.http import StartRate, endpoint
    from retinue.server.app import create_app
    from retinue.server.limits import RateLimits
    from retinue.server.serving import bind, serve
    from retinue.server.tokens import session_file
    from retinue.view.paint import note

    async with _opened(hosting, "ask") as retinue:
        host = hosting.host or retinue.settings.server.host
        port = retinue.settings.server.port if hosting.port is None else hosting.port
        limits = RateLimits()
        hosted = HostedRuns(retinue, admit=StartRate(limits), waits=hosting.waits)
        listening = bind(host, port)  # before a token is made: it is shown once
        async with endpoint(hosted, limits) as route:
            tokens, reread = tokens_for(
                host, hosting.grants, hosting.names, without_tokens=hosting.without_tokens
            )
            app = create_app(
                retinue,
                tokens=tokens,
                hosts=hosting.names,
                reread=reread,
                sessions=session_file() if reread is not None else None,
                limits=limits,
                routes=[route],
                stopping=hosted.leave,
            )
            make_room()
            await serve(
                retinue,
                app,
                listening=listening,
                ready=lambda url: note(f"{retinue.cwd} is served at {url}/mcp, the page at {url}/", "green"),
            )
    return exits.OK
