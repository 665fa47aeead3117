"""Fixtures: the command line, a fake provider, a terminal."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
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
async def nothing_left(cli: Cli) -> AsyncIterator[None]:
    """Ends what a failed test has left running."""
    yield
    for process in cli.started:
        if process.returncode is None:
            process.kill()
            await process.communicate()


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

    def run(*arguments: str, input: str = "", **env: str) -> Ended:
        capsys.readouterr()
        with monkeypatch.context() as patched:
            given = {name: value for name, value in cli.env.items() if name.startswith(FOREIGN)}
            for name, value in {**given, **env}.items():
                patched.setenv(name, value)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input.encode())))
            code = main(list(arguments))
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as running:
        yield running


@pytest.fixture
def served() -> Iterator[FakeProvider]:
    """A provider with a thread of its own, for commands that run in this process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> FakeProvider:
        return await FakeProvider().__aenter__()

    running = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
    yield running
    asyncio.run_coroutine_threadsafe(running.__aexit__(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


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
