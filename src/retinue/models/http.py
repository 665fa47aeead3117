"""The one HTTP client of a process: every model call of every run goes through it.

`app` makes one `Client` and closes it at the end; `connect` hands it to the models. It keeps connections
open for reuse without a limit on their number, so that a thousand children can wait for their models at
once. Proxy and certificate settings come from the environment. It never retries and never reads a body:
`retry` and `wire` do.
"""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from retinue.errors import ConfigError
from retinue.models.keys import KeyPool

if TYPE_CHECKING:
    import ssl

    from aiohttp import ClientResponse, ClientSession, ClientTimeout

CONNECT_SECONDS = 15.0
STALL_SECONDS = 600.0
_BIG_BODY = 512 * 1024


class Client:
    """Connections, keys and settings that the models of one process share.

    `stall` is how many seconds may pass without a byte before a call counts as lost, whatever is left of
    its total time. Use it as an async context manager, or call `close`.
    """

    def __init__(self, *, environ: Mapping[str, str] | None = None, stall: float = STALL_SECONDS) -> None:
        self._environ = os.environ if environ is None else environ
        self._stall = stall
        self._session: ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._timeouts: dict[float, ClientTimeout] = {}
        self._routes: dict[str, dict[str, Any]] = {}
        self._pools: dict[tuple[str, tuple[str, ...]], KeyPool] = {}

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def keys(self, provider: str, keys: tuple[str, ...]) -> KeyPool:
        """The pool of a provider's keys. Every model of that provider shares it, and so its cool-downs."""
        pool = self._pools.get((provider, keys))
        if pool is None:
            pool = self._pools[provider, keys] = KeyPool(keys, provider=provider)
        return pool

    async def post(self, url: str, *, headers: dict[str, str], body: bytes, timeout: float) -> ClientResponse:
        """Send a request and return as soon as the headers of the answer are here."""
        # aiohttp warns about large bodies in one piece, since they would hold up the event loop.
        data = io.BytesIO(body) if len(body) > _BIG_BODY else body
        return await self._open().post(
            url,
            data=data,
            headers=headers,
            timeout=self._timeout(timeout),
            allow_redirects=False,
            **self._route(url),
        )

    async def get(self, url: str, *, headers: dict[str, str], timeout: float) -> bytes:
        """A small answer as a whole: the list of models of a server."""
        async with self._open().get(
            url, headers=headers, timeout=self._timeout(timeout), raise_for_status=True, **self._route(url)
        ) as response:
            return await response.read()

    def _open(self) -> ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                # trust_env stays off: aiohttp would look up proxies and .netrc in a thread on every call.
                connector=aiohttp.TCPConnector(limit=0, socket_factory=_keepalive_socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept-Encoding", "Accept"),
            )
        return self._session

    def _timeout(self, total: float) -> ClientTimeout:
        found = self._timeouts.get(total)
        if found is None:
            from aiohttp import ClientTimeout

            found = ClientTimeout(
                total=total, sock_connect=min(CONNECT_SECONDS, total), sock_read=min(self._stall, total)
            )
            if len(self._timeouts) < 1000:
                self._timeouts[total] = found
        return found

    def _route(self, url: str) -> dict[str, Any]:
        """How to reach an address: its proxy and its certificates, worked out once per host."""
        origin = url[: url.find("/", 8)]
        route = self._routes.get(origin)
        if route is None:
            route = {}
            proxy = proxy_for(url, self._environ)
            if proxy is not None:
                route["proxy"] = proxy
            if url.startswith("https:"):
                route["ssl"] = self._certificates()
            self._routes[origin] = route
        return route

    def _certificates(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl_context(self._environ)
        return self._tls


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy of an address, from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY. None for loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host):
        return None
    proxy = ""
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        proxy = environ.get(name) or environ.get(name.upper()) or ""
        if proxy:
            break
    if not proxy:
        return None
    for spared in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(","):
        name, _, port = spared.strip().lower().lstrip("*").lstrip(".").partition(":")
        if spared.strip() == "*":
            return None
        if name and (host == name or host.endswith("." + name)) and port in ("", str(parts.port)):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")


def ssl_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Certificates from SSL_CERT_FILE, REQUESTS_CA_BUNDLE or SSL_CERT_DIR, else the system's."""
    import ssl

    file = environ.get("SSL_CERT_FILE") or environ.get("REQUESTS_CA_BUNDLE") or None
    folder = environ.get("SSL_CERT_DIR") or None
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificates in {file or folder} cannot be read: {error}",
            fix="set SSL_CERT_FILE to a readable PEM file, or unset it",
        ) from None


def _keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a dead peer although a model may think for minutes without a byte."""
    family, kind, protocol = address[0], address[1], address[2]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        option = getattr(socket, name, None)  # not on every platform
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
