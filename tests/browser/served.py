"""`retinue serve` as a real process in a world of its own, and the fake provider that it asks.

The provider runs in a thread, so that a test which drives the browser can hold an answer back and let it go.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.testing import FakeProvider, Script, SeenRequest

KEPT = ("PATH", "LANG", "LC_ALL", "COVERAGE_PROCESS_START")
Play = Callable[[SeenRequest], Script]

SCRIBE = """---
name: scribe
description: Writes what it is told into a file and says so. For notes and short documents of this project.
icon: "✍️"
tools: [read, ls, write, edit, bash]
max_turns: 6
---
You are `scribe`. You write what you are told.
"""


def part(seen: SeenRequest) -> str:
    """Which agent asks: its prompt begins with its name."""
    found = re.search(r"You are `([\w-]+)`", seen.system)
    return found[1] if found else ""


class Gate:
    """Holds answers of the provider back until it is opened."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.event = asyncio.Event()

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self.event.set)


class Provider:
    """A fake provider with a thread of its own. `play` says what each agent answers."""

    def __init__(self) -> None:
        self.play: Play = lambda seen: Script(text="Nothing was scripted.")
        self.fake: FakeProvider | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        self.fake = FakeProvider(self._answer)
        self._do(self.fake.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        assert self.fake is not None
        self._do(self.fake.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _answer(self, seen: SeenRequest) -> Script:
        return self.play(seen)  # looked up each time: a test may change it while a run goes on

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def gate(self) -> Gate:
        return Gate(self._loop)


class Served:
    """One server. It can be stopped, killed and started again on the same port."""

    def __init__(self, home: Path, provider: Provider) -> None:
        self.home, self.folder = home, home / "project"
        self.folder.mkdir(parents=True)
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.log: list[str] = []
        assert provider.fake is not None
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "TMPDIR": str(home),
            "RETINUE_MODEL": "openai:fake-model",
            "OPENAI_BASE_URL": provider.fake.openai_url,
            "OPENAI_API_KEY": "test-key",
            "NO_COLOR": "1",
        }

    def start(self, *arguments: str) -> str:
        port = self.url.rpartition(":")[2] or "0"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retinue", "serve", "--port", port, *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"served at (http://\S+?)/?\s*$", line)
            if found:
                self.url = found[1]
                break
        else:
            raise AssertionError("the server did not start:\n" + "".join(self.log))
        threading.Thread(target=self._drain, args=(self.process,), daemon=True).start()
        return self.url

    def _drain(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(line)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(20)
        self.process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def wipe(self) -> None:
        """End and remove every run; start again if a test has left it stopped."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        runs = self.api("GET", "runs?limit=200")["runs"]
        for run in runs:
            if run["completed_at"] is None:
                self.api("POST", f"runs/{run['run_id']}/cancel", {})
        for run in runs:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/runs/{run['run_id']}/stream?until=end", timeout=60
            ) as left:
                left.read()  # until it has ended
            self.api("DELETE", f"runs/{run['run_id']}")

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """The API, as another client would use it."""
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "X-Retinue": "1"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")
