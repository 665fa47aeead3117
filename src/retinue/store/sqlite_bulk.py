"""Many rows by one statement: the events and the rows of runs, as they go into SQLite.

Whenever SQLite is at work, its thread lets go of Python's lock, and must wait to have it back: up to five
milliseconds each time while the event loop is busy. A row a statement would make a batch of hundreds of
rows wait hundreds of times. Called in the writer's thread, inside its transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from retinue.events import Event
from retinue.store import queries
from retinue.store.projection import MOVED, SUMMED, Ancestry, Batch, new_row, standing_of
from retinue.store.rows import Row
from retinue.store.runs import KeptColumns, StoredRun, columns

MOST_ROWS = 256
"""By one statement. Every SQLite from `sqlite_file.OLDEST` on takes so many values."""


FEW_ROWS = 12
"""So many go by one statement of just that size: some children and those above them."""


class Bulk:
    """A statement over `VALUES`. `values` is one row of it, `{}` in `sql` stands for all of them."""

    def __init__(self, sql: str, values: str) -> None:
        self._sql, self._values = sql, values
        self._statements: dict[int, str] = {}

    def __call__(self, connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> None:
        begun, count = 0, len(rows)
        while begun < count:
            # Powers of two beyond a few: there are few of them, so the statements stay prepared.
            left = count - begun
            size = left if left <= FEW_ROWS else min(1 << (left.bit_length() - 1), MOST_ROWS)
            connection.execute(self._statement(size), [*chain.from_iterable(rows[begun : begun + size])])
            begun += size

    def _statement(self, size: int) -> str:
        known = self._statements.get(size)
        if known is None:
            known = self._statements[size] = self._sql.format(", ".join([self._values] * size))
        return known


def _marks(count: int) -> str:
    return f"({', '.join('?' * count)})"


_FIELDS = StoredRun.__struct_fields__
_SPENT = ", ".join(f"{name} = {name} + v.column{n}" for n, name in enumerate(SUMMED, start=2))
_MOVED = ", ".join(f"{name} = v.column{n}" for n, name in enumerate(MOVED, start=2 + len(SUMMED)))
_WHERE = "FROM (VALUES {}) AS v WHERE runs.run_id = v.column1"

# The JSON is bound as the bytes it is and kept as text, so that people can read it.
_insert = Bulk(
    "INSERT INTO events (root_id, pos, run_id, seq, type, at, data) VALUES {}",
    "(?, ?, ?, ?, ?, ?, CAST(? AS TEXT))",
)
_start = Bulk(
    f"INSERT INTO runs ({', '.join(_FIELDS)}) VALUES {{}} ON CONFLICT DO NOTHING",  # noqa: S608  # only names
    _marks(len(_FIELDS)),
)
# Two statements, since naming `status` would rewrite its index even where it stays the same.
_spend = Bulk(f"UPDATE runs SET {_SPENT} {_WHERE}", _marks(1 + len(SUMMED)))  # noqa: S608  # only names
_move = Bulk(f"UPDATE runs SET {_SPENT}, {_MOVED} {_WHERE}", _marks(1 + len(SUMMED) + len(MOVED)))  # noqa: S608  # only names
# One row with all of them, for the same reason as above. SQLite's JSON would cut the last digits of a time.
_DOUBLES = frozenset(column.name for column in columns() if column.type == "{double}")
_EXACT = ", ".join(
    f"iif({name} IS NULL, NULL, printf('%!.17g', {name}))" if name in _DOUBLES else name for name in MOVED
)
_STANDINGS = (
    f"SELECT json_group_array(json_array(run_id, {_EXACT})) "  # noqa: S608  # only names
    "FROM runs WHERE run_id IN (SELECT value FROM json_each(?))"
)
_ABOVE = queries.ABOVE["sqlite"].replace("$", "?")


def insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    """Events, each with its place."""
    _insert(connection, rows)


def project(connection: sqlite3.Connection, appends: Sequence[Sequence[Event]], ancestry: Ancestry) -> None:
    """What a batch does to the rows of runs."""
    ancestry.tidy()
    missing = set[str]().union(*(ancestry.learn(events) for events in appends))
    if missing:
        ancestry.add(connection.execute(_ABOVE, (_json(missing),)).fetchall())
    batch = Batch(appends, ancestry)
    batch.settle(_standings(connection, batch.asked))
    started: list[tuple[Any, ...]] = []
    spent: list[tuple[Any, ...]] = []
    moved: list[tuple[Any, ...]] = []
    for change in batch.changes.values():
        now = change.standing
        if change.started is not None:
            started.append(msgspec.structs.astuple(new_row(change)))
        elif now is not None:
            moved.append((change.run_id, *change.sums, *map(now.__getitem__, MOVED)))
        elif change.spends:
            spent.append((change.run_id, *change.sums))
    _start(connection, started)
    _spend(connection, spent)
    _move(connection, moved)


def _json(run_ids: Iterable[str]) -> str:
    return msgspec.json.encode(list(run_ids)).decode()


def _standings(connection: sqlite3.Connection, asked: Sequence[str]) -> dict[str, KeptColumns]:
    """Where these runs stand, as their rows say."""
    if not asked:
        return {}
    answer = connection.execute(_STANDINGS, (_json(asked),)).fetchone()[0]
    return {run_id: _exact(standing_of(values)) for run_id, *values in msgspec.json.decode(answer)}


def _exact(standing: KeptColumns) -> KeptColumns:
    return {
        name: float(value) if name in _DOUBLES and value is not None else value
        for name, value in standing.items()
    }
