"""Many hosts over streamable HTTP, at `/mcp` of the server that has the page and the API.

Its guard has looked at every request before: the Host header, where it comes from, the token, how often, how
large. What it found out becomes the `Caller`. A session of the older revisions belongs to the token that
began it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from retinue.errors import ConfigError
from retinue.mcp_server.caller import HERE, STATE, Caller
from retinue.mcp_server.hosted import HostedRuns
from retinue.mcp_server.server import create_server
from retinue.server.guard import MCP
from retinue.server.limits import Buckets, RateLimits
from retinue.server.security import Identity

MOST_SESSIONS = 1000
IDLE_SECONDS = 1800.0


class StartRate:
    """How often one caller may begin a run: the limit of the API."""

    def __init__(self, limits: RateLimits) -> None:
        self._starts = Buckets(limits.starts, limits.starts_burst)

    def __call__(self, caller: Caller) -> None:
        seconds = self._starts.take(caller.key)
        if seconds > 0:
            raise ConfigError(f"too many new runs from {caller.name}", fix=f"wait {round(seconds + 0.5)} s")


class McpEndpoint:
    """The ASGI application at `/mcp`."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = caller_for(scope["state"]["identity"])
        scope["state"][STATE] = caller
        # A session is bound to this: a request for it by another token is refused.
        token = AccessToken(token=caller.key, client_id=caller.key, scopes=[])
        scope["user"] = AuthenticatedUser(token)
        await self._manager.asgi_app(scope, receive, send)


def caller_for(who: Identity) -> Caller:
    """A token of the same name that is made later is another's, so its digest is a part of the key."""
    return Caller(
        name=who.name,
        key=f"{HERE}:{who.name}:{who.credential[:16]}" if who.credential else HERE,
        role=who.role,
        may_ask=who.may("ask"),
        may_answer=who.may("approve"),
        may_keep=who.may("admin"),
        sees_all=who.may("admin"),
    )


@asynccontextmanager
async def endpoint(hosted: HostedRuns, limits: RateLimits) -> AsyncGenerator[BaseRoute]:
    """The route for the server's application. It answers for as long as this is open."""
    manager = StreamableHTTPSessionManager(
        create_server(hosted),
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MOST_SESSIONS,
        max_request_body_size=limits.start_bytes,
    )
    async with manager.run():
        yield Route(MCP, endpoint=McpEndpoint(manager))
