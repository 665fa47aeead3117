"""The one HTTP client of a process: every model call of every run goes through it.

`app` makes one `Client` and closes it at the end; `connect` hands it to the models. It keeps connections
open for reuse without a limit on their number, so that a thousand children can wait for their models at
once; where this machine has no handle left for another, that one waits. Proxy and certificate settings come
from the environment. It never retries a request that was received, and never reads a body: `retry` and
`wire` do.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import math
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from retinue.errors import ConfigError, ToolError
from retinue.models.keys import KeyPool
from retinue.types import Image

if TYPE_CHECKING:
    import ssl

    from retinue.models.line import HttpAnswer, Line

CONNECT_SECONDS = 15.0
STALL_SECONDS = 600.0
IDLE_SECONDS = 30.0
LOOKUP_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds until a connection is tried again for which there was no handle."""
LEFT_OPEN = 32
"""Handles that are left to the rest of the program: to be reached, and to write its log."""
NO_HANDLES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
_UNQUOTED = "/:@!$&'()*+,;=~%-._"


class HttpRefused(ConnectionError):
    """A server that answered, and not with 200."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it answers {status}")
        self.status = status


@dataclass(frozen=True, kw_only=True, slots=True)
class _Route:
    """How an address is reached. `key` names the connections that lead there."""

    key: tuple[Any, ...]
    host: str
    port: int
    target: str
    """As it stands in the request: a path, or for a proxy the whole address."""
    fixed: str
    """The headers of every request."""
    tls: ssl.SSLContext | None
    proxy: _Proxy | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Proxy:
    host: str
    port: int
    tls: ssl.SSLContext | None
    login: str


class Client:
    """Connections, keys and settings that the models of one process share.

    `stall` is how many seconds may pass without a byte before a call counts as lost, whatever is left of
    its total time. Use it as an async context manager, or call `close`.
    """

    def __init__(self, *, environ: Mapping[str, str] | None = None, stall: float = STALL_SECONDS) -> None:
        self._environ = os.environ if environ is None else environ
        self._stall = stall
        self._tls: ssl.SSLContext | None = None
        self._routes: dict[str, _Route] = {}
        self._idle: dict[tuple[Any, ...], list[Line]] = {}
        self._open: dict[Line, tuple[Any, ...]] = {}
        self._lookups: dict[tuple[str, int], asyncio.Task[list[Any]]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._pools: dict[tuple[str, tuple[str, ...]], KeyPool] = {}
        self.picture: Callable[[str], Awaitable[Image]] = _no_picture
        """Fetches a picture for a provider that takes no addresses, by the rules of the web tools."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for line in [*self._open]:
            line.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # connections are told of their end in the next round of the event loop

    def keys(self, provider: str, keys: tuple[str, ...]) -> KeyPool:
        """The pool of a provider's keys. Every model of that provider shares it, and so its cool-downs."""
        pool = self._pools.get((provider, keys))
        if pool is None:
            pool = self._pools[provider, keys] = KeyPool(keys, provider=provider)
        return pool

    async def post(self, url: str, *, headers: dict[str, str], body: bytes, timeout: float) -> HttpAnswer:
        """Send a request and return as soon as the headers of the answer are here."""
        return await self._ask("POST", url, headers, body, timeout)

    async def get(self, url: str, *, headers: dict[str, str], timeout: float) -> bytes:
        """A small answer as a whole: the list of models of a server."""
        answer = await self._ask("GET", url, headers, b"", timeout)
        try:
            body = await answer.read()
        finally:
            answer.release()
        if answer.status != 200:
            raise HttpRefused(answer.status)
        return body

    async def _ask(
        self, method: str, url: str, headers: dict[str, str], body: bytes, timeout: float
    ) -> HttpAnswer:
        route = self._routes.get(url)
        if route is None:
            route = self._routes[url] = self._route(url)
        request = _request(method, route, headers, body)
        idle = self._idle.get(route.key)
        while True:
            reused = bool(idle)
            line = idle.pop() if idle else await self._connect(route, timeout)
            answer = line.ask(request, total=timeout, stall=min(self._stall, timeout))
            try:
                await answer.head()
            except ConnectionError:
                answer.close()
                if reused and answer.silent:
                    continue  # the other side had closed it while it was idle
                raise
            except BaseException:
                answer.close()
                raise
            return answer

    # How connections are made and kept.

    async def _connect(self, route: _Route, timeout: float) -> Line:
        """A new connection. What this machine lacks is waited for: it is no fault of the provider."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout, FIRST_PAUSE
        seconds = min(CONNECT_SECONDS, timeout)
        while True:
            try:
                async with asyncio.timeout(seconds):
                    line = await (
                        self._dial(route) if route.proxy is None else self._tunnel(route, route.proxy)
                    )
            except TimeoutError:
                raise ConnectionError(
                    f"no connection to {route.host}:{route.port} within {seconds:g} s"
                ) from None
            except OSError as error:
                if loop.time() + pause > deadline or not _lacks_handles(error):
                    raise _unreachable(route, error) from None
            else:
                self._open[line] = route.key
                return line
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _line(self) -> Line:
        from retinue.models.line import Line

        return Line(idle=self._keep, lost=self._forget)

    async def _dial(self, route: _Route) -> Line:
        made = await self._socket(route.host, route.port)
        _, line = await asyncio.get_running_loop().create_connection(
            self._line, sock=made, ssl=route.tls, server_hostname=route.host if route.tls else None
        )
        return line

    async def _tunnel(self, route: _Route, proxy: _Proxy) -> Line:
        """Through a proxy: for https a tunnel is asked for, for http it gets the request itself."""
        loop = asyncio.get_running_loop()
        made = await self._socket(proxy.host, proxy.port)
        hostname = proxy.host if proxy.tls else None
        if route.tls is None:
            _, line = await loop.create_connection(
                self._line, sock=made, ssl=proxy.tls, server_hostname=hostname
            )
            return line
        opened: asyncio.Future[None] = loop.create_future()
        transport, _ = await loop.create_connection(
            lambda: _Tunnel(opened), sock=made, ssl=proxy.tls, server_hostname=hostname
        )
        try:
            there = f"{route.host}:{route.port}"
            transport.write(f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{proxy.login}\r\n".encode())
            await opened
            line = self._line()
            secure = await loop.start_tls(transport, line, route.tls, server_hostname=route.host)
            if secure is None:
                raise ConnectionResetError("the proxy closed the connection")
        except BaseException:
            transport.abort()
            raise
        line.connection_made(secure)
        return line

    async def _socket(self, host: str, port: int) -> socket.socket:
        import aiohappyeyeballs

        addresses = await self._addresses(host, port)
        return await aiohappyeyeballs.start_connection(  # pyright: ignore[reportUnknownMemberType]  # its address type is open
            addresses, happy_eyeballs_delay=0.25, socket_factory=_keepalive_socket
        )

    async def _addresses(self, host: str, port: int) -> list[Any]:
        """One look-up for however many connections are made at the same moment."""
        loop = asyncio.get_running_loop()
        found = self._lookups.get((host, port))
        if found is None:
            found = self._lookups[host, port] = asyncio.create_task(
                loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            )
            loop.call_later(LOOKUP_SECONDS, self._lookups.pop, (host, port), None)
        try:
            return await asyncio.shield(found)
        except OSError:
            self._lookups.pop((host, port), None)
            raise

    def _keep(self, line: Line) -> None:
        """A connection that can be used again."""
        line.since = line.loop.time()
        self._idle.setdefault(self._open[line], []).append(line)
        if self._sweep is None:
            self._sweep = line.loop.call_later(IDLE_SECONDS, self._close_idle, line.loop)

    def _forget(self, line: Line) -> None:
        key = self._open.pop(line, None)
        idle = self._idle.get(key) if key is not None else None
        if idle and line in idle:
            idle.remove(line)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hang up where nobody has asked anything for a while; providers and routers would soon do so."""
        oldest = loop.time() - IDLE_SECONDS
        for lines in self._idle.values():
            for line in [line for line in lines if line.since <= oldest]:
                lines.remove(line)
                line.abort()
        left = any(self._idle.values())
        self._sweep = loop.call_later(IDLE_SECONDS, self._close_idle, loop) if left else None

    # How an address is reached.

    def _route(self, url: str) -> _Route:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or (443 if secure else 80)
        proxy = self._proxy(url)
        target = quote(parts.path or "/", safe=_UNQUOTED) + (f"?{parts.query}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        if parts.port is not None:
            shown = f"{shown}:{port}"
        fixed = f"Host: {shown}\r\nUser-Agent: retinue\r\nAccept-Encoding: identity\r\n"
        if proxy is not None and not secure:
            target = f"http://{shown}{target}"
            fixed += proxy.login
        return _Route(
            key=(parts.scheme, host, port, proxy),
            host=host,
            port=port,
            target=target,
            fixed=fixed,
            tls=self._certificates() if secure else None,
            proxy=proxy,
        )

    def _proxy(self, url: str) -> _Proxy | None:
        address = proxy_for(url, self._environ)
        if address is None:
            return None
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"the proxy {parts.scheme}://{parts.hostname or ''} cannot be used: only http and https are",
                fix="set HTTPS_PROXY to an address such as http://proxy:3128, or unset it",
            )
        login = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            login = f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"
        secure = parts.scheme == "https"
        return _Proxy(
            host=parts.hostname,
            port=parts.port or (443 if secure else 3128),
            tls=self._certificates() if secure else None,
            login=login,
        )

    def _certificates(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl_context(self._environ)
        return self._tls


async def _no_picture(url: str) -> Image:
    raise ToolError("nothing is fetched from the web here: pip install 'retinue[web]'")


class _Tunnel(asyncio.Protocol):
    """Waits for a proxy's word that the way is open."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        self._opened = opened
        self._said = b""

    def data_received(self, data: bytes) -> None:
        self._said += data
        if b"\r\n\r\n" in self._said and not self._opened.done():
            first = self._said.split(b"\r\n", 1)[0].decode("latin-1")
            status = first.split(" ", 2)[1:2]
            if status and status[0].startswith("2"):
                self._opened.set_result(None)
            else:
                self._opened.set_exception(ConnectionError(f"the proxy answers {first[:200]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._opened.done():
            self._opened.set_exception(exc or ConnectionResetError("the proxy closed the connection"))


def _request(method: str, route: _Route, headers: dict[str, str], body: bytes) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines)
    if head.count("\n") != max(0, len(lines) - 1) or head.count("\r") != max(0, len(lines) - 1):
        raise ConfigError(
            "a key or a header has a line break in it, and cannot be sent",
            fix="look at the end of the variable that holds the key",
        )
    if body:
        head = f"{head}\r\nContent-Length: {len(body)}" if head else f"Content-Length: {len(body)}"
    start = f"{method} {route.target} HTTP/1.1\r\n{route.fixed}{head}\r\n\r\n"
    return start.encode() + body


def _room() -> float:
    """The number of handles that connections and all else together may have, before connections wait."""
    try:
        import resource
    except ImportError:  # not on Windows
        return math.inf
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if most == resource.RLIM_INFINITY else most - min(LEFT_OPEN, most // 4)


def _lacks_handles(error: OSError) -> bool:
    """Whether it failed because nothing can be opened here. A look-up that fails so does not say why."""
    if error.errno in NO_HANDLES:
        return True
    try:
        os.close(os.dup(0))
    except OSError as found:
        return found.errno in NO_HANDLES
    return False


def _unreachable(route: _Route, error: OSError) -> OSError:
    """The same kind of error, in words."""
    import ssl

    where = f"{route.host}:{route.port}"
    if isinstance(error, ssl.SSLError):
        return error
    if isinstance(error, socket.gaierror):
        return ConnectionError(f"there is no host {route.host}: {error.strerror}")
    if isinstance(error, ConnectionRefusedError):
        return ConnectionRefusedError(f"nothing answers at {where}: is a server running there?")
    detail = os.strerror(error.errno) if error.errno else str(error)
    return ConnectionError(f"cannot connect to {where}: {detail}")


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
    """Whether a host is this machine. What only begins like its address is not: 127.example."""
    numbers = host.startswith("127.") and host.replace(".", "").isdigit()
    return numbers or host in ("localhost", "::1") or host.endswith(".localhost")


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
    # The lowest free number is given out: one so high says how few are left.
    if made.fileno() >= _room():
        made.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        option = getattr(socket, name, None)  # not on every platform
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
