"""A conversation: one run that is spoken to turn by turn.

    chat = retinue.conversation("general")
    report = await chat.send("Where are retries decided?")
    report = await chat.send("And who calls that?")

Made by `Retinue.conversation`. The log is all that it holds: it can be taken up by its id, here or in another
process, and is on the page like every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, overload

from retinue.attachments import Attached
from retinue.errors import RunError
from retinue.events import AnyEvent, HistoryPruned, LiveEvent
from retinue.fold import fold
from retinue.parameters import check
from retinue.types import Message, Output, Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What is said in one turn."""

    text: str
    attachments: Sequence[Attached] = ()
    output: type[Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """How a conversation is carried on: by the instance that made it."""

    begin: Callable[[Turn], Awaitable[object]]
    wait: Callable[[], Awaitable[Report]]
    stream: Callable[[Turn], AsyncGenerator[LiveEvent]]
    log: Callable[[], Awaitable[Sequence[AnyEvent]]]
    cancel: Callable[[str], Awaitable[bool]]
    queue: asyncio.Lock
    """One turn at a time; who comes meanwhile waits."""


class Conversation:
    """One run with a log, spoken to turn by turn. `run_id` is its id, also before the first turn."""

    def __init__(self, run_id: str, turns: Turns) -> None:
        self.run_id = run_id
        self._turns = turns

    def __repr__(self) -> str:
        return f"Conversation({self.run_id!r})"

    @overload
    async def send(
        self, text: str, *, attachments: Sequence[Attached] = (), output: type[Output]
    ) -> Report[Output]: ...

    @overload
    async def send(
        self, text: str, *, attachments: Sequence[Attached] = (), output: None = None
    ) -> Report: ...

    async def send(
        self, text: str, *, attachments: Sequence[Attached] = (), output: type[Any] | None = None
    ) -> Report[Any]:
        """Say something, and wait for the report of this turn. With `output` the answer is of that type.

        Sends of one instance wait for each other, in the order they were made. Cancelling one stops its turn;
        the conversation goes on with the next.
        """
        check(str, text=text)
        async with self._turns.queue:
            await self._turns.begin(Turn(text=text, attachments=attachments, output=output))
            report = await self._turns.wait()
        return report if output is None else report.of_type(output)

    async def stream(
        self, text: str, *, attachments: Sequence[Attached] = (), output: type[Any] | None = None
    ) -> AsyncGenerator[LiveEvent]:
        """Say something, and see every event of the turn as it happens. Ends with the root's `RunFinished`.

        Leaving the loop early stops the turn.
        """
        check(str, text=text)
        said = Turn(text=text, attachments=attachments, output=output)
        async with self._turns.queue, aclosing(self._turns.stream(said)) as events:
            async for event in events:
                yield event

    async def messages(self) -> tuple[Message, ...]:
        """All that was said so far, by its log: people, the model, its calls and their results.

        Nothing is left out that the model was shown only at first: a long conversation is here as a whole.
        """
        events = await self._turns.log()
        return tuple(fold(event for event in events if not isinstance(event, HistoryPruned)).messages)

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop the turn under way, wherever it runs. False if there is none."""
        return await self._turns.cancel(reason)


def no_agent(run_id: str) -> RunError:
    return RunError(f"there is no run {run_id!r} to go on with: name an agent to begin one", run_id=run_id)
