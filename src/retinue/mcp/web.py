"""The HTTP client for MCP servers that are reached by an address: headers, a bound on answers, logins."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from retinue.errors import ToolError
from retinue.mcp.config import ServerConfig
from retinue.settings import McpServerSettings

TIMEOUT = 30.0
SILENCE = 600.0
"""Seconds that a stream may be silent."""


class _Bounded(httpx2.AsyncByteStream):
    """A body of which no more than so many bytes are read in one piece of work."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int, name: str) -> None:
        self._inner, self._left, self._most, self._name = inner, most, most, name

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._inner:
            self._left -= len(data)
            if self._left < 0:
                raise ToolError(
                    f"the MCP server {self._name} sent more than {self._most // 1_000_000} MB in one answer"
                )
            yield data

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Answers that are one document are bounded here; streams of events by the transport of the package."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__()
        self._most, self._name = most, name

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if "text/event-stream" not in response.headers.get("content-type", ""):
            stream = response.stream
            if isinstance(stream, httpx2.AsyncByteStream):
                response.stream = _Bounded(stream, self._most, self._name)
        return response


@asynccontextmanager
async def http_client(
    server: ServerConfig, filled: McpServerSettings, most: int, auth: httpx2.Auth | None = None
) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        headers=dict(filled.headers),
        auth=auth,
        timeout=httpx2.Timeout(TIMEOUT, read=SILENCE),
        transport=_BoundedTransport(most, server.name),
    ) as client:
        yield client
