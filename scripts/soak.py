"""Thousands of runs of every kind against one `retinue serve`: does it end where it began?

    python scripts/soak.py [--runs 10000] [--from 2000] [--every 500] [--at-once 8]

Starts a real server over a fake provider, both on loopback, and asks it for plain runs, runs with tools, with
children, with files in their workspace, with questions to a person, runs that fail, that are cancelled, that
are talked to again after their end; while watchers of their streams come and go, some of them in the middle.
Prints the server's open handles and its memory every so many runs, each time after all runs have ended. Ends
with 1 if between the first mark (`--from`) and the last there are more handles, or more than 10 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from retinue.testing import FakeProvider, Script, SeenRequest, call

MOST_MORE = 10_000_000
PATIENCE = 60.0
"""Seconds for a run: with so few at once it takes a moment."""
TOKENS = 40
"""Each may start two runs a second."""
KINDS = ("plain", "tools", "children", "files", "approved", "rejected", "failing", "cancelled", "followed")
MANY = "0123456789" * 500


def answer(request: SeenRequest) -> Script:
    """What the model says: the first word of the question is the kind of the run."""
    kind, turn = request.asked.partition(" ")[0], request.turn
    if kind == "failing":
        return Script(status=400, message="this model says no")
    if kind == "cancelled":
        return Script(gate=asyncio.Event())
    steps: dict[str, tuple[tuple[Any, ...], ...]] = {
        "tools": ((call("read", path="a.txt"), call("grep", pattern="hello")), (call("ls"),)),
        "children": ((call("code-search", query="look around"), call("summarize", prompt="tools again")),),
        "files": ((call("write", path="/home/agent/n.txt", content=MANY),), (call("read", path="~/n.txt"),)),
        "approved": ((call("bash", command="echo approved"),),),
        "rejected": ((call("write", path="b.txt", content="never"),),),
    }
    planned = steps.get(kind, ())
    return (
        Script(calls=planned[turn]) if turn < len(planned) else Script(text=f"{kind} is done. {MANY[:200]}")
    )


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What the server holds after so many runs."""

    runs: int
    handles: int
    bytes: int
    seconds: float


class Serving:
    """A server process, and a client of it with many tokens."""

    def __init__(self, home: Path, provider: FakeProvider, command: list[str]) -> None:
        self.home, self.provider, self.command = home, provider, command
        self.tokens: list[str] = []
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None
        self._saying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        folder = self.home / "project"
        folder.mkdir()
        (folder / "a.txt").write_text("hello there\n")
        env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        own = {"HOME": "", "XDG_CONFIG_HOME": "config", "TMPDIR": ""}
        env |= {name: str(self.home / below) for name, below in own.items()}
        env |= self.provider.environ() | {"RETINUE_MODEL": "openai:fake-model"}
        grants = [word for number in range(TOKENS) for word in ("--token", f"t{number}:admin")]
        self.process = await asyncio.create_subprocess_exec(
            *(*self.command, "serve", "--quiet", "--port", "0", "--db", f"sqlite://{self.home}/log.db"),
            *grants,
            cwd=folder,
            env=env,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            said = line.decode()
            token = re.search(r"shown this once: (\S+)", said)
            served = re.search(r" is served at (http\S+?)/?\s", said)
            if token:
                self.tokens.append(token[1])
            if served:
                self.url = served[1] + "/api/v1"
                break
        self._saying = asyncio.create_task(self._say(self.process.stderr))

    async def _say(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            sys.stderr.write(line.decode())

    async def stop(self) -> None:
        if self.process is not None and self._saying is not None:
            if self.process.returncode is None:
                self.process.send_signal(signal.SIGTERM)
            await self.process.wait()
            await self._saying

    def mark(self, runs: int, began: float) -> Mark:
        assert self.process is not None
        place = Path(f"/proc/{self.process.pid}")
        resident = re.search(r"VmRSS:\s+(\d+) kB", (place / "status").read_text())
        assert resident is not None
        return Mark(
            runs=runs,
            handles=len(os.listdir(place / "fd")),
            bytes=int(resident[1]) * 1024,
            seconds=time.monotonic() - began,
        )


class Soak:
    def __init__(self, serving: Serving, kinds: tuple[str, ...], dice: random.Random) -> None:
        self.serving, self.dice = serving, dice
        self.kinds = itertools.cycle(kinds)
        self.tokens = itertools.cycle(serving.tokens)
        self.ended: Counter[tuple[str, str]] = Counter()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=PATIENCE)
        )

    async def _ask(self, method: str, path: str, token: str, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.request(
            method, f"{self.serving.url}/{path}", json=body or None, headers=headers
        ) as response:
            found = await response.json()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status} {found}")
            return found

    async def one(self) -> None:
        """One run of the next kind, from its start to its end, watched or not."""
        kind, token = next(self.kinds), next(self.tokens)
        run_id = (await self._ask("POST", "runs", token, prompt=f"{kind} please"))["run_id"]
        try:
            await self._watched(run_id, token, kind)
        except TimeoutError:
            events = (await self._ask("GET", f"runs/{run_id}/events", token))["events"]
            last = "\n".join(str(event)[:300] for event in events[-6:])
            raise RuntimeError(f"{kind} {run_id} has no end after {PATIENCE:g} s:\n{last}") from None
        report = await self._ask("GET", f"runs/{run_id}/report", token)
        self.ended[kind, report["status"]] += 1
        if self.dice.random() < 0.1:
            await self._ask("GET", f"runs/{run_id}/transcript", token)
            await self._ask("GET", "runs?limit=20", token)

    async def _watched(self, run_id: str, token: str, kind: str) -> None:
        glances = [self._glance(run_id, token) for _ in range(self.dice.choice((0, 0, 1, 3)))]
        await asyncio.gather(self._to_the_end(run_id, token, kind), *glances)
        for _ in range(2 if kind == "followed" else 0):
            await self._ask("POST", f"runs/{run_id}/message", token, text="and then?")
            await self._to_the_end(run_id, token, kind)

    async def _events(self, run_id: str, token: str) -> AsyncIterator[bytes]:
        """The lines of a stream from its beginning to the end of the run."""
        address = f"{self.serving.url}/runs/{run_id}/stream?until=end"
        async with self.session.get(address, headers={"Authorization": f"Bearer {token}"}) as response:
            async for line in response.content:
                yield line

    async def _glance(self, run_id: str, token: str) -> None:
        """A watcher that goes away after a few events."""
        left = self.dice.randint(1, 6)
        async with contextlib.aclosing(self._events(run_id, token)) as lines:  # pyright: ignore[reportArgumentType] # it is a generator
            async for line in lines:
                left -= line.startswith(b"data: ")
                if left <= 0:
                    return

    async def _to_the_end(self, run_id: str, token: str, kind: str) -> None:
        async with contextlib.aclosing(self._events(run_id, token)) as lines:  # pyright: ignore[reportArgumentType] # it is a generator
            async for line in lines:
                asked = re.search(rb'"type":"approval_requested".*"approval_id":"([^"]+)"', line)
                if asked:
                    decision = "reject" if kind == "rejected" else "approve"
                    await self._answer(asked[1].decode(), token, decision)
                if kind == "cancelled" and b'"type":"step_started"' in line:
                    await self._ask("POST", f"runs/{run_id}/cancel", token, reason="enough")

    async def _answer(self, approval_id: str, token: str, decision: str) -> None:
        with contextlib.suppress(RuntimeError):  # answered before: the stream came from its beginning
            await self._ask("POST", f"approvals/{approval_id}", token, decision=decision)

    async def some(self, count: int, at_once: int) -> None:
        """So many runs, some at once, to the end of the last."""
        room = asyncio.Semaphore(at_once)

        async def one() -> None:
            async with room:
                await self.one()

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())
        self.serving.provider.requests.clear()


def verdict(marks: list[Mark], first: int) -> int:
    """Compare the last mark with the first one that counts. Returns the exit code."""
    start = next((mark for mark in marks if mark.runs >= first), marks[0])
    end = marks[-1]
    handles, size = end.handles - start.handles, end.bytes - start.bytes
    print(f"from run {start.runs:,} to run {end.runs:,}: {handles:+d} handles, {size / 1e6:+.1f} MB")
    return 1 if handles > 0 or size >= MOST_MORE else 0


async def soak(given: argparse.Namespace) -> int:
    command = given.command.split() if given.command else [sys.executable, "-m", "retinue"]
    with tempfile.TemporaryDirectory(prefix="retinue-soak-") as home:
        async with FakeProvider(answer) as provider:
            serving = Serving(Path(home), provider, command)
            await serving.start()
            try:
                marks, ended = await _marks(serving, given)
            finally:
                await serving.stop()
    print(", ".join(f"{count} {kind} {how}" for (kind, how), count in sorted(ended.items())))
    return verdict(marks, given.first)


async def _marks(serving: Serving, given: argparse.Namespace) -> tuple[list[Mark], Counter[tuple[str, str]]]:
    kinds = tuple(given.kinds.split(",")) if given.kinds else KINDS
    began, marks, ended = time.monotonic(), list[Mark](), Counter[tuple[str, str]]()
    print(f"{'runs':>7} {'handles':>8} {'MB':>8} {'seconds':>8}", flush=True)
    while not marks or marks[-1].runs < given.runs:
        done = marks[-1].runs if marks else 0
        runs = min(done + given.every, given.runs)
        work = Soak(serving, kinds, random.Random(done))
        try:
            await work.some(runs - done, given.at_once)
        finally:
            await work.session.close()
        ended += work.ended
        counts = runs == given.runs or done < given.first <= runs
        mark = await _quiet(serving, runs, began, given.settle if counts else 0.0)
        marks.append(mark)
        print(f"{mark.runs:7,} {mark.handles:8} {mark.bytes / 1e6:8.1f} {mark.seconds:8.0f}", flush=True)
    return marks, ended


async def _quiet(serving: Serving, runs: int, began: float, settle: float) -> Mark:
    """The server once it has noticed that everybody went; connections to the provider rest a while."""
    await asyncio.sleep(settle)
    mark = serving.mark(runs, began)
    for _ in range(20):
        await asyncio.sleep(0.25)
        after = serving.mark(runs, began)
        if after.handles >= mark.handles:
            return after
        mark = after
    return mark


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=2_000, help="the first mark that counts")
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--settle", type=float, default=65, help="seconds of rest before a mark that counts")
    parser.add_argument("--kinds", default="", help=f"some of {','.join(KINDS)}")
    parser.add_argument("--command", default="", help="how to start retinue, else the one of this Python")
    return asyncio.run(soak(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
