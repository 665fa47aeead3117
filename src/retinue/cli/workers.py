"""`retinue workers`: who does the runs of a PostgreSQL database, what waits for them; telling one to stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.store.postgres import PostgresStore
    from retinue.store.postgres_workers import WorkerRow

app = new_group(
    "Workers that do the runs of a PostgreSQL database.", ("workers list", "workers drain 5f0c2b7d")
)


@app.command("list")
def list_(db: o.Db = None, json: o.Json = False) -> int:
    """List the workers there are, and what waits in each queue.

    \b
    Examples:
      retinue workers list --db postgresql://me@db.example/retinue
      retinue workers list --json | jq '.queues'
    """
    return asyncio.run(_list(db, json=json))


@app.command("drain")
def drain(
    worker: Annotated[str, typer.Argument(metavar="ID", help="A worker's id, or how it begins; 'all'.")],
    db: o.Db = None,
) -> int:
    """Tell a worker to stop: it finishes its steps, hands its workflows over, and ends.

    \b
    Examples:
      retinue workers drain 5f0c2b7d
      retinue workers drain all
    """
    return asyncio.run(_drain(worker, db))


@asynccontextmanager
async def _opened(db: str | None) -> AsyncGenerator[PostgresStore]:
    from retinue import settings
    from retinue.errors import ConfigError
    from retinue.store.connect import connect, default_url
    from retinue.store.postgres import PostgresStore

    loaded = settings.load(flags={} if db is None else {"db": db})
    store = connect(loaded.settings.db or default_url())
    if not isinstance(store, PostgresStore):
        raise ConfigError(
            "only a PostgreSQL database has workers", fix="give it with --db postgresql://… or RETINUE_DB"
        )
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _list(db: str | None, *, json: bool) -> int:
    import msgspec

    from retinue.store import postgres_workers
    from retinue.view import words
    from retinue.view.paint import note, out_json
    from retinue.view.table import TableColumn, print_table

    async with _opened(db) as store:
        rows, queues = await postgres_workers.workers(store), await postgres_workers.depths(store)
    if json:
        found = [{**msgspec.to_builtins(row), "state": row.state} for row in rows]
        out_json(msgspec.json.encode({"workers": found, "queues": queues}).decode())
        return exits.OK
    heads = (
        TableColumn(title="id"),
        TableColumn(title="state"),
        TableColumn(title="at work", right=True),
        TableColumn(title="up", right=True, rank=3),
        TableColumn(title="queues", rank=2),
        TableColumn(title="where", rank=1),
        TableColumn(title="folder", flexible=True, rank=4),
    )
    if rows:
        print_table(heads, [[(cell, "") for cell in _cells(row)] for row in rows], sys.stdout)
    for queue in queues:
        oldest = f", the oldest for {words.duration(queue.oldest)}" if queue.waiting else ""
        note(
            f"{queue.label}: {queue.waiting} wait{oldest}; {queue.at_work} at work, {queue.later} later",
            "dim",
        )
    if not rows:
        note("there are no workers: 'retinue worker' starts one", "yellow")
    return exits.OK


def _cells(row: WorkerRow) -> list[str]:
    from retinue.view import words

    at_work, where = f"{row.at_work}/{row.slots}", f"{row.host}:{row.pid}"
    return [
        row.owner[:8],
        row.state,
        at_work,
        words.duration(row.up),
        ", ".join(row.labels),
        where,
        row.folder,
    ]


async def _drain(worker: str, db: str | None) -> int:
    from retinue.errors import ConfigError
    from retinue.store import postgres_workers
    from retinue.view.paint import note

    async with _opened(db) as store:
        told = await postgres_workers.drain(store, "" if worker == "all" else worker)
    if not told:
        raise ConfigError(f"there is no worker {worker!r}", fix="'retinue workers list' shows them")
    for owner in told:
        note(f"{owner[:8]} hands over what it has, and ends", "green")
    return exits.OK
