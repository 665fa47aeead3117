"""Saving what is readable of a damaged SQLite file into a new one. Called by `retinue doctor`.

Where SQLite can still find its tables they are read row by row, stepping over what is damaged; where it
cannot, `sqlite_pages` looks at every page of the file. Rows of runs are computed anew from the events that
were saved. The damaged file is only read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from retinue.errors import StoreError
from retinue.events import decode
from retinue.store import queries, sqlite_file, sqlite_pages
from retinue.store.migrate import refolded
from retinue.store.rows import DATA, PLACE, ROOT, RUN, SEQ
from retinue.store.runs import StoredRun

_TABLES: dict[str, tuple[str, ...]] = {
    "events": ("root_id", "pos", "run_id", "seq", "type", "at", "data"),
    "runs": StoredRun.__struct_fields__,
    "letters": queries.SIGNAL_FIELDS,
    "retinue_files": ("root_id", "run_id", "path", "seq", "at", "data"),
}
_BYTES = {"retinue_files": 5}
"""Where a row holds bytes and no text."""
_FURTHEST = 2**62


class Salvaged(Struct, frozen=True, kw_only=True):
    """How much was saved. `incomplete` runs miss events, so they can be read but not resumed."""

    events: int
    runs: int
    letters: int
    files: int
    """Of workspaces, and what was there before changes."""
    incomplete: tuple[str, ...]
    to: str


def salvage(path: Path, to: Path) -> Salvaged:
    """Copy what is readable. Takes long on a large file: call it in a thread."""
    if to.exists():
        raise StoreError(f"{to} exists already: choose a new file to save into")
    if not path.is_file():
        raise StoreError(f"there is no database {path}")
    connection = sqlite_file.open_for_writing(to, busy_seconds=10)
    try:
        connection.execute("BEGIN IMMEDIATE")
        _copy(path, connection)
        _close_gaps(connection)
        _rebuild_runs(connection)
        saved = _report(connection, to)
        connection.execute("COMMIT")
    finally:
        connection.close()
    return saved


def _copy(path: Path, into: sqlite3.Connection) -> None:
    try:
        damaged = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise sqlite_file.explain(error, path) from None
    damaged.text_factory = bytes  # a damaged text may not be text at all
    try:
        for table, columns in _TABLES.items():
            _write(into, table, columns, _sound(table, _readable(damaged, table, columns)))
    finally:
        damaged.close()
    if into.execute("SELECT 1 FROM events").fetchone() is None:
        found = sqlite_pages.rows(path, columns=len(_TABLES["events"]))
        _write(into, "events", _TABLES["events"], _sound("events", found))


def _sound(table: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return (row for row in rows if table != "events" or _is_event(row))


def _readable(
    connection: sqlite3.Connection, table: str, columns: Iterable[str]
) -> Iterator[tuple[Any, ...]]:
    """Rows in the order they were written, without those that cannot be read."""
    sql = f"SELECT rowid, {', '.join(columns)} FROM {table} WHERE rowid >= ? ORDER BY rowid"  # noqa: S608  # only names
    at = 0
    while True:
        try:
            for rowid, *values in connection.execute(sql, (at,)):
                at = rowid + 1
                row = _as_text(values, _BYTES.get(table))
                if row is not None:
                    yield row
            return
        except sqlite3.DatabaseError:
            beyond = _beyond(connection, sql + " LIMIT 1", at)
            if beyond is None:
                return
            at = beyond


def _beyond(connection: sqlite3.Connection, sql: str, at: int) -> int | None:
    """The next row number from which on something can be read: by ever larger steps, then back by halves."""

    def reads(rowid: int) -> bool:
        try:
            connection.execute(sql, (rowid,)).fetchall()
        except sqlite3.DatabaseError:
            return False
        return True

    bad, step = at, 1
    while not reads(bad + step):
        bad += step
        step *= 2
        if step > _FURTHEST:
            return None
    good = bad + step
    while good - bad > 1:
        middle = (good + bad) // 2
        bad, good = (bad, middle) if reads(middle) else (middle, good)
    return good


def _as_text(values: Iterable[Any], packed: int | None) -> tuple[Any, ...] | None:
    try:
        return tuple(
            value.decode() if isinstance(value, bytes) and at != packed else value
            for at, value in enumerate(values)
        )
    except UnicodeDecodeError:
        return None


def _is_event(row: tuple[Any, ...]) -> bool:
    """Does it say what an event says, and the same that its columns say?"""
    try:
        event = decode(row[DATA])
    except (msgspec.DecodeError, TypeError):
        return False
    same = (event.root_id, event.run_id, event.seq) == (row[ROOT], row[RUN], row[SEQ])
    return same and isinstance(row[PLACE], int)


def _close_gaps(connection: sqlite3.Connection) -> None:
    """Places have no gaps, so those after a lost event move down."""
    torn = "SELECT root_id FROM events GROUP BY root_id HAVING max(pos) <> count(*)"
    for (root_id,) in connection.execute(torn).fetchall():
        places = "SELECT pos FROM events WHERE root_id = ? ORDER BY pos"
        for number, (pos,) in enumerate(connection.execute(places, (root_id,)).fetchall(), start=1):
            connection.execute(
                "UPDATE events SET pos = ? WHERE root_id = ? AND pos = ?", (number, root_id, pos)
            )


def _rebuild_runs(connection: sqlite3.Connection) -> None:
    """Rows of all runs whose start was saved; of the others the old row stays, if that was."""
    for (root_id,) in connection.execute("SELECT DISTINCT root_id FROM events").fetchall():
        found = connection.execute("SELECT data FROM events WHERE root_id = ? ORDER BY pos", (root_id,))
        for row in refolded([[decode(data) for (data,) in found]]).values():
            connection.execute("DELETE FROM runs WHERE run_id = ?", (row.run_id,))
            _write(connection, "runs", _TABLES["runs"], [msgspec.structs.astuple(row)])


def _report(connection: sqlite3.Connection, to: Path) -> Salvaged:
    counts = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # only names
        for table in _TABLES
    }
    files = counts.pop("retinue_files")
    torn = "SELECT run_id FROM events GROUP BY run_id HAVING min(seq) <> 1 OR max(seq) <> count(*) ORDER BY 1"
    incomplete = tuple(run_id for (run_id,) in connection.execute(torn))
    return Salvaged(**counts, files=files, incomplete=incomplete, to=str(to))


def _write(
    connection: sqlite3.Connection, table: str, columns: Iterable[str], rows: Iterable[tuple[Any, ...]]
) -> None:
    names = tuple(columns)
    marks = ", ".join("?" * len(names))
    sql = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608  # only names
    connection.executemany(sql, rows)
