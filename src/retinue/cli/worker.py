"""`retinue worker`: do the runs that others put into the queue of a PostgreSQL database."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.service import Quiet, ServiceOptions, log_service

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.worker import Worker


def worker(
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="Serve this queue; else 'default'; repeatable."),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", metavar="N", min=2, help="Workflows at the same time; else workers.slots."),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option("--health", metavar="[ADDR:]PORT", help="Answer /healthz, /readyz, /metrics there."),
    ] = None,
    model: o.Model = None,
    tools: o.Tools = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
    quiet: Quiet = False,
) -> int:
    """Do the runs of a PostgreSQL database, in this folder, until it is told to stop.

    Runs come from wherever engine = "workers" is set: 'ask', 'serve', programs. Any number of workers may
    serve one database, on any machines. SIGTERM hands over what is at work; a worker that dies is replaced by
    the others.

    \b
    Examples:
      retinue worker --db postgresql://me@db.example/retinue
      retinue worker --slots 50
      retinue worker --queue default --queue browser
    """
    log_service("WARNING" if quiet else "INFO", ("httpx", "asyncio"), "WARNING")
    service = ServiceOptions(model=model, tools=tools, cwd=cwd, db=db)
    return asyncio.run(_work(service, tuple(queue or ("default",)), slots, health))


async def _work(
    service: ServiceOptions, labels: tuple[str, ...], slots: int | None, health: str | None
) -> int:
    from retinue.cli.process import make_room
    from retinue.view.paint import note
    from retinue.worker import Worker

    async with service.opened(answering="ask", settings={"engine": "local"}, conversations=False) as retinue:
        make_room()
        one = Worker(retinue, labels=labels, slots=slots)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _stop, one)
        listening = await _listen(one, retinue, health)
        note(f"a worker for {retinue.cwd}: {', '.join(labels)}, {one.slots} workflows at once", "green")
        try:
            await one.work()
        finally:
            if listening is not None:
                listening.close()
    return exits.OK


async def _listen(one: Worker, retinue: Retinue, where: str | None) -> asyncio.Server | None:
    """Answer whoever looks after it, if it is told where: on this machine, unless an address says more."""
    if where is None:
        return None
    from retinue.errors import ConfigError
    from retinue.store.postgres import PostgresStore
    from retinue.view.paint import note
    from retinue.worker.health import WorkerHealth

    host, _, port = where.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{where!r} is no port to answer at", fix="--health 9090, or --health 0.0.0.0:9090")
    assert isinstance(retinue.store, PostgresStore)
    try:
        server = await WorkerHealth(one, retinue.store).listen(host or "127.0.0.1", int(port))
    except OSError as error:
        raise ConfigError(f"cannot listen at {where}: {error.strerror}", fix="choose another port") from None
    at = server.sockets[0].getsockname()
    note(f"its health is told at http://{at[0]}:{at[1]}/healthz", "dim")
    return server


_told: list[object] = []


def _stop(one: object) -> None:
    from retinue.worker import Worker

    if one in _told:  # who is asked twice goes at once: others take up what it leaves
        os._exit(exits.TERMINATED)
    _told.append(one)
    assert isinstance(one, Worker)
    one.stop()
