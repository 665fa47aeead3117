"""The models of a replay: each says again what it said in the record, when its turn comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, get_args

from retinue.errors import BudgetExhausted, ModelError, ModelErrorKind, RetinueError
from retinue.events import ErrorRaised
from retinue.models.retry import LONGEST_WAIT
from retinue.types import AssistantMessage, ModelEvent, ModelRequest, Reply, TextDelta, Usage

if TYPE_CHECKING:
    from retinue.engine.player import Player


class RecordedVoice:
    """The model of one run, as recorded."""

    def __init__(self, player: Player, run_id: str, name: str, *, step: int) -> None:
        self.player, self.run_id, self._name = player, run_id, name
        self.step = step

    @property
    def name(self) -> str:
        """A server that was not to be had at the start has said only then which model it has."""
        if "," in self._name:  # a chain is known by all its names, and its report by who answered
            return self._name
        report = self.player.record.finished(self.run_id) if self.step else None
        return report.model if report is not None and report.model else self._name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self.player.deliver(self.run_id, self.step + 1, "parked"):  # asked with that, once it was over
            raise ModelError("the limit then", kind="rate_limit", retry_after=LONGEST_WAIT + 1)
        self.step += 1
        found = self.player.record.replies(self.run_id).get(self.step)
        if found is None:
            if begun := self.player.record.begun_reply(self.run_id, self.step):
                yield TextDelta(begun)
            await self.player.end(self.run_id)
            events = self.player.record.part(self.run_id)
            error = next((e for e in events if isinstance(e, ErrorRaised)), None)
            if error is not None:
                raise _as_it_was(error)
            report = self.player.record.finished(self.run_id)
            if report is not None and report.ended_by == "budget" and report.incomplete:
                raise BudgetExhausted(report.incomplete, run_id=self.run_id)  # while it was asked
            if not self.player.stop(self.run_id):
                raise ModelError("the record ends here", kind="protocol")
            await asyncio.Event().wait()
            return
        # Before its turn: what a child comes to that a person asked meanwhile may come before this reply.
        self.player.deliver(self.run_id, self.step, "asked", asks=True)
        await self.player.order.turn(found)
        self.player.cut(self.run_id, self.step)
        if found.message.text:
            yield TextDelta(found.message.text)
        self.player.deliver(self.run_id, self.step, "asked")
        said = partial(self.player.deliver, self.run_id, self.step, "replied")
        if found.message.calls:
            asyncio.get_running_loop().call_soon(said)
        else:  # an answer may be the end of the run
            said()
        yield Reply(
            message=AssistantMessage(
                text=found.message.text, calls=found.message.calls, extra=found.message.extra
            ),
            usage=found.usage,
            stop=found.stop,
            model=found.model,
            thinking=found.thinking,
            effort=found.effort,
        )


class AsideVoice:
    """In place of the small model: what it said is in what came of it, which is played back."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield Reply(message=AssistantMessage(text="…"), usage=Usage(), stop="end", model=self.name)


def _as_it_was(error: ErrorRaised) -> Exception:
    """The recorded error, so that the log says the same of it again."""
    if error.kind in get_args(ModelErrorKind):
        return ModelError(error.message, kind=error.kind)  # pyright: ignore[reportArgumentType] # just checked
    return type(error.kind, (RetinueError,), {})(error.message)
