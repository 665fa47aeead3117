"""A crowd of runs of a real `retinue serve`, something that fails under it for a while, and what became of them.

A model that speaks the wire format answers, and counts what it was paid for. When the fault begins, every run
is under way: some wait for their reply and get it right then, some are in the middle of it, some are about to
call a tool or to start a child. Used by the tests, in small, and by `scripts/outages.py`, at length.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from process import Serving

from retinue.testing import FakeProvider, Script, SeenRequest, call
from retinue.types import ENDED

KINDS = ("waits", "speaks", "works", "delegates")
STARTS_OF_ONE = 30
"""Runs that a token may start at once."""
PIECES = 20
HANGS_UP = {"Connection": "close"}
"""Who asks again has to connect anew."""


@dataclass(kw_only=True)
class Outcome:
    """What became of the runs that a server has accepted."""

    accepted: int = 0
    in_reply: int = 0
    """Of these, runs that had got the beginning of a reply, and not its end, when the fault began."""
    in_flight: int = 0
    """Calls that the model was working on when the server was killed: only these may be paid for again."""
    refused: Counter[int] = field(default_factory=Counter[int])
    """Starts that were refused while the fault lasted, by status."""
    ended: Counter[str] = field(default_factory=Counter[str])
    open: int = 0
    """Accepted, and without an end when nobody wanted to wait any longer."""
    taken_up: int = 0
    paid_twice: int = 0
    seconds: float = 0.0
    """From the end of the fault to the end of the last run."""
    code: int | None = None
    """What the server ended with, if it did."""
    said: list[str] = field(default_factory=list[str])
    errors: Counter[str] = field(default_factory=Counter[str])

    @property
    def held(self) -> bool:
        """Nothing was lost and nothing was paid for twice, while the server lived."""
        paid = self.paid_twice <= self.in_flight
        return paid and self.ended["completed"] == self.accepted and self.code is None

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {status}" for status, count in sorted(self.ended.items()))
        refused = ", ".join(f"{count} x {status}" for status, count in sorted(self.refused.items())) or "none"
        flight = f" ({self.in_flight} in flight)" if self.in_flight else ""
        return (
            f"{self.accepted} accepted, {self.in_reply} in the middle of a reply; refused meanwhile: {refused}; "
            f"{ends}, {self.open} open; {self.taken_up} taken up; {self.paid_twice} replies paid twice{flight}; "
            f"the last ended {self.seconds:.1f} s after; server {'alive' if self.code is None else self.code}"
        )


class Crowd:
    """Many runs of one server, and the model that answers them."""

    def __init__(self, home: Path, count: int, *, speaking: float = 5.0) -> None:
        self.count, self.speaking = count, speaking
        self.near, self.go = asyncio.Event(), asyncio.Event()
        self.paid: Counter[tuple[str, int]] = Counter()
        self.waiting = 0
        self.provider = FakeProvider(self._answer, on_served=self._pays)
        self.home = home
        self.accepted: list[str] = []
        self.outcome = Outcome()
        self._number = itertools.count()

    def _pays(self, seen: SeenRequest) -> None:
        self.paid[seen.asked, seen.turn] += 1

    async def _answer(self, seen: SeenRequest) -> Script:
        """What the model says: the first word of a question is the kind of its run."""
        kind = seen.asked.partition(" ")[0]
        self.waiting += 1
        await self.near.wait()
        if kind == "speaks":
            return Script(text=f"said: {seen.asked}", pieces=PIECES, delay=self.speaking / PIECES)
        if kind == "works" and seen.turn < 2:
            return Script(calls=(call("read", path="a.txt"),), headers=HANGS_UP)
        await self.go.wait()
        if kind == "delegates" and seen.turn == 0:
            return Script(calls=(call("code-search", query=f"waits {seen.asked}"),), headers=HANGS_UP)
        return Script(text=f"said: {seen.asked}", headers=HANGS_UP)

    @contextlib.asynccontextmanager
    async def served(self, *, db: str = "", within: tuple[str, ...] = ()) -> AsyncIterator[Serving]:
        """The server, and the model beside it."""
        grants = [f"t{number}:admin" for number in range(1 + 2 * self.count // STARTS_OF_ONE)]
        async with self.provider:
            self.serving = Serving(
                self.home, self.provider, *(word for name in grants for word in ("--token", name))
            )
            self.serving.within = within
            self.serving.db = db or self.serving.db
            (self.serving.folder / "a.txt").write_text("hello there\n")
            async with self.serving:
                await self.serving.start()
                self._tokens = itertools.cycle(self.serving.tokens.values())
                yield self.serving

    # -- what people do

    async def ask(self, count: int, *, insist: bool = True) -> None:
        """Start so many runs, some at once. With `insist` each of them until it is accepted."""
        room = asyncio.Semaphore(16)
        connector = aiohttp.TCPConnector(limit=16)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:

            async def one(number: int) -> None:
                prompt = f"{KINDS[number % len(KINDS)]} {number}"
                async with room:
                    while not await self._post(session, prompt) and insist:
                        await asyncio.sleep(0.2)

            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(one(next(self._number)))

    async def _post(self, session: aiohttp.ClientSession, prompt: str) -> bool:
        headers = {"Authorization": f"Bearer {next(self._tokens)}"}
        try:
            async with session.post(
                f"{self.serving.url}/api/v1/runs", json={"prompt": prompt}, headers=headers
            ) as answer:
                if answer.status == 201:
                    self.accepted.append((await answer.json())["run_id"])
                else:
                    self.outcome.refused[answer.status] += 1
                return answer.status == 201
        except (aiohttp.ClientError, TimeoutError):
            self.outcome.refused[0] += 1
            return False

    async def begin(self) -> None:
        """All of them under way: each has asked its model, and those that speak have begun to."""
        await self.ask(self.count)
        await until(lambda: self.waiting >= self.count)
        self.near.set()
        speaking = sum(number % len(KINDS) == KINDS.index("speaks") for number in range(self.count))
        await until(lambda: sum(asked.startswith("speaks") for asked, _ in self.paid) >= speaking)
        self.outcome.in_reply = speaking

    async def suffer(self, fault: contextlib.AbstractAsyncContextManager[None], seconds: float) -> None:
        """The fault for so long. Replies come right after its beginning, and more runs are asked for."""
        async with fault:
            self.go.set()
            asking = asyncio.create_task(self.ask(8, insist=False))
            await asyncio.sleep(seconds)
        await asking

    async def kill(self) -> None:
        """Kill the server while every run is under way, and start it again."""
        self.outcome.in_flight = self.provider.at_once
        await self.serving.end(signal.SIGKILL)
        self.go.set()
        await self.serving.start()

    async def judge(self, *, patience: float) -> Outcome:
        """Wait for the ends of all that was accepted, and count."""
        began, outcome = time.monotonic(), self.outcome
        outcome.accepted = len(self.accepted)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as session:
            rows = await self._rows(session)
            while sum(row["status"] in ENDED for row in rows) < outcome.accepted:
                if time.monotonic() - began > patience or self.serving.code is not None:
                    break
                await asyncio.sleep(0.5)
                rows = await self._rows(session)
            outcome.seconds = time.monotonic() - began
            outcome.ended = Counter(row["status"] for row in rows if row["status"] in ENDED)
            outcome.errors = Counter(row["error"] or "" for row in rows if row["status"] != "completed")
            outcome.open = outcome.accepted - sum(outcome.ended.values())
            for run_id in self.accepted:
                found = await self._get(session, f"runs/{run_id}/events?own=true")
                outcome.taken_up += any(event["type"] == "run_resumed" for event in found["events"])
        outcome.paid_twice = sum(times - 1 for times in self.paid.values())
        outcome.code, outcome.said = self.serving.code, self.serving.said
        return outcome

    async def _rows(self, session: aiohttp.ClientSession) -> list[dict[str, Any]]:
        """The accepted runs as the server lists them."""
        mine, rows, cursor = set(self.accepted), list[dict[str, Any]](), ""
        while True:
            found = await self._get(session, f"runs?limit=200{cursor}")
            rows += [row for row in found["runs"] if row["run_id"] in mine]
            if not found["next"]:
                return rows
            cursor = f"&cursor={found['next']}"

    async def _get(self, session: aiohttp.ClientSession, path: str) -> Any:
        headers = {"Authorization": f"Bearer {next(self._tokens)}"}
        async with session.get(f"{self.serving.url}/api/v1/{path}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


async def until(done: Callable[[], bool], seconds: float = 300) -> None:
    async with asyncio.timeout(seconds):
        while not done():
            await asyncio.sleep(0.02)


# -- what fails

_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Another process holds the SQLite file."""
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _HOLD, str(path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert await holder.stdout.readline()
        yield
    finally:
        holder.stdin.close()
        await holder.wait()


@contextlib.asynccontextmanager
async def without_handles(serving: Serving) -> AsyncIterator[None]:
    """The server may open nothing: what it has open stays, and what it closes it does not get back."""
    assert serving.process is not None
    pid = serving.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextlib.asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[None]:
    """The disk of a folder has no room."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65536)
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 512)
    try:
        yield
    finally:
        filler.unlink()


def on_a_small_disk(folder: Path, megabytes: int) -> tuple[str, ...]:
    """A command that gives a folder a disk of its own, seen by what is started with it alone."""
    mount = f'mount -t tmpfs -o size={megabytes}m none "$0" && exec "$@"'
    return ("unshare", "-Urm", "sh", "-c", mount, str(folder))


def with_handles(count: int) -> tuple[str, ...]:
    """A command that has so many handles for all its life."""
    return ("sh", "-c", f'ulimit -n {count} && exec "$@"', "sh")
