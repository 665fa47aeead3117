"""A project with a secret in it, an attacker, and a host that a person lets through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from attacking import SECRET, Attacker, serving


@pytest_asyncio.fixture
async def attacker() -> AsyncIterator[Attacker]:
    async with serving() as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".env").write_text(f"PASSWORD={SECRET}\n")
    (folder / "notes.md").write_text(f"# Notes\nThe word is {SECRET}.\n")
    (folder / "other.md").write_text("# Other\nNothing here.\n")
    return folder
