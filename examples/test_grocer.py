"""Tests of an agent: what it did, not how it words it; and an evaluation on several cases.

    pytest test_grocer.py               # with pytest-asyncio and asyncio_mode = "auto"
    python test_grocer.py               # the same without pytest

A scripted model plays the agent. For an evaluation on a real one, give `Retinue(model="provider:model")`.
"""

from __future__ import annotations

import asyncio

from retinue import AgentSpec, Answer, Retinue, tool
from retinue.events import ApprovalRequested
from retinue.testing import EvalCase, EvalRun, Expect, ScriptedModel, call, evaluate, story_of

PRICES = {"apple": 0.40, "pear": 0.55}


@tool
def price(fruit: str) -> float:
    """What one piece of a fruit costs, in euros."""
    return PRICES[fruit]


@tool(effect="spend")
def order(fruit: str) -> str:
    """Order one piece of a fruit."""
    return f"ordered: {fruit}"


GROCER = AgentSpec(
    name="grocer",
    description="Use for prices of fruit, and to order it.",
    prompt="You are the grocer. Look prices up, never guess one. Order only what costs less than 50 cents.",
    tools=[price, order],
)


async def test_the_grocer_looks_before_it_orders() -> None:
    def approve(asked: ApprovalRequested) -> Answer:
        return Answer(decision="approve")

    with ScriptedModel([call("price", fruit="apple"), call("order", fruit="apple"), "Done."]) as model:
        async with Retinue(model=model, agents=[GROCER], approve=approve, db="memory:") as retinue:
            story = await story_of(retinue, await retinue.run("grocer", "An apple, please."))
    story.assert_outcome("completed")
    story.assert_order("price", "order")
    story.assert_called("order", {"fruit": "apple"}, times=1)
    story.assert_approval("order", decision="approve")


async def test_nothing_is_ordered_where_nobody_can_say_yes() -> None:
    with ScriptedModel([call("order", fruit="apple"), "I may not."]) as model:
        async with Retinue(model=model, agents=[GROCER], db="memory:") as retinue:
            story = await story_of(retinue, await retinue.run("grocer", "An apple, please."))
    story.assert_outcome("refused")
    story.assert_refused("order", why="unattended")
    story.assert_not_called("order")


def looked_before_it_said_a_price(run: EvalRun) -> None:
    if "0." in run.report.text:
        run.story.assert_called("price")


async def test_the_grocer_passes_its_cases() -> None:
    cases = [
        EvalCase(name="pear", prompt="What is a pear?", expect=Expect(says=("0.55",), max_turns=3)),
        EvalCase(name="fig", prompt="What is a fig?", expect=Expect(not_called=("order",))),
    ]
    script = ScriptedModel(
        {"a pear": [call("price", fruit="pear"), "0.55 euros"], "a fig": ["We have none."]}
    )
    async with Retinue(model=script, agents=[GROCER], db="memory:") as retinue:
        result = await evaluate("grocer", cases, [looked_before_it_said_a_price], retinue=retinue)
    print(result.table())
    result.assert_passed()


async def main() -> None:
    await test_the_grocer_looks_before_it_orders()
    await test_nothing_is_ordered_where_nobody_can_say_yes()
    await test_the_grocer_passes_its_cases()
    print("completed")


if __name__ == "__main__":
    asyncio.run(main())
