"""Server-sent events on the wire: where a client left off, and a response that ends when its client has gone.

A client that takes nothing for a while is disconnected (`connections`): it comes back with its cursor and
goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from retinue.server.errors import ApiError

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
    """Sends chunks as they come, until they end or the client goes.

    `held` is what a stream takes up. It is entered here and not where the chunks are made: a client that goes
    at once leaves a generator behind that never started, and such a one never ends either.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes], held: AbstractContextManager[None]) -> None:
        self.chunks, self.held = chunks, held
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
        await send({"type": "http.response.body", "body": RETRY, "more_body": True})
        async for chunk in self.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
