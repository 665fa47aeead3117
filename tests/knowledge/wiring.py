"""A local HTTP server that answers as told and remembers what it was asked, and a clock moved by sleeping.

`World` puts a `KnowledgeClient` before that server: every source has its own path on it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web

from retinue.settings import KnowledgeSettings
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import knowledge_tools
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.sources import SOURCES


@dataclass(frozen=True)
class Seen:
    """A request as the server got it. `path` is raw: percent-encoding as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    form: dict[str, str]
    at: float


@dataclass(frozen=True)
class Reply:
    body: Any = b""
    status: int = 200
    type: str = "application/json; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    gzipped: bool = False

    def response(self) -> web.Response:
        body = self.body if isinstance(self.body, bytes) else None
        if body is None:
            text = self.body if isinstance(self.body, str) else json.dumps(self.body)
            body = text.encode()
        headers = {"Content-Type": self.type, **self.headers}
        if self.gzipped:
            body = gzip.compress(body)
            headers["Content-Encoding"] = "gzip"
        return web.Response(status=self.status, body=body, headers=headers)


Answering = Reply | Callable[[Seen], Reply | Awaitable[Reply]]


class Wire:
    """The server. Replies to a path are given in order, the last one again and again."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self._rules: dict[str, list[Answering]] = {}
        self._runner: web.AppRunner | None = None

    def on(self, path: str, *replies: Answering) -> None:
        self._rules[path] = list(replies)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        form = dict(await request.post()) if request.method == "POST" else {}
        seen = Seen(
            method=request.method,
            path=request.rel_url.raw_path,
            query=dict(request.query),
            headers={k.lower(): v for k, v in request.headers.items()},
            form=cast("dict[str, str]", form),
            at=time.monotonic(),
        )
        self.seen.append(seen)
        rules = self._rules.get(seen.path)
        if not rules:
            return Reply(f"<html>no {seen.path}</html>", status=404, type="text/html").response()
        rule = rules.pop(0) if len(rules) > 1 else rules[0]
        if isinstance(rule, Reply):
            return rule.response()
        made = rule(seen)
        return (made if isinstance(made, Reply) else await made).response()


class Clock:
    """Time that passes when someone sleeps."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Shelf:
    """A cache with the store's two methods, on the clock of the test."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rows: dict[tuple[str, str], tuple[bytes, float]] = {}

    async def cached(self, scope: str, key: str) -> tuple[bytes, float] | None:
        found = self.rows.get((scope, key))
        return found if found is not None and found[1] > self.clock.now else None

    async def cache(self, scope: str, key: str, value: bytes, ttl: float) -> None:
        self.rows[scope, key] = (value, self.clock.now + ttl)


class World:
    """A `KnowledgeClient` whose sources are all paths of one local server, and its tools by name."""

    def __init__(
        self,
        wire: Wire,
        *,
        clock: Clock | None = None,
        shelf: Shelf | None = None,
        environ: dict[str, str] | None = None,
        contact: str | None = "ops@example.org",
        real_time: bool = False,
        **more: Any,
    ) -> None:
        self.wire = wire
        self.clock = clock or Clock()
        self.warnings: list[str] = []
        options = {k: more.pop(k) for k in ("limits", "session") if k in more}
        settings = KnowledgeSettings(
            contact=contact,
            **{"base_urls": {name: f"{wire.url}/{name}" for name in SOURCES}, **more},
        )
        self.knowledge = KnowledgeClient(
            settings,
            cached=shelf.cached if shelf else None,
            cache=shelf.cache if shelf else None,
            environ=environ or {},
            clock=time.monotonic if real_time else self.clock,
            sleep=asyncio.sleep if real_time else self.clock.sleep,
            wall=self.clock,
            warn=self.warnings.append,
            **options,
        )
        self._tools: dict[str, Tool] | None = None

    @property
    def tools(self) -> dict[str, Tool]:
        if self._tools is None:
            self._tools = {tool.name: tool for tool in knowledge_tools(self.knowledge)}
        return self._tools

    async def ask(self, name: str, **arguments: Any) -> ToolResult:
        """Call a tool as the loop does: JSON arguments, checked, then run."""
        tool = self.tools[name]
        result = await tool.call(tool.parse(json.dumps(arguments)), cast("Any", None))
        assert isinstance(result, ToolResult)
        return result
