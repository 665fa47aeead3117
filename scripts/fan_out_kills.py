"""A program of code mode that asks a hundred children, killed with -9 at random and taken up each time.

    python scripts/fan_out_kills.py [--children 100] [--kills 20] [--seed 1] [--engine monty]

A fake provider on loopback answers; the run is a process of its own over a SQLite file. Ends with 1 if the
program comes to another result than without a kill, a child is started twice, or a reply is in the log twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from typing import Any

from retinue.app import Retinue
from retinue.events import ChildStarted, ModelReplied
from retinue.store.connect import connect
from retinue.testing import FakeProvider
from retinue.testing.script import Script, SeenRequest, call
from retinue.types import AgentSpec, ToolMessage, UserMessage

RUN = "rfanoutkills000001"
ENGINE = "FAN_OUT_ENGINE"
"""What the process that is killed is told by its environment."""
PROGRAM = """
import asyncio, random
asked = [helper(prompt=f"question {{n}}") for n in range({children})]
ends = await asyncio.gather(*asked, return_exceptions=True)
picked = random.sample(range({children}), 5)
print(sum(end.success for end in ends), sum(end.status == "completed" for end in ends), len(set(picked)))
"""


def spec(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"PLAY {name}", **fields)


def retinue(db: str, environ: dict[str, str], children: int) -> Retinue:
    return Retinue(
        db=db,
        model="openai:fake-model",
        agents=[spec("root", mode="code", tools=("helper", "run_code")), spec("helper")],
        environ=environ,
        settings={"delegation.agent_calls": children, "code.engine": os.environ.get(ENGINE, "monty")},
    )


async def work(db: str, children: int) -> None:
    """The process that is killed: begins the run, or goes on with it."""
    async with retinue(db, dict(os.environ), children) as app:
        if await app.store.events(RUN, limit=1):
            await app.resume(RUN, take_over=True)
        else:
            await app.start("root", "go", run_id=RUN)
        print((await app.wait(RUN)).text, flush=True)


def answering(children: int, slow: random.Random) -> Any:
    async def answer(request: SeenRequest) -> Script:
        if request.system.startswith("PLAY root"):
            seen = [m.text for m in request.messages if isinstance(m, ToolMessage)]
            code = PROGRAM.format(children=children)
            return Script(text=seen[0]) if seen else Script(calls=(call("run_code", code=code),))
        await asyncio.sleep(slow.uniform(0.1, 4.0))
        task = next(m.text for m in request.messages if isinstance(m, UserMessage))
        return Script(text=f"the answer to {task}")

    return answer


async def some_time(provider: FakeProvider, said: asyncio.Task[Any], chance: random.Random) -> None:
    """Mostly a moment while children are being answered, sometimes one before that."""
    if chance.random() < 0.2:
        await asyncio.wait({said}, timeout=chance.uniform(0.5, 3.0))
        return
    before = len(provider.requests)
    while len(provider.requests) == before and not said.done():
        await asyncio.wait({said}, timeout=0.01)
    await asyncio.wait({said}, timeout=chance.uniform(0.0, 1.0))


async def main(given: argparse.Namespace) -> int:
    chance, began = random.Random(given.seed), time.monotonic()
    provider = FakeProvider(answering(given.children, random.Random(given.seed)))
    with tempfile.TemporaryDirectory() as folder:
        db = f"sqlite:///{folder}/runs.db"
        async with provider:
            killed = 0
            while True:
                worker = await asyncio.create_subprocess_exec(
                    sys.executable, __file__, "--work", db, "--children", str(given.children),
                    env={**os.environ, **provider.environ(), "HOME": folder, ENGINE: given.engine},
                    cwd=folder,
                    stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                said = asyncio.create_task(worker.communicate())
                if killed < given.kills:
                    await some_time(provider, said, chance)
                    if not said.done():
                        worker.send_signal(signal.SIGKILL)
                        killed += 1
                        await said
                        continue
                out, _ = await said
                break
        return await judge(db, given, killed, len(provider.requests), out.decode().strip(), began)


async def judge(
    db: str, given: argparse.Namespace, killed: int, requests: int, said: str, began: float
) -> int:
    store = connect(db)
    await store.open()
    events = await store.events(RUN)
    await store.close()
    started = [e.child_id for e in events if isinstance(e, ChildStarted)]
    replies = [e.run_id for e in events if isinstance(e, ModelReplied) and e.depth]
    wanted = f"{given.children} {given.children} 5"
    print(f"killed {killed} times in {time.monotonic() - began:.0f} s; result {said!r}")
    print(f"{len(started)} children started ({len(set(started))} different)")
    print(f"{len(replies)} replies of theirs in the log ({len(set(replies))} different)")
    print(f"{requests} requests sent")
    once = all(len(each) == len(set(each)) == given.children for each in (started, replies))
    return 0 if once and said == wanted and killed == given.kills else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--children", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("monty", "cpython"), default="monty")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        asyncio.run(work(chosen.work, chosen.children))
    else:
        sys.exit(asyncio.run(main(chosen)))
