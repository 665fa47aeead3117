"""One connection to a provider: HTTP/1.1, one request at a time, its answer as it comes.

`http` keeps these open and hands them out. Parsing is llhttp's; what is here is the waiting: for the head of
an answer, for its next piece, for no longer than a call may take. It never retries and never reuses itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MOST_UNREAD = 1024 * 1024
LONGEST_HEAD = 64 * 1024
LONGEST_BODY = 64 * 1024 * 1024


class BadAnswer(ConnectionError):
    """What came back is not HTTP, or not of a kind that was asked for."""


class HttpAnswer:
    """An answer of which the head is here. Its body comes by `chunk`; `release` or `close` it when done."""

    __slots__ = (
        "_error",
        "_heard",
        "_line",
        "_loop",
        "_news",
        "_stall",
        "_timer",
        "_total",
        "_unread_size",
        "complete",
        "headers",
        "silent",
        "status",
        "unread",
    )

    def __init__(self, line: Line, *, total: float, stall: float) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self.silent = True
        """Nothing at all has come back so far."""
        self._line = line
        self._loop = line.loop
        self._news: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self.unread: list[bytes] = []
        self._unread_size = 0
        self._heard = self._loop.time()
        self._total = self._heard + total
        self._stall = stall
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(
            min(self._total, self._heard + stall), self._tick
        )

    async def head(self) -> None:
        """Wait until status and headers are known."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def chunk(self) -> bytes:
        """What has come since the last time, or the next piece, or nothing at the end of the body."""
        while not self.unread:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        unread = self.unread
        data = unread[0] if len(unread) == 1 else b"".join(unread)
        unread.clear()
        if self._unread_size > MOST_UNREAD:
            self._line.resume()
        self._unread_size = 0
        return data

    async def read(self) -> bytes:
        """The rest of the body, if it is not too long to be one."""
        parts: list[bytes] = []
        size = 0
        while data := await self.chunk():
            parts.append(data)
            size += len(data)
            if size > LONGEST_BODY:
                raise BadAnswer(f"the answer is longer than {LONGEST_BODY} bytes")
        return b"".join(parts)

    def release(self) -> None:
        """Nothing more is wanted of it: a connection whose answer is complete can be used again."""
        self._stop()
        if self.complete:
            self._line.give_back()
        else:
            self._line.abort()

    def close(self) -> None:
        """Hang up, so that the provider stops working."""
        self._stop()
        self._line.abort()

    def heard(self, size: int = 0) -> None:
        """Bytes have come: whoever waits looks again. Nobody may fall far behind."""
        self._heard = self._loop.time()
        self._unread_size += size
        if self._unread_size > MOST_UNREAD:
            self._line.pause()
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def failed(self, error: OSError) -> None:
        if self._error is None and not self.complete:
            self._error = error
        self.heard()

    async def _wait(self) -> None:
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tick(self) -> None:
        due = min(self._total, self._heard + self._stall)
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._tick)
            return
        self._timer = None
        self.failed(TimeoutError("no answer"))
        self._line.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Line(asyncio.Protocol):
    """One open connection. `idle` is told when it can carry another request, `lost` when it is gone."""

    def __init__(self, *, idle: Callable[[Line], None], lost: Callable[[Line], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.since = 0.0
        self._idle = idle
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._answer: HttpAnswer | None = None
        self._head_size = 0
        self._until_closed = True
        self._keeps = True

    def ask(self, request: bytes, *, total: float, stall: float) -> HttpAnswer:
        """Send a request; wait for its answer with `Answer.head`."""
        answer = self._answer = HttpAnswer(self, total=total, stall=stall)
        if self._transport is None or self._transport.is_closing():
            answer.failed(ConnectionResetError("the connection was closed"))
        else:
            self._transport.write(request)
        return answer

    def give_back(self) -> None:
        self._answer = None
        if self._keeps and self._transport is not None and not self._transport.is_closing():
            self._idle(self)
        else:
            self.abort()

    def abort(self) -> None:
        self._keeps = False
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one too, by its methods

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.complete or self._parser is None:
            self.abort()  # nobody asked: whatever it is, the connection is of no more use
            return
        answer.silent = False
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            cause = error.__context__ if isinstance(error.__context__, BadAnswer) else None
            answer.failed(cause or BadAnswer(f"the answer is not HTTP: {error}"))
            self.abort()
        answer.heard(len(data))

    def eof_received(self) -> bool:
        answer = self._answer
        if answer is not None and answer.status and self._until_closed and not answer.complete:
            answer.complete = True  # a body without a length ends with its connection
            self._keeps = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeps = False
        answer, self._answer = self._answer, None
        if answer is not None:
            why = exc if isinstance(exc, OSError) else ConnectionResetError("the connection was closed")
            answer.failed(why)
        self._transport = self._parser = None  # they know this object too: nothing is to hold it any longer
        self._lost(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._answer is not None and self._answer.complete:
            raise BadAnswer("there was more than one answer")  # the first one stands, the connection goes
        self._head_size = 0
        self._until_closed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._answer is not None
        self._head_size += len(name) + len(value)
        if self._head_size > LONGEST_HEAD:
            raise BadAnswer("the headers of the answer are too long")
        key = name.decode("latin-1").lower()
        if key in ("content-length", "transfer-encoding"):
            self._until_closed = False
        self._answer.headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        answer = self._answer
        assert answer is not None
        assert self._parser is not None
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            answer.headers.clear()  # only a word on the way: the answer is still to come
            return
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise BadAnswer("the answer is compressed, although it was asked not to be")
        answer.status = status

    def on_body(self, body: bytes) -> None:
        self._answer.unread.append(body)  # pyright: ignore[reportOptionalMemberAccess]  # one is awaited

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is not None and answer.status and self._parser is not None:
            answer.complete = True
            self._keeps = self._parser.should_keep_alive()
