"""What the setting `knowledge.first` costs a run that it is not meant for.

    python bench/knowledge.py

The same run, over and over, with the setting off and on; the question is about a file, so nothing is looked
up. CPU of the process alone (`time.process_time`), rounds interleaved; the trigger alone beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from retinue import Retinue
from retinue.tools.knowledge.trigger import needs_knowledge
from retinue.types import AssistantMessage, ModelEvent, ModelRequest, Reply, Usage

QUESTION = "fix the bug in src/app.py that makes the parser stop at the first empty line"
ROUNDS, RUNS = 40, 10
BAR_MS = 1.0


class Instant:
    """A model that answers at once, so that only Retinue's own time is left."""

    name = "instant"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield Reply(message=AssistantMessage(text="done"), usage=Usage(), stop="end", model=self.name)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        taken: dict[bool, list[float]] = {False: [], True: []}
        async with (
            _app(Path(folder), first=False) as off,
            _app(Path(folder), first=True) as on,
        ):
            for app in (off, on):
                await _runs(app)  # whatever is loaded late is loaded now
            for _ in range(ROUNDS):
                taken[False].append(await _runs(off))
                taken[True].append(await _runs(on))
    without, with_it = (statistics.median(taken[key]) for key in (False, True))
    added = with_it - without
    print(f"\nA run that needs no knowledge, SQLite log, {ROUNDS} rounds of {RUNS}")
    print(f"  knowledge.first off {without:7.3f} ms of CPU a run")
    print(f"  knowledge.first on  {with_it:7.3f} ms of CPU a run: {added:+.3f} ms, {added / without:+.1%}")
    print(f"  the trigger alone   {_trigger():7.4f} ms")
    print(f"  bar: under {BAR_MS:g} ms more, and under 10 %")


def _app(folder: Path, *, first: bool) -> Retinue:
    return Retinue(
        model=Instant(),
        db=f"sqlite:///{folder}/{'on' if first else 'off'}.db",
        cwd=folder,
        environ={},
        settings={"knowledge.first": first},
    )


async def _runs(app: Retinue) -> float:
    """Milliseconds of CPU of one run, on average over a few."""
    began = time.process_time()
    for _ in range(RUNS):
        await app.ask(QUESTION)
    return (time.process_time() - began) * 1000 / RUNS


def _trigger() -> float:
    began = time.process_time()
    for _ in range(1000):
        assert not needs_knowledge(QUESTION)
    return time.process_time() - began  # seconds for a thousand are milliseconds for one


if __name__ == "__main__":
    asyncio.run(main())
