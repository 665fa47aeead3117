"""Fixtures: the command line, a fake provider, a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from terminal import Terminal
from world import COMMAND, FOREIGN, Cli, Ended

from retinue.cli import main
from retinue.testing import FakeProvider


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def invoke(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """The same in this process: quicker, where neither signals nor a terminal matter."""
    for name in os.environ:
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "TMPDIR"):
        monkeypatch.setenv(name, cli.env[name])
    monkeypatch.chdir(cli.folder)

    def run(*arguments: str, **env: str) -> Ended:
        capsys.readouterr()
        with monkeypatch.context() as patched:
            for name, value in env.items():
                patched.setenv(name, value)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            code = main(list(arguments))
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


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
