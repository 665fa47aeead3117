"""What a program decides by is a field of an event or a report, never the wording of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, Retinue, tool
from retinue.errors import Refused
from retinue.events import AnyEvent, MessageReceived, RunFinished, RunStarted, ToolReturned, decode, encode
from retinue.fold import fold
from retinue.testing import ScriptedModel, call
from retinue.types import Report

STORED = Path(__file__).with_name("stored") / "log-version-1.jsonl"


@tool(effect="write")
def change(path: str) -> str:
    """Change a file."""
    return f"changed {path}"


@tool
def look(place: str) -> str:
    """Look somewhere."""
    if place == "broken":
        raise ValueError("it is broken")
    return f"saw {place}"


def boss(*tools: str, **fields: Any) -> AgentSpec:
    return AgentSpec(
        name="boss", description="answers", prompt="You are the boss.", tools=(*tools, "look"), **fields
    )


def clerk(**fields: Any) -> AgentSpec:
    given = {"tools": ("look", "change"), **fields}
    return AgentSpec(name="clerk", description="helps", prompt="You are the clerk.", **given)


async def rejects(asked: Any) -> Answer:
    return Answer(decision="reject", reason="not now")


def program(model: ScriptedModel, *agents: AgentSpec, **more: Any) -> Retinue:
    return Retinue(model=model, agents=agents, tools=[change, look], db="memory:", **more)


async def played(
    says: list[Any], *agents: AgentSpec, clerk_says: list[Any] | None = None, **more: Any
) -> tuple[Report, list[AnyEvent]]:
    model = ScriptedModel({"You are the boss": says, "You are the clerk": clerk_says or ["done"]})
    async with program(model, *agents, **more) as retinue:
        run_id = await retinue.start("boss", "go on")
        report = await retinue.wait(run_id)
        return report, await retinue.store.events(run_id)


def why_not_run(events: list[AnyEvent]) -> list[str]:
    return [event.not_run for event in events if isinstance(event, ToolReturned)]


@pytest.mark.parametrize(
    ("asked", "why", "more"),
    [
        ([call("nothing")], ["unknown_tool"], {}),
        ([call("look", where="x")], ["bad_arguments"], {}),
        ([call("change", path="a")], ["unattended"], {}),
        ([call("change", path="a")], ["rejected"], {"approve": rejects}),
        ([call("change", path="a")], ["denied"], {"settings": {"approvals.deny": ["change"]}}),
        ([call("change", path="a")], [""], {"yes": True}),
        ([call("look", place="broken")], [""], {}),
        ([[call("look", place="broken")]] * 3, ["", "", "repeated"], {}),
        ([call("clerk", prompt="x")], ["limit"], {"settings": {"delegation.enabled": False}}),
    ],
)
async def test_why_a_tool_did_not_run_is_a_fact(asked: list[Any], why: list[str], more: dict[str, Any]):
    _, events = await played([*asked, "done"], boss("change", "clerk"), clerk(), **more)
    assert why_not_run(events) == why


@pytest.mark.parametrize(
    ("says", "spec", "ended_by", "status"),
    [
        (["done"], {}, "answer", "completed"),
        (
            [call("look", place=str(n)) for n in range(3)] + ["enough"],
            {"max_turns": 2},
            "max_turns",
            "completed",
        ),
        ([call("look", place="a")] * 5 + ["enough"], {}, "circle", "completed"),
        (["", "", ""], {}, "correction", "completed"),
        (["done"], {"must_read": True}, "nothing_read", "completed"),
    ],
)
async def test_what_ended_a_run_is_a_fact(says: list[Any], spec: dict[str, Any], ended_by: str, status: str):
    report, _ = await played(says, boss(**spec))
    assert (report.ended_by, report.status) == (ended_by, status)


async def test_what_a_grandchild_went_without_is_in_every_report_above_it():
    helper = AgentSpec(name="helper", description="helps", prompt="You are the helper.", tools=("change",))
    says = {
        "You are the boss": [call("clerk", prompt="x"), "done"],
        "You are the clerk": [call("helper", prompt="y"), "done"],
        "You are the helper": [call("change", path="a"), "done"],
    }
    agents = (boss("clerk", "helper", "change"), clerk(tools=("helper", "change")), helper)
    nested = {"delegation.policy": "nested"}
    async with program(ScriptedModel(says), *agents, approve=rejects, settings=nested) as retinue:
        run_id = await retinue.start("boss", "go on")
        report = await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    assert report.outcome == "rejected"
    ends = [event.report for event in events if isinstance(event, RunFinished)]
    assert [(end.agent, end.outcome, end.shortfall.rejected) for end in ends] == [
        ("helper", "rejected", 1),
        ("clerk", "rejected", 1),
        ("boss", "rejected", 1),
    ]


async def test_a_child_that_fails_is_not_covered_by_its_parents_answer():
    failing = clerk(output_schema={"type": "object", "required": ["n"]})
    report, _ = await played(
        [call("clerk", prompt="x"), "all is well"], boss("clerk"), failing, clerk_says=["never"] * 9
    )
    assert report.status == "completed"
    assert report.shortfall.incomplete == 1
    assert report.outcome == "incomplete"
    assert report.to_dict()["outcome"] == "incomplete"


async def test_a_call_that_a_rule_denied_is_named_in_every_report_above_it_and_fails_none():
    """The rule was a person's decision before the run: who finds another way has done all that was allowed."""
    helper = AgentSpec(name="helper", description="helps", prompt="You are the helper.", tools=("change",))
    says = {
        "You are the boss": [call("clerk", prompt="x"), "done"],
        "You are the clerk": [call("helper", prompt="y"), "done"],
        "You are the helper": [call("change", path="a"), "done"],
    }
    agents = (boss("clerk", "helper", "change"), clerk(tools=("helper", "change")), helper)
    settings = {"delegation.policy": "nested", "approvals.deny": ["change"]}
    async with program(ScriptedModel(says), *agents, settings=settings) as retinue:
        run_id = await retinue.start("boss", "go on")
        report = await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
        rows = await retinue.runs()
    ends = [event.report for event in events if isinstance(event, RunFinished)]
    assert [(end.agent, end.outcome, end.shortfall.denied) for end in ends] == [
        ("helper", "completed", 1),
        ("clerk", "completed", 1),
        ("boss", "completed", 1),
    ]
    assert {row.agent: row.denied for row in rows} == {"helper": 1, "clerk": 1, "boss": 1}
    assert report.to_dict()["denied"] == report.to_dict()["shortfall"]["denied"] == 1


async def test_an_edit_to_what_a_rule_denies_is_counted_as_denied():
    async def edits(asked: Any) -> Answer:
        return Answer(decision="approve", arguments='{"path": "secret"}')

    report, events = await played(
        [call("change", path="a"), "done"],
        boss("change"),
        approve=edits,
        settings={"approvals.deny": ["change(secret)"]},
    )
    assert why_not_run(events) == ["denied"]
    assert (report.outcome, report.shortfall.denied) == ("completed", 1)


async def test_what_no_run_may_do_at_all_is_not_blamed_on_a_rule():
    @tool
    def closed() -> str:
        """Ask for what no run may have."""
        raise Refused("refused: this is nobody's")

    model = ScriptedModel({"You are the boss": [call("closed"), "done"]})
    async with Retinue(model=model, agents=[boss("closed")], tools=[closed, look], db="memory:") as retinue:
        run_id = await retinue.start("boss", "go on")
        report = await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    assert why_not_run(events) == ["forbidden"]
    assert report.shortfall.denied == 0


async def test_children_that_a_limit_kept_from_starting_are_counted():
    says = [[call("clerk", prompt=str(n)) for n in range(5)], "done"]
    three = {"delegation.agent_calls": 3}
    report, events = await played(says, boss("clerk"), clerk(), clerk_says=["done"] * 5, settings=three)
    assert report.shortfall.not_started == 2
    assert sorted(why_not_run(events)) == ["", "", "", "limit", "limit"]
    assert report.outcome == "incomplete"


async def test_the_next_turn_of_a_conversation_does_not_inherit_what_the_last_one_lacked():
    says = {"You are the boss": [call("change", path="a"), "no", "now it is fine"]}
    async with program(ScriptedModel(says), boss("change"), approve=rejects) as retinue:
        run_id = await retinue.start("boss", "change a")
        assert (await retinue.wait(run_id)).outcome == "rejected"
        await retinue.resume(run_id, message="never mind")
        assert (await retinue.wait(run_id)).outcome == "completed"


async def test_a_correction_says_what_it_is_about_and_tells_people_no_orders():
    form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    report, events = await played(["many", "", "many"], boss(output_schema=form))
    said = [event.about for event in events if isinstance(event, MessageReceived)]
    assert said == ["form", "empty"]
    assert "Answer again" not in (report.incomplete or "")


def stored() -> list[AnyEvent]:
    return [decode(line) for line in STORED.read_bytes().splitlines()]


def test_a_log_of_the_first_version_still_decodes_and_means_what_it_meant():
    events = stored()
    by_run: dict[str, list[AnyEvent]] = {}
    for event in events:
        by_run.setdefault(event.run_id, []).append(event)
    root = fold(by_run[events[0].root_id])
    assert root.started is not None
    assert root.started.options.settings == {"limits.max_turns": 9}
    assert root.report is not None
    assert root.report.status == "completed"
    assert root.shortfall.rejected == 0, "the rejection was in the turn before"
    assert len(root.children) == len(root.ended) == 3
    assert [decode(encode(event)) for event in events] == events


def test_the_prompt_of_an_old_log_is_one_part():
    from retinue.context import sections
    from retinue.settings import ContextSettings

    began = stored()[0]
    assert isinstance(began, RunStarted)
    assert [part.title for part in sections(began, (), ContextSettings())] == ["agent", "tools", "question"]
