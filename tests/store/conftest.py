"""Stores to test: each contract test runs on every one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pg import postgres_url  # noqa: F401  # a fixture
from retinue.store.base import Store
from retinue.store.connect import connect

ON_DISK = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


def _url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "postgresql":
        return request.getfixturevalue("postgres_url")
    return "memory:" if kind == "memory" else f"sqlite://{tmp_path}/log.db"


@pytest.fixture(params=["memory", *ON_DISK])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _url(request.param, request, tmp_path)


@pytest.fixture(params=ON_DISK)
def disk_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where several processes can meet."""
    return _url(request.param, request, tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    made = connect(url)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def disk_store(disk_url: str) -> AsyncIterator[Store]:
    made = connect(disk_url)
    await made.open()
    yield made
    await made.close()
