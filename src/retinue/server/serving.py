"""Running the application: one process, one event loop, one port.

For as long as it lives it takes up what was left behind, by others or by itself when the database failed. On
the way down it ends the streams, then leaves its runs as they are: nothing is written about them, so the next
start goes on where their logs end, and a question that waits for a person still waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from retinue.app import Retinue
from retinue.errors import ConfigError
from retinue.server.app import close_streams
from retinue.server.connections import Connection, Connections
from retinue.server.context import Server
from retinue.server.limits import RateLimits

log = logging.getLogger("retinue.server")
GRACE = 5
"""Seconds that requests under way get to finish."""
AT_ONCE = 100
"""Connections that are taken before those that are here have their turn again."""
QUEUED = 2048
HANDLES_OF_RUNS = 0.5
"""The part of the open files that connections leave to runs."""
NO_HANDLES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SAY_AGAIN = 60.0
"""Seconds until it is said again that nothing can be opened."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """A signal asks the server to stop and is done with then: there is still work to do behind it."""
        loop, taken = asyncio.get_running_loop(), list[signal.Signals]()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not in the main thread, or not on this system: whoever runs us there stops us otherwise.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.handle_exit, number, None)
                taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUED)  # uvicorn has taken its one number for this too

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        close_streams(self.config.app)  # pyright: ignore[reportArgumentType]  # it is the FastAPI given below
        await super().shutdown(sockets)


class _Trouble:
    """Hears what goes wrong in the event loop. Where nothing can be opened, asyncio says so for each of the
    connections that could come, with a trace, every second."""

    def __init__(self) -> None:
        self._said = -SAY_AGAIN

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in NO_HANDLES or "socket" not in context:
            loop.default_exception_handler(context)
        elif loop.time() - self._said >= SAY_AGAIN:
            self._said = loop.time()
            log.warning(
                "no connection can be taken: %s. They wait until something is closed; to allow more, raise "
                "the limit of open files (ulimit -n)",
                error.strerror,
            )


async def serve(
    retinue: Retinue,
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8484,
    listening: socket.socket | None = None,
    resume: bool = True,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal says stop. `ready` is told the address once connections are taken.

    `listening`: the socket, if it is there already (`bind`); it is closed at the end.
    """
    listening = listening or bind(host, port)
    served: Server = app.state.server
    asyncio.get_running_loop().set_exception_handler(_Trouble())
    connections = Connections(within_handles(served.limits))
    retinue.store.hold_for(None)  # what runs have written waits for the database for as long as we live
    keeping = (
        asyncio.create_task(retinue.take_up.keep(), name="take up")
        if resume and not retinue.hands_over
        else None
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        http=cast("type[asyncio.Protocol]", partial(Connection, among=connections)),
        ws="none",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=32_000,
        backlog=AT_ONCE,
    )
    server = _Server(config)
    if ready is not None:
        ready(address(listening))
    try:
        await server.serve(sockets=[listening])
    except asyncio.CancelledError:  # stopped by whoever awaits this, not by a signal
        if server.started:
            await server.shutdown([listening])
        raise
    finally:
        listening.close()
        close_streams(app)
        connections.close()
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])
        await retinue.leave()


def within_handles(limits: RateLimits) -> RateLimits:
    """The same limits, with no more connections than half of the files that this process may open."""
    try:
        import resource
    except ImportError:  # not on Windows
        return limits
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = limits.connections if most == resource.RLIM_INFINITY else int(most * HANDLES_OF_RUNS)
    whole = min(limits.connections, room)
    return replace(limits, connections=whole, connections_of_one=min(limits.connections_of_one, whole))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. From here on clients can connect: they wait until the server is ready."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(QUEUED)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}", fix="choose another --port or --host"
        ) from None
    listening.setblocking(False)
    return listening


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
