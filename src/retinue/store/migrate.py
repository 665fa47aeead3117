"""Which version a database has, what to do about it, and doing it.

`sql/` holds the steps from an empty database to the newest version, one numbered file each, written once for
both databases. A new database takes all of them, an older one those it lacks, a newer one is refused.

Touches no database itself: each function here is a conversation that yields a `Query` and is sent its rows.
A store holds it on its own connection, inside a transaction and under a lock, so that two processes never
change the tables at once and a change that fails leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from retinue.errors import StoreError
from retinue.store.queries import Dialect, Query

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
        for statement in _split(FOLDER / "append.postgresql.sql", dialect):
            yield Query(statement)


@cache
def _files(folder: Path) -> dict[int, Path]:
    return {int(path.name[:4]): path for path in sorted(folder.glob("[0-9]*.sql"))}


def newest() -> int:
    """The version that this code works with."""
    return max(_files(FOLDER))


def statements(number: int, dialect: Dialect) -> list[str]:
    """What makes this version of the one before it."""
    return _split(_files(FOLDER)[number], dialect)


def _split(path: Path, dialect: Dialect) -> list[str]:
    """A statement ends where its line ends with a semicolon and an empty one follows. `-- only DIALECT` above
    a statement says that it is not for the other."""
    text = path.read_text("utf-8")
    for word, meaning in _WORDS[dialect].items():
        text = text.replace(word, meaning)
    found: list[str] = []
    for part in f"{text.rstrip()}\n\n".split(";\n\n"):
        lines = part.strip().splitlines()
        notes = [line for line in lines if line.startswith("--")]
        for_another = any(note.startswith(_ONLY) and not note.startswith(_ONLY + dialect) for note in notes)
        statement = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if statement and not for_another:
            found.append(statement)
    return found
