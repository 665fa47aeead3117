"""One HTTP GET, and every way it can fail as a sentence the model can act on.

`fetch` and `robots` call it once per redirect hop, with a target that `guard` has checked; the guard also
makes the sockets. It sends no cookies and no credentials, follows nothing by itself, and stops reading at
the size it was given, counted after decompression.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import socket
import string
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

import aiohttp
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from retinue.errors import ToolError
from retinue.web.guard import Guard, dialling, shown
from retinue.web.urls import Target

Resolve = Callable[[str], Awaitable[list[str]]]
"""A host name to its addresses, for tests and for operators with their own name service."""
Wanted = Callable[[str, bytes], bool]
"""Given the content type and the first bytes: is the rest worth reading?"""

CONNECT_SECONDS = 10.0
STALL_SECONDS = 15.0
FIRST_BYTES = 2048
_DECODED = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})


class Hop(Struct, frozen=True, kw_only=True):
    """The answer to one request. `cut` says why the body is not whole, or is ""."""

    status: int
    headers: dict[str, str]
    body: bytes
    sha256: str
    cut: str = ""
    unwanted: bool = False


class WebSession:
    """One HTTP session behind one guard."""

    def __init__(
        self,
        guard: Guard,
        *,
        user_agent: str,
        proxy: str | None = None,
        stall: float = STALL_SECONDS,
        resolve: Resolve | None = None,
    ) -> None:
        self.guard = guard
        self.proxy = proxy
        self.stall = stall
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=32,
                limit_per_host=6,
                socket_factory=guard.socket,
                resolver=None if resolve is None else _Resolver(resolve),
                use_dns_cache=resolve is None,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            headers={"User-Agent": user_agent},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=stall),
            max_line_size=16_384,
            max_field_size=32_768,
        )

    async def close(self) -> None:
        await self._session.close()

    async def get(
        self, target: Target, *, headers: Mapping[str, str], most: int, wanted: Wanted | None = None
    ) -> Hop:
        """Raises `ToolError`; never follows a redirect."""
        url = yarl.URL(target.url, encoded=True)
        if url.raw_host != target.host or url.port != target.port:
            raise ToolError(f"bad URL: {shown(target.url)} can be read in two ways.")
        if self.proxy is not None:
            await self._check_behind_proxy(target)
        with dialling(target, proxied=self.proxy is not None) as dial:
            try:
                async with self._session.get(
                    url, headers=headers, proxy=self.proxy, allow_redirects=False
                ) as response:
                    return await _read(response, target, most, wanted)
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                if dial.refused and isinstance(error, aiohttp.ClientConnectorError):
                    raise self.guard.refusal(target, dial.refused[0]) from None
                raise self._explained(error, target) from error

    async def _check_behind_proxy(self, target: Target) -> None:
        """The proxy resolves names, so this is the only look at them. Names only it knows pass."""
        if target.address is not None:
            return
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except OSError:
            return
        for *_, sockaddr in found:
            why = self.guard.why_not(target, ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]))
            if why:
                raise self.guard.refusal(target, why)

    def _explained(self, error: Exception, target: Target) -> ToolError:
        url, host = shown(target.url), target.host
        match error:
            case aiohttp.ClientConnectorDNSError():
                return ToolError(
                    f"{url} was not fetched: the name {host} does not resolve. Check the spelling, or find "
                    "the page with web_search."
                )
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                return ToolError(
                    f"{url} was not fetched: the proxy in web.proxy did not connect. "
                    "This is for the operator to mend."
                )
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
                return ToolError(
                    f"{url} was not fetched: the TLS connection to {host} failed ({_tls_reason(error)}). "
                    "Use another source for the same information."
                )
            case TimeoutError():
                return ToolError(
                    f"{url} was not fetched: {host} sent nothing for {self.stall:g} seconds. Try it once "
                    "more later, or use another source."
                )
            case aiohttp.ClientConnectorError():
                reason = error.os_error.strerror or str(error.os_error)
                return ToolError(
                    f"{url} was not fetched: no connection to {host}, port {target.port} ({reason}). "
                    "The site may be down: use another source."
                )
            case aiohttp.ClientPayloadError():
                return ToolError(
                    f"{url} was not fetched: its body is damaged or in an encoding that was not asked for. "
                    "Use another source."
                )
            case aiohttp.ClientResponseError():
                return ToolError(f"{url} was not fetched: {host} does not answer in valid HTTP.")
            case _:
                return ToolError(f"{url} was not fetched: {host} broke off the connection. Try it once more.")


def _tls_reason(error: Exception) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    reason = getattr(inner, "verify_message", None) or getattr(inner, "reason", None)
    return str(reason or "handshake failed").lower().replace("_", " ")


async def _read(response: aiohttp.ClientResponse, target: Target, most: int, wanted: Wanted | None) -> Hop:
    headers = {name.lower(): _text(name, value) for name, value in response.headers.items()}
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in _DECODED:
        raise ToolError(f"{shown(target.url)} is compressed as {encoding[:40]!r}, which is not supported.")
    digest = hashlib.sha256()
    body = bytearray()
    cut = ""
    unwanted = False
    asked = wanted is None
    try:
        async for chunk in response.content.iter_any():
            part = chunk[: most - len(body)]
            digest.update(part)
            body += part
            if len(part) < len(chunk):
                cut = f"only the first {most:,} bytes were read (web.max_bytes)"
                break
            if not asked and len(body) >= FIRST_BYTES:
                asked = True
                unwanted = not _is_wanted(wanted, headers, body)
                if unwanted:
                    break
    except aiohttp.ClientPayloadError:
        if not body:
            raise
        cut = f"the connection ended after {len(body):,} bytes, before the page was whole"
    if not asked:
        unwanted = not _is_wanted(wanted, headers, body)
    return Hop(
        status=response.status,
        headers=headers,
        body=bytes(body),
        sha256=digest.hexdigest(),
        cut=cut,
        unwanted=unwanted,
    )


def _text(name: str, value: str) -> str:
    """A header that can be stored: bytes that are no text are quoted in an address and replaced elsewhere."""
    if value.isascii():
        return value
    data = value.encode("utf-8", "surrogateescape")
    return (
        quote(data, safe=string.punctuation)
        if name.lower() == "location"
        else data.decode("utf-8", "replace")
    )


def _is_wanted(wanted: Wanted | None, headers: Mapping[str, str], body: bytearray) -> bool:
    return wanted is None or wanted(headers.get("content-type", ""), bytes(body[:FIRST_BYTES]))


class _Resolver(AbstractResolver):
    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found: list[ResolveResult] = []
        for address in await self._resolve(host):
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            found.append(
                {"hostname": host, "host": address, "port": port, "family": kind, "proto": 0, "flags": 0}
            )
        if not found:
            raise OSError(None, f"no address for {host}")
        return found

    async def close(self) -> None:
        pass
