"""The MCP servers whose tools agents use."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from fastapi import APIRouter

from retinue.server.about import ServerList, ServerOut
from retinue.server.context import Served, for_role

router = APIRouter(tags=["agents and tools"])


@router.get("/mcp", **for_role("watch"))
async def list_servers(served: Served) -> ServerList:
    """Every MCP server: whose it is, whether it may start, whether it runs, and what it offers."""
    mcp = served.retinue.services.mcp
    await asyncio.to_thread(mcp.trust.reread)
    found = [ServerOut(**asdict(each)) for each in mcp.status()]
    return ServerList(servers=found, problems=list(mcp.configured.problems))
