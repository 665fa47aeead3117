"""Server-sent events on the wire: where a client left off, and a response that never waits for ever.

A client that takes nothing for a while is disconnected: it comes back with its cursor and goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from retinue.server.errors import ApiError

log = logging.getLogger("retinue.server")
PATIENCE = 20.0
"""Seconds in which a client has to take what it is sent."""
RETRY = b"retry: 1000\n\n"
SCHEMA = {
    "description": "server-sent events: `id` is the place of an event, `data` is the event as JSON",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


def cursor(request: Request, after: int | None) -> int:
    """Where to go on: what the browser remembers counts, then what the address says."""
    last = request.headers.get("last-event-id", "").strip()
    if not last:
        return after or 0
    if not last.isdecimal() or len(last) > 15:
        raise ApiError(422, "invalid", f"Last-Event-ID {last[:40]!r} is no place", fix="leave it out")
    return int(last)


class EventStream(Response):
    """Sends chunks as they come, until they end, the client goes, or it takes nothing any more.

    `held` is what a stream takes up. It is entered here and not where the chunks are made: a client that goes
    at once leaves a generator behind that never started, and such a one never ends either.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes], held: AbstractContextManager[None]) -> None:
        self.chunks, self.held, self.patience = chunks, held, PATIENCE
        self.background = None
        self.status_code = 200
        # Proxies must neither keep it back nor compress it.
        self.init_headers({"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.held:
            await self._stream(receive, send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not sending.done():
                sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
            await self.chunks.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._give(send, RETRY)
            async for chunk in self.chunks:
                await self._give(send, chunk)
            await self._give(send, b"", more=False)
        except TimeoutError:
            log.info("a watcher took nothing for %g s and was disconnected", self.patience)

    async def _give(self, send: Send, chunk: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self.patience):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
