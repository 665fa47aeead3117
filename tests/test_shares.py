"""Shares of a budget fit what is asked for, whatever the shape of the tree; a limit that was raised is the limit."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retinue.budget import Budget, Places
from retinue.errors import Refused
from retinue.events import ChildStarted, RunFinished
from retinue.tools.base import tool
from retinue.types import Limits
from trees import Stage, agent, results, told, turn

ALL = ("agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background")


@tool(effect="read")
async def echo(text: str) -> str:
    """Say it again."""
    return f"echo {text}"


async def ended(stage: Stage) -> dict[str, int]:
    """How many runs of each agent came to a report without anything missing."""
    found: dict[str, int] = {}
    for event in await stage.log():
        if isinstance(event, RunFinished) and event.report.outcome == "completed":
            found[event.report.agent] = found.get(event.report.agent, 0) + 1
    return found


@pytest.mark.parametrize("wait_all", [True, False])
async def test_27_tasks_of_one_nested_parent_all_run(wait_all: bool) -> None:
    tasks = [{"agent_id": "leaf", "prompt": str(n)} for n in range(27)]

    def root(request: Any) -> Any:
        return [("parallel_tasks", {"tasks": tasks, "wait_all": wait_all})] if turn(request) == 0 else "done"

    stage = Stage(
        {"root": root, "leaf": lambda r: f"leaf {told(r)[0]}"},
        agents=[agent("leaf")],
        delegation__policy="nested",
        delegation__parent_ends="wait",
    )
    await stage.run()
    assert await ended(stage) == {"root": 1, "leaf": 27}


async def test_one_child_may_have_all_the_others_below_it() -> None:
    tasks = [{"agent_id": "leaf", "prompt": str(n)} for n in range(26)]
    middle = [("parallel_tasks", {"tasks": tasks})]
    stage = Stage(
        {
            "root": [[("parallel_tasks", {"tasks": [{"agent_id": "middle", "prompt": "all"}]})], "done"],
            "middle": [middle, "done"],
            "leaf": lambda r: [("echo", {"text": str(turn(r))})] if turn(r) < 9 else "found",
        },
        agents=[agent("middle"), agent("leaf")],
        tools=[echo],
        delegation__policy="nested",
    )
    await stage.run()
    assert await ended(stage) == {"root": 1, "middle": 1, "leaf": 26}


async def test_children_that_are_started_one_after_the_other_and_go_on_all_find_their_share() -> None:
    """None ends before the last has started."""
    go = asyncio.Event()

    def root(request: Any) -> Any:
        if turn(request) < 27:
            return [("background", {"operation": "start", "agent_id": "leaf", "prompt": str(turn(request))})]
        go.set()
        return "done"

    async def leaf(request: Any) -> str:
        await go.wait()
        return f"leaf {told(request)[0]}"

    stage = Stage(
        {"root": root, "leaf": leaf},
        agents=[agent("leaf")],
        delegation__tools=ALL,
        delegation__policy="nested",
        delegation__parent_ends="wait",
        delegation__concurrency=27,
        limits__max_turns=60,
    )
    await stage.run()
    assert await ended(stage) == {"root": 1, "leaf": 27}


async def test_as_many_calls_of_an_agent_run_as_the_settings_allow() -> None:
    """As 5,000 of 20,000 do; these are fewer, for the sake of whoever waits for the tests."""
    calls: list[Any] = [("leaf", {"prompt": str(n)}) for n in range(100)]
    stage = Stage(
        {"root": [calls, "done"], "leaf": lambda r: "ok"},
        agents=[agent("leaf")],
        delegation__max_children=20_000,
    )
    await stage.run()
    assert await ended(stage) == {"root": 1, "leaf": 100}


async def test_a_child_makes_as_many_model_calls_as_its_definition_allows() -> None:
    def leaf(request: Any) -> Any:
        return [("echo", {"text": str(turn(request))})] if turn(request) < 599 else "at last"

    stage = Stage(
        {"root": [[("leaf", {"prompt": "x"})], "done"], "leaf": leaf},
        agents=[agent("leaf", max_turns=600)],
        tools=[echo],
        limits__timeout=3600,
        context__max_tokens=10_000_000,
    )
    await stage.run()
    assert await ended(stage) == {"root": 1, "leaf": 1}
    assert len(stage.model.of("leaf")) == 600


async def test_a_limit_on_the_tree_holds_for_all_together_and_one_child_may_use_what_nobody_else_does() -> (
    None
):
    def leaf(request: Any) -> Any:
        return [("echo", {"text": str(turn(request))})] if turn(request) < 14 else "found"

    stage = Stage(
        {"root": [[("leaf", {"prompt": "x"})], "done"], "leaf": leaf},
        agents=[agent("leaf", max_turns=50)],
        tools=[echo],
        limits__tree_turns=18,
    )
    assert (await stage.run()).outcome == "completed"


def test_every_child_that_there_may_be_is_sure_of_its_part_whatever_the_others_do() -> None:
    root = Budget(Limits(turns=40), sharers=3)
    first = root.carve(Limits(), name="first")
    second = root.carve(Limits(), name="second")
    spent = 0
    while first.left("turns"):
        first.begin_turn("r")
        spent += 1
    assert spent == 20, "its own ten, and the ten of a third that is not there; not those of two who are"
    assert second.left("turns") == 10
    assert root.left("turns") == 10


def test_a_child_below_an_agents_own_limit_lives_within_it() -> None:
    root = Budget(Limits(turns=400), sharers=3)
    boss = root.carve(Limits(turns=20), name="boss")
    leaf = boss.carve(Limits(), name="leaf")
    assert boss.share["turns"] == 20
    assert leaf.share["turns"] == 5
    assert leaf.left("turns") == 15, "the boss keeps its own part of it"
    for _ in range(15):
        leaf.begin_turn("r")
    assert root.held["turns"] == 5, "what the leaf used is no longer held for the boss"
    assert boss.left("turns") == 5
    leaf.release()
    boss.release()
    assert root.held["turns"] == 0
    assert root.left("turns") == 385


# -- a refusal names the limit that refused ------------------------------------------------------------------------


async def test_an_agents_own_number_of_children_is_named_and_not_the_setting() -> None:
    calls: list[Any] = [("leaf", {"prompt": str(n)}) for n in range(3)]
    stage = Stage(
        {"root": [calls, "done"], "leaf": lambda r: "ok"},
        agents=[agent("leaf")],
        delegation__max_children=10,
    )
    await stage.run(agent("root", limits=Limits(children=2)))
    refused = [m.text for m in results(stage.model.of("root")[-1]) if m.is_error]
    assert refused == [
        "not started: 2 of 2 children already started (limits.children of root). Work with the reports you have."
    ]


async def test_the_limit_of_an_agent_in_the_middle_is_named() -> None:
    spawns: list[Any] = [
        ("spawn_agent", {"name": f"s{n}", "prompt": "x", "system_prompt": "PLAY leaf"}) for n in range(2)
    ]
    stage = Stage(
        {"root": [[("boss", {"prompt": "x"})], "done"], "boss": [spawns, "done"], "leaf": lambda r: "ok"},
        agents=[agent("boss", limits=Limits(children=1))],
        delegation__policy="nested",
        yes=True,
    )
    await stage.run()
    refused = [m.text for m in results(stage.model.of("boss")[-1]) if m.is_error]
    assert refused == [
        "not started: 1 of 1 children already started (limits.children of boss). Work with the reports you have."
    ]


def test_a_refusal_for_want_of_budget_names_whose_limit_it_is() -> None:
    root = Budget(Limits(turns=1000), sharers=3, says={"turns": "limits.tree_turns"})
    boss = root.carve(Limits(turns=1), name="boss")
    boss.begin_turn("r")
    with pytest.raises(Refused) as refused:
        boss.carve(Limits(), name="leaf")
    assert str(refused.value) == (
        "not started: 0 model calls left of 1 model calls (limits.turns of boss), which is not enough for another "
        "child. Finish with what you have."
    )


async def test_at_the_last_level_every_way_to_delegate_is_refused_by_its_depth() -> None:
    """Also an agent that a model made up, which holds none of them."""

    def play(request: Any) -> Any:
        if turn(request) == 0:
            return [("subagent", {"label": "l", "task_prompt": "t"})]
        return results(request)[-1].text

    stage = Stage(
        {"root": play, "You do one delegated task. Work through it with your tools, then answer.": play},
        delegation__tools=ALL,
        yes=True,
    )
    report = await stage.run()
    body = json.loads(report.text)
    assert (
        "not started: the policy 'flat' lets only the root delegate, and you are at depth 1."
        in body["report"]
    )


# -- agents as tools are counted apart -----------------------------------------------------------------------------


async def test_agents_called_as_tools_take_no_place_of_spawned_children_and_have_a_ceiling_of_their_own() -> (
    None
):
    calls: list[Any] = [("leaf", {"prompt": str(n)}) for n in range(26)]
    spawns: list[Any] = [
        ("spawn_agent", {"name": f"s{n}", "prompt": "x", "system_prompt": "PLAY leaf"}) for n in range(4)
    ]
    stage = Stage({"root": [calls, spawns, "done"], "leaf": lambda r: "ok"}, agents=[agent("leaf")], yes=True)
    await stage.run()
    started = [e for e in await stage.log() if isinstance(e, ChildStarted)]
    assert (sum(e.as_tool for e in started), sum(not e.as_tool for e in started)) == (24, 3)
    refused = [m.text for m in results(stage.model.of("root")[-1]) if m.is_error]
    assert refused == [
        *2
        * [
            "not started: 24 of 24 agents already called for this message (policy flat, "
            "delegation.agent_calls = 24). Work with the reports you have."
        ],
        "not started: 3 of 3 children already started for this message (policy flat, "
        "delegation.max_children = 3). Work with the reports you have.",
    ]


async def test_the_ceiling_of_agents_as_tools_is_a_setting() -> None:
    calls: list[Any] = [("leaf", {"prompt": str(n)}) for n in range(3)]
    stage = Stage(
        {"root": [calls, "done"], "leaf": lambda r: "ok"},
        agents=[agent("leaf")],
        delegation__agent_calls=2,
    )
    await stage.run()
    assert await ended(stage) == {"leaf": 2}


# -- a batch is refused as a whole ---------------------------------------------------------------------------------


async def test_a_batch_of_more_tasks_than_allowed_starts_nothing() -> None:
    tasks = [{"agent_id": "leaf", "prompt": str(n)} for n in range(5)]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "leaf": lambda r: "ok"},
        agents=[agent("leaf")],
    )
    await stage.run()
    assert not [e for e in await stage.log() if isinstance(e, ChildStarted)]
    assert results(stage.model.of("root")[-1])[0].text == (
        "not started, none of them: 5 tasks, and room for 3 of 3 children (policy flat, "
        "delegation.max_children = 3). Give at most 3 tasks."
    )


async def test_of_two_batches_at_one_instant_one_runs_whole_and_one_not_at_all() -> None:
    batches: list[Any] = [
        ("parallel_tasks", {"tasks": [{"agent_id": "leaf", "prompt": f"{b}{n}"} for n in range(2)]})
        for b in "ab"
    ]
    stage = Stage(
        {"root": [batches, "done"], "leaf": lambda r: "ok"},
        agents=[agent("leaf")],
    )
    await stage.run()
    first, second = results(stage.model.of("root")[-1])
    assert (first.is_error, second.is_error) == (False, True)
    assert json.loads(first.text)["completed"] == 2
    assert "not started, none of them: 2 tasks, and room for 1 of 3 children" in second.text
    held = stage.workflow.tree.live[stage.root_id].run.budget.held["children"]
    assert held == 0, "a place that is held is given back"


def test_places_that_are_held_for_a_batch_are_nobody_elses() -> None:
    root = Budget(Limits(), places=[Places(most=3, says="s", counts="delegated")])
    held = root.hold_places(2)
    root.admit_child()
    with pytest.raises(Refused):
        root.admit_child()
    held.take()
    root.admit_child()
    held.close()
    root.check_children()
    with pytest.raises(Refused):
        root.check_children(2)
