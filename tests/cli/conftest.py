"""Fixtures: the command line, a fake provider, a terminal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from terminal import Terminal
from world import COMMAND, Cli

from retinue.testing import FakeProvider


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as running:
        yield running


@pytest.fixture
async def terminal(cli: Cli) -> AsyncIterator[Callable[..., Any]]:
    opened: list[Terminal] = []

    async def start(*arguments: str, columns: int = 80, rows: int = 24, **env: str) -> Terminal:
        made = Terminal(columns, rows)
        opened.append(made)
        await made.start([*COMMAND, *arguments], env=cli.env | env, cwd=cli.folder)
        return made

    yield start
    for made in opened:
        await made.close()
