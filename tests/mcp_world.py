"""A project with MCP servers, a home of its own, and models that call what a test says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from retinue import Retinue
from retinue.events import ApprovalRequested, LiveEvent, ToolReturned
from retinue.testing import ScriptedModel

PLAIN = Path(__file__).with_name("mcp_plain_server.py")
GENERAL = "You are `general`"


class World:
    """`project` with a `.mcp.json`; `log` is what the plain server heard."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project, self.log = folder, folder / "project", folder / "server.log"
        self.servers: dict[str, Any] = {}

    def plain(self, *more: str, name: str = "plain", **fields: Any) -> None:
        """A server of this folder's `.mcp.json`."""
        args = ["-I", "-S", str(PLAIN), "--log", str(self.log), *more]
        self.add(name, {"command": sys.executable, "args": args, **fields})

    def add(self, name: str, definition: dict[str, Any]) -> None:
        self.servers[name] = definition
        (self.project / ".mcp.json").write_text(json.dumps({"mcpServers": self.servers}))

    def open(self, calls: Sequence[Any] = (), **options: Any) -> Retinue:
        model = ScriptedModel({GENERAL: [*calls, "done"]})
        return Retinue(model=model, cwd=self.project, db="memory:", **options)

    @property
    def heard(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def starts(self) -> int:
        return self.heard.count("started")

    async def ask(
        self, *calls: Any, trust: str = "all", tell: Callable[[LiveEvent], None] | None = None, **options: Any
    ) -> list[ToolReturned]:
        """What the calls of a run came to."""
        async with self.open(calls, **options) as retinue:
            await trusting(retinue, trust)
            return await results(retinue, tell)


async def trusting(retinue: Retinue, trust: str = "all") -> None:
    """`start`: the servers may start; `all`: what they say of their tools is believed; `public`: and what
    they return is for everybody."""
    app = retinue.services.mcp
    for server in app.servers.values():
        if trust in ("start", "all", "public"):
            app.trust.add(server, None)
        if trust in ("all", "public"):
            await app.prepare([server.name], retinue.settings.mcp)
            app.trust.add(server, app.listings[server.name].tools, public=trust == "public")


async def results(retinue: Retinue, tell: Callable[[LiveEvent], None] | None = None) -> list[ToolReturned]:
    found: list[ToolReturned] = []
    async for event in retinue.stream("general", "go"):
        if tell is not None:
            tell(event)
        if isinstance(event, ToolReturned):
            found.append(event)
    return found


def questions(into: list[ApprovalRequested]) -> Callable[[LiveEvent], None]:
    return lambda event: into.append(event) if isinstance(event, ApprovalRequested) else None
