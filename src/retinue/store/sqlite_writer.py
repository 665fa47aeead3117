"""The one thread that writes to an SQLite file: group commit, places, fencing, the rows of runs.

`SqliteStore` puts work in line. All that has come together is one transaction; should it fail because of
one item, each item is done again alone, so that only the guilty one fails. Should it fail for a reason that
can pass, what waits stays in line and is tried again (`outage`). Other processes may write to the same file:
`BEGIN IMMEDIATE` lets one in at a time, and SQLite's data version tells when another has.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from retinue.errors import Gone, StoreError
from retinue.events import Event, place
from retinue.store import sqlite_bulk, sqlite_file
from retinue.store.outage import Waiting, is_held
from retinue.store.projection import Ancestry
from retinue.store.rows import DATA, PLACE, ROOT, RUN, SEQ, TYPE, Lost, Row, begins, fenced, gone

_MARKS = (
    "SELECT (SELECT max(pos) FROM events WHERE root_id = ?1), "
    "(SELECT max(id) FROM letters WHERE root_id = ?1)"
)
_STORED = "SELECT pos, data FROM events WHERE run_id = ? AND seq = ?"
_UNKNOWN = (-1, -1)
_KNOWN_PLACES = 10_000
_LOCK_SECONDS = 1.0
"""So long one try waits for a lock. Between tries the line is looked at."""


class SqliteAppend:
    """Events to store, all or none. `unsure`: a try failed so late that they may be stored."""

    __slots__ = ("error", "events", "future", "held", "result", "rows", "runs", "size", "tried", "unsure")

    def __init__(self, events: Sequence[Event], rows: list[Row], future: asyncio.Future[Any]) -> None:
        self.events, self.rows, self.future = events, rows, future
        self.runs = {row[RUN] for row in rows}
        self.size = sum(len(row[DATA]) for row in rows)
        self.held = is_held(events)
        self.tried = self.unsure = False
        self.result: Any = None
        self.error: BaseException | None = None


class WriterJob:
    """Anything else. `root_id` is woken when it is done; `writes` False keeps it out of the transaction."""

    __slots__ = ("do", "error", "future", "held", "result", "root_id", "tried", "unsure", "writes")

    def __init__(
        self,
        do: Callable[[sqlite3.Connection], Any],
        future: asyncio.Future[Any],
        *,
        root_id: str | None = None,
        writes: bool = True,
    ) -> None:
        self.do, self.future, self.root_id, self.writes = do, future, root_id, writes
        self.held = self.tried = self.unsure = False
        self.result: Any = None
        self.error: BaseException | None = None


Item = SqliteAppend | WriterJob


class SqliteWriter:
    """All of it runs in the writer's thread. `connect` opens the file, at first and after it has failed."""

    def __init__(
        self,
        path: Path,
        *,
        waiting: Waiting,
        woken: Callable[[list[str]], None],
        connect: Callable[[float], sqlite3.Connection],
    ) -> None:
        self._path, self._waiting, self._woken, self._connect = path, waiting, woken, connect
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._line: list[Item] = []
        self._lost = Lost()
        self._last: dict[str, int] = {}
        self._ancestry = Ancestry()
        self._wrote = False
        self.watched: dict[str, tuple[int | None, int | None]] = {}

    def open(self) -> None:
        self._connection = self._connect(self._waiting.patience)
        self._be_quick(self._connection)
        self.identity = sqlite_file.FileIdentity(self._path)

    def _be_quick(self, connection: sqlite3.Connection) -> None:
        most = min(self._waiting.patience, _LOCK_SECONDS)
        connection.execute(f"PRAGMA busy_timeout = {int(most * 1000)}").fetchone()

    def close(self) -> None:
        """Raises `StoreError` if what was written went with the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._wrote:
            self.identity.check_file()

    @property
    def connection(self) -> sqlite3.Connection:
        if self._connection is None:
            self.identity.reopen()  # a new file under the old name is not to be made, nor taken for it
            self._connection = self._connect(0)
            self._be_quick(self._connection)
            self._version = 0
        return self._connection

    # -- the line

    def work(self, came: list[Item]) -> list[Item]:
        """Do what has come and what waits. Returns what is done with; the rest stays in line."""
        settled: list[Item] = []
        for item in came:
            if isinstance(item, WriterJob) and not item.writes:
                self._do(item)
                settled.append(item)
            else:
                self._line.append(item)
        if not self._line:
            if not came:
                self._idle()
            return settled
        if time.monotonic() >= self._waiting.again:
            line, self._line = self._line, []
            self._try(line, settled)
        self._refuse_overdue(settled)
        return settled

    def patience(self) -> float | None:
        """Seconds until this wants to be called although nothing has come."""
        if self._line:
            return max(0.0, self._waiting.again - time.monotonic())
        return None

    def stop(self) -> None:
        """Nothing more will come: what waits has a few seconds."""
        self._waiting.close()

    def _try(self, line: list[Item], settled: list[Item]) -> None:
        """One try at all of it together. What must wait goes back into the line."""
        ready: list[Item] = []
        for item in line:
            if isinstance(item, SqliteAppend) and (verdict := self._lost.verdict(item.events)) is not None:
                self._fail(item, verdict, settled)
            else:
                item.tried = True
                ready.append(item)
        if not ready:
            return
        self._waiting.trying()
        try:
            self._transact(ready)
        except Exception as error:  # whatever it is, somebody awaits every one of these items
            trouble = self._trouble(error)
            if trouble is None or not _is_everyones(error):
                self._each(ready, settled)
            elif trouble.passing:
                self._waiting.failed(trouble)
                self._line = ready
            else:
                self._waiting.broke(trouble)
                for item in ready:
                    self._fail(item, trouble, settled)
        else:
            self._waiting.worked()
            settled += ready

    def _each(self, items: list[Item], settled: list[Item]) -> None:
        """Each alone, in order. What follows from an item that must wait waits behind it."""
        runs, roots = set[str](), set[str]()
        trouble: StoreError | None = None
        for index, item in enumerate(items):
            behind = (
                not runs.isdisjoint(item.runs) if isinstance(item, SqliteAppend) else item.root_id in roots
            )
            failure = None if behind else self._alone(item, settled)
            if failure is not None:
                trouble, everyones = failure
                if everyones:  # then there is no use in trying the others
                    self._line += items[index:]
                    break
            if failure is not None or behind:
                self._line.append(item)
                if isinstance(item, SqliteAppend):
                    runs |= item.runs
                    roots.update(row[ROOT] for row in item.rows)
        if trouble is not None:
            self._waiting.failed(trouble)
        else:
            self._waiting.worked()

    def _alone(self, item: Item, settled: list[Item]) -> tuple[StoreError, bool] | None:
        """Do one item, or fail it. Returns why it must wait, and whether everything must."""
        verdict: BaseException | None = None
        try:
            if isinstance(item, SqliteAppend):
                verdict = self._lost.verdict(item.events)
            if verdict is None:
                verdict = self._done_alone(item)
        except Exception as error:
            trouble = self._trouble(error)
            if trouble is not None and trouble.passing:
                return trouble, _is_everyones(error)
            verdict = trouble or error
        if verdict is not None:
            self._fail(item, verdict, settled)
        else:
            settled.append(item)
        return None

    def _done_alone(self, item: Item) -> Exception | None:
        try:
            self._transact([item])
        except sqlite3.IntegrityError as error:
            return self._conflict(item, error)
        return None

    def _fail(self, item: Item, error: BaseException, settled: list[Item]) -> None:
        item.error = error
        if isinstance(item, SqliteAppend):
            self._lost.note(item.runs, error)
        settled.append(item)

    def _refuse_overdue(self, settled: list[Item]) -> None:
        waiting = self._waiting
        if not self._line or not (waiting.overdue(held=False) or waiting.overdue(held=True)):
            return
        line, self._line = self._line, []
        for item in line:
            if item.tried and waiting.overdue(held=item.held):
                self._fail(item, waiting.why, settled)
            elif isinstance(item, SqliteAppend) and (verdict := self._lost.verdict(item.events)) is not None:
                self._fail(item, verdict, settled)
            else:
                self._line.append(item)

    # -- what can go wrong

    def _trouble(self, error: Exception) -> StoreError | None:
        """A failure of the file itself, as a person can act on it; None if it is an item's own."""
        if isinstance(error, StoreError):
            return error
        own = type(error) is not sqlite3.DatabaseError and not isinstance(error, sqlite3.OperationalError)
        if own and not isinstance(error, OSError | MemoryError):
            return None
        return sqlite_file.explain(error, self._path, waited=self._waited)  # pyright: ignore[reportArgumentType]  # one of them

    @property
    def _waited(self) -> float:
        return self._waiting.seconds

    def _conflict(self, item: Item, error: sqlite3.IntegrityError) -> Exception:
        if isinstance(item, SqliteAppend):
            seen: set[tuple[str, int]] = set()
            for row in item.rows:
                run_id, seq = row[RUN], row[SEQ]
                found = self.connection.execute(_STORED, (run_id, seq)).fetchone()
                if found or (run_id, seq) in seen:
                    return fenced(run_id, seq)
                seen.add((run_id, seq))
        return sqlite_file.explain(error, self._path)

    def _do(self, job: WriterJob) -> None:
        try:
            job.result = job.do(self.connection)
        except Exception as error:  # it is raised where the job is awaited
            job.error = self._trouble(error) or error

    # -- one transaction

    def _transact(self, items: Sequence[Item]) -> None:
        connection, committing = self.connection, False
        try:
            connection.execute("BEGIN IMMEDIATE")
            self.look()
            appends: list[SqliteAppend] = []
            for item in items:
                if isinstance(item, SqliteAppend):
                    if not (item.unsure and self._is_stored(connection, item)):
                        appends.append(item)
                    continue
                self._append(connection, appends)
                appends = []
                item.result = item.do(connection)
            self._append(connection, appends)
            self.identity.check()
            committing = True
            connection.execute("COMMIT")
        except BaseException as error:
            if committing:
                for item in items:
                    item.unsure = True
            self._undo(connection, error)
            raise
        self._wrote = True
        self._remember(items)

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        """Leave nothing half done. A connection that cannot do that, or whose file fails, is given up."""
        self._last.clear()
        usable = not isinstance(error, sqlite3.Error) or not sqlite_file.is_unusable(error)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            usable = False
        if not usable:
            self._connection = None
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _is_stored(self, connection: sqlite3.Connection, item: SqliteAppend) -> bool:
        """Is it there already, event for event? Then an earlier try arrived, and its places are known too."""
        for row in item.rows:
            found = connection.execute(_STORED, (row[RUN], row[SEQ])).fetchone()
            if found is None or found[1] != row[DATA].decode():
                return False
            row[PLACE] = found[0]
        return True

    def _append(self, connection: sqlite3.Connection, appends: list[SqliteAppend]) -> None:
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
                    if pos == 0 and not begins(row[TYPE]):
                        raise gone(root_id)
                last[root_id] = row[PLACE] = pos + 1
            rows += item.rows
        sqlite_bulk.insert(connection, rows)
        sqlite_bulk.project(connection, [item.events for item in appends], self._ancestry)

    def _last_place(self, connection: sqlite3.Connection, root_id: str) -> int:
        if len(self._last) > _KNOWN_PLACES:
            self._last.clear()
        return (
            connection.execute("SELECT max(pos) FROM events WHERE root_id = ?", (root_id,)).fetchone()[0] or 0
        )

    def _remember(self, items: Sequence[Item]) -> None:
        """After the commit: give the events their places, and know what a watcher is told anyway."""
        for item in items:
            if not isinstance(item, SqliteAppend):
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
        self.watched[root_id] = _UNKNOWN  # should the look fail, the next one finds that it has moved
        self.watched[root_id] = self.connection.execute(_MARKS, (root_id,)).fetchone()
        self._woken([root_id])

    def _idle(self) -> None:
        try:
            self.look()
        except (sqlite3.Error, StoreError, OSError, MemoryError):
            # Whoever reads or writes next is told what is wrong; a look is only a courtesy.
            self._version = 0


def _is_everyones(error: Exception) -> bool:
    """Whether each item alone would fare no better. A smaller transaction may fit where a larger does not,
    and miss a damaged page that another one meets."""
    if isinstance(error, sqlite3.Error):
        return not sqlite_file.is_damage(error) and not sqlite_file.is_full(error)
    return not isinstance(error, MemoryError | Gone)
