"""Is everything still instant when the log is large? Builds a large SQLite file, asks it, prints times.

    python bench/big_store.py [--runs 20000] [--events 1000000] [--keep FILE]

Three runs per workflow, all of them written as the store itself would write them, only in bulk. Times are
wall milliseconds, the first time and the median of ten; `process` is a new Python that opens, asks and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from retinue.events import (
    ApprovalRequested,
    Event,
    ModelReplied,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.store import sqlite_file
from retinue.store.base import RunFilter
from retinue.store.projection import Rows
from retinue.store.rows import PLACE, encoded
from retinue.store.runs import StoredRun
from retinue.store.sqlite import SqliteStore
from retinue.types import AgentSpec, AssistantMessage, Report, Usage

AGENTS = ("general", "planner", "code-search", "code-review", "web-knowledge")
TEXT = "read the files of this project and say which part of it is slow and why that may be so"
PER_WORKFLOW = 3


def log(run_id: str, root_id: str, at: float, count: int, chance: random.Random) -> list[Event]:
    """The events of one run; one in a thousand still waits for a person."""
    parent = None if run_id == root_id else root_id
    base = {"run_id": run_id, "root_id": root_id, "parent_id": parent, "depth": int(parent is not None)}
    number = iter(range(1, count + 1))

    def make(kind: type[Any], **fields: Any) -> Event:
        seq = next(number)
        return kind(**base, seq=seq, at=at + seq, **fields)

    spec = AgentSpec(name=chance.choice(AGENTS), description="d", prompt="p" * 200)
    task = " ".join(chance.choices(TEXT.split(), k=30))
    events = [make(RunStarted, spec=spec, prompt=task, model=f"openai:m{chance.randrange(4)}")]
    usage = Usage(input_tokens=900, output_tokens=70, cost=0.002)
    while len(events) < count - 4:
        step, call = len(events), f"call-{len(events)}"
        arguments = '{"path": "src/a.py"}'
        message = AssistantMessage(text=task[:60])
        events += [
            make(StepStarted, step=step, model="openai:m"),
            make(ModelReplied, step=step, message=message, usage=usage, stop="tool_calls", model="openai:m"),
            make(ToolCalled, call_id=call, name="read", arguments=arguments, effect="read", repeatable=True),
            make(ToolReturned, call_id=call, name="read", text=task * 2),
        ]
    if chance.random() < 0.001:
        question = {"tool": "bash", "arguments": "{}", "effect": "execute", "risk": "high"}
        events.append(make(ApprovalRequested, approval_id=f"{run_id}:a", call_id="c", **question))
    else:
        report = Report(
            run_id=run_id, status="completed", text=task, agent=spec.name, duration_ms=count * 900
        )
        events.append(make(RunFinished, report=report))
    return events


def build(path: Path, runs: int, events: int) -> int:
    """Fill a new file; how many events that came to."""
    connection = sqlite_file.open_for_writing(path, busy_seconds=10)
    chance = random.Random(1)
    per_run = max(6, events // runs)
    began = time.time() - runs * 60
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -200000")
    rows = ", ".join("?" * len(StoredRun.__struct_fields__))
    written = 0
    for first in range(0, runs, PER_WORKFLOW * 500):
        connection.execute("BEGIN")
        for start in range(first, min(first + PER_WORKFLOW * 500, runs), PER_WORKFLOW):
            root = f"{int(began + start * 60):x}{chance.randbytes(8).hex()}"
            names = [root, *(f"{root[:8]}{chance.randbytes(8).hex()}" for _ in range(PER_WORKFLOW - 1))]
            place = 0
            for offset, name in enumerate(names[: runs - start]):
                found = log(name, root, began + (start + offset) * 60, per_run, chance)
                table = encoded(found)
                for row in table:
                    place += 1
                    row[PLACE] = place
                connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT))", table)
                kept = Rows()
                kept.take(found)
                connection.execute(f"INSERT INTO runs VALUES ({rows})", msgspec.structs.astuple(kept[name]))
                written += len(found)
        connection.execute("COMMIT")
    connection.close()
    return written


async def ask(path: Path) -> list[tuple[str, float, float]]:
    store = SqliteStore(path)
    began = time.perf_counter()
    await store.open()
    found = [("open", 1000 * (time.perf_counter() - began), 0.0)]

    async def measure(name: str, question: Callable[[], Awaitable[Any]], times: int = 10) -> Any:
        spent: list[float] = []
        result = None
        for _ in range(times + 1):
            began = time.perf_counter()
            result = await question()
            spent.append(1000 * (time.perf_counter() - began))
        found.append((name, spent[0], statistics.median(spent[1:])))
        return result

    recent = await store.runs(RunFilter(roots_only=True))
    (oldest,) = await store.old_roots(time.time(), limit=1)
    root, middle = recent[10].run_id, (oldest.created_at + recent[0].created_at) / 2

    def listed(**which: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: store.runs(RunFilter(**which))

    new = iter(range(10_000))

    async def begin() -> None:
        name = f"new-{next(new)}"
        await store.append(log(name, name, time.time(), 6, random.Random(2))[:1])

    await measure("start a new run", begin)
    await measure("runs list", listed())
    await measure("runs list, roots", listed(roots_only=True))
    await measure("runs list, a page in the middle", listed(roots_only=True, before=middle))
    await measure("runs list --status waiting", listed(status="waiting"))
    await measure("runs list --status error (none)", listed(status="error"))
    await measure("runs list --agent planner", listed(agent="planner"))
    await measure(
        "runs list --agent, status, since", listed(agent="planner", status="completed", since=middle)
    )
    await measure("runs list --text, common", listed(text="files of"))
    await measure("runs list --text, not there", listed(text="zebra"), 3)
    await measure("runs list --min-cost 100 (none)", listed(min_cost=100.0), 3)
    await measure("run show: row and last 50 events", lambda: _both(store, root))
    await measure("tree", lambda: store.tree(root))
    await measure("all events of a workflow", lambda: store.events(root))
    await measure("events after a cursor", lambda: store.events(root, after=20, limit=20))
    await measure("open approvals", store.waiting)
    await measure("totals by agent", lambda: store.totals("agent"), 3)
    await measure("totals by day", lambda: store.totals("day"), 3)
    await measure("workflows older than half", lambda: store.old_roots(middle), 3)
    await measure("size", store.size)
    await measure("delete a workflow", _deleting(store, [row.run_id for row in recent[20:]]))
    await store.close()
    return found


async def _both(store: SqliteStore, root: str) -> None:
    await store.run(root)
    await store.tail(root, limit=50)


def _deleting(store: SqliteStore, roots: list[str]) -> Callable[[], Awaitable[None]]:
    return lambda: store.delete(roots.pop())


def process(path: Path) -> float:
    """A program that lists the newest runs, from start to end."""
    code = (
        "import asyncio\n"
        "from retinue.store.base import RunFilter\n"
        "from retinue.store.connect import connect\n"
        "async def main():\n"
        f"    store = connect({str(path)!r})\n"
        "    await store.open()\n"
        "    await store.runs(RunFilter(roots_only=True))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=20_000)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--keep", type=Path, help="build it here, or ask the one that is here")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="retinue-big-") as folder:
        path = given.keep or Path(folder) / "big.db"
        if not path.exists():
            began = time.perf_counter()
            written = build(path, given.runs, given.events)
            print(f"built {given.runs} runs, {written} events in {time.perf_counter() - began:.0f} s")
        with sqlite3.connect(path) as connection:
            runs, events = (
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("runs", "events")
            )
        connection.close()
        print(f"{runs} runs, {events} events, {path.stat().st_size / 1e9:.2f} GB")
        print(f"{'':40}{'first ms':>10}{'median ms':>12}")
        for name, first, median in asyncio.run(ask(path)):
            print(f"{name:40}{first:10.1f}{median:12.2f}")
        spent = [process(path) for _ in range(5)]
        print(f"{'process: open and list':40}{spent[0]:10.1f}{statistics.median(spent[1:]):12.1f}")


if __name__ == "__main__":
    main()
