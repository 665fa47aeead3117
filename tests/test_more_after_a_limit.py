"""A run that a limit has ended goes on from where it stopped, once there is more of it; else it is said what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Retinue, tool
from retinue.errors import ConfigError
from retinue.store.base import RunFilter, RunRow
from retinue.testing import ScriptedModel, Step, call
from retinue.types import ModelRequest, Usage


@tool(effect="read")
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty"


CLERK = AgentSpec(name="clerk", description="looks", prompt="You are the clerk.", tools=[look], max_turns=1)
BOSS = AgentSpec(name="boss", description="asks", prompt="You are the boss.", tools=[CLERK, look])


def spoken(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


async def child_of(retinue: Retinue, run_id: str) -> RunRow:
    [row] = await retinue.runs(RunFilter(parent_id=run_id))
    return row


def playing(*steps: Any) -> ScriptedModel:
    return ScriptedModel({"You are the boss": [call("look", place="here"), *steps]})


async def test_a_run_at_its_turn_limit_goes_on_from_where_it_stopped_with_more_turns(tmp_path: Path) -> None:
    model = playing("so far", call("look", place="there"), "all of it")
    async with Retinue(model=model, agents=[BOSS], db=str(tmp_path / "a.db"), cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look", settings={"limits.max_turns": 1})
        assert (first.text, first.ended_by) == ("so far", "max_turns")
        await retinue.resume(first.run_id, settings={"limits.max_turns": 3})
        report = await retinue.wait(first.run_id)
    assert (report.text, report.outcome, report.incomplete) == ("all of it", "completed", None)
    assert spoken(model.requests[2]) == spoken(model.requests[1])[:-1], (
        "without being told to write its report"
    )
    assert "so far" not in spoken(model.requests[3])


async def test_turns_that_were_made_before_count_when_a_run_goes_on_without_a_word(tmp_path: Path) -> None:
    model = playing("so far", call("look", place="there"), "a little more")
    async with Retinue(model=model, agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look", settings={"limits.max_turns": 1})
        await retinue.resume(first.run_id, settings={"limits.max_turns": 2})
        report = await retinue.wait(first.run_id)
    assert (report.text, report.incomplete) == ("a little more", "max turns reached: 2 of 2")


@pytest.mark.parametrize("given", [{}, {"limits.max_turns": 1}])
async def test_without_more_turns_it_says_what_to_do_and_does_nothing(
    tmp_path: Path, given: dict[str, int]
) -> None:
    async with Retinue(model=playing("so far"), agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look", settings={"limits.max_turns": 1})
        before = await retinue.store.events(first.run_id)
        with pytest.raises(ConfigError) as caught:
            await retinue.resume(first.run_id, settings=given)
        assert await retinue.store.events(first.run_id) == before
    said = str(caught.value)
    assert "max turns reached: 1 of 1" in said
    assert 'settings={"limits.max_turns": …}' in said
    assert "message=…" in said


async def test_whoever_says_something_to_it_finds_its_answer_in_the_conversation(tmp_path: Path) -> None:
    model = playing("so far", "all of it")
    async with Retinue(model=model, agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look", settings={"limits.max_turns": 1})
        await retinue.resume(first.run_id, message="go on", settings={"limits.max_turns": 3})
        report = await retinue.wait(first.run_id)
    assert report.text == "all of it"
    assert spoken(model.requests[2])[-2:] == ["so far", "go on"]


def paid(text: str) -> Step:
    return Step(text=text, usage=Usage(input_tokens=10, output_tokens=5, cost=0.01))


async def test_a_run_that_has_spent_its_money_goes_on_with_more_and_not_without(tmp_path: Path) -> None:
    dear = Step(calls=(call("look", place="here"),), usage=Usage(input_tokens=10, output_tokens=5, cost=0.01))
    model = ScriptedModel({"You are the boss": [dear, paid("all of it")]})
    async with Retinue(model=model, agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look", settings={"limits.max_cost": 0.005})
        assert first.ended_by == "budget"
        with pytest.raises(ConfigError, match=r"limits\.max_cost"):
            await retinue.resume(first.run_id)
        with pytest.raises(ConfigError, match=r"\$0\.0080 \(limits\.max_cost\)"):
            await retinue.resume(first.run_id, settings={"limits.max_cost": 0.008})
        await retinue.resume(first.run_id, settings={"limits.max_cost": 1.0})
        report = await retinue.wait(first.run_id)
    assert (report.text, report.outcome) == ("all of it", "completed")


async def test_a_run_without_a_limit_to_raise_is_told_to_be_spoken_to(tmp_path: Path) -> None:
    async with Retinue(model=playing("all"), agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look")
        with pytest.raises(ConfigError, match="nothing to resume") as caught:
            await retinue.resume(first.run_id, settings={"limits.max_turns": 60})
    assert "message=…" in str(caught.value)
    assert "max_turns" not in str(caught.value)


def with_clerk(*steps: Any) -> ScriptedModel:
    return ScriptedModel(
        {
            "You are the boss": [
                call("clerk", prompt="look"),
                "the clerk got so far",
                "the clerk got it all",
            ],
            "You are the clerk": [call("look", place="here"), "so far", *steps],
        }
    )


@pytest.mark.parametrize("message", [None, "go on, please"])
async def test_a_child_at_its_turn_limit_goes_on_with_more_turns(tmp_path: Path, message: str | None) -> None:
    model = with_clerk(call("look", place="there"), call("look", place="behind"), "all of it")
    async with Retinue(model=model, agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look")
        child = await child_of(retinue, first.run_id)
        assert child.outcome == "incomplete"
        await retinue.resume(child.run_id, message=message, settings={"limits.max_turns": 3})
        report = await retinue.wait(first.run_id)
        after = await retinue.store.run(child.run_id)
    assert after is not None
    assert (after.outcome, report.text, report.outcome) == ("completed", "the clerk got it all", "completed")


async def test_the_turns_that_a_child_is_given_are_not_its_roots(tmp_path: Path) -> None:
    model = ScriptedModel(
        {
            "You are the boss": [
                call("clerk", prompt="look"),
                "so far",
                call("look", place="a"),
                call("look", place="b"),
                "by myself",
            ],
            "You are the clerk": [call("look", place="here"), "so far", "all of it"],
        }
    )
    async with Retinue(model=model, agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look")
        child = await child_of(retinue, first.run_id)
        await retinue.resume(child.run_id, settings={"limits.max_turns": 2})
        report = await retinue.wait(first.run_id)
    assert (report.text, report.incomplete) == ("by myself", None)


async def test_a_child_at_its_limit_is_named_with_what_to_do(tmp_path: Path) -> None:
    async with Retinue(model=with_clerk(), agents=[BOSS], db="memory:", cwd=tmp_path) as retinue:
        first = await retinue.run("boss", "look")
        child = await child_of(retinue, first.run_id)
        with pytest.raises(ConfigError) as caught:
            await retinue.resume(child.run_id)
    said = str(caught.value)
    assert said.startswith(child.run_id)
    assert "max turns reached: 1 of 1" in said
    assert 'settings={"limits.max_turns": …}' in said
