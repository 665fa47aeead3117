"""The model of the benchmark: a strict OpenAI-compatible server whose answers follow from the conversation.

A parent calls its sub-agent N times in one turn; each child makes K `echo` calls, one a turn, then reports.
Run as a process of its own: its CPU is nobody's but its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

from retinue.testing import FakeProvider, Script, SeenRequest, call
from retinue.types import ToolMessage

LATENCY = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0


async def answer(request: SeenRequest) -> Script:
    if LATENCY:
        await asyncio.sleep(LATENCY)
    seen = [m for m in request.messages if isinstance(m, ToolMessage)]
    if "PARENT" in request.system:
        n, k = map(int, re.findall(r"\d+", request.asked)[:2])
        if not seen:
            return Script(calls=tuple(call("child", task=f"item {i} K={k}") for i in range(n)))
        return Script(text=f"PARENT-DONE {sum('CHILD-DONE' in m.text for m in seen)}")
    k = int(re.findall(r"K=(\d+)", request.asked)[0])
    if len(seen) < k:
        return Script(calls=(call("echo", text=f"ping {len(seen)}"),))
    return Script(text=f"CHILD-DONE {len(seen)}")


async def main() -> None:
    async with FakeProvider(answer) as provider:
        print(json.dumps({"url": provider.openai_url}), flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
