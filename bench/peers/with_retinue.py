"""The same work by Retinue: streaming, policies, budgets, approvals, the log in the database named first."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from retinue import AgentSpec, Retinue, tool
from retinue.cli.process import make_room


@tool(effect="read")
async def echo(text: str) -> str:
    """echo"""
    return text


SCHEMA = {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}
CHILD = AgentSpec(
    name="child", description="child", prompt="CHILD", tools=("echo",), input_schema=SCHEMA, max_turns=50
)
PARENT = AgentSpec(name="parent", description="parent", prompt="PARENT", tools=("echo", "child"), shown=())


def rss(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


async def main(db: str, url: str, n: int, k: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Retinue(
            model="openai:fake-model",
            db=db if db == "memory:" or "://" in db else f"{folder}/log.db",
            cwd=folder,
            agents=[CHILD],
            tools=[echo],
            environ={"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": url, "HOME": folder},
            settings={
                "delegation.max_children": max(3, n),
                "delegation.concurrency": max(8, n),
                "delegation.tools": ["agents"],
                "limits.tool_concurrency": max(8, n),
            },
        ) as retinue:

            async def once(n: int, k: int) -> None:
                report = await retinue.run(PARENT, f"N={n} K={k}")
                assert report.text == f"PARENT-DONE {n}", report

            await once(min(n, 8), k)
            make_room()
            samples: list[float] = []
            walls: list[float] = []
            before = rss("VmRSS:")
            for _ in range(repeats):
                began, wall = time.process_time(), time.perf_counter()
                await once(n, k)
                samples.append((time.process_time() - began) * 1000 / (2 + n * (k + 1)))
                walls.append(time.perf_counter() - wall)
            peak = rss("VmHWM:")
            print(
                json.dumps({"cpu_ms_per_turn": samples, "wall_s": walls, "kb_per_child": (peak - before) / n})
            )


db, url, n, k, repeats = sys.argv[1:]
asyncio.run(main(db, url, int(n), int(k), int(repeats)))
