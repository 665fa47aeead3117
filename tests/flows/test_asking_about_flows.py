"""What a person is asked about an address, and what the answer is good for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attacking import Attacker, events_of, results, retinue_in

from retinue.engine.answers import Answer
from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ChildStarted,
)
from retinue.store.memory import MemoryStore
from retinue.testing import call
from retinue.types import ModelRequest, ToolMessage


@pytest.mark.parametrize("decision", ["approve", "approve_run", "reject"])
async def test_a_person_is_asked_once_for_a_host_in_the_whole_workflow(
    project: Path, attacker: Attacker, decision: Any
) -> None:
    asked: list[ApprovalRequested] = []

    async def approve(question: ApprovalRequested) -> Answer:
        asked.append(question)
        await asyncio.sleep(0)
        return Answer(decision=decision)

    def play(request: ModelRequest) -> Any:
        seen = [m for m in request.messages if isinstance(m, ToolMessage)]
        if "You are `agentic-fetch`" in request.system:
            return (
                "done" if seen else call("web_fetch", url=f"{attacker.url}/{len(request.messages[0].text)}")
            )
        tasks = [{"agent_id": "agentic-fetch", "prompt": "x" * n} for n in (1, 2, 3)]
        steps = [call("read", path="notes.md"), call("parallel_tasks", tasks=tasks)]
        return steps[len(seen)] if len(seen) < 2 else "done"

    async with retinue_in(project, attacker, play, approve=approve) as retinue:
        run_id = await retinue.start("general", "go")
        await retinue.wait(run_id)
        log = await events_of(retinue, run_id)
    assert len([event for event in log if isinstance(event, ChildStarted)]) == 3
    assert [(question.tool, question.risk) for question in asked] == [("web_fetch", "high")]
    assert "notes.md" in asked[0].reason
    assert attacker.host in asked[0].reason
    assert sorted(attacker.paths()) == ([] if decision == "reject" else ["/1", "/2", "/3"])


@pytest.mark.parametrize("by_rule", [False, True])
async def test_a_question_about_a_host_names_the_rule_that_would_allow_it_unless_a_rule_asks(
    project: Path, attacker: Attacker, by_rule: bool
) -> None:
    asked: list[ApprovalRequested] = []

    async def approve(question: ApprovalRequested) -> Answer:
        asked.append(question)
        return Answer(decision="reject")

    steps = [call("read", path="notes.md"), call("web_fetch", url=f"{attacker.url}/1"), "done"]
    settings = {"approvals.ask": ["web_fetch"]} if by_rule else {}
    async with retinue_in(project, attacker, steps, approve=approve, settings=settings) as retinue:
        await retinue.run("general", "go")
    (question,) = asked
    assert "notes.md" in question.reason
    assert question.answers == (("approve", "reject") if by_rule else ("approve", "approve_always", "reject"))
    assert question.rule == ("" if by_rule else f"web_fetch({attacker.url}/*)")


async def test_who_let_data_leave_for_a_run_has_not_approved_its_tool_after_a_restart_either(
    project: Path, attacker: Attacker
) -> None:
    async def approve(question: ApprovalRequested) -> Answer:
        return Answer(decision="approve_run")

    steps = [
        call("read", path="notes.md"),
        call("web_fetch", url=f"{attacker.url}/1"),
        call("web_fetch", url=f"{attacker.url}/2"),
        "done",
    ]
    rule: dict[str, Any] = {"settings": {"approvals.ask": ["web_fetch"]}}
    async with retinue_in(project, attacker, steps, approve=approve, **rule) as retinue:
        run_id = await retinue.start("general", "go")
        await retinue.wait(run_id)
        log = await events_of(retinue, run_id)
    answered = [n for n, event in enumerate(log) if isinstance(event, ApprovalAnswered)]
    assert len(answered) == 2, "each call is asked about, since the rule says so"
    stopped = MemoryStore()
    await stopped.append([msgspec.structs.replace(event, pos=0) for event in log[: answered[0] + 1]])
    async with retinue_in(project, attacker, steps[2:], db=stopped, **rule) as retinue:
        await retinue.resume(run_id, take_over=True)
        await retinue.wait(run_id)
        log = await events_of(retinue, run_id)
    assert [event.not_run for event in results(log)] == ["", "", "unattended"]


@pytest.mark.parametrize(
    ("settings", "yes", "goes"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"approvals.allow": ["web_fetch({url}/*)"]}, False, True),
        ({"approvals.allow": ["web_fetch(http://192.0.2.1/*)"]}, False, False),
        ({"approvals.allow": ["risk:high"]}, False, False),
        ({"approvals.allow": ["web_fetch"], "approvals.deny": ["web_fetch({url}/*)"]}, True, False),
    ],
)
async def test_a_rule_of_the_person_allows_and_a_denied_host_stays_denied(
    project: Path, attacker: Attacker, settings: dict[str, list[str]], yes: bool, goes: bool
) -> None:
    chosen = {name: [rule.format(url=attacker.url) for rule in rules] for name, rules in settings.items()}
    steps = [call("read", path="notes.md"), call("web_fetch", url=f"{attacker.url}/made-up"), "done"]
    async with retinue_in(project, attacker, steps, settings=chosen, yes=yes) as retinue:
        await retinue.run("general", "go")
    assert bool(attacker.got) is goes
