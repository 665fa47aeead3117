"""What every request passes before a route sees it, and every answer on its way out.

In this order: the Host header, where it comes from, who it is, how often, in which form, how large. Then the
answer gets its security headers and the access log its line: method, path, status, time, name and role. No
token, no query and no body is ever logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retinue.server.errors import ApiError, broken
from retinue.server.limits import Buckets, RateLimits
from retinue.server.security import Access, Identity, check_form, check_origin

access_log = logging.getLogger("retinue.server.access")

API = "/api/"
MCP = "/mcp"
"""Where other programs are served, if they are: guarded like the API."""
MOST_DISCARDED = 32_000_000
DISCARD_SECONDS = 10.0
PREFIX = "/api/v1"
OPEN = frozenset({f"{PREFIX}/health", f"{PREFIX}/login"})
CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)


def cookie_name(port: int | None) -> str:
    """Cookies do not keep ports apart, so the name has to: two servers on one machine are two."""
    return f"retinue_{port or 0}"


class RequestGuard:
    """Stands before the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        limits: RateLimits,
        met: Callable[[RequestGuard], None] | None = None,
    ) -> None:
        self.app, self.access, self.limits = app, access, limits
        if met is not None:
            met(self)
        self._requests = Buckets(limits.requests, limits.requests_burst)
        self._starts = Buckets(limits.starts, limits.starts_burst)
        self._wrong = Buckets(limits.wrong_tokens, limits.wrong_tokens_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, outgoing = time.perf_counter(), _Outgoing(send, api=_is_guarded(scope["path"]))
        who: Identity | None = None
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            who = self._admit(scope, headers)
            scope.setdefault("state", {})["identity"] = who
            if scope["method"] in CHANGES:
                receive = await self._body(scope, headers, receive)
            await self.app(scope, receive, outgoing)
        except ApiError as refused:
            await _refuse(refused, scope, receive, outgoing)
        except Exception as error:  # the last place that can still answer
            await _refuse(broken(error, _where(scope)), scope, receive, outgoing)
        finally:
            took = (time.perf_counter() - began) * 1000
            by = f"{who.name}:{who.role}" if who else "-"
            access_log.info("%s %d %.1f ms %s", _where(scope), outgoing.status, took, by)

    def _admit(self, scope: Scope, headers: Mapping[str, str]) -> Identity | None:
        """Who sent this; None where nobody has to be known. Raises `ApiError` for what may not pass."""
        server = scope.get("server")
        port: int | None = server[1] if server else None
        self.access.check_host(headers.get("host"), port)
        path, changes = scope["path"], scope["method"] in CHANGES
        if not _is_guarded(path):
            return None
        cookie = _cookie(headers, cookie_name(port))
        check_origin(
            headers, changes=changes, by_cookie=cookie is not None and "authorization" not in headers
        )
        address = scope["client"][0] if scope.get("client") else "?"
        who = self._identify(path, address, headers, cookie)
        client = who.name if who and not self.access.open else address
        _slow_down(self._requests.take(client), "requests")
        if changes:
            if scope["method"] == "POST" and path == f"{PREFIX}/runs":
                _slow_down(self._starts.take(client), "new runs")
            if path != MCP or scope["method"] == "POST":  # its DELETE has no body, and no form can send one
                check_form(headers)
        return who

    def _identify(
        self, path: str, address: str, headers: Mapping[str, str], cookie: str | None
    ) -> Identity | None:
        authorization = headers.get("authorization")
        who = self.access.identify(authorization, cookie)
        if who is not None or path in OPEN:
            return who
        if authorization is not None:
            self.wrong_token(address)
        raise ApiError(
            401,
            "no_token" if authorization is None and cookie is None else "wrong_token",
            "this needs a token" if authorization is None else "this token is not valid here",
            fix="send 'Authorization: Bearer TOKEN', or log in on the page",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def wrong_token(self, address: str) -> None:
        """Somebody guessed wrong. Whoever does it often is told to wait.

        A right token never waits: behind a proxy everybody has one address, and one who guesses there would
        lock out all the others. A token has 16 characters or more, so guessing is hopeless at any pace.
        """
        _slow_down(self._wrong.take(address), "wrong tokens")

    async def _body(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Receive:
        """The whole body, if it is not too large, handed on as one piece."""
        starts = scope["path"] in (f"{PREFIX}/runs", MCP)
        most = self.limits.start_bytes if starts else self.limits.body_bytes
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most:
            await _discard(receive)
            raise _too_large(int(declared), most)
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        break
                    body += message.get("body", b"")
                    if len(body) > most:
                        await _discard(receive)
                        raise _too_large(len(body), most)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise ApiError(
                408, "too_slow", f"the body did not arrive within {self.limits.body_seconds:g} s"
            ) from None
        pieces: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> Message:
            return pieces.pop() if pieces else await receive()

        return again


class _Outgoing:
    """The way out: adds the headers and remembers the status."""

    def __init__(self, send: Send, *, api: bool) -> None:
        self._send, self._api, self.status = send, api, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            headers += HEADERS
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store" if self._api else b"no-cache"))
            message = {**message, "headers": headers}
        await self._send(message)


async def _refuse(error: ApiError, scope: Scope, receive: Receive, outgoing: _Outgoing) -> None:
    if outgoing.status == 0:
        await error.response()(scope, receive, outgoing)


def _is_guarded(path: str) -> bool:
    return path.startswith(API) or path == MCP


def _where(scope: Scope) -> str:
    # As it came over the wire: a decoded path could break the line.
    return f"{scope['method']} {scope.get('raw_path', b'').decode('latin-1')[:300]}"


def _cookie(headers: Mapping[str, str], name: str) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return found.value if found is not None else None


def _slow_down(seconds: float, what: str) -> None:
    if seconds > 0:
        wait = max(1, round(seconds + 0.5))
        raise ApiError(
            429,
            "too_many_requests",
            f"too many {what} from here",
            fix=f"wait {wait} s",
            headers={"Retry-After": str(wait)},
        )


async def _discard(receive: Receive) -> None:
    """Read on for a while and forget it: whoever sends too much is to read why, and a connection that is
    closed before all of it was read is reset, answer and all."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while size < MOST_DISCARDED:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


def _too_large(size: int, most: int) -> ApiError:
    return ApiError(
        413,
        "too_large",
        f"the body has {size:,} bytes or more, at most {most:,} are taken",
        headers={"Connection": "close"},
    )
