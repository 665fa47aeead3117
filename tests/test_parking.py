"""Limits of a provider: a run that is told to come back in minutes waits without clock and cost, and goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from retinue.clock import Clock
from retinue.engine.parking_clock import LONGEST_NAP, ParkingClock
from retinue.engine.workflow import Workflow
from retinue.errors import ModelError
from retinue.events import LimitPassed, LimitReached, RunFinished, RunResumed, StepStarted, now
from retinue.fold import fold
from retinue.story import Story
from retinue.types import ModelRequest
from retinue.view.picture import picture
from trees import Play, Say, Stage, agent, reply, told, turn


class Time:
    """A time of day that passes only when somebody waits, or when a test lets it."""

    def __init__(self, *, by_itself: bool = True) -> None:
        self.at = now()
        self.by_itself = by_itself
        self.slept: list[float] = []
        self.asleep = asyncio.Event()
        self.moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.asleep.set()
        if self.by_itself:
            self.at += seconds
            await asyncio.sleep(0)
        else:
            await self.moved.wait()

    def pass_by(self, seconds: float) -> None:
        self.at += seconds
        self.by_itself = True
        self.moved.set()

    def waiting(self, spread: float = 0.0) -> ParkingClock:
        return ParkingClock(now=lambda: self.at, sleep=self.sleep, spread=lambda: spread)


def limited(seconds: float | None = 90.0, kind: Any = "rate_limit") -> ModelError:
    return ModelError("openai answered 429: come back later", kind=kind, status=429, retry_after=seconds)


def after(*errors: Exception, answer: Say = "done") -> Play:
    """A part that fails so often first."""
    left = list(errors)

    def play(request: ModelRequest) -> Say:
        return left.pop(0) if left else answer

    return play


def staged(parts: Any, time: Time, **more: Any) -> Stage:
    stage = Stage(parts, **more)
    stage.config = replace(stage.config, parking_clock=time.waiting())
    stage.workflow = Workflow(stage.config, stage.root_id)
    return stage


async def test_a_run_that_is_told_to_come_back_in_90_seconds_parks_and_finishes() -> None:
    time = Time()
    began = time.at
    stage = staged({"root": after(limited(90.0))}, time)
    report = await stage.run()
    assert (report.status, report.text, report.turns) == ("completed", "done", 1)
    assert time.at == pytest.approx(began + 90)
    assert max(time.slept) <= LONGEST_NAP, "the time of day is looked at now and then"
    log = await stage.log()
    reached = next(event for event in log if isinstance(event, LimitReached))
    assert (reached.step, reached.model, reached.until) == (1, "cast:test", pytest.approx(began + 90))
    assert "come back later" in reached.reason
    kinds = [type(event).__name__ for event in log]
    assert kinds == [
        "RunStarted",
        "StepStarted",
        "LimitReached",
        "LimitPassed",
        "ModelReplied",
        "RunFinished",
    ]
    assert report.usage.cost == 0.001, "one call is paid for"


@pytest.mark.parametrize("error", [limited(60.0), limited(None), limited(90.0, kind="auth")])
async def test_what_is_no_limit_with_a_time_of_minutes_ends_the_run_as_ever(error: ModelError) -> None:
    time = Time()
    report = await staged({"root": after(error)}, time).run()
    assert (report.status, time.slept) == ("error", [])


async def test_a_wait_that_is_longer_than_the_limit_for_it_is_an_error_that_says_so() -> None:
    time = Time()
    report = await staged({"root": after(limited(7200.0))}, time, limits__longest_park=3600).run()
    assert report.status == "error"
    assert "come back later. It can be asked again in 7200 s" in (report.error or "")
    assert "limits.longest_park = 3600" in (report.error or "")
    assert not time.slept


async def test_one_who_says_again_and_again_to_come_back_is_not_waited_for_without_end() -> None:
    time = Time()
    stage = staged({"root": after(*[limited(90.0)] * 100)}, time, limits__longest_park=300)
    report = await stage.run()
    assert report.status == "error"
    assert sum(isinstance(event, LimitReached) for event in await stage.log()) == 3


async def test_while_it_waits_it_is_waiting_until_then_and_everybody_can_see_why() -> None:
    time = Time(by_itself=False)
    stage = staged({"root": after(limited(90.0))}, time)
    task = await stage.start()
    await time.asleep.wait()
    row = await stage.store.run(stage.root_id)
    assert row is not None
    assert (row.status, row.outcome, row.waiting, row.parked_until) == (
        "waiting",
        "waiting",
        1,
        pytest.approx(time.at + 90),
    )
    story = Story()
    for event in await stage.log():
        story.apply(event)
    assert story.root is not None
    assert story.root.outcome == "waiting"
    lines = ["".join(text for text, _ in line) for line in picture(story, width=120, height=20, now=time.at)]
    assert any("waits for the provider's limit to reset until" in line for line in lines)
    assert any("come back later" in line for line in lines)
    time.pass_by(90)
    await task
    row = await stage.store.run(stage.root_id)
    assert row is not None
    assert (row.status, row.waiting, row.parked_until) == ("completed", 0, None)


async def test_no_clock_runs_while_it_waits_neither_its_own_nor_its_parents() -> None:
    time = Time(by_itself=False)
    calls = [("child", {"prompt": "x"})]
    root: Play = lambda request: reply("", calls) if not turn(request) else "done"  # noqa: E731
    stage = staged({"root": root, "child": after(limited())}, time, agents=[agent("child")])
    task = await stage.start()
    await time.asleep.wait()
    clocks: list[Clock] = [live.run.clock for live in stage.workflow.tree.live.values()]
    assert len(clocks) == 2
    before = [clock.elapsed for clock in clocks]
    assert [clock.elapsed for clock in clocks] == before, "they stand still"
    assert all(clock._paused for clock in clocks)
    parent = await stage.store.run(stage.root_id)
    assert parent is not None
    assert (parent.outcome, parent.waiting) == ("running", 1), "a parent waits with its child"
    time.pass_by(90)
    assert (await task).ok
    assert not any(clock._paused for clock in clocks), "and go on when it does"


async def test_siblings_work_while_one_is_parked_even_where_only_one_may_at_a_time() -> None:
    time = Time(by_itself=False)
    calls = [("parked", {"prompt": "x"}), ("works", {"prompt": "y"})]
    done = asyncio.Event()

    def works(request: ModelRequest) -> Say:
        done.set()
        return "worked"

    root: Play = lambda request: reply("", calls) if not turn(request) else "done"  # noqa: E731
    parts: dict[str, Any] = {"root": root, "parked": after(limited()), "works": works}
    stage = staged(parts, time, agents=[agent("parked"), agent("works")], delegation__concurrency=1)
    task = await stage.start()
    await time.asleep.wait()
    await done.wait()
    assert not task.done()
    time.pass_by(90)
    report = await task
    assert report.ok
    assert sum(isinstance(event, RunFinished) for event in await stage.log()) == 3


async def test_a_parked_run_is_cancelled_at_once() -> None:
    time = Time(by_itself=False)
    stage = staged({"root": after(limited())}, time)
    task = await stage.start()
    await time.asleep.wait()
    stage.workflow.cancel(stage.root_id, "enough")
    report = await task
    assert (report.status, report.error) == ("cancelled", "enough")
    row = await stage.store.run(stage.root_id)
    assert row is not None
    assert (row.outcome, row.waiting) == ("cancelled", 0)


async def left_parked(part: Play, time: Time) -> Stage:
    """A workflow whose process is gone while it is parked: nothing was written after that."""
    stage = staged({"root": part}, time)
    await stage.start()
    await time.asleep.wait()
    await stage.workflow.leave()
    assert isinstance((await stage.log())[-1], LimitReached)
    return stage


@pytest.mark.parametrize(("away", "rest"), [(60.0, 30.0), (90.0, 0.0), (5000.0, 0.0)])
async def test_whoever_takes_it_up_waits_for_the_rest_alone(away: float, rest: float) -> None:
    time = Time(by_itself=False)
    stage = await left_parked(after(limited(90.0)), time)
    later = Time()
    later.at = time.at + away
    again = staged(stage.model, later, store=stage.store, root_id=stage.root_id)
    report = await (await again.resume())
    assert report.text == "done"
    assert sum(later.slept) == pytest.approx(rest)
    assert len(stage.model.of("root")) == 2, "asked once before and once after"
    kinds = [type(event) for event in await stage.log()]
    assert (
        kinds.index(RunResumed) < kinds.index(LimitPassed) < len(kinds) - 1 - kinds[::-1].index(StepStarted)
    )


async def test_a_run_whose_model_is_another_one_does_not_wait_for_the_limit_of_the_first() -> None:
    time = Time(by_itself=False)
    stage = await left_parked(after(limited(90.0)), time)
    later = Time()
    again = staged(stage.model, later, store=stage.store, root_id=stage.root_id)
    again.model.name = "cast:another"
    assert (await (await again.resume())).ok
    assert not later.slept


async def test_the_time_that_a_run_waited_is_not_counted_after_a_restart() -> None:
    from retinue.engine.elapsed import seconds_used

    time = Time(by_itself=False)
    stage = await left_parked(after(limited(90.0)), time)
    log = await stage.log()
    until = next(event for event in log if isinstance(event, LimitReached))
    resumed = RunResumed(
        run_id=until.run_id,
        root_id=until.root_id,
        parent_id=None,
        depth=0,
        seq=until.seq + 1,
        at=until.at + 80,
    )
    passed = LimitPassed(
        run_id=until.run_id,
        root_id=until.root_id,
        parent_id=None,
        depth=0,
        seq=until.seq + 2,
        at=until.at + 90,
        step=1,
    )
    began = msgspec.structs.replace(log[1], at=until.at - 2)
    used = seconds_used(stage.root_id, {stage.root_id: [log[0], began, until, resumed, passed]})
    assert used == pytest.approx(2, abs=0.1)
    state = fold([log[0], began, until, resumed])
    assert (state.status, state.standing.parked_until) == ("waiting", until.until)


async def test_those_who_wait_for_one_provider_do_not_all_ask_at_the_same_moment() -> None:
    time = Time()
    until = [time.waiting(spread).until(90.0) - time.at for spread in (0.0, 0.5, 1.0)]
    assert until == pytest.approx([90.0, 92.25, 94.5])
    assert time.waiting(1.0).until(20_000) - time.at == pytest.approx(20_060), "at most a minute later"


async def test_what_is_said_to_a_parked_run_is_read_when_it_goes_on() -> None:
    time = Time(by_itself=False)
    stage = staged({"root": after(limited())}, time)
    task = await stage.start()
    await time.asleep.wait()
    from retinue.events import MessageReceived

    stage.workflow.tree.run(stage.root_id).log.write(MessageReceived, text="and be brief", sender="person")
    time.pass_by(90)
    await task
    assert len(stage.model.of("root")) == 2, "and not a third time for it"
    assert "and be brief" in told(stage.model.of("root")[-1])
