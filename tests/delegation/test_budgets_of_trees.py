"""Budgets of whole trees."""

from __future__ import annotations

from delegating import answer_of, echo, error_of

from retinue.tools.base import ToolResult, tool
from retinue.types import Limits, Usage
from trees import Stage, agent, results, turn


async def test_a_tree_out_of_budget_ends_with_a_report_that_says_so() -> None:
    def play(request):
        return [("echo", {"text": str(turn(request))})]

    stage = Stage({"root": play}, tools=[echo], limits__tree_turns=3)
    report = await stage.run()
    assert report.turns == 3
    assert report.incomplete == (
        "the budget is used up: 0 model calls left of 3 model calls (limits.tree_turns)"
    )
    assert "echo 2" in report.text


async def test_a_child_that_finds_no_budget_is_refused_and_told_what_is_left() -> None:
    def play(request):
        return [("child", {"prompt": "x"})] if turn(request) == 0 else "done"

    stage = Stage({"root": play}, agents=[agent("child")], limits__tree_turns=2)
    await stage.run()
    assert error_of(stage) == (
        "not started: 1 model calls left of 2 model calls (limits.tree_turns), which is not enough for another "
        "child. Finish with what you have."
    )


async def test_children_never_spend_more_than_the_tree_has() -> None:
    def worker(request):
        return [("echo", {"text": str(turn(request))})]

    tasks = [{"agent_id": "w", "prompt": str(n)} for n in range(3)]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "w": worker},
        agents=[agent("w", max_turns=50)],
        tools=[echo],
        limits__tree_turns=20,
    )
    await stage.run()
    assert len(stage.model.requests) <= 20
    rows = answer_of(stage)["results"]
    assert all("budget is used up" in row["incomplete"] for row in rows)


async def test_what_a_tool_spends_counts_against_the_budget_of_the_tree() -> None:
    @tool(effect="read")
    async def dear(number: int) -> ToolResult:
        """Costs a dollar."""
        return ToolResult(text=f"result {number}", usage=Usage(cost=1.0))

    stage = Stage(
        {
            "root": [[("child", {"prompt": "x"})], "done"],
            "child": lambda request: [("dear", {"number": turn(request)})],
        },
        agents=[agent("child", limits=Limits(cost=10))],
        tools=[dear],
        limits__max_cost=2.5,
    )
    report = await stage.run()
    assert report.incomplete == "the budget is used up: $0.0000 left of $2.5000 (limits.max_cost)"
    assert report.usage.cost is not None
    assert 3 <= report.usage.cost < 3.1


async def test_a_childs_own_limits_hold() -> None:
    worker = agent("w", limits=Limits(turns=2), max_turns=50)
    stage = Stage(
        {"root": [[("w", {"prompt": "x"})], "done"], "w": lambda r: [("echo", {"text": str(turn(r))})]},
        agents=[worker],
        tools=[echo],
    )
    await stage.run()
    assert len(stage.model.of("w")) == 2
    assert (
        "[incomplete: the budget is used up: 0 model calls left of 2 model calls (limits.turns of w)]"
        in results(stage.model.of("root")[1])[0].text
    )
