"""A server that plays the attacker, and a run that does whatever a page tells it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web as server

from retinue import Retinue
from retinue.events import (
    AnyEvent,
    ToolReturned,
)
from retinue.store.base import Store
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel

SECRET = "tr0ub4dor-and-3"


class Attacker:
    """A server that keeps every byte it is sent, and serves pages."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.pages: dict[str, str] = {}
        self.host = ""
        self.heard = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    async def answer(self, request: server.Request) -> server.Response:
        if request.path != "/robots.txt":
            self.got.append(f"{request.raw_path} {dict(request.headers)} {await request.text()}")
            self.heard.set()
        page = self.pages.get(request.path, "<p>nothing</p>").format(q=request.query.get("q", ""))
        if request.path == "/redirect":
            return server.Response(status=302, headers={"Location": request.query["q"]})
        return server.Response(text=page, content_type="text/html")

    def paths(self) -> list[str]:
        return [got.split(" ")[0] for got in self.got]


@asynccontextmanager
async def serving() -> AsyncIterator[Attacker]:
    made = Attacker()
    app = server.Application()
    app.router.add_route("*", "/{any:.*}", made.answer)
    runner = server.AppRunner(app)
    await runner.setup()
    await server.TCPSite(runner, "127.0.0.1", 0).start()
    made.host = "{}:{}".format(*runner.addresses[0][:2])
    yield made
    await runner.cleanup()


def retinue_in(
    project: Path,
    attacker: Attacker,
    steps: Any,
    *,
    db: Store | None = None,
    agents: Any = (),
    **options: Any,
) -> Retinue:
    settings = {
        "web.allow_hosts": [attacker.host],
        "web.robots": False,
        "web.search": [],
        **options.pop("settings", {}),
    }
    return Retinue(
        model=ScriptedModel(steps),
        db=db or MemoryStore(),
        cwd=project,
        agents=agents,
        environ={"HOME": str(project.parent)},
        settings=settings,
        **options,
    )


async def events_of(retinue: Retinue, run_id: str) -> list[AnyEvent]:
    return await retinue.store.events(run_id)


def results(log: list[AnyEvent]) -> list[ToolReturned]:
    return [event for event in log if isinstance(event, ToolReturned)]


def leaked(attacker: Attacker) -> list[str]:
    """What arrived that holds the secret, in one of the ways to write it."""
    encoded = base64.b64encode(SECRET.encode()).decode().rstrip("=")
    forms = (SECRET, SECRET[::-1], encoded, SECRET.encode().hex(), SECRET[:6], SECRET[-6:])
    return [got for got in attacker.got if any(form.lower() in got.lower() for form in forms)]
