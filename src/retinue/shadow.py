"""What a project's files were before a command ran: an index and the bytes, outside the project.

One SQLite file for each project, in a folder that only this user can read. `look` brings it up to date: files
whose times and numbers are as before are not read again. `begin` remembers how things stood before a command,
so that what it changed can still be told after a crash; `changed_since` tells it.

What is left out: what git ignores (`ignored`), every `.git`, names that are no text, files over the limit,
what is neither file, folder nor link, and what stands in for something while a sealed command runs. Called in
threads by `engine.recorder`. It never changes the project, and runs nothing of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import stat
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path

from retinue.ignored import IgnoredNames, why_unread
from retinue.snapshots import Difference, Seen, Snapshot, difference

FILE = "shadow.db"
OURS = ".retinue-"
"""How files begin that `jail` is about to put in place."""
RACY = 50_000_000
"""Nanoseconds in which a file may change twice and show the same time."""
MOST_AT_ONCE = 1_000_000_000
"""Bytes of a project that are kept in all."""
PATIENCE = 60
"""Seconds to wait for another process that looks at the same project."""
FORGOTTEN = 30 * 86_400
"""Seconds after which a command that never ended is no longer remembered."""

WORKTREE = "worktree"
"""The call by which a copy of the project for one run is remembered, as long as there is the copy."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (path TEXT NOT NULL, born INTEGER NOT NULL, died INTEGER,
    kind TEXT NOT NULL, mode INTEGER NOT NULL, size INTEGER NOT NULL, sha TEXT NOT NULL,
    mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, ino INTEGER NOT NULL,
    PRIMARY KEY (path, born)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_sha ON entries (sha);
CREATE INDEX IF NOT EXISTS entries_died ON entries (died) WHERE died IS NOT NULL;
CREATE TABLE IF NOT EXISTS blobs (sha TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS begun (run_id TEXT NOT NULL, call_id TEXT NOT NULL, gen INTEGER NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (run_id, call_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gens (gen INTEGER PRIMARY KEY);
"""


class ShadowTooLarge(Exception):
    """There is more in the project than is kept."""


class Shadow:
    """The shadow of one project. `folder` is made for this user alone."""

    def __init__(
        self,
        folder: Path,
        project: Path,
        *,
        most_bytes: int,
        most_files: int,
        hidden: Iterable[str] = (),
        passing: Callable[[os.stat_result], bool] = lambda there: False,
    ) -> None:
        """`passing`: what is nobody's change, since it is only there while some command runs."""
        self.project, self.folder = Path(os.path.realpath(project)), folder
        self._top = str(self.project)
        self._most_bytes, self._most_files = most_bytes, most_files
        self._hidden = {os.path.realpath(path) for path in (*hidden, str(folder))}
        self._passing = passing
        self._names = IgnoredNames(folder, self.project)
        self._lock = threading.RLock()
        self._gen = -1
        self._now: Snapshot = {}
        self._in_the_way: tuple[str, ...] = ()
        self._ino = 0
        self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.folder, 0o700)
        file = self.folder / FILE
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(file, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_SCHEMA)
        self._ino = os.stat(file).st_ino
        return db

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # -- commands ----------------------------------------------------------------

    def begin(self, run_id: str, call_id: str) -> Snapshot:
        """Look, and remember this as how things stood before that call."""
        with self._lock, self._writing():
            known = self._begun_at(run_id, call_id)
            if known is not None:  # a call that is made again after a crash
                return self._at(known)
            self._look()
            row = (run_id, call_id, self._gen, time.time())
            self._db.execute("INSERT INTO begun VALUES (?, ?, ?, ?)", row)
            return dict(self._now)

    def _begun_at(self, run_id: str, call_id: str) -> int | None:
        row = self._db.execute(
            "SELECT gen FROM begun WHERE run_id = ? AND call_id = ?", (run_id, call_id)
        ).fetchone()
        return None if row is None else row[0]

    def changed_since(self, run_id: str, call_id: str, before: Snapshot | None = None) -> Difference | None:
        """What is otherwise than before that call; None if nothing is remembered of it."""
        with self._lock, self._writing():
            if before is None:
                gen = self._begun_at(run_id, call_id)
                if gen is None:
                    return None
                before = self._at(gen)
            self._look()
            found = difference(before, self._now)
            return Difference(found.changes, (*found.left_out, *self._in_the_way))

    def begun(self, run_ids: Iterable[str]) -> list[tuple[str, str]]:
        """Calls of these runs that never ended, in the order in which they began."""
        wanted = set(run_ids)
        with self._lock:
            rows = self._db.execute("SELECT run_id, call_id FROM begun ORDER BY at").fetchall()
        return [(run_id, call_id) for run_id, call_id in rows if run_id in wanted and call_id != WORKTREE]

    def end(self, run_id: str, call_id: str) -> None:
        """What a call changed is recorded elsewhere: forget what only it needed."""
        with self._lock, self._writing():
            self._db.execute("DELETE FROM begun WHERE run_id = ? AND call_id = ?", (run_id, call_id))
            old = (time.time() - FORGOTTEN, WORKTREE)
            self._db.execute("DELETE FROM begun WHERE at < ? AND call_id <> ?", old)
            self._forget()

    def forget(self, run_ids: Iterable[str]) -> None:
        """Runs are no more: nobody asks what their commands changed. What copies of them need stays."""
        with self._lock, self._writing():
            rows = [(run_id, WORKTREE) for run_id in run_ids]
            self._db.executemany("DELETE FROM begun WHERE run_id = ? AND call_id <> ?", rows)
            self._forget()

    def now(self) -> Snapshot:
        """How things stand at this moment."""
        with self._lock, self._writing():
            self._look()
            return dict(self._now)

    def at(self, run_id: str, call_id: str) -> Snapshot | None:
        """How things stood before that call, if it is remembered."""
        with self._lock:
            gen = self._begun_at(run_id, call_id)
            return None if gen is None else self._at(gen)

    def content(self, sha: str) -> bytes | None:
        with self._lock:
            row = self._db.execute("SELECT data FROM blobs WHERE sha = ?", (sha,)).fetchone()
        return None if row is None else zlib.decompress(row[0])

    # -- the index ---------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        if self._is_removed():  # by somebody who tidied up: what is written to it nobody would find
            self._db.close()
            self._gen, self._now = -1, {}
            self._db = self._open()
            self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._gen = -1  # what is in memory may be ahead of what is stored
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _is_removed(self) -> bool:
        try:
            return os.stat(self.folder / FILE).st_ino != self._ino
        except OSError:
            return True

    def _at(self, gen: int) -> Snapshot:
        rows = self._db.execute(
            "SELECT path, kind, mode, size, sha, mtime, ctime, ino FROM entries "
            "WHERE born <= ? AND (died IS NULL OR died > ?)",
            (gen, gen),
        )
        return {row[0]: Seen(*row[1:]) for row in rows}

    def _look(self) -> None:
        """Bring the index up to date: one more generation if anything is otherwise."""
        gen: int = self._db.execute("SELECT COALESCE(MAX(gen), 0) FROM gens").fetchone()[0]
        if gen != self._gen:  # another process has looked, or nobody yet
            self._now, self._gen = self._at(gen), gen
        found = self._scanned()
        gone = [path for path in self._now if path not in found]
        new = {path: seen for path, seen in found.items() if self._now.get(path) != seen}
        if not gone and not new and gen:
            return
        gen += 1
        self._db.execute("INSERT INTO gens VALUES (?)", (gen,))
        self._db.execute("DELETE FROM gens WHERE gen < ?", (gen,))
        over = [(gen, path) for path in (*gone, *(path for path in new if path in self._now))]
        self._db.executemany("UPDATE entries SET died = ? WHERE path = ? AND died IS NULL", over)
        self._db.executemany(
            "INSERT INTO entries (path, born, kind, mode, size, sha, mtime, ctime, ino) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(path, gen, *seen) for path, seen in new.items()],
        )
        self._now, self._gen = found, gen

    def _forget(self) -> None:
        """Drop what is there no more and no call began from, with its bytes."""
        unseen = (
            "died IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM begun WHERE begun.gen >= entries.born AND begun.gen < entries.died)"
        )
        shas = [row[0] for row in self._db.execute(f"SELECT DISTINCT sha FROM entries WHERE {unseen}")]  # noqa: S608  # only names
        if not shas:
            return
        self._db.execute(f"DELETE FROM entries WHERE {unseen}")  # noqa: S608  # only names
        self._db.executemany(
            "DELETE FROM blobs WHERE sha = ?1 AND NOT EXISTS (SELECT 1 FROM entries WHERE sha = ?1)",
            [(sha,) for sha in shas],
        )

    # -- looking -----------------------------------------------------------------

    def _scanned(self) -> Snapshot:
        """Everything below the project, level by level: names that are new are looked up with git at once."""
        found: Snapshot = {}
        level: list[str] = [""]
        rules, total = self._rules_changed(), 0
        blind: dict[str, str] = {}
        while level:
            names: dict[str, os.stat_result] = {}
            for folder in level:
                names.update(self._entries(folder, found))
            blind |= self._without_rules(names)
            unknown = [path for path in names if path not in self._now or (rules and self._is_ignored(path))]
            blinded = bool(blind or self._names.in_the_way)
            unasked = {path for path in unknown if blinded and self._is_unasked(path, blind)}
            ignored = self._names.of([path for path in unknown if path not in unasked])
            ignored |= {path for path in unasked if self._is_ignored(path)}  # as they were, then
            level = []
            total += sum(self._kept_size(path, there) for path, there in names.items() if path not in ignored)
            if len(found) + len(names) > self._most_files:
                raise ShadowTooLarge(f"the project has more than {self._most_files:,} files")
            if total > MOST_AT_ONCE:
                raise ShadowTooLarge(f"the project has more than {MOST_AT_ONCE / 1e9:g} GB")
            for path, there in names.items():
                if path in ignored or (not rules and self._is_ignored(path)):
                    found[path] = _ignored(there)
                    continue
                seen = self._seen(path, there)
                if seen is not None:
                    found[path] = seen
                    if seen.kind == "folder":
                        level.append(path)
        self._in_the_way = (*blind.values(), *self._names.in_the_way)
        return found

    def _is_unasked(self, path: str, blind: Mapping[str, str]) -> bool:
        return bool(self._names.in_the_way) or _is_below(path, blind)

    def _without_rules(self, names: Mapping[str, os.stat_result]) -> dict[str, str]:
        """Folders whose ignore file git would wait for, or read without an end, with what is in the way."""
        found: dict[str, str] = {}
        for path, there in names.items():
            folder, _, name = path.rpartition("/")
            if name == ".gitignore" and (why := why_unread(f"{self._top}/{path}", there)):
                found[folder] = f"{path}: {why}, so what git ignores in its folder is not known"
        return found

    def _kept_size(self, path: str, there: os.stat_result) -> int:
        small = stat.S_ISREG(there.st_mode) and there.st_size <= self._most_bytes
        return there.st_size if small and not self._is_ignored(path) else 0

    def _is_ignored(self, path: str) -> bool:
        known = self._now.get(path)
        return known is not None and known.kind == "ignored"

    def _rules_changed(self) -> bool:
        """Whether what git ignores may be otherwise than at the last look."""
        if self._names.changed():
            return True
        for path, seen in self._now.items():
            if path.endswith(".gitignore") and os.path.basename(path) == ".gitignore":
                try:
                    there = os.lstat(f"{self._top}/{path}")
                except OSError:
                    return True
                if (there.st_mtime_ns, there.st_ctime_ns, there.st_ino) != (seen.mtime, seen.ctime, seen.ino):
                    return True
        return False

    def _entries(self, folder: str, found: Snapshot) -> Iterator[tuple[str, os.stat_result]]:
        """What is in a folder. What cannot be looked after is noted as found."""
        try:
            with os.scandir(f"{self._top}/{folder}" if folder else self._top) as listed:
                entries = list(listed)
        except OSError:
            return  # gone meanwhile, or not ours to read
        above = f"{folder}/" if folder else ""
        for entry in entries:
            name = entry.name
            if name.startswith(OURS) or entry.path in self._hidden:
                continue
            if name == ".git":
                found[above + name] = _other(
                    "a repository of its own" if folder else "the project's repository"
                )
                continue
            if not name.isascii() and not _is_text(name):
                shown = os.fsencode(name).decode("utf-8", "backslashreplace")
                found[above + shown] = _other("its name is no text")
                continue
            try:
                there = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            if not self._passing(there):
                yield above + name, there

    def _seen(self, path: str, there: os.stat_result) -> Seen | None:
        mode, known = there.st_mode & 0o7777, self._now.get(path)
        kind = there.st_mode & 0o170000
        if kind == stat.S_IFREG:
            times = (there.st_mtime_ns, there.st_ctime_ns, there.st_ino)
            if known is not None and known[4:] == times and known.mode == mode:
                return known
            if there.st_size > self._most_bytes:
                return Seen("large", mode, there.st_size, "", *times)
            return self._read(path, there, mode, known)
        if kind == stat.S_IFDIR:
            return Seen("folder", mode, 0, "", 0, 0, 0)
        return self._link(path, mode) if kind == stat.S_IFLNK else None

    def _link(self, path: str, mode: int) -> Seen | None:
        try:
            target = os.fsencode(os.readlink(f"{self._top}/{path}"))
        except OSError:
            return None
        return Seen("link", mode, len(target), self._stored(target), 0, 0, 0)

    def _read(self, path: str, there: os.stat_result, mode: int, known: Seen | None) -> Seen | None:
        began = time.time_ns()
        try:
            fd = os.open(f"{self._top}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            return Seen("large", mode, there.st_size, "", there.st_mtime_ns, there.st_ctime_ns, there.st_ino)
        except OSError:
            return None
        with open(fd, "rb") as file:
            there = os.fstat(fd)
            data = file.read(self._most_bytes + 1)
        times = (there.st_mtime_ns, there.st_ctime_ns, there.st_ino)
        if max(times[:2]) > began - RACY:
            times = (0, 0, 0)  # it may change again without another time: read it again at the next look
        if len(data) > self._most_bytes:
            return Seen("large", mode, len(data), "", *times)
        sha = hashlib.sha256(data).hexdigest()
        if known is None or known.sha != sha:
            self._stored(data, sha)
        return Seen("file", mode, len(data), sha, *times)

    def _stored(self, data: bytes, sha: str = "") -> str:
        sha = sha or hashlib.sha256(data).hexdigest()
        if self._gen == 0 or not self._db.execute("SELECT 1 FROM blobs WHERE sha = ?", (sha,)).fetchone():
            packed = zlib.compress(data, 1)
            self._db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (sha, packed))
        return sha


def waits(folder: Path) -> list[tuple[str, str]] | None:
    """The runs and calls that a shadow remembers something for; None if it cannot be read now."""
    try:
        with contextlib.closing(sqlite3.connect(f"{(folder / FILE).as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("SELECT run_id, call_id FROM begun").fetchall()
    except sqlite3.Error:
        return None


def forget_in(folder: Path, run_ids: Iterable[str]) -> None:
    """Forget the commands of runs that are no more in a shadow of any project."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(folder / FILE)) as db, db:
        rows = [(run_id, WORKTREE) for run_id in run_ids]
        db.executemany("DELETE FROM begun WHERE run_id = ? AND call_id <> ?", rows)


def remove_idle(folder: Path) -> int:
    """Remove a shadow that nobody needs anything of, and that nobody writes to. Returns its bytes."""
    try:
        with contextlib.closing(sqlite3.connect(folder / FILE, timeout=0, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")  # whoever waits for it finds it gone, and makes a new one
            if db.execute("SELECT 1 FROM begun LIMIT 1").fetchone():
                return 0
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            shutil.rmtree(folder)
            return size
    except (sqlite3.Error, OSError):
        return 0


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ignored(there: os.stat_result) -> Seen:
    if stat.S_ISDIR(there.st_mode):  # nobody looks into it
        return Seen("ignored", 0, 0, "", 0, 0, 0)
    return Seen("ignored", 0, there.st_size, "", there.st_mtime_ns, 0, 0)


def _other(why: str) -> Seen:
    return Seen("other", 0, 0, why, 0, 0, 0)


def _is_below(path: str, folders: Mapping[str, str]) -> bool:
    while path:
        path = path.rpartition("/")[0]
        if path in folders:
            return True
    return False
