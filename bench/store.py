"""What the log costs: CPU per event and model turns per second, by store, all in one run.

    python bench/store.py [--turns 4000] [--writers 8] [--postgres]

A simulated turn is two awaited appends of two events: the reply with the tool call, then the tool's result
with the next step. `off` appends to nothing, `memory` keeps events in memory, the others are real. CPU is
that of this process; PostgreSQL's own is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

from retinue.events import AnyEvent, Event, ModelReplied, RunStarted, StepStarted, ToolCalled, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.store.sqlite import SqliteStore
from retinue.types import AgentSpec, AssistantMessage, ToolCall, Usage

EVENTS_PER_TURN = 4
TEXT = "A paragraph of an answer, or of a file that a tool has read. " * 8


class Off:
    """No log at all."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


def start(run_id: str) -> RunStarted:
    spec = AgentSpec(name="general", description="d", prompt="p" * 500)
    return RunStarted(
        run_id=run_id,
        root_id=run_id,
        parent_id=None,
        depth=0,
        seq=1,
        at=time.time(),
        spec=spec,
        prompt="why?",
    )


def turn(run_id: str, number: int) -> tuple[list[AnyEvent], list[AnyEvent]]:
    seq, at, call = 2 + 4 * number, time.time(), f"call-{number}"
    base = {"run_id": run_id, "root_id": run_id, "parent_id": None, "depth": 0, "at": at}
    message = AssistantMessage(
        text=TEXT[:200], calls=(ToolCall(id=call, name="read", arguments='{"path":"a.py"}'),)
    )
    usage = Usage(input_tokens=1200, output_tokens=80, cost=0.001)
    return [
        ModelReplied(
            **base, seq=seq, step=number, message=message, usage=usage, stop="tool_calls", model="m"
        ),
        ToolCalled(
            **base,
            seq=seq + 1,
            call_id=call,
            name="read",
            arguments='{"path":"a.py"}',
            effect="read",
            repeatable=True,
        ),
    ], [
        ToolReturned(**base, seq=seq + 2, call_id=call, name="read", text=TEXT),
        StepStarted(**base, seq=seq + 3, step=number + 1, model="m"),
    ]


async def measure(store, turns: int, writers: int, name: str) -> tuple[float, float]:
    """CPU seconds and wall seconds for that many turns."""
    each = turns // writers

    async def write(run_id: str) -> None:
        for number in range(each):
            first, second = turn(run_id, number)
            await store.append(first)
            await store.append(second)

    runs = [f"{name}-{index:026d}" for index in range(writers)]
    for run_id in runs:
        await store.append([start(run_id)])
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(write(run_id) for run_id in runs))
    return time.process_time() - cpu, time.perf_counter() - wall


async def rounds(make, turns: int, writers: int, repeat: int) -> tuple[float, float]:
    """Medians, in microseconds per turn."""
    found = []
    for number in range(repeat):
        store = make(number)
        await store.open()
        await measure(store, writers * 20, writers, "warm")
        found.append(await measure(store, turns, writers, f"run{number}"))
        await store.close()
    cpu, wall = zip(*found, strict=True)
    return 1e6 * statistics.median(cpu) / turns, 1e6 * statistics.median(wall) / turns


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=4000)
    arguments.add_argument("--writers", type=int, default=8)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--postgres", action="store_true", help="start a PostgreSQL and measure it too")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, _server(given.postgres) as url:
        makes = {
            "off": lambda n: Off(),
            "memory": lambda n: MemoryStore(),
            "sqlite": lambda n: SqliteStore(f"{folder}/{n}.db"),
        }
        if url:
            from retinue.store.postgres import PostgresStore

            makes["postgresql"] = lambda n: PostgresStore(url(f"bench{n}"))
        off = None
        print(f"{given.turns} turns of {EVENTS_PER_TURN} events, {given.writers} writers, ", end="")
        print(f"median of {given.repeat} rounds")
        print(f"{'store':12}{'CPU µs/event':>14}{'CPU µs/turn':>14}{'over off, ms':>14}{'turns/s':>10}")
        for name, make in makes.items():
            cpu, wall = asyncio.run(rounds(make, given.turns, given.writers, given.repeat))
            off = cpu if off is None else off
            print(f"{name:12}{cpu / EVENTS_PER_TURN:14.1f}{cpu:14.1f}", end="")
            print(f"{(cpu - off) / 1000:14.3f}{1e6 / wall:10.0f}")


def _server(wanted: bool):
    if not wanted:
        return nullcontext(None)
    from postgres import throwaway

    @contextmanager
    def databases():
        with throwaway() as server:
            yield server.url

    return databases()


if __name__ == "__main__":
    main()
