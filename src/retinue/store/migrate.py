"""Which version a database has, what to do about it, and doing it.

`sql/` holds the steps from an empty database to the newest version, one numbered file each, written once for
both databases; a column of `runs` that is declared `since` a version is part of that step. A new database
takes all of them, an older one those it lacks, and its rows get their new columns from their logs. A newer
one is refused.

Touches no database itself: each function here is a conversation that yields a `Query` and is sent its rows.
A store holds it on its own connection, inside a transaction and under a lock, so that two processes never
change the tables at once and a change that fails leaves nothing behind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from retinue.errors import StoreError
from retinue.events import AnyEvent, decode
from retinue.store.projection import Change, changes, new_row, plus
from retinue.store.queries import Dialect, Query
from retinue.store.runs import Added, Column, Started, columns

T = TypeVar("T")

Conversation = Generator[Query, list[Any], T]

TABLES = frozenset({"events", "runs", "letters", "cache"})
"""Those of the first version: where they are without a version, they are another program's."""
_VERSION_TABLE = "retinue_schema"
_VERSION = f"SELECT version FROM {_VERSION_TABLE}"  # noqa: S608  # a constant
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
_RUNS = "SELECT run_id FROM runs WHERE run_id > $1 ORDER BY run_id LIMIT 200"
_LOG = "SELECT seq, data FROM events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT 200"
FOLDER = Path(__file__).parent / "sql"


def version(dialect: Dialect, where: str) -> Conversation[int | None]:
    """The version of the tables, None where there are none. Raises `StoreError` if they are not ours."""
    tables = {row[0] for row in (yield Query(_TABLES[dialect]))}
    if _VERSION_TABLE in tables:
        rows = yield Query(_VERSION)
        if len(rows) != 1:
            raise StoreError(
                f"{where} does not say which version it has: {_VERSION_TABLE} holds {len(rows)} rows, "
                "and one is expected. Restore it from a copy"
            )
        return _known(rows[0][0], where)
    if _ALEMBIC_TABLE in tables:
        rows = yield Query(_ALEMBIC)
        if [row[0] for row in rows] == [_ALEMBIC_FIRST] and tables >= TABLES:
            return 1
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
    for number in range((found or 0) + 1, newest() + 1):
        for statement in statements(number, dialect):
            yield Query(statement)
        if number > 1:
            yield Query(f"UPDATE {_VERSION_TABLE} SET version = {number}")  # noqa: S608  # a number of ours
    if found != newest() and dialect == "postgresql":
        for statement in _split((FOLDER / "append.postgresql.sql").read_text("utf-8"), dialect):
            yield Query(statement)
    new = [column for column in columns() if found is not None and column.how.since > found]
    if new:
        yield from _fill(new, where)


def _fill(new: Sequence[Column], where: str) -> Conversation[None]:
    """Columns that rows did not have yet, computed from their logs, a page at a time."""
    sets = ", ".join(f"{column.name} = ${n}" for n, column in enumerate(new, start=2))
    update = f"UPDATE runs SET {sets} WHERE run_id = $1"  # noqa: S608  # only names
    after, done, told = "", 0, time.monotonic()
    while rows := (yield Query(_RUNS, (after,))):
        for (run_id,) in rows:
            change = yield from _refolded(run_id)
            if change is not None:
                row = new_row(change)
                yield Query(update, (run_id, *(getattr(row, column.name) for column in new)))
        after, done = rows[-1][0], done + len(rows)
        if time.monotonic() - told > 1:
            told = time.monotonic()
            sys.stderr.write(f"retinue: bringing {where} up to date, {done} runs done\n")


def _refolded(run_id: str) -> Conversation[Change | None]:
    """What all events of a run together make of its row; None if its log cannot be read from the start."""
    whole: Change | None = None
    seq = 0
    while rows := (yield Query(_LOG, (run_id, seq))):
        try:
            events: list[AnyEvent] = [decode(data) for _, data in rows]
        except (msgspec.ValidationError, msgspec.DecodeError):
            return None
        seq = rows[-1][0]
        change = changes([events]).get(run_id)
        if change is None:
            continue
        if whole is None:
            if change.started is None:
                return None
            whole = change
            continue
        change.settle(whole.standing)
        whole.standing = change.standing
        whole.sums = [plus(*pair) for pair in zip(whole.sums, change.sums, strict=True)]
    return whole


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
    for column in columns():
        if column.how.since == number > 1:
            text += f"\n\nALTER TABLE runs ADD COLUMN {column.ddl}{_default(column)};\n"
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
    if isinstance(column.how, Added):
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
