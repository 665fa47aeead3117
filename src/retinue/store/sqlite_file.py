"""The SQLite file itself: making it, opening it, and saying what is wrong with it.

Called by `SqliteStore` in its threads, by `salvage`, and by `retinue doctor`. A file that is damaged, newer
than the code, or another program's is reported and left as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from retinue.errors import StoreError
from retinue.store import migrate

T = TypeVar("T")

OLDEST = (3, 33, 0)
"""The first with `UPDATE … FROM`, by which a batch changes many rows at once."""

# Checkpoints every 16 MB: a page that several batches change is then copied to the file once.
_CHECKPOINT_PAGES = 4000
NEEDED = 1 << 20
"""Bytes that are to be free on its disk to open a file and to write a little."""
_SALVAGE = "save what can be read with 'retinue doctor --salvage-to FILE'"


def open_for_writing(
    path: Path, *, busy_seconds: float, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Open the file, made and brought up to date as needed."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise StoreError(
            f"this Python comes with SQLite {sqlite3.sqlite_version}, and at least "
            f"{'.'.join(map(str, OLDEST))} is needed. Use a newer Python, or PostgreSQL: db= or RETINUE_DB"
        )
    make(path)
    return _opened(path, busy_seconds, factory, _prepare)


def open_for_reading(
    path: Path, *, busy_seconds: float, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    def prepare(connection: sqlite3.Connection, path: Path) -> None:
        connection.execute("PRAGMA query_only = ON")

    return _opened(path, busy_seconds, factory, prepare)


class FileIdentity:
    """Which file was opened: its name may come to mean another one, or none.

    SQLite goes on writing to a file that was deleted or replaced, and what it writes there is lost. The same
    goes for the write-ahead log beside it, which holds what was written last.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._log = f"{self._path}-wal"
        self._file = _numbers(self._path)
        self._log_file: tuple[int, int] | None = None

    def check(self) -> None:
        """Raises `StoreError` if the file or its log is not the one that was opened. Costs two looks."""
        self.check_file()
        if self._log_file is not None:
            self._same(self._log, self._log_file, "the write-ahead log of ")
        else:
            self._log_file = _numbers(self._log)  # made with the first write

    def reopen(self) -> None:
        """Before it is opened again: the same file is to be there, its log may be a new one afterwards."""
        self.check_file()
        self._log_file = None

    def check_file(self) -> None:
        """Raises `StoreError` if the file is not the one that was opened."""
        self._same(self._path, self._file, "")

    def _same(self, path: str, known: tuple[int, int] | None, what: str) -> None:
        found = _numbers(path)
        if found == known:
            return
        became = "deleted" if found is None else "replaced by another file"
        raise StoreError(
            f"{what}the database {self._path} was {became} while it was in use. Nothing more is written "
            "to it, and what was written last may be lost: put the file back as it was, or start again"
        )


def _numbers(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _opened(
    path: Path,
    busy_seconds: float,
    factory: type[sqlite3.Connection],
    prepare: Callable[[sqlite3.Connection, Path], None],
) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path, timeout=busy_seconds, isolation_level=None, check_same_thread=False, factory=factory
        )
    except sqlite3.Error as error:
        raise explain(error, path) from None
    try:
        retry_busy(lambda: prepare(connection, path), busy_seconds)
    except (sqlite3.Error, MemoryError) as error:
        connection.close()
        raise explain(error, path, waited=busy_seconds) from None
    except BaseException:
        connection.close()
        raise
    return connection


def retry_busy(attempt: Callable[[], T], busy_seconds: float) -> T:
    """Some statements, like the switch to WAL, fail at once when the file is locked instead of waiting."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not _named(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def make(path: Path) -> None:
    """Create the file and its folder, for this user alone. Existing ones stay as they are."""
    try:
        missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        # A file that is there is never opened here: closing it again would give up the locks that any other
        # connection of this process holds on it, and another process could take its log away.
        elif path.is_dir():
            raise StoreError(
                f"{path} is a folder, no database: name a file in it, like {path / 'retinue.db'}"
            )
        elif not path.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(path) from None
        raise StoreError(
            f"cannot write to the database {path}: {error.strerror}. "
            "Make its folder writable, or set another with db= or RETINUE_DB"
        ) from None


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    found = _held(connection, migrate.version("sqlite", str(path)))
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    if found is None or not found.is_newest:
        _transact(connection, migrate.upgrade("sqlite", str(path)))
        progress = migrate.Progress(str(path))
        while not _transact(connection, migrate.fill("sqlite", progress)):
            pass


def _transact(connection: sqlite3.Connection, conversation: migrate.Conversation[T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _held(connection, conversation)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return found


def _held(connection: sqlite3.Connection, conversation: migrate.Conversation[T]) -> T:
    """Answer every question of it from this connection."""
    try:
        query = next(conversation)
        while True:
            sql = query.sql.replace("$", "?") if query.params else query.sql
            query = conversation.send(connection.execute(sql, query.params).fetchall())
    except StopIteration as done:
        return done.value


def _named(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def is_damage(error: sqlite3.Error) -> bool:
    # A text that is no text has no name: Python finds it, not SQLite.
    unreadable = isinstance(error, sqlite3.OperationalError) and not _named(error)
    return unreadable or _named(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def is_full(error: sqlite3.Error) -> bool:
    return _named(error) == "SQLITE_FULL"


def is_unusable(error: sqlite3.Error) -> bool:
    """Whether a connection is better made anew before the next try."""
    return _named(error).startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PROTOCOL"))


def explain(error: sqlite3.Error | OSError | MemoryError, path: Path, *, waited: float = 0) -> StoreError:
    """The same failure, as a person can act on it."""
    if isinstance(error, MemoryError):
        return StoreError(f"no memory left to use the database {path}", passing=True)
    if isinstance(error, OSError):
        return StoreError(f"the database {path} cannot be reached: {error.strerror or error}", passing=True)
    name = _named(error)
    if name.startswith("SQLITE_NOTADB"):
        return StoreError(
            f"{path} is no SQLite database. It was left as it is; look at db= and RETINUE_DB, or, if it "
            f"once was one, {_SALVAGE}"
        )
    if is_damage(error):
        return StoreError(f"the database {path} is damaged ({error}). It was left as it is; {_SALVAGE}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return StoreError(
            f"the database {path} was locked by another program for {waited:.{0 if waited >= 10 else 1}f} s. "
            "Close what holds it, then try again",
            passing=True,
        )
    # Where the files beside it cannot be made, SQLite only says that the disk failed.
    unmade = name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and _free(path) < NEEDED
    if name == "SQLITE_FULL" or unmade:
        return _no_space(path)
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreError(
            f"cannot write to the database {path}: {error}. Make the file and its folder writable, "
            "or set another with db= or RETINUE_DB",
            passing=True,
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreError(
            f"the disk failed while the database {path} was in use ({error}): check the disk", passing=True
        )
    return StoreError(f"the database {path} failed: {error}")


def _free(path: Path) -> int:
    """Bytes that are free for us on the disk of a file; where nobody can say, more than enough."""
    try:
        return shutil.disk_usage(next(each for each in path.absolute().parents if each.is_dir())).free
    except (OSError, StopIteration):
        return NEEDED


def _no_space(path: Path) -> StoreError:
    free = _free(path)
    told = f": {free // 1024:,} KB are free on its disk, and {NEEDED // 1024:,} KB are needed at least"
    return StoreError(
        f"no space left for the database {path}{told if free < NEEDED else ''}. Free some space on its disk, "
        "then try again; with a little of it 'retinue runs prune' removes old runs",
        passing=True,
    )


def check(path: Path) -> list[str]:
    """What SQLite finds wrong with the file; nothing if it is sound. Reads all of it.

    Raises `StoreError` where the file could not be looked at, which says nothing about it: a full disk.
    """
    if not path.exists():
        return []
    if not path.is_file():  # SQLite would wait for whoever writes into a pipe
        return ["it is not a regular file"]
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)")]
        finally:
            connection.close()
    except sqlite3.Error as error:
        if not is_damage(error):
            raise explain(error, path) from None
        return [str(error)]
    return [] if found == ["ok"] else found
