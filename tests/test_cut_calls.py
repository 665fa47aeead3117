"""What a model call took that gave no reply: unknown, never zero, wherever it is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from retinue import Retinue, tool
from retinue.engine import reviewer
from retinue.errors import ModelError
from retinue.events import CallCut, CallReviewed, LiveEvent, RunFinished, RunResumed, StepStarted, Streamed
from retinue.store.memory import MemoryStore
from retinue.story import Story
from retinue.testing import FakeProvider, Script, ScriptedModel, call
from retinue.testing.scripted import Step
from retinue.types import (
    AgentSpec,
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    Reply,
    Report,
    Retrying,
    TextDelta,
    Usage,
)

PRICED = Usage(input_tokens=100, output_tokens=20, cost=0.25)


def bare(**fields: object) -> AgentSpec:
    return AgentSpec(name="bare", description="a bare agent", prompt="You answer.", tools=(), **fields)  # pyright: ignore[reportArgumentType]


def app(model: ScriptedModel, store: MemoryStore, **more: Any) -> Retinue:
    return Retinue(model=model, project=False, environ={}, db=store, **more)


async def unknown_everywhere(retinue: Retinue, report: Report) -> None:
    assert report.usage.cost is None
    assert report.to_dict()["usage"]["cost"] is None
    (row,) = await retinue.runs()
    assert (row.cost, row.tree_cost) == (None, None)
    (total,) = await retinue.store.totals("agent")
    assert total.unpriced == 1
    story = Story()
    for event in await retinue.store.events(report.run_id):
        story.apply(event)
    node = story.nodes[report.run_id]
    assert (node.own.cost, node.usage.cost) == (None, None)


@pytest.mark.parametrize("begins", [True, False])
async def test_a_call_that_is_cut_by_the_time_of_its_run_is_of_unknown_cost(begins: bool) -> None:
    never = asyncio.Event()
    step = Step(text="It is", last_gate=never) if begins else Step(text="It is", gate=never)
    async with app(ScriptedModel([step]), MemoryStore()) as retinue:
        report = await retinue.run(bare(timeout=0.2), "go")
        assert report.ended_by == "timeout"
        await unknown_everywhere(retinue, report)


async def test_a_call_that_is_cancelled_is_of_unknown_cost() -> None:
    model = ScriptedModel([Step(text="It is", last_gate=asyncio.Event())])
    async with app(model, MemoryStore()) as retinue:
        run_id = await retinue.start(bare(), "go")
        async for event in retinue.watch(run_id):
            if type(event).__name__ == "Streamed":
                await retinue.cancel(run_id)
        await unknown_everywhere(retinue, await retinue.wait(run_id))


async def test_an_attempt_that_failed_midway_is_of_unknown_cost_though_the_next_one_answers() -> None:
    again = Retrying(reason="lost", attempt=1, wait=0.0, text_shown=True)
    async with app(
        ScriptedModel([Step(text="It is.", usage=PRICED, retries=(again,))]), MemoryStore()
    ) as retinue:
        report = await retinue.run(bare(), "go")
        assert (report.text, report.usage.input_tokens) == ("It is.", 100)
        await unknown_everywhere(retinue, report)


async def test_a_cut_call_of_a_model_that_is_free_costs_nothing() -> None:
    model = ScriptedModel([Step(text="It is", last_gate=asyncio.Event())], name="ollama:small")
    async with app(model, MemoryStore()) as retinue:
        report = await retinue.run(bare(timeout=0.2), "go")
    assert (report.ended_by, report.usage.cost) == ("timeout", 0.0)


async def test_a_call_that_failed_before_it_began_costs_nothing_and_what_was_paid_stays_known() -> None:
    async with app(ScriptedModel([ModelError("no such key", kind="auth")]), MemoryStore()) as retinue:
        report = await retinue.run(bare(), "go")
    assert (report.status, report.usage.cost) == ("error", 0.0)


async def test_a_run_that_goes_on_after_a_cut_call_counts_it_once() -> None:
    store, never = MemoryStore(), asyncio.Event()
    model = ScriptedModel([Step(text="It is", last_gate=never), Step(text="Done.", usage=PRICED)])
    async with app(model, store) as retinue:
        report = await retinue.run(bare(timeout=0.2), "go")
        await retinue.resume(report.run_id)
        again = await retinue.wait(report.run_id)
        assert (again.text, again.usage.input_tokens) == ("Done.", 100)
        await unknown_everywhere(retinue, again)
    log = await store.events(report.run_id)
    assert [e.usage.cost for e in log if isinstance(e, CallCut)] == [None]
    assert [e.cut.cost for e in log if isinstance(e, RunFinished | RunResumed)] == [0.0, 0.0, 0.0]


class Breaks:
    """A model whose connection breaks off in the middle of its answer."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield TextDelta("It is ")
        yield TextDelta("blue")
        raise ModelError("the connection broke off", kind="protocol")


@pytest.mark.parametrize("name", ["paid:model", "ollama:small"])
@pytest.mark.parametrize("how", ["broken off", "timed out", "cancelled"])
async def test_what_had_come_of_an_answer_that_was_cut_off_is_in_its_replay(how: str, name: str) -> None:
    never = ScriptedModel([Step(text="It is blue", last_gate=asyncio.Event())], name=name)
    async with app(never if how != "broken off" else Breaks(name), MemoryStore()) as retinue:  # pyright: ignore[reportArgumentType]
        run_id = await retinue.start(bare(timeout=0.2 if how == "timed out" else None), "go")
        async for event in retinue.watch(run_id):
            if how == "cancelled" and isinstance(event, Streamed):
                await retinue.cancel(run_id)
        report = await retinue.wait(run_id)
        assert report.text.startswith("It is")
        assert (await retinue.replay(run_id)).diff == ""


AGAIN = Retrying(reason="lost", attempt=1, wait=0.0, text_shown=True)


class Half:
    """A small model that gives half an answer, or a whole one that it does not get to the end of."""

    def __init__(self, name: str = "paid:small", *, told: Usage | None = None, fails: bool = False) -> None:
        self.name, self.told, self.fails, self.asked = name, told, fails, 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked += 1
        yield TextDelta("half of it")
        if self.told is not None:
            yield Reply(message=AssistantMessage(text="no"), usage=self.told, stop="end", model=self.name)
        if self.fails:
            raise RuntimeError("connection lost")
        await asyncio.Event().wait()


async def killed(model: ScriptedModel, until: type[LiveEvent]) -> MemoryStore:
    """The log of a run whose process is gone: all that was written by the time of an event of this kind."""
    store, left = MemoryStore(), MemoryStore()
    async with app(model, store) as retinue:
        await retinue.start(bare(), "go", run_id="killed")
        async for event in retinue.watch("killed"):
            if isinstance(event, until):
                await left.append(await store.events("killed"))
                await retinue.cancel("killed")
    return left


@pytest.mark.parametrize(("name", "cost"), [("paid:model", None), ("ollama:small", 0.25)])
async def test_a_call_that_was_under_way_when_its_process_was_killed_is_of_unknown_cost_unless_it_is_free(
    name: str, cost: float | None
) -> None:
    store = await killed(ScriptedModel([Step(text="It is", last_gate=asyncio.Event())], name=name), Streamed)
    async with app(ScriptedModel([Step(text="Done.", usage=PRICED)], name=name), store) as retinue:
        await retinue.resume("killed", take_over=True)
        report = await retinue.wait("killed")
        assert (report.text, report.usage.input_tokens, report.usage.cost) == ("Done.", 100, cost)
        if cost is None:
            await unknown_everywhere(retinue, report)
        assert (await retinue.replay("killed")).diff == ""


async def test_an_attempt_that_failed_midway_before_the_process_was_killed_is_in_the_log() -> None:
    step = Step(text="It is", retries=(AGAIN,), last_gate=asyncio.Event())
    store = await killed(ScriptedModel([step]), Streamed)
    assert [e.usage.cost for e in await store.events("killed") if isinstance(e, CallCut)] == [None]


async def test_a_run_that_was_killed_between_two_calls_costs_what_it_did() -> None:
    store = MemoryStore()
    async with app(ScriptedModel([Step(text="Done.", usage=PRICED)]), store) as retinue:
        await retinue.run(bare(), "go", run_id="killed")
    left = MemoryStore()
    await left.append([e for e in await store.events("killed") if not isinstance(e, RunFinished)])
    async with app(ScriptedModel([]), left) as retinue:
        await retinue.resume("killed", take_over=True)
        assert (await retinue.wait("killed")).usage == PRICED


async def test_a_fork_does_not_pay_for_a_call_that_was_under_way_in_the_old_workflow() -> None:
    store = await killed(ScriptedModel([Step(text="It is", last_gate=asyncio.Event())]), Streamed)
    (asked,) = [e for e in await store.events("killed") if isinstance(e, StepStarted)]
    async with app(ScriptedModel([Step(text="Done.", usage=PRICED)]), store) as retinue:
        forked = await retinue.fork("killed", at=asked.pos)
        assert (await retinue.wait(forked)).usage == PRICED


@tool(effect="write", preview=lambda arguments, files: f"would note {arguments['text']}")
def note(text: str) -> str:
    """Note something."""
    return "noted"


@pytest.mark.parametrize(
    ("small", "usage"),
    [
        (Half("ollama:small"), Usage()),
        (Half(), Usage(cost=None)),
        (Half(told=PRICED), PRICED),
    ],
)
async def test_a_review_that_came_too_late_is_counted_once_and_of_a_free_model_not_at_all(
    small: Half, usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewer, "SECONDS", 0.05)
    model, free = ScriptedModel([call("note", text="a"), "done"]), Usage(input_tokens=20, output_tokens=10)
    spec = AgentSpec(name="noter", description="notes", prompt="You note.", tools=[note])
    more = {
        "agents": [spec],
        "small_model": small,
        "answering": "refuse",
        "settings": {"approvals.reviewer": "small"},
    }
    async with app(model, MemoryStore(), **more) as retinue:
        report = await retinue.run("noter", "go")
        log = await retinue.store.events(report.run_id)
        assert (await retinue.replay(report.run_id)).diff == ""
    assert [e.usage for e in log if isinstance(e, CallReviewed)] == [usage]
    assert (report.usage, small.asked) == (free + usage, 1)


@pytest.mark.parametrize("background", [False, True])
async def test_what_it_took_to_shorten_a_report_counts_also_where_that_failed_midway(
    background: bool,
) -> None:
    child = AgentSpec(name="child", description="a child", prompt="You are the child.", tools=())
    boss = AgentSpec(
        name="boss", description="a boss", prompt="You are the boss.", tools=[child, "background"]
    )
    start = call("background", operation="start", agent_id="child", prompt="x")
    script = {
        "You are the boss": [start if background else call("child", prompt="x"), "waits", "done"],
        "You are the child": ["long " * 4000],
    }
    settings = {"delegation.summary": "model", "delegation.tools": ["agents", "background"]}
    more = {"agents": [boss], "small_model": Half(fails=True), "settings": settings}
    async with app(ScriptedModel(script), MemoryStore(), **more) as retinue:
        report = await retinue.run("boss", "go")
        assert (report.status, report.usage.cost) == ("completed", None)
        assert (await retinue.replay(report.run_id)).diff == ""


@tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


def look_at(n: int, **more: Any) -> Step:
    return Step(calls=(call("look", f"c{n}", n=n),), usage=PRICED, **more)


LOOKER = AgentSpec(name="looker", description="looks", prompt="You look.", tools=[look])
LIMITED = {"agents": [LOOKER], "settings": {"limits.max_cost": 10.0}}


async def test_a_limit_of_money_stops_a_run_whose_call_was_cut_and_whoever_resumes_it_lets_it_go_on() -> None:
    steps = [look_at(1, retries=(AGAIN,)), look_at(2), Step(text="Done.", usage=PRICED)]
    async with app(ScriptedModel(steps), MemoryStore(), **LIMITED) as retinue:
        report = await retinue.run("looker", "go")
        assert (report.ended_by, report.turns, report.usage.cost) == ("budget", 0, None)
        assert "nobody knows what it cost" in (report.incomplete or "")
        assert (await retinue.replay(report.run_id)).diff == ""
        cuts = [e for e in await retinue.store.events(report.run_id) if isinstance(e, CallCut)]
        assert len(cuts) == 1
        await retinue.resume(report.run_id, message="go on")
        again = await retinue.wait(report.run_id)
        assert (again.ended_by, again.text, again.turns) == ("answer", "Done.", 2)


async def test_a_limit_of_money_leaves_a_model_that_is_free_alone() -> None:
    free = ScriptedModel([look_at(1, retries=(AGAIN,)), "Done."], name="ollama:small")
    async with app(free, MemoryStore(), **LIMITED) as retinue:
        report = await retinue.run("looker", "go")
    assert (report.ended_by, report.turns, report.usage.cost) == ("answer", 2, 0.25)


async def test_with_a_limit_of_money_the_next_of_a_chain_is_not_asked_after_half_a_reply() -> None:
    half = Step(text="half an ans", error=ModelError("gone", kind="connection"))
    chain = [ScriptedModel([half], name="first:a"), ScriptedModel(["whole"], name="second:b")]
    async with Retinue(model=chain, project=False, environ={}, db="memory:", **LIMITED) as retinue:
        report = await retinue.run("looker", "go")
        assert (report.ended_by, report.usage.cost) == ("budget", None)
        assert (await retinue.replay(report.run_id)).diff == ""
    assert [len(each.requests) for each in chain] == [1, 0]


async def test_with_a_limit_of_money_a_chain_goes_on_after_a_call_that_never_began() -> None:
    refused = Step(error=ModelError("no", kind="auth"))
    whole = Step(text="whole", usage=PRICED)
    chain = [ScriptedModel([refused], name="first:a"), ScriptedModel([whole], name="second:b")]
    async with Retinue(model=chain, project=False, environ={}, db="memory:", **LIMITED) as retinue:
        report = await retinue.run("looker", "go")
    assert (report.ended_by, report.text, report.usage.cost) == ("answer", "whole", 0.25)


async def test_an_answer_that_cannot_be_read_is_of_unknown_cost_though_nothing_of_it_was_shown() -> None:
    prices = {"prices": {"openai:fake-model": {"input": 1.0, "output": 2.0}}}
    async with (
        FakeProvider(lambda seen: Script(text="a b c d e f", pieces=6, garbage_after=4)) as provider,
        Retinue(
            db=MemoryStore(), project=False, environ=provider.environ(), agents=[bare()], settings=prices
        ) as retinue,
    ):
        report = await retinue.run("bare", "go")
        assert report.status == "error"
        await unknown_everywhere(retinue, report)
