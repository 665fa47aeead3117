"""`retinue chat` in a window, with a provider that a test scripts."""

from __future__ import annotations

from tmux import Tmux
from world import COMMAND, Cli

from retinue.testing import FakeProvider


class Chat(Tmux):
    def __init__(self, cli: Cli, provider: FakeProvider) -> None:
        super().__init__(cli.home)
        self.cli, self.provider = cli, provider

    async def open(self, *arguments: str) -> None:
        await self.start([*COMMAND, "chat", *arguments], env=self.cli.env, cwd=self.cli.folder)
        await self.until("· /help")  # the status line: keys are listened to
