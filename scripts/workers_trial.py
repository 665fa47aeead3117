#!/usr/bin/env python
"""Workers that are killed and a database that is restarted, while many workflows run: what becomes of them.

    python scripts/workers_trial.py                        2,000 workflows, 3 workers, kills, two restarts
    python scripts/workers_trial.py --workflows 200 --calm    the same without any trouble
    python scripts/workers_trial.py --wakes 50             how long parked approvals take to go on elsewhere
    python scripts/workers_trial.py --cost 300             CPU of a run at a worker, beside the same run here
    python scripts/workers_trial.py --parked 500           what parked workflows cost a worker

Everything is real and on this machine: a PostgreSQL server of its own, workers as processes, a provider over
HTTP that counts what it serves. Each workflow is a root, two children and a child of each. Prints what was
asked, served, logged and lost.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import postgres

from retinue import Retinue
from retinue.events import AnyEvent, ApprovalRequested, ModelReplied, RunQueued, RunResumed
from retinue.testing import FakeProvider, Script, SeenRequest, call

SETTINGS = {"RETINUE_DELEGATION_POLICY": "nested", "RETINUE_DELEGATION_TOOLS": '["delegate_task"]'}

HELPER = """---
name: helper
description: does what it is told
---
Do what you are told.
"""


def answer(request: SeenRequest) -> Script:
    """A root asks two children, each of them a grandchild; whoever is asked nothing more answers."""
    task = next(each.text for each in request.messages if each.text.startswith("LEVEL"))
    level, name = int(task.split()[1]), task.split()[2]
    delay = random.uniform(0.0, 0.02)  # no secret
    if request.turn or level == 2:
        return Script(text=f"{name} is done", delay=delay)
    kids = 2 if level == 0 else 1
    asked = (f"LEVEL {level + 1} {name}.{number} go" for number in range(kids))
    agent = "helper" if level == 0 else "planner"
    return Script(
        calls=tuple(call("delegate_task", agent_id=agent, prompt=each) for each in asked), delay=delay
    )


def writes(request: SeenRequest) -> Script:
    return (
        Script(text="written") if request.turn else Script(calls=(call("write", path="a.txt", content="a"),))
    )


class Site:
    """A folder, a database, a provider, and the workers."""

    def __init__(self, home: Path, server: postgres.Server, provider: FakeProvider, slots: int) -> None:
        self.home, self.server, self.slots = home, server, slots
        self.folder = home / "project"
        agents = self.folder / ".retinue" / "agents"
        agents.mkdir(parents=True)
        (agents / "helper.md").write_text(HELPER)
        self.workers: list[asyncio.subprocess.Process] = []
        self.kills = 0
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(home),
            "OPENAI_BASE_URL": provider.openai_url,
            "OPENAI_API_KEY": "key",
            "RETINUE_MODEL": "openai:fake-model",
            "RETINUE_DB": server.url("trial"),
            **SETTINGS,
        }

    async def hire(self, **environ: str) -> asyncio.subprocess.Process:
        with (self.home / "workers.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "retinue", "worker", "--slots", str(self.slots)),
                cwd=self.folder,
                env=self.environ | environ,
                stdout=log,
                stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
            )
        self.workers.append(process)
        return process

    def asker(self) -> Retinue[Any]:
        engine = {"engine": "workers"}
        return Retinue(cwd=self.folder, environ=self.environ, settings=engine, answering="ask")

    async def kill_at_random(self, seconds: float) -> None:
        """Every few seconds one of them is killed with -9, and another one begins."""
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * seconds)  # no secret
            victim = random.choice([each for each in self.workers if each.returncode is None])
            victim.kill()
            self.kills += 1
            await self.hire()

    async def restart_database(self, times: int, every: float, away: float) -> None:
        for _ in range(times):
            await asyncio.sleep(every)
            await asyncio.to_thread(postgres.halt, self.server)
            await asyncio.sleep(away)
            await asyncio.to_thread(postgres.begin, self.server)

    async def dismiss(self) -> None:
        for process in self.workers:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()


async def ask(asker: Retinue[Any], number: int, gate: asyncio.Semaphore) -> str:
    async with gate:
        while True:
            try:
                report = await asker.once(f"trial-{number}", "general", f"LEVEL 0 w{number} go")
                return report.text
            except Exception as error:  # the database is away for longer than who asks waits
                print(f"asked again: {error}", file=sys.stderr)
                await asyncio.sleep(1)


async def trial(options: argparse.Namespace, site: Site, provider: FakeProvider) -> dict[str, Any]:
    for _ in range(options.workers):
        await site.hire()
    began = time.monotonic()
    async with site.asker() as asker, contextlib.AsyncExitStack() as stack:
        trouble: list[asyncio.Task[None]] = []
        if not options.calm:
            trouble.append(asyncio.create_task(site.kill_at_random(options.kill_every)))
            trouble.append(asyncio.create_task(site.restart_database(2, options.restart_every, 3.0)))
        for task in trouble:
            stack.callback(task.cancel)
        gate = asyncio.Semaphore(options.at_once)
        texts = await asyncio.gather(*(ask(asker, number, gate) for number in range(options.workflows)))
        wall = time.monotonic() - began
        for task in trouble:
            task.cancel()
        events = [each for n in range(options.workflows) for each in await asker.store.events(f"trial-{n}")]
        size = await asker.store.size()
    return {**told(events), "texts": _wrong(texts), "served": provider.served, "kills": site.kills} | {
        "bytes": size,
        "wall_s": round(wall, 1),
        "per_s": round(options.workflows / wall, 1),
    }


def _wrong(texts: list[str]) -> int:
    """How many reports are not what one process would have said."""
    return sum(text != f"w{number} is done" for number, text in enumerate(texts))


def told(events: list[AnyEvent]) -> dict[str, Any]:
    replies = collections.Counter(
        (each.run_id, each.step) for each in events if isinstance(each, ModelReplied)
    )
    queued = collections.Counter(
        each.why for each in events if isinstance(each, RunQueued) and not each.depth
    )
    taken = sum(isinstance(each, RunResumed) and not each.depth for each in events)
    return {
        "replies": sum(replies.values()),
        "replied_twice": sum(count > 1 for count in replies.values()),
        "taken_up": taken,
        "queued": dict(queued),
        "events": len(events),
    }


async def wakes(options: argparse.Namespace, site: Site, provider: FakeProvider) -> dict[str, Any]:
    """From the answer to a question to the moment when another worker has taken the run up."""
    provider.handler = writes
    parks = {"RETINUE_WORKERS_PARK_AFTER": "0.2"}
    first = await site.hire(**parks)
    async with site.asker() as asker:
        runs = [await asker.start("general", f"LEVEL 0 p{number} go") for number in range(options.wakes)]
        asked = [await _seen(asker, run_id, ApprovalRequested) for run_id in runs]
        for run_id in runs:
            await _seen(asker, run_id, RunQueued, why="parked")
        first.terminate()
        await first.wait()
        await site.hire(**parks)
        await asyncio.sleep(options.settle)
        found: list[float] = []
        for run_id, question in zip(runs, asked, strict=True):
            began = time.perf_counter()
            await asker.answer(question.approval_id, "approve")
            await _seen(asker, run_id, RunResumed, pid=site.workers[-1].pid)
            found.append((time.perf_counter() - began) * 1000)
            await asker.wait(run_id)
    found.sort()
    return {
        "woken": len(found),
        "median_ms": round(statistics.median(found), 1),
        "p95_ms": round(found[int(len(found) * 0.95)], 1),
        "most_ms": round(found[-1], 1),
    }


LOCAL = """
import asyncio, sys, time
from retinue import Retinue

async def main(number):
    async with Retinue(settings={"engine": "local"}) as retinue:
        gate = asyncio.Semaphore(20)
        async def one(n):
            async with gate:
                await retinue.run("general", f"LEVEL 2 w{n} go")
        await one(-1)
        began = time.process_time()
        await asyncio.gather(*(one(n) for n in range(number)))
        print(time.process_time() - began)

asyncio.run(main(int(sys.argv[1])))
"""


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """Megabytes that a process has to itself."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


async def cost(options: argparse.Namespace, site: Site, provider: FakeProvider) -> dict[str, Any]:
    """The same simple runs, done by a process for itself and by a worker for another."""
    here = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOCAL, str(options.cost)),
        cwd=site.folder,
        env=site.environ,
        stdout=asyncio.subprocess.PIPE,
    )
    local = float((await here.communicate())[0])
    worker = await site.hire()
    async with site.asker() as asker:
        await asker.run("general", "LEVEL 2 first go")
        gate, began = asyncio.Semaphore(20), _cpu(worker.pid)

        async def one(number: int) -> None:
            async with gate:
                await asker.run("general", f"LEVEL 2 w{number} go")

        await asyncio.gather(*(one(number) for number in range(options.cost)))
        there = _cpu(worker.pid) - began
    return {
        "runs": options.cost,
        "local_ms": round(1000 * local / options.cost, 2),
        "worker_ms": round(1000 * there / options.cost, 2),
    }


async def parked(options: argparse.Namespace, site: Site, provider: FakeProvider) -> dict[str, Any]:
    """A worker that is begun while so many workflows are parked, beside one of an empty database."""
    provider.handler = writes
    found: dict[str, Any] = {"parked": options.parked}
    for name in ("none", "all"):
        worker = await site.hire(RETINUE_WORKERS_PARK_AFTER="0.2")
        await asyncio.sleep(options.settle)
        before = _cpu(worker.pid)
        await asyncio.sleep(20)
        found[f"{name}_cpu_percent"] = round(100 * (_cpu(worker.pid) - before) / 20, 2)
        found[f"{name}_mb"] = round(_memory(worker.pid), 1)
        if name == "none":
            async with site.asker() as asker:
                runs = [await asker.start("general", f"LEVEL 0 p{n} go") for n in range(options.parked)]
                for run_id in runs:
                    await _seen(asker, run_id, RunQueued, why="parked")
            found["after_mb"] = round(_memory(worker.pid), 1)
        worker.terminate()
        await worker.wait()
    return found


async def _seen(asker: Retinue[Any], run_id: str, kind: type[Any], **fields: Any) -> Any:
    async with contextlib.aclosing(asker.watch(run_id)) as events:
        async for event in events:
            if isinstance(event, kind) and all(getattr(event, name) == each for name, each in fields.items()):
                return event
    raise RuntimeError(f"{run_id} ended without {kind.__name__}")


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as home:
        server = postgres.start()
        try:
            async with FakeProvider(answer) as provider:
                site = Site(Path(home), server, provider, options.slots)
                try:
                    kinds = (options.wakes, wakes), (options.cost, cost), (options.parked, parked)
                    do = next((each for number, each in kinds if number), trial)
                    print(json.dumps(await do(options, site, provider)))
                finally:
                    await site.dismiss()
                    if options.log:
                        options.log.write_bytes((Path(home) / "workers.log").read_bytes())
        finally:
            postgres.stop(server)


def told_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workflows", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--slots", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--kill-every", type=float, default=8.0)
    parser.add_argument("--restart-every", type=float, default=30.0)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--wakes", type=int, default=0)
    parser.add_argument("--cost", type=int, default=0)
    parser.add_argument("--parked", type=int, default=0)
    parser.add_argument("--settle", type=float, default=5.0)
    parser.add_argument("--log", type=Path, help="keep what the workers logged there")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(told_options()))
