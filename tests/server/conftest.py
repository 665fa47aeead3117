"""Fixtures: a user's folder of its own, so that no test touches real settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of settings that changes go to."""
    path = tmp_path / "settings" / "config.toml"
    path.parent.mkdir()
    path.touch()
    monkeypatch.setenv("RETINUE_CONFIG", str(path))
    for name in ("OPENAI_API_KEY", "RETINUE_MODEL", "RETINUE_SERVER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project that agents work in."""
    made = tmp_path / "project"
    made.mkdir()
    return made
