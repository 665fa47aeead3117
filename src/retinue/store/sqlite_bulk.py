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

from retinue.store.projection import ADDED, MOVED, Change, new_row, standing_of
from retinue.store.rows import Row
from retinue.store.runs import StoredRun

MOST_ROWS = 256
"""By one statement. Every SQLite from `sqlite_file.OLDEST` on takes so many values."""


class Bulk:
    """A statement over `VALUES`. `values` is one row of it, `{}` in `sql` stands for all of them."""

    def __init__(self, sql: str, values: str) -> None:
        self._sql, self._values = sql, values
        self._statements: dict[int, str] = {}

    def __call__(self, connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> None:
        begun, count = 0, len(rows)
        while begun < count:
            # Powers of two: there are few of them, so the statements stay prepared.
            size = min(1 << ((count - begun).bit_length() - 1), MOST_ROWS)
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
_SPENT = ", ".join(f"{name} = {name} + v.column{n}" for n, name in enumerate(ADDED, start=2))
_MOVED = ", ".join(f"{name} = v.column{n}" for n, name in enumerate(MOVED, start=2 + len(ADDED)))
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
_spend = Bulk(f"UPDATE runs SET {_SPENT} {_WHERE}", _marks(1 + len(ADDED)))  # noqa: S608  # only names
_move = Bulk(f"UPDATE runs SET {_SPENT}, {_MOVED} {_WHERE}", _marks(1 + len(ADDED) + len(MOVED)))  # noqa: S608  # only names
# One row with all of them, for the same reason as above.
_STANDINGS = (
    f"SELECT json_group_array(json_array(run_id, {', '.join(MOVED)})) "  # noqa: S608  # only names
    "FROM runs WHERE run_id IN (SELECT value FROM json_each(?))"
)


def insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    """Events, each with its place."""
    _insert(connection, rows)


def project(connection: sqlite3.Connection, found: Iterable[Change]) -> None:
    """What a batch does to the rows of runs."""
    started: list[tuple[Any, ...]] = []
    going_on: list[Change] = []
    for change in found:
        if change.started is not None:
            started.append(msgspec.structs.astuple(new_row(change)))
        else:
            going_on.append(change)
    _settle(connection, [change for change in going_on if change.needs_standing])
    spent: list[tuple[Any, ...]] = []
    moved: list[tuple[Any, ...]] = []
    for change in going_on:
        now = change.standing
        if now is not None:
            moved.append((change.run_id, *change.sums, *map(now.__getitem__, MOVED)))
        elif change.spends:
            spent.append((change.run_id, *change.sums))
    _start(connection, started)
    _spend(connection, spent)
    _move(connection, moved)


def _settle(connection: sqlite3.Connection, found: list[Change]) -> None:
    """Compute where runs stand now from where their rows say they stood."""
    if not found:
        return
    asked = msgspec.json.encode([change.run_id for change in found]).decode()
    answer = connection.execute(_STANDINGS, (asked,)).fetchone()[0]
    standings = {run_id: standing_of(values) for run_id, *values in msgspec.json.decode(answer)}
    for change in found:
        change.settle(standings.get(change.run_id))
