from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pg import postgres_url as postgres_url

sys.path.insert(0, str(Path(__file__).parent))  # the forked processes import from here too


@pytest.fixture(params=["sqlite", "postgres"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that outlives a process."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite://{tmp_path}/log.db"
