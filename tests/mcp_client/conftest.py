from __future__ import annotations

from pathlib import Path

import pytest

from mcp_world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("RETINUE_CONFIG", raising=False)
    made = World(tmp_path)
    made.project.mkdir()
    return made
