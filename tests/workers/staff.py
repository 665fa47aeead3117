"""Workers as real processes on one PostgreSQL database, a provider that counts, and somebody who asks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from retinue import Retinue
from retinue.events import Event
from retinue.testing import FakeProvider

COMMAND = (sys.executable, "-m", "retinue", "worker")
E = TypeVar("E", bound=Event)
KEPT = ("PATH", "LANG", "LC_ALL", "COVERAGE_PROCESS_START")


class Staff:
    """The folder, the database and the workers of a test. Whatever still runs at its end is killed."""

    def __init__(self, home: Path, db: str, provider: FakeProvider) -> None:
        self.home, self.db, self.provider = home, db, provider
        self.folder = home / "project"
        self.folder.mkdir()
        self.workers: list[asyncio.subprocess.Process] = []
        self.environ = {name: os.environ[name] for name in KEPT if name in os.environ} | {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "OPENAI_BASE_URL": provider.openai_url,
            "OPENAI_API_KEY": "test-key",
            "RETINUE_MODEL": "openai:fake-model",
            "RETINUE_DB": db,
            "TMPDIR": str(home),
        }

    async def worker(
        self, *arguments: str, apart: bool = False, environ: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        """Start one, and wait until it says that it works. `apart`: as if on a machine of its own, where
        nobody sees the file that it locks."""
        number = len(self.workers)
        log = self.home / f"worker-{number}.log"
        place = self.home / f"apart-{number}" if apart else self.home
        place.mkdir(exist_ok=True)
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *arguments,
                cwd=self.folder,
                env=self.environ | {"TMPDIR": str(place)} | dict(environ or {}),
                stdout=file,
                stderr=file,
                stdin=asyncio.subprocess.DEVNULL,
            )
        self.workers.append(process)
        while b"a worker for" not in log.read_bytes():
            assert process.returncode is None, log.read_text()
            await asyncio.sleep(0.02)
        return process

    def write_agent(self, name: str) -> None:
        agents = self.folder / ".retinue" / "agents"
        agents.mkdir(parents=True, exist_ok=True)
        (agents / f"{name}.md").write_text(
            f"---\nname: {name}\ndescription: helps\n---\nDo what you are told.\n"
        )

    def said(self, number: int) -> str:
        return (self.home / f"worker-{number}.log").read_text()

    @contextlib.asynccontextmanager
    async def asker(self, **settings: Any) -> AsyncGenerator[Retinue[Any]]:
        """Who hands runs over."""
        given = {"engine": "workers", **settings}
        async with Retinue(cwd=self.folder, environ=self.environ, settings=given, answering="ask") as asker:
            yield asker

    async def dismiss(self) -> None:
        for process in self.workers:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()


async def stop(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGTERM)
    return await process.wait()


async def heard(asker: Retinue[Any], run_id: str, kind: type[E], **fields: Any) -> E:
    """The first event of this kind in the log of a workflow, as soon as it is there."""
    async with contextlib.aclosing(asker.watch(run_id)) as events:
        async for event in events:
            if isinstance(event, kind) and all(getattr(event, name) == each for name, each in fields.items()):
                return event
    raise AssertionError(f"{run_id} ended without {kind.__name__}")


async def until(true: Callable[[], Any]) -> None:
    """Wait for what others do; the time that a test has is the limit."""
    while not true():
        await asyncio.sleep(0.01)
