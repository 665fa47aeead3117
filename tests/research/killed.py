"""A process that researches, to be killed: `python killed.py DB FOLDER CALLS AUTHORITY PATH…`.

Each call of its model is a line of the file CALLS: what was paid for.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from research.world import Writer, settings_of
from retinue import Retinue
from retinue.testing import ScriptedModel
from retinue.types import ModelRequest

RUN = "r0000000000research"


def paid(writer: Writer, calls: Path) -> Any:
    """The writer, who notes each call."""

    def say(request: ModelRequest) -> Any:
        with calls.open("a") as file:
            file.write(f"{len(request.messages)}\n")
        return writer(request)

    return say


def writer_for(authority: str, paths: list[str]) -> Writer:
    return Writer(urls=[f"http://{authority}{path}" for path in paths], body="All of it was read {1}{2}{3}.")


async def main(db: str, folder: str, calls: str, authority: str, *paths: str) -> None:
    model = ScriptedModel(paid(writer_for(authority, list(paths)), Path(calls)))
    async with Retinue(
        model=model, db=db, cwd=Path(folder), environ={}, settings=settings_of(authority)
    ) as retinue:
        await retinue.start("research", {"question": "Tell me."}, run_id=RUN)
        await retinue.wait(RUN)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
