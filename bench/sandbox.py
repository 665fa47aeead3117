"""How fast a snippet starts and a host function is called, for each engine of the sandbox; and what it costs
to seal a command off: the tool `bash` runs `true`, bare and sealed in turn.

python bench/sandbox.py
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Literal

from retinue.sandbox import open_engine
from retinue.sandbox.base import SandboxLimits
from retinue.settings import CodeSettings
from retinue.tools.base import Tool, ToolContext
from retinue.tools.shell import shell_tools
from retinue.workspace import Files

ROUNDS = 50
CALLS = 200


async def answer(x: int) -> int:
    return x


async def took(bash: Tool, files: Files, sandbox: Literal["off", "closed"], command: str = "true") -> float:
    context = ToolContext(
        run_id="r1",
        root_id="r1",
        depth=0,
        agent="bench",
        call_id="c1",
        files=files,
        progress=lambda text: None,
        denied=lambda what, detail: None,
        sandbox=sandbox,
    )
    began = time.perf_counter()
    await bash.call(bash.parse(json.dumps({"command": command})), context)
    return (time.perf_counter() - began) * 1e3


async def commands(folders: int) -> None:
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        for number in range(folders):
            (Path(folder) / f"f{number}").mkdir()
        files = Files(Path(folder), None)
        (bash,) = shell_tools()
        if bash.unsealed is not None and (why := bash.unsealed(files, False, True)):
            print(f"commands cannot be sealed off here: {why}")
            return
        await took(bash, files, "off")
        await took(bash, files, "closed")
        pairs = [(await took(bash, files, "off"), await took(bash, files, "closed")) for _ in range(ROUNDS)]
        files.close()
    bare, sealed = zip(*pairs, strict=True)
    more = [after - before for before, after in pairs]
    print(
        f"a command, {folders} folders: bare {statistics.median(bare):.1f} ms (fastest {min(bare):.1f}), "
        f"sealed {statistics.median(sealed):.1f} ms (fastest {min(sealed):.1f}), "
        f"more in each pair: {statistics.median(more):.1f} ms"
    )


async def main() -> None:
    for folders in (10, 1000):
        await commands(folders)
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
