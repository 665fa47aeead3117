"""Logins at MCP servers that ask for OAuth: what is kept of them, how they are renewed, how one is given.

The flow itself is of the official package. A request that the server refuses is tried again with a renewed
token. Only `retinue mcp login`, with a person at hand, goes further: elsewhere `asks` says what is missing,
and the call becomes a tool error. What is kept lies in one file that only its owner can read, by the address
of the server it is for, and goes to that address alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import resource_url_from_server_url
from pydantic import AnyUrl, ValidationError

from retinue.errors import ConfigError, ToolError, told
from retinue.file_lock import locked
from retinue.reading import MOST_SETTINGS, read_own

FILE = "oauth-tokens.json"
NOWHERE = "http://127.0.0.1/callback"
"""Where an authorization would come back to if nobody can give one: it is never asked for."""
MOST_WAIT = 45.0
"""Seconds that a renewal of another process is waited for."""
# What the package logs of a flow quotes what servers answered, tokens among it: it is not handed on.
_quiet = logging.getLogger("mcp.client.auth")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class KeptLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one server. Everything but `url` and `wanted` is as the package writes it."""

    url: str
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    client: dict[str, Any] | None = None
    issuer: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    wanted: str = ""
    """Rights that a call was refused for the lack of: the next login asks for them too."""

    def __repr__(self) -> str:
        return f"KeptLogin({self.url})"


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody who can log in now: who is shown an address, and where the answer comes back."""

    redirect: str
    registered: bool
    """Whether the server already knows us with this `redirect`."""
    show: Callable[[str], Awaitable[None]]
    answer: Callable[[], Awaitable[AuthorizationCodeResult]]


def login_file() -> Path:
    from platformdirs import user_data_path

    return user_data_path("retinue", appauthor=False) / FILE


def login_key(url: str) -> str:
    """An address as logins are kept by it."""
    return resource_url_from_server_url(url)


def kept_login(url: str) -> KeptLogin:
    key = login_key(url)
    return _read().get(key) or KeptLogin(url=key)


def keep_login(url: str, how: Callable[[KeptLogin], KeptLogin]) -> None:
    """Change what is kept, from what that is by then: another connection may have renewed it meanwhile."""
    key = login_key(url)
    with _changing() as known:
        known[key] = how(known.get(key) or KeptLogin(url=key))


def keep_renewed(url: str, before: dict[str, Any], how: Callable[[KeptLogin], KeptLogin]) -> KeptLogin:
    """Change what is kept if that is still what was renewed, and return what is kept then. A login that was
    forgotten meanwhile stays forgotten, and one that was given anew is worth more."""
    key = login_key(url)
    with _changing() as known:
        login = known.get(key) or KeptLogin(url=key)
        if login.tokens == before:
            known[key] = login = how(login)
        return login


def forget_login(url: str) -> bool:
    """Whether there was one."""
    key = login_key(url)
    if key not in _read():
        return False
    with _changing() as known:
        return known.pop(key, None) is not None


def _read() -> dict[str, KeptLogin]:
    path = login_file()
    try:
        found = msgspec.json.decode(read_own(path, MOST_SETTINGS), type=list[KeptLogin])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(
            "is not as it was written", file=str(path), fix="take it away, and log in again"
        ) from None
    return {each.url: each for each in found}


@contextmanager
def _changing() -> Generator[dict[str, KeptLogin]]:
    """What is kept of all servers, while nobody else changes it; it is written as it is left."""
    path = login_file()
    with locked(path):
        known = _read()
        yield known
        part = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(fd, "wb") as out:
                os.fchmod(fd, 0o600)
                out.write(msgspec.json.encode(list(known.values())))
            part.replace(path)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None


class _Kept:
    """The file, as the package keeps things in it. A person who logs in begins anew: what was kept before
    stays until that has succeeded."""

    def __init__(self, url: str, person: Person | None) -> None:
        self.url, self._anew = url, person is not None
        self.login = kept_login(url)
        self._renewing: dict[str, Any] | None = None
        """The tokens that others are to replace, while they are asked for."""
        if person is not None:
            client = self.login.client if person.registered else None
            self.login = msgspec.structs.replace(self.login, tokens=None, expires_at=None, client=client)

    @contextmanager
    def renewal(self) -> Generator[None]:
        """Tokens that are set in here replace those of now, and no others."""
        self._renewing = self.login.tokens
        try:
            yield
        finally:
            self._renewing = None

    async def reread(self) -> bool:
        """Whether another process has logged in or renewed since."""
        if self._anew:
            return False
        found = await asyncio.to_thread(kept_login, self.url)
        other, self.login = found.tokens != self.login.tokens, found
        return other

    async def change(self, how: Callable[[KeptLogin], KeptLogin]) -> None:
        """Change it here and in the file, which may hold other tokens by now: those are for `reread`."""
        self.login = how(self.login)
        if not self._anew:
            await asyncio.to_thread(keep_login, self.url, how)
        elif self.login.tokens is not None:
            given, self._anew = self.login, False
            await asyncio.to_thread(keep_login, self.url, lambda kept: given)

    async def write(self, **changes: Any) -> None:
        await self.change(lambda login: msgspec.structs.replace(login, **changes))

    async def get_tokens(self) -> OAuthToken | None:
        return None if self.login.tokens is None else OAuthToken.model_validate(self.login.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        ends = None if tokens.expires_in is None else time.time() + tokens.expires_in
        given = {"tokens": _plain(tokens), "expires_at": ends}
        if self._renewing is None:
            await self.write(**given)
            return
        self.login = await asyncio.to_thread(
            keep_renewed, self.url, self._renewing, lambda login: msgspec.structs.replace(login, **given)
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        client = self.login.client
        return None if client is None else OAuthClientInformationFull.model_validate(client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self.write(client=_plain(client_info))


@asynccontextmanager
async def _renewing() -> AsyncGenerator[None]:
    """One renewal at a time, of all processes: a token that renews can often be used only once."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(f"{login_file()}.renewing", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        latest = time.monotonic() + MOST_WAIT
        while time.monotonic() < latest:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _wanting(login: KeptLogin, scope: str | None) -> KeptLogin:
    return msgspec.structs.replace(login, wanted=union_scopes(login.wanted or None, scope) or "")


def _plain(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_none=True)


class ServerLogin(OAuthClientProvider):
    """The login at one server. `asks` says why a person has to log in, as soon as the server wants that."""

    def __init__(self, server: str, url: str, person: Person | None = None) -> None:
        self._kept = _Kept(url, person)
        self._server, self._person = server, person
        self.asks = ""
        super().__init__(
            server_url=url,
            client_metadata=OAuthClientMetadata(
                client_name="Retinue", redirect_uris=[AnyUrl(NOWHERE if person is None else person.redirect)]
            ),
            storage=self._kept,
            redirect_handler=None if person is None else self._show,
            callback_handler=None if person is None else person.answer,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, should the server repeat it."""
        tokens = self.context.current_tokens
        values = () if tokens is None else (tokens.access_token, tokens.refresh_token)
        return tuple(value for value in values if value)

    async def _initialize(self) -> None:
        """With what the package does not keep: when the token ends, and where another one is had."""
        await super()._initialize()
        login, context = self._kept.login, self.context
        context.token_expiry_time = login.expires_at
        if login.issuer is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(login.issuer)
        if login.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(login.resource)

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if not _same_place(request.url, httpx2.URL(self.context.server_url)):
            yield request  # a token goes to the server that it was issued for, and nowhere else
            return
        response, renewed, configured = None, False, request.headers.get("Authorization")
        if await self._kept.reread() or not self._initialized:
            await self._initialize()
        while response is None or (
            response.status_code == 401 and not renewed and self.context.can_refresh_token()
        ):
            stale = response is not None or not self.context.is_token_valid()
            if stale and self.context.can_refresh_token():
                renewed = True
                async with _renewing():
                    if not await self._renewed_elsewhere() and self.context.can_refresh_token():
                        with self._kept.renewal():
                            await self._handle_refresh_response((yield await self._refresh_token()))
            if self.context.is_token_valid():
                self._add_auth_header(request)
            elif response is not None:
                _set_authorization(request, configured)  # what it had is forgotten
            response = yield request
        if not await self._wants_person(response) or self._person is None:
            return
        self.asks = ""
        self.context.clear_tokens()
        flow = super()._auth_flow(request)
        try:
            await anext(flow)  # the request itself, whose answer is there already
            outgoing = await flow.asend(response)
            while True:
                if outgoing is not request:
                    self._check(outgoing.url)
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            return
        except (OAuthFlowError, ValidationError) as error:
            raise ToolError(f"the login at {self._server} failed: {_said(error)}") from None
        finally:
            await flow.aclose()

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        """Go on with what is kept after a renewal, whether that is what it brought or not."""
        renewed = await super()._handle_refresh_response(response)
        if renewed or await self._kept.reread():
            await self._initialize()
        return renewed

    async def _renewed_elsewhere(self) -> bool:
        """Whether another process, or another connection, was faster: a token is renewed once."""
        if not await self._kept.reread():
            return False
        await self._initialize()
        return self.context.is_token_valid()

    async def _wants_person(self, response: httpx2.Response) -> bool:
        more = extract_field_from_www_auth(response, "error") == "insufficient_scope"
        self.asks = ""
        if response.status_code == 401:
            had = self._kept.login.tokens is not None
            what = "does not take the login that is kept for it" if had else "wants a login"
            self.asks = f"the MCP server {self._server} {what}"
        elif response.status_code == 403 and more:
            scope = extract_scope_from_www_auth(response)
            await self._kept.change(lambda login: _wanting(login, scope))
            self.asks = f"the MCP server {self._server} wants more rights than its login has"
        if self.asks:
            self.asks += f". Do without it; a person logs in with 'retinue mcp login {self._server}'."
        return bool(self.asks)

    async def _perform_authorization(self) -> httpx2.Request:
        context, kept = self.context, self._kept
        context.client_metadata.scope = union_scopes(context.client_metadata.scope, kept.login.wanted or None)
        issuer, resource = context.oauth_metadata, context.protected_resource_metadata
        await kept.write(
            issuer=None if issuer is None else _plain(issuer),
            resource=None if resource is None else _plain(resource),
            wanted="",
        )
        return await super()._perform_authorization()

    async def _show(self, url: str) -> None:
        self._check(httpx2.URL(url))
        assert self._person is not None
        await self._person.show(url)

    def _check(self, url: httpx2.URL) -> None:
        """Addresses that a server names: over TLS, unless they are of this machine or of that server."""
        own = url.host == httpx2.URL(self.context.server_url).host
        if url.scheme != "https" and not (url.scheme == "http" and (own or _is_loopback(url.host))):
            raise ToolError(f"the login at {self._server} failed: it leads to {url.scheme}://{url.host}")


def _set_authorization(request: httpx2.Request, value: str | None) -> None:
    request.headers.pop("Authorization", None)
    if value is not None:
        request.headers["Authorization"] = value


def _same_place(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _said(error: Exception) -> str:
    """Without what the server answered, where that may hold a token."""
    inner = error.__cause__ or error.__context__
    if isinstance(error, ValidationError) or isinstance(inner, ValidationError):
        return "what the server answered is not what OAuth says"
    return told(error)[:500]
