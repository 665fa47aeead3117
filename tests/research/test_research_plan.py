"""The plan is shown to a person where one is there, who may change it; else the work goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from research.world import results
from retinue import Retinue
from retinue.events import ApprovalRequested, ToolReturned
from retinue.testing import ScriptedModel
from retinue.testing.script import call
from retinue.types import ModelRequest

QUESTIONS = ["How high is it?", "Who made it?"]


def plans(request: ModelRequest) -> Any:
    return "done" if results(request) else call("research_plan", questions=QUESTIONS)


async def planned(
    tmp_path: Path, answer: dict[str, Any] | None, **how: Any
) -> tuple[list[ToolReturned], list[ApprovalRequested]]:
    """What came of a plan: `answer` is what a person says to it, None where nobody is there."""
    async with Retinue(
        model=ScriptedModel(plans),
        db="memory:",
        cwd=tmp_path,
        environ={},
        answering="refuse" if answer is None else "ask",
    ) as retinue:
        run_id = await retinue.start("research", {"question": "Tell me."}, **how)
        if answer is not None:
            async for event in retinue.watch(run_id):
                if isinstance(event, ApprovalRequested):
                    await retinue.answer(event.approval_id, **answer)
                    break
        await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    asked = [e for e in events if isinstance(e, ApprovalRequested)]
    return [e for e in events if isinstance(e, ToolReturned)], asked


def texts(returned: ToolReturned) -> list[str]:
    return [each.text for each in returned.plan.questions] if returned.plan else []


async def test_unattended_the_work_goes_on_with_the_plan(tmp_path: Path) -> None:
    (returned,), asked = await planned(tmp_path, None)
    assert texts(returned) == QUESTIONS
    assert returned.plan is not None
    assert not returned.plan.by_person
    assert asked == []


async def test_what_a_person_changes_in_the_plan_is_the_plan(tmp_path: Path) -> None:
    filled = '{"question_1": "-", "question_2": "Who paid for it?", "another": "When did it open?"}'
    (returned,), (asked,) = await planned(tmp_path, {"decision": "approve", "arguments": filled})
    assert texts(returned) == ["Who paid for it?", "When did it open?"]
    assert returned.plan is not None
    assert returned.plan.by_person
    assert asked.answer_by is not None, "it does not wait for ever"
    assert "MCP" not in asked.reason


async def test_a_plan_that_a_person_declines_is_not_gone_on_with(tmp_path: Path) -> None:
    (returned,), _ = await planned(tmp_path, {"decision": "reject"})
    assert returned.is_error
    assert returned.plan is None


async def test_as_a_child_of_a_flat_root_it_works_alone_and_asks_nobody(tmp_path: Path) -> None:
    def say(request: ModelRequest) -> Any:
        names = {tool.name for tool in request.tools}
        if "research_plan" in names:
            seen.append(names)
            return plans(request)
        return "done" if results(request) else call("research", question="Tell me.")

    seen: list[set[str]] = []
    async with Retinue(model=ScriptedModel(say), db="memory:", cwd=tmp_path, environ={}) as retinue:
        run_id = await retinue.start("general", "go", settings={"delegation.policy": "flat"})
        await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    assert seen
    assert all("parallel_tasks" not in names and "agentic-fetch" not in names for names in seen)
    assert not any(isinstance(event, ApprovalRequested) for event in events)
    plan = next(e for e in events if isinstance(e, ToolReturned) and e.name == "research_plan")
    assert "no sub-agents" in plan.text
