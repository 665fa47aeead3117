"""How fast a snippet starts and a host function is called, for each engine of the sandbox.

python bench/sandbox.py
"""

from __future__ import annotations

import asyncio
import statistics
import time

from retinue.sandbox import open_engine
from retinue.sandbox.base import SandboxLimits
from retinue.settings import CodeSettings

ROUNDS = 50
CALLS = 200


async def answer(x: int) -> int:
    return x


async def main() -> None:
    for name in ("monty", "cpython"):
        engine, notice = open_engine(CodeSettings(engine=name))
        if notice:
            print(f"{name}: {notice}")
            continue
        limits = SandboxLimits()
        began = time.perf_counter()
        sandbox = engine.session(limits)
        await sandbox.run("1", functions={})
        cold = time.perf_counter() - began
        await sandbox.close()

        fresh: list[float] = []
        for _ in range(ROUNDS):
            await engine.warm()
            began = time.perf_counter()
            sandbox = engine.session(limits)
            await sandbox.run("1", functions={})
            fresh.append(time.perf_counter() - began)
            await sandbox.close()

        sandbox = engine.session(limits)
        await sandbox.run("x = 0", functions={})
        again: list[float] = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await sandbox.run("x += 1", functions={})
            again.append(time.perf_counter() - began)
        outcome = await sandbox.run(f"for i in range({CALLS}): await answer(i)", functions={"answer": answer})
        state = len(await sandbox.dump())
        await sandbox.close()
        await engine.close()
        print(
            f"{name}: cold {cold * 1e3:.1f} ms, "
            f"first snippet of a session {statistics.median(fresh) * 1e3:.2f} ms, "
            f"next snippet {statistics.median(again) * 1e3:.2f} ms, "
            f"host call {outcome.seconds / CALLS * 1e3:.2f} ms, state {state} bytes"
        )
    print("  bar: the first snippet of a session starts in under 5 ms")


if __name__ == "__main__":
    asyncio.run(main())
