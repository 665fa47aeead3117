"""A project, a provider and a terminal for the chat."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
from chatting import Chat
from world import Cli

from retinue.testing import FakeProvider


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Chat]:
    cli = Cli(tmp_path)
    (cli.folder / "app.py").write_text("def retry(n):\n    return n < 3\n")
    async with FakeProvider() as provider:
        cli.use(provider)
        found = Chat(cli, provider)
        try:
            yield found
        finally:
            await found.close()
