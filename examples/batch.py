"""A batch of 500 that is killed and started again: what is done is not done twice.

    python batch.py                     # the demonstration: kill -9 in the middle, then a second start
    python batch.py tag tickets.db      # the batch itself, as you would write it

A scripted model plays the tagger, and counts in a file what it is asked. Leave out `model=` for the one that
you have set.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from retinue import AgentSpec, Retinue
from retinue.testing import ScriptedModel
from retinue.types import ModelRequest

TAGGER = AgentSpec(name="tagger", description="Tags a ticket.", prompt="Give one tag for the text.", tools=())
SIZE = 500


def tickets() -> Iterator[dict[str, str]]:
    for number in range(SIZE):
        yield {"id": str(number), "text": f"ticket {number}: the invoice is wrong"}


async def tag(db: Path) -> None:
    asked = db.with_suffix(".asked")

    async def play(request: ModelRequest) -> str:
        await asyncio.sleep(0.01)
        with asked.open("a") as file:
            file.write(".")
        return "billing"

    async with Retinue(model=ScriptedModel(play), db=f"sqlite:///{db}", project=False) as retinue:
        batch = retinue.map(
            TAGGER,
            tickets(),
            name="tickets",
            key=lambda ticket: ticket["id"],
            prompt=lambda ticket: ticket["text"],
            concurrency=20,
        )
        async for item in batch:
            if not item.ok:
                print(item.key, item.error or item.report)
        print(f"{batch.done - batch.failed} of {batch.done} completed, {batch.usage.total_tokens:,} tokens")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "tickets.db"
        command = [sys.executable, __file__, "tag", str(db)]
        first = subprocess.Popen(command)
        while count(db) < SIZE // 4:
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        first.wait()
        print("killed after", count(db), "of", SIZE)
        subprocess.run(command, check=True)
        print("asked the model", count(db), "times in all")


def count(db: Path) -> int:
    """How often the model was asked."""
    asked = db.with_suffix(".asked")
    return asked.stat().st_size if asked.exists() else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["tag"]:
        asyncio.run(tag(Path(sys.argv[2]).absolute()))
    else:
        main()
