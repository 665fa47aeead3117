"""Where a browser comes back to after a login: one small server on this machine, for one answer.

Used by `retinue mcp login`. What comes without the `state` of this login is turned away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from retinue.errors import ToolError
from retinue.mcp.login import KeptLogin, Person

HOST, PATH = "127.0.0.1", "/callback"
MOST_REQUEST = 32_768
PATIENCE = 300.0
"""Seconds that a person may take."""
_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}"
)


@asynccontextmanager
async def person_here(login: KeptLogin, show: Callable[[str], None]) -> AsyncGenerator[Person]:
    """A person who can log in. `show` puts the address before them."""
    page = _Page()
    server, same = await _listen(page, _registered(login))
    port = server.sockets[0].getsockname()[1]

    async def begin(url: str) -> None:
        page.state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        show(url)

    async with server:
        redirect = f"http://{HOST}:{port}{PATH}"
        yield Person(redirect=redirect, registered=same, show=begin, answer=page.answer)


def _registered(login: KeptLogin) -> int:
    """The port that the server knows for us, or 0."""
    known = (login.client or {}).get("redirect_uris") or [""]
    with contextlib.suppress(ValueError):
        return urlsplit(str(known[0])).port or 0
    return 0


async def _listen(page: _Page, port: int) -> tuple[asyncio.Server, bool]:
    if port:
        with contextlib.suppress(OSError):
            return await asyncio.start_server(page.heard, HOST, port), True
    return await asyncio.start_server(page.heard, HOST, 0), False


class _Page:
    """What the browser brings."""

    def __init__(self) -> None:
        self.state = ""
        self._brought: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def answer(self) -> AuthorizationCodeResult:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._brought
        except TimeoutError:
            raise ToolError(f"nobody logged in within {PATIENCE:g} s") from None

    async def heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
            status, text = self._take(line[:MOST_REQUEST].decode("latin-1"))
            length = len(text.encode())
            writer.write(_PAGE.format(status=status, length=length, text=text).encode())
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # a browser that went away, or that is none
        finally:
            writer.close()

    def _take(self, line: str) -> tuple[str, str]:
        target = urlsplit([*line.split(" "), "", ""][1])
        given = {name: values[0] for name, values in parse_qs(target.query).items()}
        if target.path != PATH or not self.state or given.get("state") != self.state:
            return "400 Bad Request", "This is no answer to a login that was begun here."
        if self._brought.done():
            return "400 Bad Request", "This login is over."
        if "code" in given:
            self._brought.set_result(
                AuthorizationCodeResult(code=given["code"], state=self.state, iss=given.get("iss"))
            )
            return "200 OK", "You are logged in. This window can be closed."
        why = given.get("error_description") or given.get("error") or "no code came back"
        self._brought.set_exception(ToolError(f"the login was not given: {why[:300]}"))
        return "200 OK", "You are not logged in. The terminal says why."
