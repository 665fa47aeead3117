"""The retry policy, without a network and without sleeping."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from asking import asked, listen

from retinue.errors import ModelError, ModelErrorKind
from retinue.models.keys import KeyPool
from retinue.models.retry import RetryingModel, RetryPolicy
from retinue.testing import ScriptedModel, Step
from retinue.types import ModelEvent, ModelRequest, Reply, Retrying


class Clock:
    """Time that passes only when someone sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def error(kind: ModelErrorKind, retry_after: float | None = None) -> ModelError:
    return ModelError(f"it was {kind}", kind=kind, retry_after=retry_after)


def retrying(
    steps: list, clock: Clock, keys: KeyPool | None = None, **policy: Any
) -> tuple[RetryingModel, ScriptedModel]:
    inner = ScriptedModel(steps)
    made = RetryingModel(
        inner, keys=keys, policy=RetryPolicy(**policy), sleep=clock.sleep, spread=lambda: 1.0
    )
    return made, inner


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "connection"])
async def test_what_may_pass_is_tried_four_times_with_growing_waits(kind: ModelErrorKind) -> None:
    clock = Clock()
    model, inner = retrying([error(kind)] * 3 + ["at last"], clock)
    events = await listen(model, asked())
    assert clock.slept == [0.5, 1.0, 2.0]
    assert [e.attempt for e in events if isinstance(e, Retrying)] == [1, 2, 3]
    assert all(e.reason == f"it was {kind}" for e in events if isinstance(e, Retrying))
    assert isinstance(events[-1], Reply)
    assert len(inner.requests) == 4


async def test_after_the_last_attempt_the_error_is_raised() -> None:
    clock = Clock()
    model, inner = retrying([error("overloaded")] * 4, clock)
    with pytest.raises(ModelError, match="it was overloaded"):
        await listen(model, asked())
    assert len(inner.requests) == 4
    inner.assert_done()


@pytest.mark.parametrize("kind", ["auth", "not_found", "invalid", "too_long", "refused"])
async def test_what_cannot_pass_is_not_tried_again(kind: ModelErrorKind) -> None:
    clock = Clock()
    model, inner = retrying([error(kind)], clock)
    with pytest.raises(ModelError):
        await listen(model, asked())
    assert clock.slept == []
    inner.assert_done()


@pytest.mark.parametrize("kind", ["timeout", "protocol"])
async def test_a_timeout_and_a_garbled_answer_get_one_more_chance(kind: ModelErrorKind) -> None:
    clock = Clock()
    model, inner = retrying([error(kind), error(kind)], clock)
    with pytest.raises(ModelError):
        await listen(model, asked())
    inner.assert_done()


async def test_the_provider_is_given_the_time_it_asks_for() -> None:
    clock = Clock()
    model, _ = retrying([error("rate_limit", 12.0), "ok"], clock)
    await listen(model, asked())
    assert clock.slept == [12.5]


async def test_a_wait_longer_than_allowed_is_not_begun() -> None:
    clock = Clock()
    model, _ = retrying([error("rate_limit", 61.0)], clock)
    with pytest.raises(ModelError):
        await listen(model, asked())
    assert clock.slept == []


async def test_the_longest_wait_is_configurable() -> None:
    clock = Clock()
    model, _ = retrying([error("rate_limit", 61.0), "ok"], clock, longest_wait=120.0)
    await listen(model, asked())
    assert clock.slept == [61.5]


async def test_an_attempt_is_announced_before_its_wait() -> None:
    clock = Clock()
    model, _ = retrying([error("overloaded"), "ok"], clock)
    stream = model.stream(asked())
    first = await anext(stream)
    assert isinstance(first, Retrying)
    assert clock.slept == []
    await stream.aclose()
    assert clock.slept == []


@pytest.mark.parametrize(
    ("step", "void"),
    [
        (Step(text="half an", error=error("connection")), True),
        (Step(thinking="hm", error=error("connection")), True),
        (Step(error=error("connection")), False),
    ],
)
async def test_whether_shown_text_is_void_is_said(step: Step, void: bool) -> None:
    model, _ = retrying([step, "whole"], Clock())
    events = await listen(model, asked())
    assert [e.text_shown for e in events if isinstance(e, Retrying)] == [void]


async def test_a_free_key_is_tried_without_a_wait_and_without_counting() -> None:
    clock = Clock()
    keys = KeyPool(("a", "b", "c"), clock=clock)
    used: list[str] = []

    class Limited:
        name = "limited"

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            key = keys.take()
            assert key is not None
            used.append(key.secret)
            keys.rest(key, 30.0)
            raise error("rate_limit", 30.0)
            yield

    model = RetryingModel(Limited(), keys=keys, sleep=clock.sleep, spread=lambda: 0.0)
    with pytest.raises(ModelError):
        await listen(model, asked())
    assert used[:3] == ["a", "b", "c"]
    assert clock.slept == [30.0, 30.0, 30.0]


async def test_a_call_waits_while_every_key_rests() -> None:
    clock = Clock()
    keys = KeyPool(("a",), clock=clock)
    keys.rest(keys.take(), 8.0)
    model, _ = retrying(["ok"], clock, keys)
    events = await listen(model, asked())
    assert clock.slept == [9.0]
    assert isinstance(events[0], Retrying)


async def test_an_account_without_money_is_not_asked_again() -> None:
    clock = Clock()
    keys = KeyPool(("a",), clock=clock)

    class Spent:
        name = "spent"

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            keys.rest(keys.take(), 3600.0)
            raise error("rate_limit")
            yield

    with pytest.raises(ModelError):
        await listen(RetryingModel(Spent(), keys=keys, sleep=clock.sleep), asked())
    assert clock.slept == []


async def test_closing_closes_the_model_within() -> None:
    closed: list[bool] = []

    class Endless:
        name = "endless"

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            from retinue.types import TextDelta

            try:
                while True:
                    yield TextDelta("more")
            finally:
                closed.append(True)

    stream = RetryingModel(Endless()).stream(asked())
    await anext(stream)
    await stream.aclose()
    assert closed == [True]


async def test_the_waits_are_spread() -> None:
    clock = Clock()
    spread = iter([0.0, 0.5, 1.0])
    model = RetryingModel(
        ScriptedModel([error("overloaded")] * 3 + ["ok"]), sleep=clock.sleep, spread=lambda: next(spread)
    )
    await listen(model, asked())
    assert clock.slept == [0.25, 0.75, 2.0]
