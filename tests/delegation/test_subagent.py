"""`subagent`: a child that is given a task, some tools and a way to sum up."""

from __future__ import annotations

from typing import Any

import pytest
from delegating import ALL, answer_of, echo, error_of, inner

from retinue.events import (
    ChildStarted,
)
from trees import Stage, told, turn


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"label": " "}, "label is empty: name the task in a few words"),
        ({"task_prompt": ""}, "task_prompt is empty: say what the sub-agent should do"),
        (
            {"max_turns": 0},
            "invalid arguments for subagent: max_turns: Input should be greater than or equal to 1",
        ),
        (
            {"max_turns": 51},
            "invalid arguments for subagent: max_turns: Input should be less than or equal to 50",
        ),
        ({"allowed_tools": ["echo", "fly"]}, "unknown tool 'fly'. Your tools: echo"),
        (
            {"allowed_tools": ["subagent"]},
            "allowed_tools must not contain 'subagent': a sub-agent has it without that, as deep as the policy lets it",
        ),
    ],
)
async def test_a_wrong_subagent_call_says_why_and_starts_nothing(change: dict[str, Any], says: str) -> None:
    call = {"label": "l", "task_prompt": "t", **change}
    stage = Stage({"root": [[("subagent", call)], "done"]}, tools=[echo], yes=True, delegation__tools=ALL)
    await stage.run()
    assert error_of(stage) == says
    assert not any(isinstance(e, ChildStarted) for e in await stage.log())


async def test_a_subagent_has_its_parents_tools_but_delegation_and_ends_with_a_summary_turn() -> None:
    def play(request):
        system = request.system.split("\n")[0]
        if system == "PLAY root":
            return [("subagent", {"label": "look", "task_prompt": "task"})] if turn(request) == 0 else "done"
        if not request.tools:
            return f"summary asked: {told(request)[-1][:31]}"
        return [("echo", {"text": "x"})] if turn(request) == 0 else "a long answer"

    model_parts: dict[str, Any] = {
        "root": play,
        "You do one delegated task. Work through it with your tools, then answer.": play,
    }
    stage = Stage(model_parts, tools=[echo], yes=True, delegation__tools=ALL)
    await stage.run()
    body = answer_of(stage)
    assert inner(body["report"]) == "summary asked: Now report your findings concis"
    sub = next(requests for name, requests in stage.model.requests if name.startswith("You do one"))
    assert [spec.name for spec in sub.tools] == ["echo"]


async def test_a_subagents_own_summary_prompt_is_used_and_its_turns_are_limited() -> None:
    name = "You do one delegated task. Work through it with your tools, then answer."

    def sub(request):
        return [("echo", {"text": str(turn(request))})] if request.tools else f"told: {told(request)[-1]}"

    call = {"label": "l", "task_prompt": "t", "summary_prompt": "in one word", "max_turns": 2}
    stage = Stage(
        {"root": [[("subagent", call)], "done"], name: sub}, tools=[echo], yes=True, delegation__tools=ALL
    )
    await stage.run()
    body = answer_of(stage)
    assert body["incomplete"] == "max turns reached: 2 of 2"
    assert body["success"]
