"""Which version a database has, what to do about it, and doing it.

`sql/` holds the steps from an empty database to the newest version, one numbered file each, written once for
both databases; a column of `runs` that is declared `since` a version is part of that step. A new database
takes all of them, an older one those it lacks. A newer one is refused.

The rows of an older one get their new columns from their logs, some workflows at a time, each lot in a
transaction of its own: others read and write meanwhile, and see what the step itself could set. How far that
has come stands beside the version, so that whoever opens the database next goes on with it.

Touches no database itself: each function here is a conversation that yields a `Query` and is sent its rows.
A store holds it on its own connection, inside a transaction and under a lock, so that two processes never
change the tables at once and a change that fails leaves nothing behind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec

from retinue.errors import StoreError
from retinue.events import AnyEvent, decode
from retinue.store.projection import Rows
from retinue.store.queries import Dialect, Query
from retinue.store.runs import Column, Started, StoredRun, columns
from retinue.story import Story

T = TypeVar("T")

Conversation = Generator[Query, list[Any], T]

TABLES = frozenset({"events", "runs", "letters", "cache"})
"""Those of the first version: where they are without a version, they are another program's."""
_VERSION_TABLE = "retinue_schema"
_VERSION: dict[Dialect, str] = {
    "sqlite": f"SELECT * FROM {_VERSION_TABLE}",  # noqa: S608  # a constant
    # One value, however many columns there are: another process may add some after this was prepared.
    "postgresql": (
        "SELECT (to_json(v) ->> 'version')::integer, coalesce((to_json(v) ->> 'filled')::integer, 0) "
        "FROM retinue_schema AS v"
    ),
}
_FILLED_SINCE = 5
"""The version from which on it says how far the rows are filled."""
_ALEMBIC_TABLE = "alembic_version"
_ALEMBIC = "SELECT version_num FROM alembic_version"
_ALEMBIC_FIRST = "0001"

_TABLES: dict[Dialect, str] = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)",
}
_WORDS: dict[Dialect, dict[str, str]] = {
    "sqlite": {
        "{double}": "DOUBLE",
        "{bytes}": "BLOB",
        "{id}": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    },
    "postgresql": {
        "{double}": "DOUBLE PRECISION",
        "{bytes}": "BYTEA",
        "{id}": "BIGSERIAL NOT NULL PRIMARY KEY",
    },
}
_ONLY = "-- only "
"""Before the name of a database."""
ROOTS_AT_ONCE = 50
"""Workflows whose rows are filled in one transaction."""
_FILLING: dict[Dialect, str] = {
    "sqlite": f"SELECT filled, fill_after FROM {_VERSION_TABLE}",  # noqa: S608  # a constant
    "postgresql": f"SELECT filled, fill_after FROM {_VERSION_TABLE} FOR UPDATE",  # noqa: S608  # a constant
}
# Compared with nothing that an index knows, so that both walk the key from where the last lot ended.
_ROOTS = "SELECT run_id FROM runs WHERE coalesce(parent_id, '') = '' AND run_id > $1 ORDER BY run_id LIMIT $2"
_LOCK_ROOTS = (
    "SELECT pg_advisory_xact_lock(l.lock) FROM (SELECT hashtextextended(g.root, 0) AS lock "
    "FROM unnest($1::text[]) AS g(root) ORDER BY 1) AS l"
)
"""What `retinue_append` locks too: nobody writes to these while their rows are computed."""
_LOG_PAGE = 1000
_LOG = f"SELECT pos, data FROM events WHERE root_id = $1 AND pos > $2 ORDER BY pos LIMIT {_LOG_PAGE}"  # noqa: S608  # a number of ours
FOLDER = Path(__file__).parent / "sql"


class Version(NamedTuple):
    """Of the tables, and up to which the rows have their columns."""

    number: int
    filled: int

    @property
    def is_newest(self) -> bool:
        return self.number == self.filled == newest()


def version(dialect: Dialect, where: str) -> Conversation[Version | None]:
    """The version of the tables, None where there are none. Raises `StoreError` if they are not ours."""
    tables = {row[0] for row in (yield Query(_TABLES[dialect]))}
    if _VERSION_TABLE in tables:
        rows = yield Query(_VERSION[dialect])
        if len(rows) != 1:
            raise StoreError(
                f"{where} does not say which version it has: {_VERSION_TABLE} holds {len(rows)} rows, "
                "and one is expected. Restore it from a copy"
            )
        number = _known(rows[0][0], where)
        return Version(number, rows[0][1] if number >= _FILLED_SINCE else number)
    if _ALEMBIC_TABLE in tables:
        rows = yield Query(_ALEMBIC)
        if [row[0] for row in rows] == [_ALEMBIC_FIRST] and tables >= TABLES:
            return Version(1, 1)
        _refuse(where, f"its version is {rows[0][0] if rows else None!r}")
    # In a file whatever is there is another program's. A server's database may be shared by several.
    theirs = tables if dialect == "sqlite" else tables & TABLES
    if theirs:
        _refuse(where, f"it has a table {min(theirs)!r}")
    return None


def _known(found: int, where: str) -> int:
    if found > newest():
        raise StoreError(
            f"{where} has version {found}, this Retinue knows up to {newest()}: "
            "upgrade with 'pip install -U retinue'"
        )
    return found


def _refuse(where: str, why: str) -> NoReturn:
    raise StoreError(f"{where} belongs to another program ({why}): choose another one")


def upgrade(dialect: Dialect, where: str) -> Conversation[None]:
    """Bring the tables to the newest version, or make them. Inside a transaction, under the store's lock."""
    found = yield from version(dialect, where)  # another process may have been faster
    number = found.number if found is not None else 0
    for step in range(number + 1, newest() + 1):
        for statement in statements(step, dialect):
            yield Query(statement)
        if step > 1:
            yield Query(f"UPDATE {_VERSION_TABLE} SET version = {step}")  # noqa: S608  # a number of ours
    if _FILLED_SINCE <= number < newest():  # a fill that was left half-way knew nothing of newer columns
        yield Query(f"UPDATE {_VERSION_TABLE} SET fill_after = ''")  # noqa: S608  # a constant
    if number != newest() and dialect == "postgresql":
        for statement in _split((FOLDER / "append.postgresql.sql").read_text("utf-8"), dialect):
            yield Query(statement)
    if number < _FILLED_SINCE:
        filled = newest() if found is None else number
        yield Query(f"UPDATE {_VERSION_TABLE} SET filled = {filled}")  # noqa: S608  # a number of ours


class Progress:
    """Says on the way how far it is, where it takes long."""

    def __init__(self, where: str) -> None:
        self._where, self._done, self._told = where, 0, time.monotonic()

    def more(self, done: int) -> None:
        self._done += done
        if time.monotonic() - self._told > 1:
            self._told = time.monotonic()
            sys.stderr.write(f"retinue: bringing {self._where} up to date, {self._done} workflows done\n")


def fill(dialect: Dialect, progress: Progress) -> Conversation[bool]:
    """Columns that rows did not have yet, computed from their logs: of some workflows, inside a transaction.

    True if there is nothing left to fill. Several processes may do it at the same time, and share the work.
    """
    [(filled, after)] = yield Query(_FILLING[dialect])
    new = [column for column in columns() if column.how.since > filled]
    roots = [row[0] for row in (yield Query(_ROOTS, (after, ROOTS_AT_ONCE)))] if new else []
    if not roots:
        done = f"UPDATE {_VERSION_TABLE} SET filled = {newest()}, fill_after = ''"  # noqa: S608  # a number of ours
        yield Query(done)
        return True
    if dialect == "postgresql":
        yield Query(_LOCK_ROOTS, (roots,))
    rows: list[StoredRun] = []
    for root_id in roots:
        rows += yield from _refolded(root_id)
    if rows:
        yield from _written(dialect, new, rows)
    yield Query(f"UPDATE {_VERSION_TABLE} SET fill_after = $1", (roots[-1],))  # noqa: S608  # a constant
    progress.more(len(roots))
    return False


def _refolded(root_id: str) -> Conversation[list[StoredRun]]:
    """The rows of a workflow by its log; none if that cannot be read."""
    pages: list[list[AnyEvent]] = []
    pos = 0
    while page := (yield Query(_LOG, (root_id, pos))):
        try:
            pages.append([decode(data) for _, data in page])
        except (msgspec.ValidationError, msgspec.DecodeError):
            return []
        pos = page[-1][0]
        if len(page) < _LOG_PAGE:
            break
    return list(refolded(pages).values())


def refolded(pages: Iterable[Sequence[AnyEvent]]) -> Rows:
    """The rows that the log of a workflow makes, read as `story` reads it: what events of earlier versions do
    not say is worked out there."""
    rows, story = Rows(), Story()
    for page in pages:
        rows.take([story.apply(event) for event in page])  # pyright: ignore[reportArgumentType] # as it came
    return rows


def _written(dialect: Dialect, new: Sequence[Column], rows: Sequence[StoredRun]) -> Conversation[None]:
    if dialect == "postgresql":
        sets = ", ".join(f"{column.name} = s.{column.name}" for column in new)
        sql = f"UPDATE runs AS r SET {sets} FROM json_populate_recordset(NULL::runs, $1) AS s "  # noqa: S608  # only names
        yield Query(f"{sql}WHERE r.run_id = s.run_id", (msgspec.json.encode(rows).decode(),))
        return
    sets = ", ".join(f"{column.name} = ${n}" for n, column in enumerate(new, start=2))
    update = f"UPDATE runs SET {sets} WHERE run_id = $1"  # noqa: S608  # only names
    for row in rows:
        yield Query(update, (row.run_id, *(getattr(row, column.name) for column in new)))


@cache
def _files(folder: Path) -> dict[int, Path]:
    return {int(path.name[:4]): path for path in sorted(folder.glob("[0-9]*.sql"))}


def newest() -> int:
    """The version that this code works with."""
    return max(*_files(FOLDER), *(column.how.since for column in columns()))


def statements(number: int, dialect: Dialect) -> list[str]:
    """What makes this version of the one before it."""
    file = _files(FOLDER).get(number)
    text = "" if file is None else file.read_text("utf-8")
    added = "".join(
        f"ALTER TABLE runs ADD COLUMN {column.ddl}{_default(column)};\n\n"
        for column in columns()
        if column.how.since == number > 1
    )
    # A step may use its new columns, and then it says where they are added.
    text = text.replace("{added};", added) if "{added};" in text else f"{text}\n\n{added}"
    return _split(text, dialect)


def _default(column: Column) -> str:
    """What rows of before have until they are filled, and those that an earlier version still writes."""
    if column.null:
        return ""
    first = column.first if column.first is not None else "" if column.type == "TEXT" else 0
    return f" DEFAULT '{first}'" if isinstance(first, str) else f" DEFAULT {first}"


def _of_runs() -> dict[str, str]:
    """What `sql/` says of the columns of `runs`."""
    names = [column.name for column in columns()]
    changing = [column for column in columns() if not isinstance(column.how, Started)]
    return {
        "{runs}": ",\n    ".join(column.ddl for column in columns() if column.how.since == 1),
        "{names}": ", ".join(names),
        "{values}": ", ".join(_given(column) for column in columns()),
        "{changes}": ",\n            ".join(f"{column.name} = {_changed(column)}" for column in changing),
        "{types}": ", ".join(f"{column.name} {column.type}" for column in changing),
    }


def _given(column: Column) -> str:
    late = column.how.since > 1 and not column.null
    return (
        f"coalesce(s.{column.name},{_default(column).removeprefix(' DEFAULT')})"
        if late
        else f"s.{column.name}"
    )


def _changed(column: Column) -> str:
    name, late = column.name, column.how.since > 1 and not column.null
    if column.summed:
        return f"r.{name} + coalesce(c.{name}, 0)" if late else f"r.{name} + c.{name}"
    new = f"coalesce(c.{name}, r.{name})" if late else f"c.{name}"
    return f"CASE WHEN c.moved THEN {new} ELSE r.{name} END"


def _split(text: str, dialect: Dialect) -> list[str]:
    """A statement ends where its line ends with a semicolon and an empty one follows. `-- only DIALECT` above
    a statement says that it is not for the other."""
    for word, meaning in {**_of_runs(), **_WORDS[dialect]}.items():
        text = text.replace(word, meaning)
    other = "postgresql" if dialect == "sqlite" else "sqlite"
    found: list[str] = []
    for part in f"{text.rstrip()}\n\n".split(";\n\n"):
        lines = part.strip().splitlines()
        notes = [line for line in lines if line.startswith("--")]
        for_another = any(note.startswith(_ONLY + other) for note in notes)
        statement = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if statement and not for_another:
            found.append(statement)
    return found
