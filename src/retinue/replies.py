"""What came back from a model or a tool, made safe to keep: bounded in sum, with counts that are counts.

Providers, programs' own models and tools are other people's code: they may send without end, or call
`-1`, `NaN` or `2**63` a number of tokens. Called by the loop, by `context` and by `toolcall` on everything
that a model or a tool gives back, whatever wire or library it came through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from math import isfinite
from typing import Any

from retinue.errors import ModelError
from retinue.types import ModelEvent, Reply, Retrying, TextDelta, ThinkingDelta, Usage

MOST_CHARACTERS = 8 * 1024 * 1024
"""Of one reply: its text, its thoughts and the arguments of its calls together."""
MOST_CALLS = 10_000
"""Of one reply."""
MOST_TOKENS = 10**9
"""A larger number is no count of anything; sums of smaller ones fit every database."""
MOST_COST = 1e6
"""US dollars for one reply; the same."""

UNKNOWN = Usage(cost=None)
"""Nobody knows what it took. The cost is None, never zero: a limit of money stops at it."""


def too_large(name: str, what: str) -> ModelError:
    """Not asked for again: the next answer would be no shorter, and would be paid for too."""
    return ModelError(f"{name} sent {what}; the reply was cut off and is not used", kind="too_large")


class Measure:
    """Counts what one reply comes to, and refuses it once that is too much."""

    __slots__ = ("_name", "_size")

    def __init__(self, name: str) -> None:
        self._name, self._size = name, 0

    def add(self, size: int) -> None:
        self._size += size
        if self._size > MOST_CHARACTERS:
            raise too_large(
                self._name, f"a reply of more than {MOST_CHARACTERS:,} characters, the most that is kept"
            )

    def restart(self) -> None:
        self._size = 0


class Paid:
    """What a call of a model took, also one that failed: as it said, or unknown if it had begun to answer."""

    __slots__ = ("unseen", "usage")

    def __init__(self, *, free: bool) -> None:
        self.usage = Usage()
        self.unseen = Usage() if free else UNKNOWN
        """What a call is taken to have cost whose reply never came."""

    def begun(self) -> None:
        self.usage = self.unseen

    def cut(self) -> None:
        """Whoever waits for its answer does so no longer: what is not there by now is paid for unseen."""
        if self.usage == Usage():
            self.begun()

    def told(self, usage: Any) -> None:
        self.usage = plausible(usage) if isinstance(usage, Usage) else UNKNOWN


async def collected(
    name: str,
    stream: AsyncGenerator[ModelEvent, None],
    take: Callable[[ModelEvent], None],
    paid: Paid | None = None,
) -> Reply:
    """The reply at the end of a stream; `take` is handed everything before it as it comes.

    `paid` is told what it took, whatever becomes of it.
    """
    paid = paid or Paid(free=False)
    if not (hasattr(stream, "__aiter__") and hasattr(stream, "aclose")):  # of a program's own model
        if isinstance(stream, Coroutine):
            stream.close()
        got = type(stream).__name__
        raise ModelError(f"{name}: stream() gave a {got}, not an async generator", kind="protocol")
    reply: Reply | None = None
    measure = Measure(name)
    resting = False
    try:
        async with aclosing(stream):
            async for item in stream:
                resting = isinstance(item, Retrying)
                if isinstance(item, Reply):
                    reply = item
                    paid.told(reply.usage)
                    continue
                if isinstance(item, TextDelta | ThinkingDelta):
                    paid.begun()
                    measure.add(len(item.text))
                else:
                    measure.restart()
                take(item)
    except ModelError as error:
        if error.kind == "protocol":  # it did answer, only not in a way that can be read
            paid.cut()
        raise
    except asyncio.CancelledError:
        if not resting:  # between two attempts nothing is asked
            paid.cut()
        raise
    if reply is None:
        raise ModelError(f"{name} ended its stream without a reply", kind="protocol")
    try:
        return checked(name, reply)
    except (AttributeError, TypeError) as error:
        raise ModelError(f"{name} gave a reply of a wrong form: {error}", kind="protocol") from None


def checked(name: str, reply: Reply) -> Reply:
    """The reply, if it is of a size that can be kept, with a usage that can be counted."""
    message = reply.message
    if len(message.calls) > MOST_CALLS:
        raise too_large(
            name, f"{len(message.calls):,} calls in one reply, more than the {MOST_CALLS:,} allowed"
        )
    Measure(name).add(len(message.text) + len(reply.thinking) + sum(len(c.arguments) for c in message.calls))
    usage = plausible(reply.usage)
    if usage is reply.usage:
        return reply
    from msgspec.structs import replace

    return replace(reply, usage=usage)


def plausible(usage: Usage) -> Usage:
    """The same usage, or an unknown one if any of its numbers is none."""
    numbers: tuple[Any, ...] = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    if not all(type(number) is int and 0 <= number <= MOST_TOKENS for number in numbers):
        return UNKNOWN
    cost: Any = usage.cost
    if cost is None or (type(cost) in (int, float) and isfinite(cost) and 0 <= cost <= MOST_COST):
        return usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost=None,
    )
