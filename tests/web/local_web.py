"""A small web of one's own: an HTTP server that can also be slow, broken, huge or hostile, and counts hits."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Respond = Callable[["Asked"], Awaitable[None]]


@dataclass
class Asked:
    """One request, and the raw connection to answer on."""

    path: str
    headers: dict[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    body: bytes = b""
    method: str = "GET"

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(
        self, body: bytes | str = b"", *, status: str = "200 OK", kind: str = "text/html", **headers: str
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        named = {"Content-Type": kind, "Content-Length": str(len(data))}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in named.items() if value)]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data)


@dataclass
class Site:
    """A server on one port. Unknown paths are 404; `robots.txt` is 404 unless a test adds one."""

    host: str = "127.0.0.1"
    port: int = 0
    pages: dict[str, Respond] = field(default_factory=dict)
    hits: Counter[str] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, port: int = 0) -> Site:
        self._server = await asyncio.start_server(self._accept, self.host, port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{path}"

    def add(self, path: str, body: bytes | str = "", **how: str) -> str:
        async def respond(asked: Asked) -> None:
            await asked.reply(body, **how)

        self.pages[path] = respond
        return self.url(path)

    def redirect(self, path: str, to: str, status: str = "302 Found") -> str:
        return self.add(path, "", status=status, Location=to)

    def zipped(self, path: str, body: bytes, encoding: str = "gzip", kind: str = "text/html") -> str:
        return self.add(path, gzip.compress(body), kind=kind, Content_Encoding=encoding)

    def serve(self, path: str) -> Callable[[Respond], Respond]:
        def keep(respond: Respond) -> Respond:
            self.pages[path] = respond
            return respond

        return keep

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(path=target, headers=headers, reader=reader, writer=writer, body=body, method=method)
        self.hits[target] += 1
        self.asked.append(asked)
        respond = self.pages.get(target) or self.pages.get(target.partition("?")[0]) or self.pages.get("*")
        if respond is None:
            await asked.reply("not found", status="404 Not Found", kind="text/plain")
        else:
            await respond(asked)
        return not writer.is_closing()


class Kept:
    """The cache half of a store, with a clock that a test can move."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.values: dict[tuple[str, str], tuple[bytes, float]] = {}

    def wall(self) -> float:
        return self.now

    async def cached(self, scope: str, key: str) -> tuple[bytes, float] | None:
        found = self.values.get((scope, key))
        return found if found is not None and found[1] > self.now else None

    async def cache(self, scope: str, key: str, value: bytes, ttl: float) -> None:
        self.values[scope, key] = (value, self.now + ttl)
