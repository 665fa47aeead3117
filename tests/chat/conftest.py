"""A project, a provider and a terminal for the chat."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
from tmux import Tmux
from world import COMMAND, Cli

from retinue.testing import FakeProvider


class Chat(Tmux):
    """`retinue chat` in a window, with a provider that a test scripts."""

    def __init__(self, cli: Cli, provider: FakeProvider) -> None:
        super().__init__(cli.home)
        self.cli, self.provider = cli, provider

    async def open(self, *arguments: str) -> None:
        await self.start([*COMMAND, "chat", *arguments], env=self.cli.env, cwd=self.cli.folder)
        await self.until("· /help")  # the status line: keys are listened to


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
