"""What a run was told to do with its answer is in its log: whoever goes on from there asks for that, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.events import AnyEvent, MessageReceived, StepStarted
from retinue.store.memory import MemoryStore
from retinue.types import AgentSpec
from trees import Cast, agent, turn

SUMS_UP = agent("root", summary="Sum it up in one line.")
OF_FORM = agent(
    "root", output_schema={"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
)
WAYS: dict[str, tuple[AgentSpec, list[str], str, str]] = {
    "summary": (SUMS_UP, ["a long answer", "in short", "again"], "summary", "summary"),
    "form": (OF_FORM, ["no json", '{"n": 1}', '{"n": 2}'], "form", "correct"),
    "empty": (agent("root"), ["", "an answer", "another"], "empty", "correct"),
}


def app(store: MemoryStore, said: list[str]) -> Retinue:
    return Retinue(model=Cast({"root": lambda request: said[turn(request)]}), db=store, environ={})


def purposes(events: Sequence[AnyEvent]) -> list[str]:
    """What each step was asked for; one that was begun again counts once."""
    return list({e.step: e.purpose for e in events if isinstance(e, StepStarted)}.values())


@pytest.mark.parametrize("way", WAYS)
async def test_a_fork_at_any_event_asks_once_for_what_the_model_was_told(way: str) -> None:
    spec, said, about, purpose = WAYS[way]
    store = MemoryStore()
    async with app(store, said) as retinue:
        report = await retinue.run(spec, "go")
        events = await store.events(report.run_id)
        assert purposes(events) == ["work", purpose]
        assert [e.about for e in events if isinstance(e, MessageReceived)] == [about]
        for place in range(1, len(events)):
            fork = await retinue.fork(report.run_id, at=place)
            assert (await retinue.wait(fork)).text == report.text, place
            went = await store.events(fork)
            assert purposes(went) == ["work", purpose], place
            assert [e.about for e in went if isinstance(e, MessageReceived)] == [about], place


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_is_cut_at_any_event_asks_once_for_what_the_model_was_told(way: str) -> None:
    spec, said, _, purpose = WAYS[way]
    store = MemoryStore()
    async with app(store, said) as retinue:
        report = await retinue.run(spec, "go")
    log = await store.events(report.run_id)
    for place in range(1, len(log)):
        cut = MemoryStore()
        await cut.append(log[:place])
        async with app(cut, said) as retinue:
            await retinue.resume(report.run_id, take_over=True)
            assert (await retinue.wait(report.run_id)).text == report.text, place
        assert purposes(await cut.events(report.run_id)) == ["work", purpose], place


async def test_what_a_person_says_before_the_summary_was_asked_for_comes_first() -> None:
    def play(request: Any) -> str:
        return f"answer {turn(request)}"

    store = MemoryStore()
    async with Retinue(model=Cast({"root": play}), db=store, environ={}) as retinue:
        report = await retinue.run(SUMS_UP, "go")
        events = await store.events(report.run_id)
        asked = next(e.pos for e in events if isinstance(e, MessageReceived))
        fork = await retinue.fork(report.run_id, at=asked, message="and the other thing?")
        await retinue.wait(fork)
        assert purposes(await store.events(fork)) == ["work", "work", "summary"]
