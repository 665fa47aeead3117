"""At a limit of money or tokens there is one more call to sum up with: for a run alone, and for a parent of many."""

from __future__ import annotations

from typing import Any

import pytest

from retinue import Retinue
from retinue.budget import Budget
from retinue.errors import BudgetExhausted
from retinue.events import AnyEvent, RunFinished, StepStarted
from retinue.testing import ScriptedModel, Step, call, record, replay_file
from retinue.tools.base import tool
from retinue.types import AgentSpec, Limits, Report, Usage
from trees import Stage, agent, reply, turn


@tool(effect="read")
async def look(place: str) -> str:
    """Look there."""
    return f"seen {place}"


def _team(children: int, steps: int, **usage: Any) -> dict[str, Any]:
    """A root that hands out tasks and sums up, and children that look and look."""

    def root(request: Any) -> Any:
        if turn(request) == 0:
            tasks = [{"agent_id": "leaf", "prompt": str(n)} for n in range(children)]
            return reply("", [("parallel_tasks", {"tasks": tasks})], **usage)
        return reply("summed up", **usage)

    def leaf(request: Any) -> Any:
        if turn(request) < steps and request.tools:
            return reply("", [("look", {"place": str(turn(request))})], **usage)
        return reply("found", **usage)

    return {"root": root, "leaf": leaf}


async def _played(children: int, *, usage: dict[str, Any], **limits: Any) -> tuple[Report, list[AnyEvent]]:
    stage = Stage(
        _team(children, 30, **usage),
        agents=[agent("leaf", max_turns=100)],
        tools=[look],
        delegation__max_children=max(children, 3),
        delegation__concurrency=8,
        **limits,
    )
    return await stage.run(), await stage.log()


@pytest.mark.parametrize(
    ("children", "usage", "limits"),
    [
        (3, {"cost": 0.02}, {"limits__max_cost": 0.5}),
        (3, {"cost": 0.02}, {"limits__max_cost": 1.0}),
        (8, {"cost": 0.05}, {"limits__max_cost": 1.0}),
        (3, {"output_tokens": 500}, {"limits__tree_output_tokens": 10_000}),
        (8, {"input_tokens": 500}, {"limits__tree_input_tokens": 20_000}),
    ],
)
async def test_a_parent_sums_up_when_its_children_have_used_all_that_they_may(
    children: int, usage: dict[str, Any], limits: dict[str, Any]
) -> None:
    report, log = await _played(children, usage=usage, **limits)
    assert report.text == "summed up"
    assert report.outcome == "incomplete", "its children did not get to their ends"
    (kind, each), (limit,) = next(iter(usage.items())), limits.values()
    used = getattr(report.usage, kind)
    assert limit - 3 * each < used < limit + each / 2, "nearly all is used, and no more than there is"
    assert any(isinstance(e, RunFinished) and e.report.agent == "leaf" for e in log)


@pytest.mark.parametrize("limits", [{"limits__max_cost": 0.5}, {"limits__tree_output_tokens": 12_000}])
async def test_a_run_alone_keeps_a_call_to_sum_up_with(limits: dict[str, Any]) -> None:
    def root(request: Any) -> Any:
        said = [("look", {"place": str(turn(request))})] if request.tools else ()
        return reply("" if said else "what I have", said, cost=0.021, output_tokens=500)

    stage = Stage({"root": root}, tools=[look], **limits)
    report = await stage.run()
    steps = [e for e in await stage.log() if isinstance(e, StepStarted)]
    assert (report.text, report.outcome, report.ended_by) == ("what I have", "incomplete", "budget")
    assert [step.purpose for step in steps[-2:]] == ["work", "final"]
    assert "left of" in (report.incomplete or "")
    used = {"limits__max_cost": report.usage.cost, "limits__tree_output_tokens": report.usage.output_tokens}
    assert all((used[name] or 0) <= most for name, most in limits.items())


async def test_a_run_that_has_enough_left_is_told_nothing_of_a_limit() -> None:
    stage = Stage(
        {"root": [reply("", [("look", {"place": "a"})], cost=0.2), reply("done", cost=0.2)]},
        tools=[look],
        limits__max_cost=0.7,
    )
    assert (await stage.run()).outcome == "completed"


def test_what_is_in_flight_below_never_takes_what_the_parent_keeps() -> None:
    root = Budget(Limits(cost=1.0), sharers=30)
    root.charge_call(Usage(cost=0.05))
    below = [root.carve(Limits(), name=str(n)) for n in range(8)]
    for child in below:
        child.charge_call(Usage(cost=0.05))
    going = list(below)
    while going:
        begun: list[Budget] = []
        for child in going:
            try:
                child.begin_turn("r")
                begun.append(child)
            except BudgetExhausted:
                child.release()
        for child in begun:
            child.charge_call(Usage(cost=0.05))
        going = begun
    assert root.used["cost"] == pytest.approx(0.95)
    root.begin_turn("r")


async def test_a_limit_that_was_raised_lets_a_run_go_on_where_it_summed_up() -> None:
    def root(request: Any) -> Any:
        if turn(request) < 8 and request.tools:
            return reply("", [("look", {"place": str(turn(request))})], cost=0.02)
        return reply("all of it" if turn(request) == 8 else "a part", cost=0.02)

    stage = Stage({"root": root}, tools=[look], limits__max_cost=0.1)
    assert (await stage.run()).text == "a part"
    more = Stage({"root": root}, tools=[look], store=stage.store, root_id=stage.root_id, limits__max_cost=1.0)
    report = await (await more.resume())
    assert (report.text, report.outcome) == ("all of it", "completed")


async def test_a_tree_that_sums_up_at_a_limit_is_replayed(tmp_path: Any) -> None:
    def brain(request: Any) -> Any:
        usage = Usage(input_tokens=100, output_tokens=50, cost=0.02)
        if "boss" in request.system.split("\n")[0]:
            tasks = [{"agent_id": "kid", "prompt": str(n)} for n in range(3)]
            if turn(request) == 0:
                return Step(calls=(call("parallel_tasks", tasks=tasks),), usage=usage)
            return Step(text="summed up", usage=usage)
        if request.tools:
            return Step(calls=(call("look", place=str(turn(request))),), usage=usage)
        return Step(text="found", usage=usage)

    kid = AgentSpec(name="kid", description="k", prompt="You are kid.", tools=(look,))
    boss = AgentSpec(name="boss", description="b", prompt="You are boss.", tools=(kid, "parallel_tasks"))
    async with Retinue(model=ScriptedModel(brain), db="memory:", agents=[boss]) as r:
        report = await r.run("boss", "go", settings={"limits.max_cost": 0.5})
        assert report.text.startswith("summed up")
        path = await record(r, report.run_id, tmp_path / "tree.jsonl")
    result = await replay_file(path, tools=[look], agents=[boss])
    assert result.same, result.diff
