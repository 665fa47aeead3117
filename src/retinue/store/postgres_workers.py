"""The workers of a database and what waits for them, as lists, metrics and checks are told.

Each worker writes a row of its own and reads in it whether it is to stop. Called by workers and by the
commands about them; the queue itself is in `postgres_queue`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from retinue.store.postgres import PostgresStore
from retinue.store.postgres_link import Link
from retinue.store.postgres_queue import TABLE, is_there

SILENT_SECONDS = 15.0
"""A worker that has said nothing for so long is not shown as alive."""

_SAY = """
INSERT INTO retinue_workers (owner, host, pid, folder, labels, slots, at_work, version)
VALUES ($1, $2, $3, $4, $5::text[], $6, $7, $8)
ON CONFLICT (owner) DO UPDATE SET at = now(), at_work = $7 RETURNING draining
"""
_LEAVE = "DELETE FROM retinue_workers WHERE owner = $1 OR at < now() - interval '1 hour'"
_LIST = """
SELECT owner, host, pid, folder, labels, slots, at_work, version, draining,
    extract(epoch FROM now() - since)::double precision, extract(epoch FROM now() - at)::double precision
FROM retinue_workers ORDER BY since
"""
_DRAIN = "UPDATE retinue_workers SET draining = true WHERE owner LIKE $1 || '%' RETURNING owner"
_WAITING = f"""
SELECT split_part(entrypoint, '@', 1), status = 'picked', execute_after > now(), count(*)::bigint,
    extract(epoch FROM now() - min(greatest(created, execute_after)))::double precision
FROM {TABLE} WHERE status IN ('queued', 'picked') GROUP BY 1, 2, 3
"""  # noqa: S608  # constants
_RUNS = """
SELECT outcome, count(*)::bigint, sum(input_tokens)::bigint, sum(output_tokens)::bigint,
    coalesce(sum(cost), 0)::double precision
FROM runs GROUP BY outcome
"""


class WorkerRow(Struct, frozen=True, kw_only=True):
    """One worker, as it said last. `silent` is how many seconds ago that was."""

    owner: str
    host: str
    pid: int
    folder: str
    labels: tuple[str, ...]
    slots: int
    at_work: int = 0
    version: str = ""
    draining: bool = False
    up: float = 0.0
    silent: float = 0.0

    def serves(self, label: str, folder: str) -> bool:
        """Whether runs of that queue and that folder are for it."""
        alive = self.silent <= SILENT_SECONDS and not self.draining
        return alive and label in self.labels and folder in ("", self.folder)

    @property
    def state(self) -> str:
        if self.silent > SILENT_SECONDS:
            return "silent"
        return "draining" if self.draining else "working" if self.at_work else "idle"


class QueueDepth(Struct, frozen=True, kw_only=True):
    """What of a queue, by its label, waits, is due later, or is at work; and how long the oldest has."""

    label: str
    waiting: int = 0
    later: int = 0
    at_work: int = 0
    oldest: float = 0.0


class RunSums(Struct, frozen=True, kw_only=True):
    outcome: str
    runs: int
    input_tokens: int
    output_tokens: int
    cost: float


async def say(store: PostgresStore, row: WorkerRow) -> bool:
    """Say that a worker is there. Whether it is to stop."""
    values = (row.owner, row.host, row.pid, row.folder, list(row.labels), row.slots, row.at_work, row.version)
    return bool(await store.use(lambda link: link.fetchval(_SAY, *values)))


async def leave(store: PostgresStore, owner: str) -> None:
    await store.use(lambda link: link.execute(_LEAVE, owner))


async def workers(store: PostgresStore) -> list[WorkerRow]:
    async def do(link: Link) -> list[WorkerRow]:
        if not await is_there(link):
            return []
        names = WorkerRow.__struct_fields__
        return [
            msgspec.convert(dict(zip(names, row, strict=True)), WorkerRow) for row in await link.fetch(_LIST)
        ]

    return await store.use(do)


async def drain(store: PostgresStore, owner: str) -> list[str]:
    """Tell the workers whose id begins so to stop. Returns who they are."""

    async def do(link: Link) -> list[str]:
        if not await is_there(link):
            return []
        return [row[0] for row in await link.fetch(_DRAIN, owner)]

    return await store.use(do)


async def depths(store: PostgresStore) -> list[QueueDepth]:
    """What waits in each queue."""

    async def do(link: Link) -> list[QueueDepth]:
        if not await is_there(link):
            return []
        found: dict[str, dict[str, float]] = {}
        for label, picked, later, count, oldest in await link.fetch(_WAITING):
            one = found.setdefault(label, {})
            one["at_work" if picked else "later" if later else "waiting"] = count
            if not picked and not later:
                one["oldest"] = max(0.0, oldest)
        return [QueueDepth(label=label, **one) for label, one in sorted(found.items())]  # pyright: ignore[reportArgumentType] # counts are whole

    return await store.use(do)


async def sums(store: PostgresStore) -> list[RunSums]:
    """All runs of the database by their outcome: it reads every row."""
    rows = await store.use(lambda link: link.fetch(_RUNS))
    return [
        RunSums(outcome=row[0], runs=row[1], input_tokens=row[2], output_tokens=row[3], cost=row[4])
        for row in rows
    ]
