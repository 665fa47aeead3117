"""Addresses of stores."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.store.connect import connect, default_url
from retinue.store.memory import MemoryStore
from retinue.store.postgres import PostgresStore
from retinue.store.sqlite import SqliteStore


@pytest.mark.parametrize("url", ["memory:", "sqlite:", "sqlite://", "sqlite:///:memory:"])
def test_an_address_without_a_path_is_memory(url: str) -> None:
    assert isinstance(connect(url), MemoryStore)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/lib/log.db", "/var/lib/log.db"),
        ("sqlite:////var/lib/log.db", "/var/lib/log.db"),
        ("sqlite+aiosqlite:///var/lib/log.db", "/var/lib/log.db"),
        ("sqlite:///var/my%20runs/50%25.db", "/var/my runs/50%.db"),
        ("/var/lib/50%25.db", "/var/lib/50%25.db"),
    ],
)
def test_a_path_is_an_sqlite_file(url: str, path: str) -> None:
    store = connect(url)
    assert isinstance(store, SqliteStore)
    assert store.path == Path(path)


def test_a_plain_path_may_be_relative_or_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    here, home = connect("log.db"), connect("~/log.db")
    assert isinstance(here, SqliteStore)
    assert isinstance(home, SqliteStore)
    assert (here.path, home.path) == (tmp_path / "log.db", tmp_path / "home" / "log.db")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_a_postgresql_address_shows_no_password(scheme: str) -> None:
    store = connect(f"{scheme}://me:s3cret@db.example:5433/runs?password=s3cret")
    assert isinstance(store, PostgresStore)
    assert str(store.address) == "postgresql://me@db.example:5433/runs"


@pytest.mark.parametrize("url", ["mysql://me:s3cret@host/x", "", "  "])
def test_another_address_is_a_mistake_that_names_the_right_ones(url: str) -> None:
    with pytest.raises(ConfigError, match="postgresql://") as caught:
        connect(url)
    assert "s3cret" not in str(caught.value)


def test_the_default_is_a_file_in_the_users_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "my data"))
    store = connect(default_url())
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "my data" / "retinue" / "retinue.db"


async def test_without_its_driver_postgresql_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"pip install 'retinue\[postgres\]'"):
        await connect("postgresql://host/name").open()
