"""Guards and what happens while they look: nothing passes them unseen, nothing that was paid is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Guarded, Limits, Mend, Retinue, Stop
from retinue.engine.parking_clock import ParkingClock
from retinue.errors import ModelError
from retinue.events import CallCut, GuardSpoke, LimitReached, ModelReplied, encode, now
from retinue.testing import ScriptedModel, call
from retinue.types import AssistantMessage, ModelEvent, ModelRequest, Reply, TextDelta, Usage

SECRET = "4111-1111"
PAID = Usage(input_tokens=1000, output_tokens=500, cost=0.25)
TALKER = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())


def here(tmp_path: Path, model: Any, **more: Any) -> Retinue[None]:
    return Retinue(
        model=model, db=f"sqlite:///{tmp_path}/guards.db", cwd=tmp_path, **{"agents": [TALKER], **more}
    )


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


class SlowGuard:
    """Takes its time over what is slow, and stops a secret."""

    def __init__(self) -> None:
        self.looking, self.go_on = asyncio.Event(), asyncio.Event()
        self.seen: list[str] = []

    async def __call__(self, given: Guarded[Any]) -> Stop | None:
        self.seen.append(given.text)
        if "slow" in given.text:
            self.looking.set()
            await self.go_on.wait()
        return Stop("a secret") if SECRET in given.text else None


async def test_what_is_said_while_a_guard_looks_at_something_else_is_looked_at_too(tmp_path: Path) -> None:
    guard, asked, go_on = SlowGuard(), asyncio.Event(), asyncio.Event()

    async def work() -> str:
        """Work."""
        asked.set()
        await go_on.wait()
        return "done"

    worker = AgentSpec(name="worker", description="works", prompt="You work.", tools=[work])
    model = ScriptedModel([call("work"), "never asked"])
    async with here(tmp_path, model, agents=[worker], input_guards=[guard]) as retinue:
        run_id = await retinue.start("worker", "go")
        await asked.wait()
        assert await retinue.message(run_id, "a slow word")
        go_on.set()
        await guard.looking.wait()
        assert await retinue.message(run_id, f"my card is {SECRET}")
        guard.go_on.set()
        report = await retinue.wait(run_id)
        assert (report.ended_by, report.error) == ("guard", "stopped by the guard SlowGuard: a secret")
        assert not (await retinue.replay(run_id)).diff
    assert guard.seen == ["go", "a slow word", f"my card is {SECRET}"]
    assert [texts(request) for request in model.requests] == [["go"]]


class Limited:
    """A model that is at its limit the first time."""

    name = "limited:m"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        self.requests.append(request)
        if len(self.requests) == 1:
            raise ModelError("come back later", kind="rate_limit", retry_after=90.0)
        yield Reply(message=AssistantMessage(text="done"), usage=PAID, stop="end", model=self.name)


@pytest.mark.parametrize("ends", ["stop", "mend"])
async def test_what_is_said_to_a_run_that_waits_for_a_limit_is_guarded_before_it_asks_again(
    tmp_path: Path, ends: str
) -> None:
    moved, late = asyncio.Event(), [0.0]

    async def sleep(seconds: float) -> None:
        await moved.wait()
        late[0] += seconds

    async def guard(given: Guarded[Any]) -> Stop | Mend | None:
        if SECRET not in given.text:
            return None
        return Stop("a secret") if ends == "stop" else Mend(given.text.replace(SECRET, "[card]"))

    model = Limited()
    async with here(tmp_path, model, input_guards=[guard]) as retinue:
        retinue.parking_clock = ParkingClock(now=lambda: now() + late[0], sleep=sleep)
        run_id = await retinue.start("talker", "go")
        async for event in retinue.watch(run_id):
            if isinstance(event, LimitReached):
                assert await retinue.message(run_id, f"my card is {SECRET}")
                moved.set()
        report = await retinue.wait(run_id)
        assert not (await retinue.replay(run_id)).diff
    asked = [texts(request) for request in model.requests]
    if ends == "stop":
        assert (report.ended_by, asked) == ("guard", [["go"]])
    else:
        assert (report.text, asked) == ("done", [["go"], ["go", "my card is [card]"]])


class Paid:
    """A model whose answers have a price."""

    name = "paid:m"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        yield TextDelta(f"The card is {SECRET}.")
        message = AssistantMessage(text=f"The card is {SECRET}.")
        yield Reply(message=message, usage=PAID, stop="end", model=self.name)


@pytest.mark.parametrize("ends", ["cancelled", "timeout"])
async def test_a_reply_whose_guard_never_answers_is_paid_for_and_not_kept(tmp_path: Path, ends: str) -> None:
    looking = asyncio.Event()

    async def hangs(given: Guarded[Any]) -> None:
        looking.set()
        await asyncio.Event().wait()

    limits = Limits(seconds=1) if ends == "timeout" else None
    async with here(tmp_path, Paid(), output_guards=[hangs]) as retinue:
        run_id = await retinue.start("talker", "Which card?", limits=limits)
        await looking.wait()
        if ends == "cancelled":
            await retinue.cancel(run_id)
        report = await retinue.wait(run_id)
        assert (report.ended_by, report.usage) == (ends, PAID)
        log = await retinue.store.events(run_id)
        assert [event.usage for event in log if isinstance(event, CallCut)] == [PAID]
        assert not [event for event in log if isinstance(event, ModelReplied | GuardSpoke)]
        assert SECRET not in b"".join(map(encode, log)).decode()
        assert (await retinue.runs())[0].cost == PAID.cost
        assert not (await retinue.replay(run_id)).diff
