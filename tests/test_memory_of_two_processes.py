"""Two real processes run one agent many times at once, and its memory keeps what every run adds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from retinue.app import Retinue
from trees import Cast, agent, results

EACH = 15
ADDING = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from retinue.app import Retinue
from trees import Cast, agent, told, turn

async def main(db, name):
    def play(request):
        return "done" if turn(request) else [("memory_add", {{"text": told(request)[0]}})]

    keeper = agent("keeper", memory=True)
    async with Retinue(model=Cast({{"keeper": play}}), db=db, environ={{}}, project=False) as retinue:
        print("ready", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(retinue.run(keeper, f"{{name}} {{n}}") for n in range({EACH})))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_no_entry_is_lost_when_two_processes_remember_at_once(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/runs.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ADDING, db, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:  # both are there: now together
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            assert process.wait(60) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    cast = Cast({"keeper": [[("memory_list", {})], "done"]})
    async with Retinue(model=cast, db=db, environ={}, project=False) as retinue:
        await retinue.run(agent("keeper", memory=True), "what do you know?")
    remembered = results(cast.of("keeper")[1])[0].text.splitlines()
    assert sorted(remembered) == sorted(f"- {name} {n}" for name in ("one", "two") for n in range(EACH))
