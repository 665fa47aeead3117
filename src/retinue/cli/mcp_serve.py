"""`retinue mcp serve`: the agents for other programs, over stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from retinue.cli import exits
from retinue.cli import options as o


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What the command was told."""

    model: str | None
    tools: tuple[str, ...]
    cwd: Path | None
    db: str | None


def mcp_serve(
    model: o.Model = None,
    tools: o.Tools = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
) -> int:
    """Offer the agents to another program as an MCP server, for this folder.

    Programs start it themselves: give them this command. It speaks over stdin and stdout, and logs to stderr.

    \b
    Examples:
      retinue mcp serve
      retinue mcp serve --cwd ~/code/shop --model anthropic:claude-sonnet-5-5
      claude mcp add retinue -- retinue mcp serve
    """
    from retinue.cli.process import log_to_stderr

    log_to_stderr("WARNING", "%(asctime)s %(name)s: %(message)s")
    told = _Told(model=model, tools=tuple(tools or ()), cwd=cwd, db=db)
    return asyncio.run(_over_stdio(told))


async def _over_stdio(told: _Told) -> int:
    from retinue.app import Retinue
    from retinue.cli.foreground import warn
    from retinue.cli.own_tools import tools_of
    from retinue.cli.process import make_room
    from retinue.mcp_server.hosted import HostedRuns
    from retinue.mcp_server.server import create_server
    from retinue.mcp_server.stdio import serve_stdio

    async with Retinue(
        model=told.model,
        db=told.db,
        cwd=told.cwd,
        tool_files=tools_of(told.cwd, told.tools),
        fallback="offline",
    ) as retinue:
        warn(retinue, quiet=False)
        hosted = HostedRuns(retinue)
        server = create_server(hosted)
        make_room()
        await serve_stdio(hosted, server)
    return exits.OK
