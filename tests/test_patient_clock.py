"""A patient agent's time counts silence: every word of its model gives it the whole of it again, within bounds."""

from __future__ import annotations

import asyncio
import time as real_time
from collections.abc import AsyncGenerator, Sequence
from typing import Literal

import pytest

from retinue import AgentSpec, Retinue
from retinue.agents import builtin_agents
from retinue.clock import Clock
from retinue.models.openai import OpenAIReader
from retinue.models.text_protocol import TextProtocol
from retinue.types import (
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
    Usage,
    UserMessage,
)


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_every_word_gives_a_patient_clock_its_time_again() -> None:
    time = Seconds()
    clock = Clock(30, patience=600, now=time)
    async with clock.start():
        time.now += 20
        assert clock.left == pytest.approx(10)
        for _ in range(30):
            clock.hear()
            assert clock.left == pytest.approx(30)
            assert clock.short() is None  # it is not told to sum up for having been heard for long
            time.now += 10
        assert clock.left == pytest.approx(20)
    clock.stop()


async def test_nobody_is_listened_to_for_ever() -> None:
    time = Seconds()
    clock = Clock(30, patience=100, now=time)
    async with clock.start():
        for _ in range(9):
            time.now += 10
            clock.hear()
        assert clock.left == pytest.approx(10)
        time.now += 8
        clock.hear()
        assert clock.left == pytest.approx(2)
        assert clock.short() == "time nearly up: 98 of 100 s used"
        time.now += 2
        assert clock.why == "timed out after 100 s"
    clock.stop()


async def test_silence_ends_a_patient_clock_and_it_says_so() -> None:
    time = Seconds()
    clock = Clock(30, patience=600, now=time)
    async with clock.start():
        for _ in range(4):
            time.now += 11
            clock.hear()
        time.now += 30
        assert clock.left == 0
        assert clock.why == "timed out after 74 s: its model said nothing for 30 s"
    clock.stop()


async def test_one_that_never_said_a_word_has_the_time_that_it_had() -> None:
    time = Seconds()
    clock = Clock(30, patience=600, now=time)
    async with clock.start():
        time.now += 30
        assert clock.left == 0
        assert clock.why == "timed out after 30 s"
    clock.stop()


async def test_other_clocks_do_not_listen() -> None:
    time = Seconds()
    clock = Clock(30, now=time)
    async with clock.start():
        time.now += 20
        clock.hear()
        assert clock.left == pytest.approx(10)
    clock.stop()


async def test_a_patient_child_has_no_more_than_its_parent_can_spare() -> None:
    time = Seconds()
    parent = Clock(100, now=time)
    clock = Clock(30, parent=parent, patience=600, now=time)
    async with parent.start(), clock.start():
        time.now += 80
        clock.hear()
        assert clock.left == pytest.approx(10)  # a tenth is kept
        time.now += 10
        assert clock.why == "timed out after 90 s: its parent keeps the rest to sum up"
    clock.stop()
    parent.stop()


async def test_a_message_of_a_person_starts_all_of_it_anew() -> None:
    time = Seconds()
    clock = Clock(30, patience=100, now=time)
    async with clock.start():
        for _ in range(4):
            time.now += 20
            clock.hear()
        clock.renew()
        assert clock.left == pytest.approx(30)
        time.now += 20
        assert clock.left == pytest.approx(10)
    clock.stop()


async def test_a_run_that_was_resumed_has_its_silence_anew_and_its_bound_still() -> None:
    assert Clock(30, patience=600, used=200.0, now=Seconds()).left == pytest.approx(30)
    assert Clock(30, patience=210, used=200.0, now=Seconds()).left == pytest.approx(10)


class Slow:
    """Speaks for longer than its agent has."""

    name = "slow"

    def __init__(self, seconds: float, said: ModelEvent) -> None:
        self.seconds, self.said = seconds, said

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        end = real_time.monotonic() + self.seconds
        while real_time.monotonic() < end:
            await asyncio.sleep(0.02)
            yield self.said
        yield Reply(message=AssistantMessage(text="done"), stop="end", usage=Usage(), model="m")


@pytest.mark.parametrize("said", [TextDelta("word "), ThinkingDelta("hm "), ThinkingDelta("")])
async def test_a_slow_model_that_speaks_is_heard_out(said: ModelEvent) -> None:
    spec = AgentSpec(name="asker", description="d", prompt="p", tools=(), timeout=1.0, patient=True)
    async with Retinue(db="memory:", model=Slow(1.2, said), agents=[spec], environ={}) as app:
        report = await app.run("asker", "x")
    assert (report.status, report.text) == ("completed", "done")


async def test_a_time_limit_that_was_asked_for_is_the_limit() -> None:
    spec = AgentSpec(name="asker", description="d", prompt="p", tools=(), timeout=1.0, patient=True)
    async with Retinue(db="memory:", model=Slow(5, TextDelta("w")), agents=[spec], environ={}) as app:
        report = await app.run("asker", "x", settings={"limits.timeout": 0.5})
    assert (report.status, report.error) == ("error", "timed out after 0.5 s")


def test_the_agents_that_ask_sources_are_patient() -> None:
    specs = builtin_agents()
    for name in ("web-knowledge", "science-research", "math-expert"):
        assert (specs[name].timeout, specs[name].patient) == (30, True)


SEARCH = ToolSpec(
    name="search",
    description="d",
    schema={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)


class Pieces:
    name = "pieces"

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        for piece in self.pieces:
            yield TextDelta(piece)
        yield Reply(message=AssistantMessage(text="".join(self.pieces)), stop="end", usage=Usage(), model="m")


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_words_that_are_held_back_are_a_sign_of_life(choice: Literal["auto", "required"]) -> None:
    """A call in the text protocol is no text of the answer, and an answer before a look is not shown."""
    pieces = ["```", "search\n", "q: ", "one", " two", "\n```"]
    request = ModelRequest(
        system="s", messages=(UserMessage(text="x"),), tools=(SEARCH,), tool_choice=choice, timeout=None
    )
    events = [event async for event in TextProtocol(Pieces(pieces)).stream(request)]
    signs = [event for event in events if isinstance(event, TextDelta | ThinkingDelta)]
    assert len(signs) >= len(pieces)


def test_arguments_of_a_call_are_a_sign_of_life_and_a_ping_is_none() -> None:
    reader = OpenAIReader()
    call = (
        '{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]}'
    )
    reader.feed(call.encode())
    assert reader.collect() == [ThinkingDelta("")]
    assert reader.collect() == []
    reader.feed(b'{"choices": []}')
    assert reader.collect() == []
