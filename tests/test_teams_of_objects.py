"""A team is built of objects: functions, tools and agents, each written once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import AgentSpec, Retinue, tool
from retinue.errors import ConfigError
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest, Report, ToolMessage


def population(city: str) -> int:
    """How many people live in a city."""
    return {"Bern": 134_000}.get(city, 0)


@tool(effect="read")
async def area(city: str) -> str:
    """How large a city is."""
    return "51 km²"


CLERK = AgentSpec(name="clerk", description="looks cities up", prompt="PLAY clerk", tools=[population, area])
LEAD = AgentSpec(name="lead", description="leads", prompt="PLAY lead", tools=[CLERK])


def opened(model: ScriptedModel, *agents: AgentSpec, **options: Any) -> Retinue:
    return Retinue(model=model, agents=agents, db="memory:", project=False, environ={}, yes=True, **options)


def results(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, ToolMessage)]


async def test_a_lead_is_given_an_agent_and_the_agent_its_functions_and_nothing_is_listed_twice() -> None:
    model = ScriptedModel(
        {
            "PLAY lead": [call("clerk", prompt="look up Bern"), "Bern is small."],
            "PLAY clerk": [[call("population", city="Bern"), call("area", city="Bern")], "134,000 on 51 km²"],
        }
    )
    async with opened(model, LEAD) as retinue:
        report = await retinue.run("lead", "how large is Bern?")
    assert report.outcome == "completed"
    lead, clerk = (next(r for r in model.requests if who in r.system) for who in ("PLAY lead", "PLAY clerk"))
    assert [each.name for each in lead.tools] == ["clerk"]
    assert {each.name for each in clerk.tools} == {"population", "area"}
    told = next(r for r in model.requests if "PLAY clerk" in r.system and results(r))
    assert results(told) == ["134000", "51 km²"]


async def test_authority_only_shrinks_whoever_is_given_what() -> None:
    """An agent that is named, and not given, brings nothing that its parent was not given."""
    sneaky = AgentSpec(name="sneaky", description="s", prompt="PLAY sneaky", tools=["population"])
    narrow = AgentSpec(name="narrow", description="n", prompt="PLAY narrow", tools=["sneaky"])
    async with opened(ScriptedModel([]), narrow, sneaky, tools=[population]) as retinue:
        with pytest.raises(ConfigError, match="add population to the tools of narrow"):
            await retinue.run("narrow", "go")


def test_what_agents_hold_is_held_for_them_and_shown_to_nobody_else() -> None:
    assert (LEAD.tools, LEAD.shown) == (("clerk", "population", "area"), ("clerk",))
    assert (CLERK.tools, CLERK.shown) == (("population", "area"), None)
    boss = AgentSpec(name="boss", description="b", prompt="p", tools=[LEAD, area], shown=[LEAD])
    assert (boss.tools, boss.shown) == (("lead", "area", "clerk", "population"), ("lead",))


def test_what_is_kept_of_a_spec_are_names() -> None:
    again = msgspec.json.decode(msgspec.json.encode(LEAD), type=AgentSpec)
    assert again == LEAD
    assert type(again.tools) is tuple


def test_one_function_for_two_agents_is_one_tool_and_two_of_one_name_are_an_error() -> None:
    def other() -> str:
        """Another."""
        return ""

    other.__name__ = "population"
    second = AgentSpec(name="second", description="s", prompt="p", tools=[population])
    boss = AgentSpec(name="boss", description="b", prompt="p", tools=[LEAD, CLERK, second])
    opened(ScriptedModel([]), LEAD, boss, second, tools=[population])
    third = AgentSpec(name="third", description="t", prompt="p", tools=[other])
    with pytest.raises(ConfigError, match="two tools are named 'population'"):
        opened(ScriptedModel([]), LEAD, third)
    clerk = AgentSpec(name="clerk", description="another", prompt="p")
    with pytest.raises(ConfigError, match="two agents are named 'clerk'"):
        opened(ScriptedModel([]), LEAD, clerk)


@pytest.mark.parametrize("given", [[3], [None], ["read", object()]])
def test_what_is_no_tool_is_said_at_once(given: Any) -> None:
    with pytest.raises(TypeError, match=r"tools holds .*: write names, or for tools the tools themselves"):
        AgentSpec(name="a", description="d", prompt="p", tools=given)


async def short(report: Report) -> str:
    await asyncio.sleep(0)
    return f"{report.agent}: {len(report.text)} letters"


async def hangs(report: Report) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (short, "clerk: 13 letters"),
        (lambda report: report.text.upper(), "WHAT I FOUND."),
        (lambda report: 7, "What I found."),
        (lambda report: 1 / 0, "What I found."),
        (hangs, "What I found."),
    ],
)
async def test_a_function_says_what_a_parent_is_told_of_a_report(
    function: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.threads.BRIEFLY", 0.2 if function is hangs else 10.0)
    clerk = AgentSpec(name="clerk", description="c", prompt="PLAY clerk", tools=[], summary=function)
    lead = AgentSpec(name="lead", description="l", prompt="PLAY lead", tools=[clerk])
    model = ScriptedModel({"PLAY lead": [call("clerk", prompt="x"), "done"], "PLAY clerk": ["What I found."]})
    db = str(tmp_path / "runs.db")
    async with Retinue(model=model, agents=[lead], db=db, project=False, environ={}) as retinue:
        report = await retinue.run("lead", "go")
        (child,) = [row for row in await retinue.store.tree(report.run_id) if row.agent == "clerk"]
        whole = await retinue.wait(child.run_id)
    assert told in results(model.requests[-1])[0]
    assert whole.text == "What I found."  # the report itself is as it was written


async def test_a_team_is_replayed_where_its_program_is_not(tmp_path: Path) -> None:
    """A registered agent says itself what it is shown: what it is not shown are tools like others."""
    lead = AgentSpec(name="lead", description="l", prompt="PLAY lead", tools=[area, CLERK])
    model = ScriptedModel(
        {
            "PLAY lead": [call("area", city="Bern"), call("clerk", prompt="look up Bern"), "done"],
            "PLAY clerk": [call("population", city="Bern"), "134,000"],
        }
    )
    db = str(tmp_path / "runs.db")
    async with Retinue(model=model, agents=[lead], db=db, project=False, environ={}) as retinue:
        report = await retinue.run("lead", "go")
    async with Retinue(model="offline", db=db, project=False, environ={}) as retinue:
        replayed = await retinue.replay(report.run_id)
    assert replayed.same, replayed.diff


async def test_an_agent_in_code_mode_has_its_tool_below_one_that_is_not() -> None:
    clerk = AgentSpec(name="clerk", description="c", prompt="You are clerk.", tools=[look], mode="code")
    boss = AgentSpec(name="boss", description="b", prompt="You are boss.", tools=[clerk])
    model = ScriptedModel(
        {
            "You are boss": [call("clerk", prompt="count"), "done"],
            "You are clerk": [call("run_code", code="print(await look(n=1))"), "saw it"],
        }
    )
    async with Retinue(model=model, db="memory:", project=False, agents=[boss], yes=True) as retinue:
        report = await retinue.run("boss", "go")
    assert report.outcome == "completed"
    asked = {tuple(each.name for each in request.tools) for request in model.requests}
    assert asked == {("clerk",), ("run_code",)}, "who is given an agent in code mode is not shown its tool"
    assert any("saw 1" in message.text for request in model.requests for message in request.messages)


@tool(effect="read")
def look(n: int) -> str:
    """Look.

    Args:
        n: at what
    """
    return f"saw {n}"
