"""The command line as a real process, in a world of its own: nothing outside the test's folder is touched."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.testing import FakeProvider

COMMAND = (sys.executable, "-m", "retinue")
FOREIGN = ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE", "OLLAMA", "RETINUE", "NO_COLOR", "VISUAL", "EDITOR")
KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "COVERAGE_PROCESS_START")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Cli:
    """Runs `retinue` in `folder`, with its data and settings under `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "project"
        self.folder.mkdir()
        self.started: list[asyncio.subprocess.Process] = []
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "TMPDIR": str(home),
            "TERM": "xterm-256color",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPYCACHEPREFIX": str(home.parent.parent / "bytecode"),
        }

    def use(self, provider: FakeProvider) -> None:
        """Ask this provider from now on."""
        self.env |= {"OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": "test-key"}
        self.env["RETINUE_MODEL"] = "openai:fake-model"

    async def start(self, *arguments: str, **more: Any) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *arguments,
            cwd=self.folder,
            env=self.env | more.pop("env", {}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.PIPE if "input" in more else asyncio.subprocess.DEVNULL,
        )
        self.started.append(process)
        return process

    async def __call__(self, *arguments: str, input: str | None = None, **env: str) -> Ended:
        given = {"input": True} if input is not None else {}
        process = await self.start(*arguments, env=env, **given)
        out, err = await process.communicate(input.encode() if input is not None else None)
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())


async def end_of(process: asyncio.subprocess.Process) -> int:
    """The exit code, once everything that was written is read: an open pipe would outlive the test's loop."""
    await process.communicate()
    assert process.returncode is not None
    return process.returncode
