"""What a model call took that gave no reply: unknown, never zero, wherever it is shown."""

from __future__ import annotations

import asyncio

import pytest

from retinue import Retinue
from retinue.errors import ModelError
from retinue.events import RunFinished
from retinue.store.memory import MemoryStore
from retinue.story import Story
from retinue.testing import ScriptedModel
from retinue.testing.scripted import Step
from retinue.types import AgentSpec, Report, Retrying, Usage

PRICED = Usage(input_tokens=100, output_tokens=20, cost=0.25)


def bare(**fields: object) -> AgentSpec:
    return AgentSpec(name="bare", description="a bare agent", prompt="You answer.", tools=(), **fields)  # pyright: ignore[reportArgumentType]


def app(model: ScriptedModel, store: MemoryStore) -> Retinue:
    return Retinue(model=model, project=False, environ={}, db=store)


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
    ends = [e for e in await store.events(report.run_id) if isinstance(e, RunFinished)]
    assert [end.cut.cost for end in ends] == [None, 0.0]
