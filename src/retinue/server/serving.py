"""Running the application: one process, one event loop, one port.

On the way up it takes up what a dead process left behind. On the way down it ends the streams, then leaves
its runs as they are: nothing is written about them, so the next start goes on where their logs end, and a
question that waits for a person still waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn
from fastapi import FastAPI

from retinue.app import Retinue
from retinue.errors import ConfigError
from retinue.server.app import close_streams
from retinue.server.recovery import resume_all

log = logging.getLogger("retinue.server")
GRACE = 5
"""Seconds that requests under way get to finish."""


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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        close_streams(self.config.app)  # pyright: ignore[reportArgumentType]  # it is the FastAPI given below
        await super().shutdown(sockets)


async def serve(
    retinue: Retinue,
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8484,
    resume: bool = True,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal says stop. `ready` is told the address once connections are taken."""
    listening = bind(host, port)
    if resume:
        await resume_all(retinue)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        http="h11",  # with limits on headers; whatever else is installed
        ws="none",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=32_000,
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
        await retinue.leave()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. From here on clients can connect: they wait until the server is ready."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
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
