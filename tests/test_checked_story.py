"""Checks of what a run did: who was asked, which tools ran with what, what was refused, what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, Retinue, RunError, tool
from retinue.events import ApprovalRequested
from retinue.testing import CheckedStory, ScriptedModel, Step, call, story_of
from retinue.types import Usage

PRICES = {"apple": 0.40, "pear": 0.55}


@tool
def price(fruit: str) -> float:
    """What a fruit costs."""
    return PRICES[fruit]


@tool(effect="write")
def order(fruit: str) -> str:
    """Order one."""
    return f"ordered {fruit}"


CLERK = AgentSpec(name="clerk", description="prices", prompt="You are the clerk.", tools=[price])
BOSS = AgentSpec(name="boss", description="answers", prompt="You are the boss.", tools=[CLERK, order])


async def told(tmp_path: Path, *, approve: Any = None, cost: float | None = 0.25) -> CheckedStory:
    usage = Usage(input_tokens=10, output_tokens=5, cost=cost)
    model = ScriptedModel(
        {
            "You are the boss": [
                Step(calls=(call("clerk", prompt="both prices"),), usage=usage),
                Step(calls=(call("order", fruit="pear"),), usage=usage),
                "The pear.",
            ],
            "You are the clerk": [
                call("price", fruit="apple"),
                [call("price", fruit="pear"), call("price", fruit="plum")],
                "0.40 and 0.55",
            ],
        }
    )
    async with Retinue(
        model=model, agents=[BOSS], db="memory:", cwd=tmp_path, environ={}, approve=approve
    ) as retinue:
        report = await retinue.run("boss", "Which is dearer?")
        return await story_of(retinue, report)


async def test_what_a_tree_did_is_told_with_every_call_in_its_place(tmp_path: Path) -> None:
    story = await told(tmp_path)
    assert story.agents == ("boss", "clerk")
    assert [(each.agent, each.name, each.arguments) for each in story.calls("price")] == [
        ("clerk", "price", {"fruit": "apple"}),
        ("clerk", "price", {"fruit": "pear"}),
        ("clerk", "price", {"fruit": "plum"}),
    ]
    assert [each.is_error for each in story.calls("price")] == [False, False, True]
    assert [(each.name, each.not_run) for each in story.refusals] == [("order", "unattended")]
    story.assert_outcome("refused")
    story.assert_asked("clerk", by="boss", times=1)
    story.assert_not_asked("general")
    story.assert_called("price", {"fruit": "apple"}, by="clerk", times=1)
    story.assert_called("price", {"fruit": lambda name: name.startswith("p")}, times=2)
    story.assert_not_called("order")
    story.assert_not_called("price", {"fruit": "fig"})
    story.assert_order("clerk", "price", "price")
    story.assert_refused("order", why="unattended", times=1)
    story.assert_used_at_most(cost=0.5, tokens=90, turns=6, calls=4)


async def test_the_tree_that_a_failed_check_shows_is_what_happened(tmp_path: Path) -> None:
    story = await told(tmp_path)
    lines = str(story).splitlines()
    assert lines[0].startswith("boss  refused  3 turns, 90 tokens, $0.500")
    assert lines[1:4] == [
        "  » Which is dearer?",
        '  ▸ clerk {"prompt": "both prices"}',
        "    clerk  completed  3 turns, 45 tokens, $0",
    ]
    assert '      ▸ price {"fruit": "apple"} → 0.4' in lines
    assert '  ✗ order {"fruit": "pear"}  did not run: unattended' in lines
    assert lines[-1] == "  « The pear."
    with pytest.raises(AssertionError) as failed:
        story.assert_called("price", {"fruit": "fig"}, by="clerk")
    assert str(failed.value).startswith(
        "price never ran with fruit='fig' by clerk, not at least once; its calls: "
    )
    assert str(story) in str(failed.value)


FAILING: list[tuple[str, Any, str]] = [
    ("assert_outcome", ("completed",), "the outcome is refused, not completed"),
    ("assert_asked", ("general",), "general was never asked, not at least once; asked were: clerk"),
    ("assert_not_asked", ("clerk",), "clerk was asked 1 time, not 0 times"),
    ("assert_called", ("order",), "order never ran, not at least once"),
    ("assert_not_called", ("price",), "price ran 3 times, not 0 times"),
    ("assert_order", ("price", "clerk"), "clerk did not run in the order price, clerk"),
    ("assert_refused", ("price",), "price was never refused, not at least once"),
    ("assert_nothing_refused", (), "refused was: order"),
    ("assert_approval", ("order",), "nobody was asked about order; asked was: nothing"),
]


@pytest.mark.parametrize(("check", "given", "said"), FAILING, ids=[each[0] for each in FAILING])
async def test_each_check_fails_with_what_was_so_instead(
    tmp_path: Path, check: str, given: Any, said: str
) -> None:
    story = await told(tmp_path)
    with pytest.raises(AssertionError) as failed:
        getattr(story, check)(*given)
    assert str(failed.value).startswith(said)


@pytest.mark.parametrize(
    ("most", "said"),
    [
        ({"cost": 0.4}, r"it cost \$0.500, of \$0.400 at most"),
        ({"tokens": 80}, "it took 90 tokens, of 80 at most"),
        ({"turns": 5}, "it took 6 turns, of 5 at most"),
        ({"calls": 3}, "it took 4 calls, of 3 at most"),
    ],
)
async def test_what_took_too_much_fails(tmp_path: Path, most: Any, said: str) -> None:
    story = await told(tmp_path)
    with pytest.raises(AssertionError, match=said):
        story.assert_used_at_most(**most)


async def test_a_cost_that_is_not_known_is_more_than_any(tmp_path: Path) -> None:
    story = await told(tmp_path, cost=None)
    with pytest.raises(AssertionError, match="cost unknown"):
        story.assert_used_at_most(cost=1000)


async def test_an_answer_of_a_person_is_told_with_the_arguments_it_gave(tmp_path: Path) -> None:
    def approve(asked: ApprovalRequested) -> Answer:
        return Answer(decision="approve", arguments='{"fruit": "fig"}', by="me")

    story = await told(tmp_path, approve=approve)
    story.assert_approval("order", decision="approve")
    story.assert_called("order", {"fruit": "fig"})
    story.assert_nothing_refused()
    assert [(each.by, each.arguments) for each in story.questions] == [("me", {"fruit": "fig"})]
    with pytest.raises(AssertionError, match=r"with the answer reject; asked was: order \(approve\)"):
        story.assert_approval("order", decision="reject")


async def test_a_child_has_a_story_of_its_own_and_an_unknown_run_has_none(tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("clerk", prompt="x"), "y"], "You are the clerk": ["z"]})
    async with Retinue(model=model, agents=[BOSS], db="memory:", cwd=tmp_path, environ={}) as retinue:
        report = await retinue.run("boss", "?")
        whole = await story_of(retinue, report.run_id)
        child = await story_of(retinue, whole.runs[1].run_id)
        assert child.agents == ("clerk",)
        assert child.report is not None
        assert child.report.text == "z"
        with pytest.raises(RunError, match="there is no run 'nothing'"):
            await story_of(retinue, "nothing")
