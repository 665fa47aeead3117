"""`retinue serve` as a real process, in a world of its own, to be stopped and killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from pathlib import Path

from retinue.testing import FakeProvider

KEPT = ("PATH", "LANG", "LC_ALL", "COVERAGE_PROCESS_START")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Serving:
    """One server at a time, always on the same port, over the same database."""

    def __init__(self, home: Path, provider: FakeProvider | None = None, *options: str) -> None:
        self.folder = home / "project"
        self.folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.db = f"sqlite://{home}/log.db"
        self.options = options
        self.within: tuple[str, ...] = ()
        """A command that starts it: with few handles, in a place of its own."""
        self.said: list[str] = []
        self.process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "TMPDIR": str(home)}
        if provider is not None:
            self.env |= provider.environ() | {"RETINUE_MODEL": "openai:fake-model"}

    async def start(self, *options: str) -> None:
        """Start it and wait until it takes connections."""
        self.said = []
        self.process = await asyncio.create_subprocess_exec(
            *self.within,
            *(sys.executable, "-m", "retinue", "serve", "--port", str(self.port), "--db", self.db),
            *(*self.options, *options),
            cwd=self.folder,
            env=self.env,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read())
        async with asyncio.timeout(60):
            while not any(" is served at " in line for line in self.said):
                assert self.process.returncode is None, self.said
                await asyncio.sleep(0.02)

    async def _read(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode().rstrip())

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        assert self.process is not None
        assert self._reading is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(60):
            code = await self.process.wait()
            await self._reading
        return code

    async def __aenter__(self) -> Serving:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process is not None:
            await self.end(signal.SIGKILL)

    @property
    def code(self) -> int | None:
        """What it ended with, None while it lives."""
        return None if self.process is None else self.process.returncode

    @property
    def tokens(self) -> dict[str, str]:
        """The tokens it has shown, by name."""
        found = (re.search(r"the token of (\w+), shown this once: (\S+)", line) for line in self.said)
        return {match[1]: match[2] for match in found if match}
