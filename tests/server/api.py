"""The API as clients meet it: a real server on a free port, asked over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from fastapi import FastAPI

from retinue.app import Retinue
from retinue.server import Token, create_app
from retinue.server.context import Server
from retinue.server.limits import RateLimits
from retinue.server.serving import serve
from retinue.types import AgentSpec

SECRETS = {role: f"{role}-0123456789abcdef" for role in ("watch", "ask", "approve", "admin")}
ROOT = AgentSpec(name="root", description="the agent that is asked", prompt="You are the root.", tools=("*",))
"""The default agent of these servers: it may use every tool."""
PLENTY = RateLimits(
    requests=1e6, requests_burst=10**6, starts=1e6, starts_burst=10**6, wrong_tokens_burst=10**6
)


def tokens() -> list[Token]:
    """One token of each role, named after it."""
    return [Token.of(role, role, secret) for role, secret in SECRETS.items()]  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def code(self) -> str:
        return self.body["error"]["code"]


@dataclass
class Told:
    """One server-sent event."""

    data: dict[str, Any]
    id: int | None = None


@dataclass
class Api:
    url: str
    session: aiohttp.ClientSession
    retinue: Retinue
    app: FastAPI
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def server(self) -> Server:
        return self.app.state.server

    def as_role(self, role: str) -> Api:
        return Api(self.url, self.session, self.retinue, self.app, SECRETS[role])

    def _headers(self, more: dict[str, str] | None) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**self.headers, **bearer, **(more or {})}

    async def __call__(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **more: Any
    ) -> Answer:
        if body is not None:
            more["json"] = body
        elif method != "GET" and "data" not in more:
            headers = {"X-Retinue": "1", **(headers or {})}
        address = (
            path
            if path.startswith("http")
            else self.url + ("" if path.startswith("/") else "/api/v1/") + path
        )
        async with self.session.request(method, address, headers=self._headers(headers), **more) as response:
            raw = await response.read()
            is_json = response.headers.get("Content-Type", "") == "application/json"
            value = json.loads(raw) if is_json and raw else raw
            return Answer(response.status, value, response.headers)

    async def get(self, path: str, **more: Any) -> Any:
        """The body of a GET that has to work."""
        answer = await self("GET", path, **more)
        assert answer.status == 200, (path, answer)
        return answer.body

    async def post(self, path: str, body: Any = None, **more: Any) -> Any:
        """The body of a POST that has to work."""
        answer = await self("POST", path, body, **more)
        assert answer.status in (200, 201), (path, answer)
        return answer.body

    async def ask(self, prompt: str = "go", **more: Any) -> str:
        return (await self.post("runs", {"prompt": prompt, **more}))["run_id"]

    async def report(self, prompt: str = "go", **more: Any) -> dict[str, Any]:
        """Ask, wait for the end, and give the report."""
        run_id = await self.ask(prompt, **more)
        await self.ended(run_id)
        return await self.get(f"runs/{run_id}/report")

    async def ended(self, run_id: str) -> list[dict[str, Any]]:
        """Every event of a run, once it has ended."""
        return [
            told.data for told in await self.follow(f"runs/{run_id}/stream?until=end") if told.id is not None
        ]

    async def follow(
        self,
        path: str,
        *,
        until: Callable[[Told], bool] | None = None,
        last: int | None = None,
        seconds: float = 60,
    ) -> list[Told]:
        """What a stream says, up to its end or to the first event that is enough."""
        found: list[Told] = []
        async with asyncio.timeout(seconds), contextlib.aclosing(self.stream(path, last=last)) as stream:
            async for told in stream:
                found.append(told)
                if until is not None and until(told):
                    break
        return found

    async def stream(self, path: str, *, last: int | None = None) -> AsyncGenerator[Told, None]:
        headers = {"Last-Event-ID": str(last)} if last is not None else {}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.session.get(
            f"{self.url}/api/v1/{path}", headers=self._headers(headers), timeout=timeout
        ) as response:
            assert response.status == 200, await response.text()
            assert response.headers["Content-Type"].startswith("text/event-stream")
            place: int | None = None
            async for line in response.content:
                if line.startswith(b"id: "):
                    place = int(line[4:])
                elif line.startswith(b"data: "):
                    yield Told(json.loads(line[6:]), place)
                    place = None


@contextlib.asynccontextmanager
async def serving(
    model: Any,
    folder: Path,
    *,
    db: Any = "memory:",
    with_tokens: bool = False,
    limits: RateLimits = PLENTY,
    hosts: tuple[str, ...] = (),
    heartbeat: float = 15,
    resume: bool = True,
    **options: Any,
) -> AsyncIterator[Api]:
    """A server over a model, and a client of it."""
    environ = options.pop("environ", {"HOME": str(folder)})
    options["agents"] = [ROOT, *options.get("agents", ())]
    options["settings"] = {"default_agent": "root", **options.get("settings", {})}
    async with Retinue(
        model=model, db=db, cwd=folder, answering="ask", environ=environ, **options
    ) as retinue:
        app = create_app(
            retinue, tokens=tokens() if with_tokens else (), limits=limits, hosts=hosts, heartbeat=heartbeat
        )
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(retinue, app, port=0, resume=resume, ready=ready.set_result))
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.CookieJar(unsafe=True)
        ) as session:
            try:
                yield Api(ready.result(), session, retinue, app)
            finally:
                await session.close()
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
