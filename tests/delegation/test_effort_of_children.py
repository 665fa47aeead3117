"""How hard the models of a tree think: as a delegation says, else as the agent says, else as its parent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from retinue.events import ModelReplied, RunFinished, RunStarted
from retinue.story import Story
from retinue.types import ModelRequest, Reply
from retinue.view import paint
from retinue.view.picture import outline
from trees import Play, Stage, agent, reply, turn


def obeys(calls: list[tuple[str, dict[str, Any]]] | None = None, text: str = "done") -> Play:
    """A model that takes the effort it is asked for."""

    def play(request: ModelRequest) -> Reply:
        said = reply("", calls) if calls and not turn(request) else reply(text)
        return msgspec.structs.replace(said, effort=request.effort)

    return play


ALL: dict[str, Any] = {
    "delegation__tools": (
        "agents",
        "spawn_agent",
        "parallel_tasks",
        "subagent",
        "delegate_task",
        "background",
    )
}


@pytest.mark.parametrize(
    ("called", "arguments"),
    [
        ("delegate_task", {"agent_id": "helper", "prompt": "x", "effort": "high"}),
        ("spawn_agent", {"name": "PLAY", "prompt": "x", "system_prompt": "PLAY helper", "effort": "high"}),
        ("parallel_tasks", {"tasks": [{"agent_id": "helper", "prompt": "x", "effort": "high"}]}),
        ("background", {"operation": "start", "agent_id": "helper", "prompt": "x", "effort": "high"}),
    ],
)
async def test_every_way_to_delegate_takes_an_effort(called: str, arguments: dict[str, Any]) -> None:
    stage = Stage(
        {"root": obeys([(called, arguments)]), "helper": obeys()},
        agents=[agent("helper", effort="low")],
        yes=True,
        **ALL,
    )
    await stage.run(agent("root", effort="medium"))
    assert {each.effort for each in stage.model.of("helper")} == {"high"}, "it comes before the agent's own"
    assert {each.effort for each in stage.model.of("root")} == {"medium"}


async def test_a_subagent_takes_an_effort_for_its_summary_as_well() -> None:
    calls = [("subagent", {"label": "l", "task_prompt": "x", "effort": "high"})]
    stage = Stage(
        {
            "root": obeys(calls),
            "You do one delegated task. Work through it with your tools, then answer.": obeys(),
        },
        yes=True,
        **ALL,
    )
    await stage.run()
    asked = [request.effort for name, request in stage.model.requests if name != "root"]
    assert asked == ["high", "high"]


async def test_without_a_word_a_child_works_as_hard_as_its_agent_says_or_else_as_its_parent() -> None:
    calls = [("own", {"prompt": "x"}), ("none", {"prompt": "x"})]
    stage = Stage(
        {"root": obeys(calls), "own": obeys(), "none": obeys()},
        agents=[agent("own", effort="low"), agent("none")],
    )
    await stage.run(agent("root", effort="high"))
    assert [each.effort for each in stage.model.of("own")] == ["low"]
    assert [each.effort for each in stage.model.of("none")] == ["high"]


async def test_an_effort_that_is_none_starts_nothing() -> None:
    calls = [("delegate_task", {"agent_id": "helper", "prompt": "x", "effort": "highest"})]
    stage = Stage({"root": obeys(calls), "helper": obeys()}, agents=[agent("helper")], yes=True, **ALL)
    await stage.run()
    assert not stage.model.of("helper")


async def test_log_report_and_tree_say_the_effort_that_was_taken_and_no_other() -> None:
    refuses = reply("done")  # a model that has no effort says nothing of one
    calls = [("takes", {"prompt": "x"}), ("has_none", {"prompt": "x"})]
    stage = Stage(
        {"root": obeys(calls), "takes": obeys(), "has_none": lambda request: refuses},
        agents=[agent("takes"), agent("has_none")],
    )
    report = await stage.run(agent("root", effort="high"))
    log = await stage.log()
    names = {event.run_id: event.spec.name for event in log if isinstance(event, RunStarted)}
    replied = {names[e.run_id]: e.effort for e in log if isinstance(e, ModelReplied)}
    reports = {e.report.agent: e.report.effort for e in log if isinstance(e, RunFinished)}
    assert replied == reports == {"root": "high", "takes": "high", "has_none": ""}
    assert report.to_dict()["effort"] == "high"
    story = Story()
    for event in log:
        story.apply(event)
    lines = [
        "".join(text for text, _ in line) for line in outline(story, width=100, height=20, now=log[-1].at)
    ]
    assert [("high effort" in line) for line in lines] == [True, True, False]
    assert paint.cells(lines[0]) <= 100


async def test_a_resumed_run_thinks_as_hard_as_before() -> None:
    stage = Stage({"root": obeys()})
    await stage.run(agent("root", effort="low"))
    again = Stage(stage.model, store=stage.store, root_id=stage.root_id)
    await (await again.resume(message="and now?"))
    assert [each.effort for each in stage.model.of("root")] == ["low", "low"]
