"""From an address to a store. The only place that knows which store belongs to which address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from retinue.errors import ConfigError
from retinue.store.base import Store

_KNOWN = "sqlite:///path/to/file.db, postgresql://user@host/name, memory: or a plain path"


def connect(url: str) -> Store:
    """A store that is not open yet.

    `sqlite://` or `memory:` is kept in memory and gone with the process. What follows `sqlite://` is the
    path, so an absolute one has three slashes; a relative one is given as a plain path.
    """
    if url in ("memory:", "sqlite:", "sqlite://", "sqlite:///:memory:"):
        from retinue.store.memory import MemoryStore

        return MemoryStore()
    scheme, separator, rest = url.partition("://")
    if not separator:
        if url.strip() and not Path(url).exists() and Path(url).name == url and "." not in url:
            # A slip, more likely than the wish for a file of this name in the project.
            raise ConfigError(f"{url!r} is no address of a database", fix=f"use {_KNOWN} like ./{url}.db")
        return _sqlite(url)
    scheme = scheme.partition("+")[0]
    if scheme == "sqlite":
        return _sqlite("/" + unquote(rest).lstrip("/"))
    if scheme in ("postgresql", "postgres"):
        from retinue.store.postgres import PostgresStore

        return PostgresStore(url)
    raise ConfigError(f"no store for a database address that begins with '{scheme}://'", fix=f"use {_KNOWN}")


def _sqlite(path: str) -> Store:
    from retinue.store.sqlite import SqliteStore

    if not path.strip():
        raise ConfigError("the database address is empty", fix=f"use {_KNOWN}")
    return SqliteStore(Path(path))


def default_url() -> str:
    """An SQLite file in the user's folder for data."""
    from platformdirs import user_data_path

    path = user_data_path("retinue", appauthor=False) / "retinue.db"
    return f"sqlite://{quote(path.as_posix())}"
