"""The one thread that writes to an SQLite file: group commit, places, fencing, the rows of runs.

`SqliteStore` puts work in line. All that has come together is one transaction; should it fail because of
one item, each item is done again alone, so that only the guilty one fails. Other processes may write to the
same file: `BEGIN IMMEDIATE` lets one in at a time, and SQLite's data version tells when another has.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from retinue.errors import StoreError
from retinue.events import Event, place
from retinue.store import sqlite_bulk, sqlite_file
from retinue.store.projection import changes
from retinue.store.rows import PLACE, ROOT, RUN, SEQ, Lost, Row, fenced

_MARKS = (
    "SELECT (SELECT max(pos) FROM events WHERE root_id = ?1), "
    "(SELECT max(id) FROM letters WHERE root_id = ?1)"
)
_KNOWN_PLACES = 10_000


class Append:
    """Events to store, all or none."""

    __slots__ = ("error", "events", "future", "result", "rows")

    def __init__(self, events: Sequence[Event], rows: list[Row], future: asyncio.Future[Any]) -> None:
        self.events, self.rows, self.future = events, rows, future
        self.result: Any = None
        self.error: BaseException | None = None


class Job:
    """Anything else. `root_id` is woken when it is done; `writes` False keeps it out of the transaction."""

    __slots__ = ("do", "error", "future", "result", "root_id", "writes")

    def __init__(
        self,
        do: Callable[[sqlite3.Connection], Any],
        future: asyncio.Future[Any],
        *,
        root_id: str | None = None,
        writes: bool = True,
    ) -> None:
        self.do, self.future, self.root_id, self.writes = do, future, root_id, writes
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """All of it runs in the writer's thread."""

    def __init__(self, path: Path, *, busy_seconds: float, woken: Callable[[list[str]], None]) -> None:
        self._path, self._busy_seconds, self._woken = path, busy_seconds, woken
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._lost = Lost()
        self._last: dict[str, int] = {}
        self.watched: dict[str, tuple[int | None, int | None]] = {}

    def open(self) -> None:
        self._connection = sqlite_file.open_for_writing(self._path, busy_seconds=self._busy_seconds)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"the database {self._path} is closed")
        return self._connection

    def work(self, batch: list[Append | Job]) -> None:
        writing: list[Append | Job] = []
        for item in batch:
            if isinstance(item, Job):
                if item.writes:
                    writing.append(item)
                else:
                    self._do(item)
                continue
            item.error = self._lost.verdict(item.events)
            if item.error is None:
                writing.append(item)
        if not writing:
            return
        try:
            self._transact(writing)
        except sqlite3.OperationalError as error:  # locked, full, failing: each alone would fare no better
            for item in writing:
                item.error = sqlite_file.explain(error, self._path, waited=self._busy_seconds)
        except Exception:  # whatever it is, somebody awaits every one of these items
            for item in writing:
                self._alone(item)

    def _do(self, job: Job) -> None:
        try:
            job.result = job.do(self.connection)
        except sqlite3.Error as error:
            job.error = sqlite_file.explain(error, self._path, waited=self._busy_seconds)
        except Exception as error:  # it is raised where the job is awaited
            job.error = error

    def _alone(self, item: Append | Job) -> None:
        if isinstance(item, Append):
            item.error = self._lost.verdict(item.events)
            if item.error is not None:
                return
        try:
            self._transact([item])
        except sqlite3.IntegrityError as error:
            item.error = self._conflict(item, error)
            self._lost.note(item.error)
        except sqlite3.Error as error:
            item.error = sqlite_file.explain(error, self._path, waited=self._busy_seconds)
        except Exception as error:  # it is raised where the item is awaited
            item.error = error

    def _conflict(self, item: Append | Job, error: sqlite3.IntegrityError) -> Exception:
        if isinstance(item, Append):
            seen: set[tuple[str, int]] = set()
            for row in item.rows:
                run_id, seq = row[RUN], row[SEQ]
                found = self.connection.execute(
                    "SELECT 1 FROM events WHERE run_id = ? AND seq = ?", (run_id, seq)
                ).fetchone()
                if found or (run_id, seq) in seen:
                    return fenced(run_id, seq)
                seen.add((run_id, seq))
        return sqlite_file.explain(error, self._path)

    def _transact(self, items: list[Append | Job]) -> None:
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self.look()
            appends: list[Append] = []
            for item in items:
                if isinstance(item, Append):
                    appends.append(item)
                    continue
                self._append(connection, appends)
                appends = []
                item.result = item.do(connection)
            self._append(connection, appends)
            connection.execute("COMMIT")
        except BaseException:
            self._last.clear()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._remember(items)

    def _append(self, connection: sqlite3.Connection, appends: list[Append]) -> None:
        if not appends:
            return
        last = self._last
        rows: list[Row] = []
        for item in appends:
            for row in item.rows:
                root_id = row[ROOT]
                pos = last.get(root_id)
                if pos is None:
                    pos = self._last_place(connection, root_id)
                last[root_id] = row[PLACE] = pos + 1
            rows += item.rows
        sqlite_bulk.insert(connection, rows)
        found = changes([item.events for item in appends])
        if found:
            sqlite_bulk.project(connection, found.values())

    def _last_place(self, connection: sqlite3.Connection, root_id: str) -> int:
        if len(self._last) > _KNOWN_PLACES:
            self._last.clear()
        return (
            connection.execute("SELECT max(pos) FROM events WHERE root_id = ?", (root_id,)).fetchone()[0] or 0
        )

    def _remember(self, items: list[Append | Job]) -> None:
        """After the commit: give the events their places, and know what a watcher is told anyway."""
        for item in items:
            if not isinstance(item, Append):
                continue
            for event, row in zip(item.events, item.rows, strict=True):
                place(event, row[PLACE])
            if self.watched:
                for row in item.rows:
                    if row[ROOT] in self.watched:
                        self.watched[row[ROOT]] = (row[PLACE], self.watched[row[ROOT]][1])

    def forget(self, root_id: str) -> None:
        self._last.pop(root_id, None)

    def look(self) -> None:
        """Has another connection written? Then no place is certain, and a watched workflow may have news."""
        connection = self.connection
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        self._version = version
        self._last.clear()
        news = [root_id for root_id in self.watched if self._moved(connection, root_id)]
        if news:
            self._woken(news)

    def _moved(self, connection: sqlite3.Connection, root_id: str) -> bool:
        marks = connection.execute(_MARKS, (root_id,)).fetchone()
        if marks == self.watched[root_id]:
            return False
        self.watched[root_id] = marks
        return True

    def watch(self, root_id: str) -> None:
        """From now on tell of what others write. Whoever asked is told once now: it may have missed some."""
        self.watched[root_id] = self.connection.execute(_MARKS, (root_id,)).fetchone()
        self._woken([root_id])

    def idle(self) -> None:
        try:
            self.look()
        except (sqlite3.Error, StoreError):
            # Whoever reads or writes next is told what is wrong; a look is only a courtesy.
            self._version = 0
