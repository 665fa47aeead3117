"""Fixtures: a world of its own for servers that hosts start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "config.toml").touch()
    monkeypatch.setenv("RETINUE_CONFIG", str(tmp_path / "settings" / "config.toml"))
    for name in ("OPENAI_API_KEY", "RETINUE_MODEL", "RETINUE_SERVER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
