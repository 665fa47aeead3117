"""A rule about an agent holds by whichever way that agent is started."""

from __future__ import annotations

import json
from typing import Any

import pytest
from delegating import ALL

from retinue.app import Retinue
from retinue.engine.answers import Answer
from retinue.events import AccessDenied, ApprovalRequested, ChildStarted
from retinue.store.memory import MemoryStore
from retinue.types import ModelRequest
from trees import Cast, Stage, agent, results, turn

NAMED = {"agent_id": "c", "prompt": "x"}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "by its own name": ("c", {"prompt": "x"}),
    "delegate_task": ("delegate_task", NAMED),
    "background": ("background", {"operation": "start", **NAMED}),
    "parallel_tasks": ("parallel_tasks", {"tasks": [{"agent_id": "d", "prompt": "x"}, NAMED]}),
}
AGAIN: dict[str, dict[str, Any]] = {
    "delegate_task": {"prompt": "more"},
    "background": {"operation": "start", "prompt": "more"},
    "spawn_agent": {"operation": "continue", "prompt": "more"},
    "subagent": {"label": "more", "task_prompt": "more"},
}


def stage_of(call: tuple[str, dict[str, Any]], *names: str, **options: Any) -> Stage:
    return Stage(
        {"root": [[call], "done", "done"], "c": ["ok"], "d": ["ok"]},
        agents=[agent(name) for name in names or ("c", "d")],
        delegation__tools=ALL,
        **options,
    )


async def started(stage: Stage) -> list[str]:
    return [e.agent for e in await stage.log() if isinstance(e, ChildStarted)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", ["c", "C", "agent:root c", "[bc]"])
async def test_an_agent_that_is_denied_is_started_by_no_way(rule: str, way: str) -> None:
    stage = stage_of(WAYS[way], yes=True, approvals__deny=[rule])
    report = await stage.run()
    assert await started(stage) == []
    assert report.shortfall.denied == 1


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_that_a_rule_asks_about_is_started_unasked_by_no_way(way: str) -> None:
    stage = stage_of(WAYS[way], yes=True, approvals__ask=["c"])
    report = await stage.run()
    assert await started(stage) == []
    assert report.shortfall.refused == 1


@pytest.mark.parametrize("way", ["delegate_task", "background"])
async def test_the_only_agent_is_under_the_rule_about_it_where_it_is_not_named(way: str) -> None:
    stage = stage_of((way, {"prompt": "x"}), "c", approvals__ask=["c"])
    assert (await stage.run()).shortfall.refused == 1
    assert await started(stage) == []


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_a_rule_with_a_pattern_asks_where_the_task_is_plain_text(action: str) -> None:
    rules = {f"approvals__{action}": ["c(secrets/**)"]}
    stage = stage_of(WAYS["delegate_task"], yes=True, **rules)
    assert (await stage.run()).shortfall.refused == 1
    assert await started(stage) == []


async def test_no_schema_names_an_agent_that_is_denied_and_the_other_one_is_meant() -> None:
    stage = stage_of(("delegate_task", {"prompt": "x"}), approvals__deny=["agent:root c"])
    await stage.run()
    assert await started(stage) == ["d"]
    schemas = {tool.name: tool.schema for tool in stage.model.of("root")[0].tools}
    for schema in (
        schemas["delegate_task"],
        schemas["background"],
        schemas["parallel_tasks"]["$defs"]["Task"],
    ):
        assert schema["properties"]["agent_id"]["enum"] == ["d"]


async def test_what_a_child_is_denied_by_a_rule_about_its_parent_is_in_no_schema_of_it() -> None:
    stage = Stage(
        {"root": [[("d", {"prompt": "x"})], "done"], "d": ["ok"]},
        agents=[agent("c"), agent("d")],
        delegation__tools=ALL,
        delegation__policy="nested",
        approvals__deny=["agent:root c"],
    )
    await stage.run()
    shown = {tool.name: tool.schema for tool in stage.model.of("d")[0].tools}
    assert "enum" not in shown["delegate_task"]["properties"]["agent_id"]


@pytest.mark.parametrize("again", AGAIN)
async def test_a_rule_asks_about_an_agent_that_is_asked_again_each_time(again: str) -> None:
    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("delegate_task", NAMED)]
        child = json.loads(results(request)[0].text)["child_id"]
        return [(again, {**AGAIN[again], "child_id": child})] if turn(request) == 1 else "done"

    async with Retinue(
        model=Cast({"root": root, "c": lambda request: "ok"}),
        db=MemoryStore(),
        agents=[agent("root"), agent("c")],
        environ={},
        answering="ask",
        approve=lambda question: Answer(decision="approve"),
        settings={"delegation.tools": ALL, "delegation.policy": "nested", "approvals.ask": ["c"]},
    ) as retinue:
        report = await retinue.run("root", "go")
        events = await retinue.store.events(report.run_id)
    questions = [e for e in events if isinstance(e, ApprovalRequested)]
    assert [e.tool for e in questions] == ["delegate_task", again]
    assert {e.reason for e in questions} == {"the rule 'c'"}
    assert {e.answers for e in questions} == {("approve", "reject")}


async def test_code_starts_no_agent_that_a_rule_denies() -> None:
    pytest.importorskip("pydantic_monty")
    code = "await delegate_task(agent_id='c', prompt='x')"
    async with Retinue(
        model=Cast({"root": [[("run_code", {"code": code})], "done"], "c": ["ok"]}),
        db=MemoryStore(),
        agents=[agent("root", mode="code", tools=("c", "delegate_task", "run_code")), agent("c")],
        environ={},
        yes=True,
        settings={"delegation.tools": ALL, "approvals.deny": ["c"]},
    ) as retinue:
        report = await retinue.run("root", "go")
        events = await retinue.store.events(report.run_id)
    assert [e.what for e in events if isinstance(e, AccessDenied)] == ["delegate_task"]
    assert not [e for e in events if isinstance(e, ChildStarted)]


async def test_what_is_approved_of_one_agent_is_not_approved_of_the_next() -> None:
    calls = [("delegate_task", {"agent_id": name, "prompt": "x"}) for name in ("d", "c")]
    asked: list[str] = []

    def approve(question: ApprovalRequested) -> Answer:
        asked.append(json.loads(question.arguments)["agent_id"])
        return Answer(decision="approve_tool" if "approve_tool" in question.answers else "approve")

    async with Retinue(
        model=Cast({"root": [[calls[0]], [calls[1]], "done"], "c": ["ok"], "d": ["ok"]}),
        db=MemoryStore(),
        agents=[agent("root"), agent("c"), agent("d")],
        environ={},
        answering="ask",
        approve=approve,
        settings={"delegation.tools": ALL, "approvals.ask": ["c"], "approvals.delegation": "all"},
    ) as retinue:
        await retinue.run("root", "go")
    assert asked == ["d", "c"]


async def test_a_child_of_an_agent_that_is_denied_is_still_looked_at_and_stopped() -> None:
    stage = stage_of(("background", {"operation": "cancel", "agent_id": "c"}), approvals__deny=["c"])
    report = await stage.run()
    assert report.shortfall.denied == 0
