"""A chat in the terminal: one conversation, that is remembered from start to start.

    python chat.py                      # a short conversation, as a demonstration
    python chat.py chat.db              # you type; the next start of it goes on where you left off

A scripted model plays the librarian. Leave out `model=` for the one that you have set.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from retinue import AgentSpec, Retinue, RunFilter
from retinue.events import RunFinished, Streamed
from retinue.testing import ScriptedModel, turn
from retinue.types import ModelRequest

LIBRARIAN = AgentSpec(
    name="librarian", description="Talks.", prompt="You are the librarian. Answer briefly.", tools=()
)


def play(request: ModelRequest) -> str:
    """What a real model would say."""
    said = request.messages[-1]
    return f"That is the question number {turn(request) + 1}: {getattr(said, 'text', '')!r}."


async def chat(db: Path, lines: Iterable[str]) -> None:
    async with Retinue(model=ScriptedModel(play), agents=[LIBRARIAN], db=f"sqlite:///{db}") as retinue:
        before = await retinue.runs(RunFilter(agent="librarian", metadata={"chat": "mine"}, limit=1))
        earlier = before[0].run_id if before else None
        talk = retinue.conversation("librarian", run_id=earlier, metadata={"chat": "mine"})
        for line in lines:
            async for event in talk.stream(line):
                if isinstance(event, Streamed) and not event.thinking:
                    print(event.text, end="", flush=True)
                elif isinstance(event, RunFinished):
                    print(f" ({event.report.status})")


def typed() -> Iterator[str]:
    while True:
        try:
            yield input("you: ")
        except EOFError:
            return


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(chat(Path(sys.argv[1]).absolute(), typed()))
        return
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "chat.db"
        asyncio.run(chat(db, ["Have you books about bees?", "And about wasps?"]))
        asyncio.run(chat(db, ["Which one first?"]))  # another start: the conversation goes on


if __name__ == "__main__":
    main()
