"""A real authorization server, and a real MCP server that takes its tokens alone, each on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl
from starlette.applications import Starlette


class Issuer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Gives a code to whoever asks. Refresh tokens are used once, as good servers have it."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.refuses = False
        self.renewed = 0
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()

    @property
    def every_secret(self) -> list[str]:
        return [*self.access, *self.refresh]

    def revoke_access(self) -> None:
        """As if they had been taken back: what is refreshed is another one."""
        self.access = {
            token: each.model_copy(update={"expires_at": 1}) for token, each in self.access.items()
        }

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.refuses:
            raise AuthorizeError("access_denied", "not you")
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.give(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.asked.set()
        await self.goes_on.wait()
        if self.refuses or self.refresh[refresh_token.token].expires_at is not None:
            raise TokenError("invalid_grant", "no more")
        self.refresh[refresh_token.token] = refresh_token.model_copy(update={"expires_at": 1})
        self.renewed += 1
        return self.give(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return None if found is None or (found.expires_at or 0) < time.time() else found

    async def verify_token(self, token: str) -> AccessToken | None:
        return await self.load_access_token(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def give(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        """What a login is given, here or elsewhere."""
        one, two = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
        until = int(time.time()) + 3600
        self.access[one] = AccessToken(
            token=one, client_id=client, scopes=scopes, expires_at=until, resource=resource
        )
        self.refresh[two] = RefreshToken(token=two, client_id=client, scopes=scopes, resource=resource)
        return OAuthToken(access_token=one, refresh_token=two, expires_in=3600, scope=" ".join(scopes))


class Guarded:
    """Where the two are, and what the MCP server heard of logins."""

    def __init__(self, issuer: Issuer, issuer_url: str, url: str) -> None:
        self.issuer, self.issuer_url, self.url = issuer, issuer_url, url
        self.heard: list[str] = []


@contextlib.asynccontextmanager
async def listening(app: Any, listener: socket.socket) -> AsyncGenerator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def guarded_server() -> AsyncGenerator[Guarded]:
    """An MCP server that only takes tokens of an authorization server on another port."""
    issuer = Issuer()
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        issuer_url = f"http://127.0.0.1:{one.getsockname()[1]}"
        url = f"http://127.0.0.1:{two.getsockname()[1]}/mcp"
        routes = create_auth_routes(
            issuer,
            AnyHttpUrl(issuer_url),
            client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read"]),
        )
        server: MCPServer[Any] = MCPServer(
            "guarded",
            token_verifier=issuer,
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(issuer_url),
                resource_server_url=AnyHttpUrl(url),
                required_scopes=["read"],
                validate_token_resource=True,
            ),
        )
        found = Guarded(issuer, issuer_url, url)

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        def tell() -> str:
            """Tells what it was shown."""
            return f"you came with {found.heard[-1]}"

        app = server.streamable_http_app()

        async def hearing(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                if scope["method"] == "POST":
                    found.heard.append(headers.get("authorization", ""))
            await app(scope, receive, send)

        async with listening(Starlette(routes=routes), one), listening(hearing, two):
            yield found
