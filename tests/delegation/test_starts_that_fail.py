"""Children that cannot be started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from delegating import ALL, answer_of, echo, error_of

from retinue.errors import ConfigError
from retinue.events import (
    ChildStarted,
)
from retinue.store.memory import MemoryStore
from trees import Stage, agent, results, turn

COPY = "You do one delegated task. Work through it with your tools, then answer."
"""How the part of a copy begins."""


def without_model(stage: Stage, name: str) -> None:
    """Asking for this model fails, as it does where there is no key for it."""

    def model(asked: str, parent: Any, known: Any) -> Any:
        if asked == name:
            raise ConfigError(f"no key for {name}")
        return stage.model

    stage.workflow.tree.config = replace(stage.config, model=model)


async def test_a_start_that_fails_takes_no_childs_place() -> None:
    def spawn(name: str, **more: str) -> tuple[str, dict[str, Any]]:
        return "spawn_agent", {"name": name, "prompt": "p", "system_prompt": f"PLAY {name}", **more}

    stage = Stage(
        {
            "root": [[spawn("h", model="dear:one")], [spawn("h", model="dear:one")], [spawn("h")], "done"],
            "h": ["worked"],
        },
        yes=True,
        delegation__max_children=1,
    )
    without_model(stage, "dear:one")
    await stage.run()
    assert [m.is_error for m in results(stage.model.of("root")[-1])] == [True, True, False]
    assert len(stage.workflow.tree.states()) == 2, "nothing is left of what was not started"
    assert set(stage.workflow.tree.run(stage.root_id).budget.held.values()) == {0}


async def test_a_task_that_cannot_start_loses_nobody_elses_work() -> None:
    tasks = [{"agent_id": "good", "prompt": "one"}, {"agent_id": "dear", "prompt": "two"}]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "good": ["precious work"]},
        agents=[agent("good"), agent("dear", model="dear:one")],
    )
    without_model(stage, "dear:one")
    await stage.run()
    body = answer_of(stage)
    assert (body["completed"], body["failed"]) == (1, 1)
    assert "precious work" in body["aggregated_report"]
    assert body["results"][1] == {
        "agent_id": "dear",
        "child_id": None,
        "success": False,
        "report": None,
        "error": "no key for dear:one",
    }


async def test_a_task_for_an_unknown_agent_or_without_a_prompt_is_a_row_too() -> None:
    tasks = [
        {"agent_id": "nobody", "prompt": "one"},
        {"agent_id": "good", "prompt": "two"},
        {"agent_id": "good", "prompt": " "},
    ]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "good": ["precious work"]},
        agents=[agent("good")],
    )
    report = await stage.run()
    assert (report.outcome, report.shortfall.not_started) == ("incomplete", 2)
    body = answer_of(stage)
    assert [row["success"] for row in body["results"]] == [False, True, False]
    assert body["results"][0]["error"] == "there is no agent 'nobody'. Agents: good"
    assert body["results"][2]["error"] == "the operation 'execute_batch' needs prompt"


@pytest.mark.parametrize("operation", ["check", "wait", "message", "cancel"])
async def test_a_child_that_is_none_of_yours_is_an_error_that_lists_yours(operation: str) -> None:
    def play(request):
        if turn(request) == 0:
            return [("c", {"prompt": "x"})]
        if turn(request) == 1:
            return [("background", {"operation": operation, "child_id": "nope", "text": "t"})]
        return "done"

    stage = Stage({"root": play, "c": ["ok"]}, agents=[agent("c")], delegation__tools=ALL)
    await stage.run()
    child = next(e for e in await stage.log() if isinstance(e, ChildStarted)).child_id
    assert error_of(stage) == f"there is no child 'nope' of yours. Your children: {child}"


@pytest.mark.parametrize("way", ["spawn_agent", "subagent"])
async def test_an_agent_that_a_model_makes_up_has_all_tools_but_delegation_under_flat(way: str) -> None:
    part = COPY
    calls: dict[str, Any] = {
        "spawn_agent": {"name": "h", "prompt": "x", "system_prompt": part},
        "subagent": {"label": "l", "task_prompt": "t"},
    }

    def made(request):
        if turn(request) == 0:
            return [("echo", {"text": "x"}), ("c", {"prompt": "x"}), (way, calls[way])]
        return "ok"

    stage = Stage(
        {"root": [[(way, calls[way])], "done"], part: made},
        agents=[agent("c")],
        tools=[echo],
        yes=True,
        delegation__tools=ALL,
    )
    await stage.run()
    first, second = stage.model.of(part)[:2]
    assert [spec.name for spec in first.tools] == ["echo"]
    only = "not started: the policy 'flat' lets only the root delegate, and you are at depth 1. Do the work yourself."
    assert [message.text for message in results(second)] == ["echo x", only, only]


CALLS: dict[str, Any] = {
    "c": {"prompt": "x"},
    "spawn_agent": {"name": "h", "prompt": "x", "system_prompt": "PLAY c"},
    "delegate_task": {"agent_id": "c", "prompt": "x"},
    "parallel_tasks": {"tasks": [{"agent_id": "c", "prompt": "x"}]},
    "subagent": {"label": "l", "task_prompt": "t"},
    "background": {"operation": "start", "agent_id": "c", "prompt": "x"},
}


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("way", CALLS)
async def test_a_way_to_delegate_that_the_settings_do_not_offer_is_refused(way: str, depth: int) -> None:
    """Also to an agent whose file names it: a list of tools is a wish."""
    offered = [name for name in ALL if name != ("agents" if way == "c" else way)]
    through = "delegate_task" if way != "delegate_task" else "parallel_tasks"
    start: dict[str, Any] = {"delegate_task": {"agent_id": "mid", "prompt": "x"}}
    start["parallel_tasks"] = {"tasks": [{"agent_id": "mid", "prompt": "x"}]}
    caller = [[(way, CALLS[way])], "done"]
    stage = Stage(
        {"root": [[(through, start[through])], "done"] if depth else caller, "mid": caller, "c": ["ok"]},
        agents=[agent("c"), agent("mid", tools=("echo", "c", way))],
        tools=[echo],
        yes=True,
        delegation__policy="nested",
        delegation__tools=offered,
    )
    await stage.run(agent("root", tools=("echo", "c", "mid", way, through)))
    assert error_of(stage, "mid" if depth else "root") == (
        f"not run: {way} is not among the ways to delegate here (delegation.tools: {', '.join(offered)}). "
        "Use one that you are offered, or do the work yourself."
    )
    assert sum(isinstance(e, ChildStarted) for e in await stage.log()) == depth


async def test_a_call_that_had_begun_gets_its_report_where_the_settings_offer_it_no_more() -> None:
    stage = Stage(
        {"root": [[("delegate_task", CALLS["delegate_task"])], "done"], "c": ["ok"]},
        agents=[agent("c")],
        delegation__tools=ALL,
    )
    await stage.run()
    events = await stage.log()
    left = events[: next(i for i, e in enumerate(events) if isinstance(e, ChildStarted)) + 2]
    store = MemoryStore()
    await store.append(left)
    later = Stage(stage.model, agents=[agent("c")], store=store, root_id=stage.root_id)
    report = await (await later.resume())
    assert (report.status, answer_of(later)["success"]) == ("completed", True)


TYPO = {"agent_id": "goood", "prompt": "x"}
WRONG_NAMES = {
    "delegate_task": ("delegate_task", TYPO),
    "background": ("background", {"operation": "start", **TYPO}),
    "a batch of it": ("parallel_tasks", {"tasks": [TYPO, TYPO]}),
    "a batch with it": ("parallel_tasks", {"tasks": [{"agent_id": "good", "prompt": "y"}, TYPO]}),
    "a batch in the background": ("parallel_tasks", {"tasks": [TYPO, TYPO], "wait_all": False}),
}


@pytest.mark.parametrize("way", WRONG_NAMES)
async def test_a_child_that_did_not_start_for_a_wrong_name_counts_by_every_way(way: str) -> None:
    parts: dict[str, Any] = {"root": [[WRONG_NAMES[way]], "done"], "good": ["worked"]}
    stage = Stage(parts, agents=[agent("good")], delegation__tools=ALL)
    report = await stage.run()
    [told] = results(stage.model.of("root")[-1])
    assert "there is no agent 'goood'" in told.text
    assert told.is_error or "worked" in told.text
    assert "did you mean 'good'?" in told.text
    both = way in ("a batch of it", "a batch in the background")
    assert (report.outcome, report.shortfall.not_started) == ("incomplete", 2 if both else 1)


@pytest.mark.parametrize("way", [way for way in CALLS if way != "subagent"])
async def test_a_child_whose_model_is_not_there_counts_by_every_way(way: str) -> None:
    given = CALLS[way] | ({"model": "dear:one"} if way == "spawn_agent" else {})
    stage = Stage(
        {"root": [[(way, given)], "done"]},
        agents=[agent("c", model="dear:one")],
        yes=True,
        delegation__tools=ALL,
    )
    without_model(stage, "dear:one")
    report = await stage.run()
    assert (report.outcome, report.shortfall.not_started) == ("incomplete", 1)


LOOKS = {
    "a look at a child that is none": ("background", {"operation": "check", "child_id": "nope"}),
    "a look that cannot be read": ("background", {"operation": "check", "child_id": 3}),
    "a wait that cannot be read": ("parallel_tasks", {"operation": "wait", "child_ids": 3}),
    "a made-up tool": ("frobnicate", {"prompt": "x"}),
    "a mistyped agent without its prompt": ("goood", {"promt": "x"}),
}
MISTAKES: dict[str, Any] = {
    "a batch of nothing": ("parallel_tasks", {"tasks": []}),
    "an operation that is none": ("background", {"operation": "begin", "agent_id": "good", "prompt": "x"}),
    "arguments that cannot be read": ("delegate_task", {"agent": 3}),
    "an agent without its prompt": ("good", {"promt": "x"}),
    "an agent with an empty prompt": ("good", {"prompt": ""}),
    "a task without a prompt": ("delegate_task", {"agent_id": "good"}),
    "a task without an agent": ("delegate_task", {"prompt": "x"}),
    "a task of a batch without a prompt": ("parallel_tasks", {"tasks": [{"agent_id": "good"}]}),
    "a start without a prompt": ("background", {"agent_id": "good"}),
    "a spawn without a prompt": ("spawn_agent", {"name": "x"}),
    "a spawn with a schema that is none": (
        "spawn_agent",
        {"name": "x", "prompt": "y", "output_schema": {"type": 3}},
    ),
    "a copy with an empty task": ("subagent", {"label": "x", "task_prompt": " "}),
    "a copy with too many turns": ("subagent", {"label": "x", "task_prompt": "y", "max_turns": 99}),
    "an isolation that is none": (
        "delegate_task",
        {"agent_id": "good", "prompt": "x", "isolation": "docker"},
    ),
}
NO_SUCH = {
    "an agent as a tool": ("goood", {"prompt": "x"}),
    "delegate_task": ("delegate_task", {"agent_id": "goood", "prompt": "x"}),
    "parallel_tasks": ("parallel_tasks", {"tasks": [{"agent_id": "goood", "prompt": "x"}]}),
    "background": ("background", {"agent_id": "goood", "prompt": "x"}),
    "a tool of a spawn": ("spawn_agent", {"name": "x", "prompt": "y", "tools": ["frob"]}),
    "a skill of a copy": ("subagent", {"label": "x", "task_prompt": "y", "skills": ["nope"]}),
}


@pytest.mark.parametrize("way", NO_SUCH)
async def test_what_is_not_there_counts_as_not_started_whichever_way_it_is_asked_for(way: str) -> None:
    agents = [agent("good"), agent("other")]
    stage = Stage({"root": [[NO_SUCH[way]], "done"]}, agents=agents, delegation__tools=ALL, yes=True)
    report = await stage.run()
    assert (report.outcome, report.shortfall.not_started) == ("incomplete", 1)


@pytest.mark.parametrize("way", LOOKS)
async def test_a_call_that_asks_for_no_child_counts_none(way: str) -> None:
    agents = [agent("good"), agent("other")]
    stage = Stage({"root": [[LOOKS[way]], "done"]}, agents=agents, delegation__tools=ALL, yes=True)
    report = await stage.run()
    [told] = results(stage.model.of("root")[-1])
    assert told.is_error
    assert (report.outcome, report.shortfall.not_started) == ("completed", 0)


RIGHT: dict[str, Any] = {
    "good": {"prompt": "x"},
    "spawn_agent": {"name": "h", "prompt": "x", "system_prompt": "PLAY good"},
    "delegate_task": {"agent_id": "good", "prompt": "x"},
    "parallel_tasks": {"tasks": [{"agent_id": "good", "prompt": "x"}]},
    "subagent": {"label": "l", "task_prompt": "x"},
    "background": {"operation": "start", "agent_id": "good", "prompt": "x"},
}


async def outcome_of(*replies: Any, **more: Any) -> tuple[str, int]:
    parts = {
        "root": [*replies, "done", "done"],
        "good": ["worked"] * 4,
        "other": ["worked"] * 4,
        COPY: ["worked"] * 4,
    }
    agents = [agent("good"), agent("other")]
    stage = Stage(parts, agents=agents, delegation__tools=ALL, yes=True, **more)
    report = await stage.run(agent("root"), "PLAY root")
    return report.outcome, report.shortfall.not_started


@pytest.mark.parametrize("way", MISTAKES)
async def test_a_call_whose_arguments_keep_its_child_from_starting_counts_until_it_is_corrected(
    way: str,
) -> None:
    wrong = MISTAKES[way]
    assert await outcome_of([wrong]) == ("incomplete", 1)
    assert await outcome_of([wrong], [wrong]) == ("incomplete", 1), "it is still the same child"
    assert await outcome_of([wrong], [(wrong[0], RIGHT[wrong[0]])]) == ("completed", 0)


@pytest.mark.parametrize("way", NO_SUCH)
async def test_a_name_that_is_none_is_corrected_by_a_later_call_too(way: str) -> None:
    tool = NO_SUCH[way][0] if NO_SUCH[way][0] in RIGHT else "good"
    assert await outcome_of([NO_SUCH[way]], [(tool, RIGHT[tool])]) == ("completed", 0)


async def test_an_agent_asked_in_another_way_corrects_a_call_that_named_it() -> None:
    unnamed = ("delegate_task", {"agent_id": "good", "prompt": " "})
    assert await outcome_of([unnamed], [("good", {"prompt": "x"})]) == ("completed", 0)
    assert await outcome_of([unnamed], [("other", {"prompt": "x"})]) == ("incomplete", 1)


async def test_calls_of_one_reply_correct_nothing_of_each_other() -> None:
    wrong, right = ("good", {"promt": "x"}), ("good", {"prompt": "x"})
    assert await outcome_of([wrong, right]) == ("incomplete", 1)
    assert await outcome_of([wrong, wrong], [right]) == ("incomplete", 1)
    assert await outcome_of([wrong, wrong], [right, right]) == ("completed", 0)


async def test_what_a_limit_keeps_from_starting_is_no_correction() -> None:
    wrong, right = ("delegate_task", {"agent": 3}), ("delegate_task", {"agent_id": "good", "prompt": "x"})
    limited = await outcome_of([right], [wrong], [right], delegation__max_children=1)
    assert limited == ("incomplete", 1)


async def test_a_correction_in_the_next_message_is_none_of_this_one() -> None:
    parts = {
        "root": [[("good", {"promt": "x"})], "done", [("good", {"prompt": "x"})], "done"],
        "good": ["ok"],
    }
    stage = Stage(parts, agents=[agent("good")])
    first = await stage.run()
    assert (first.outcome, first.shortfall.not_started) == ("incomplete", 1)
    later = Stage(stage.model, agents=[agent("good")], store=stage.store, root_id=stage.root_id)
    second = await (await later.resume("again"))
    assert (second.outcome, second.shortfall.not_started) == ("completed", 0)


async def test_a_mistake_of_a_child_counts_above_it() -> None:
    parts = {"root": [[("mid", {"prompt": "x"})], "done"], "mid": [[("c", {"promt": "x"})], "done"]}
    stage = Stage(parts, agents=[agent("c"), agent("mid", tools=("c",))], delegation__policy="nested")
    report = await stage.run()
    assert (report.outcome, report.shortfall.not_started) == ("incomplete", 1)


@pytest.mark.parametrize("wait", [True, False])
async def test_a_batch_that_is_refused_whole_counts_every_child_that_it_was_to_start(wait: bool) -> None:
    batch = {"tasks": [{"agent_id": "good", "prompt": str(n)} for n in range(5)], "wait_all": wait}
    stage = Stage(
        {"root": [[("parallel_tasks", batch)], "done"], "good": ["worked"]},
        agents=[agent("good")],
        delegation__max_children=4,
    )
    report = await stage.run()
    assert (report.outcome, report.shortfall.not_started) == ("incomplete", 5)
