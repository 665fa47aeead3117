from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the forked processes import from here too


@pytest.fixture(params=["sqlite"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/log.db"
