"""The queue of workers in PostgreSQL: PgQueuer's tables, and the two functions by which they are written to.

A `RunQueued` event in the log of a root is a job, stored in the same transaction. The functions are in the
database, so that whoever starts, answers or cancels a run needs no PgQueuer, which workers alone import.
`postgres_writer` and `PostgresStore.send` call them; nobody else writes to the queue.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

from retinue.errors import ConfigError
from retinue.store.postgres_link import Link

PREFIX = "retinue_"
TABLE = f"{PREFIX}pgqueuer"
LOG = f"{TABLE}_log"
CHANNEL = f"{PREFIX}ch_pgqueuer"
_INSTALL_LOCK = 7_283_002
"""Any number but that of the migrations: whoever holds it is making the tables of the queue."""

ENQUEUE = "SELECT retinue_enqueue($1, $2, $3::json, false)"
CALL = "SELECT retinue_call_workers()"
SEARCH = "SELECT retinue_search()"
WAKE = "SELECT retinue_wake($1)"
_IS_THERE = "SELECT to_regprocedure('retinue_wake(text)') IS NOT NULL"


@functools.cache
def functions() -> str:
    """The functions by which the queue is written to, as SQL."""
    text = (files("retinue.store") / "sql" / "queue.postgresql.sql").read_text(encoding="utf-8")
    return text.replace("{table}", TABLE).replace("{channel}", CHANNEL)


async def is_there(link: Link) -> bool:
    """Whether this database has a queue."""
    return bool(await link.fetchval(_IS_THERE))


async def install(link: Link) -> None:
    """Make the tables of the queue, or take them to the version of the PgQueuer that is installed here."""
    queries = queries_of(link)
    await link.execute("SELECT pg_advisory_lock($1)", _INSTALL_LOCK)
    try:
        if await link.fetchval("SELECT to_regclass($1)", TABLE) is None:
            await queries.install()
        else:
            await queries.apply_upgrade()
        await link.execute(functions())
    finally:
        await link.execute("SELECT pg_advisory_unlock($1)", _INSTALL_LOCK)


def queries_of(link: Link) -> Any:
    """PgQueuer's own statements, on a connection of ours and with our names of its tables."""
    try:
        from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
        from pgqueuer.adapters.persistence import qb
        from pgqueuer.adapters.persistence.queries import Queries
        from pgqueuer.domain.settings import DBSettings
    except ImportError:
        raise ConfigError(
            'the engine "workers" needs the queue PgQueuer', fix="pip install 'retinue[workers]'"
        ) from None
    names = DBSettings(prefix=PREFIX)
    link_of_theirs: Any = link
    return Queries(
        AsyncpgDriver(link_of_theirs),
        qbe=qb.QueryBuilderEnvironment(names),
        qbq=qb.QueryQueueBuilder(names),
        qbs=qb.QuerySchedulerBuilder(names),
    )
