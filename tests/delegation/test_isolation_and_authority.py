"""What crosses between parent and child, and what a child may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from delegating import ALL, echo

from retinue.tools.base import tool
from retinue.tools.files import file_tools
from retinue.types import AssistantMessage
from trees import Stage, agent, reply, results, told, turn


async def test_a_child_sees_its_prompt_and_its_spec_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("CANARY_ENV", "canary-environment")

    @tool(effect="read")
    async def secret() -> str:
        """Knows something."""
        return "canary-result"

    def play(request):
        if turn(request) == 0:
            return reply("canary-thought", [("secret", {})])
        if turn(request) == 1:
            return [
                ("child", {"prompt": "only this"}),
                ("spawn_agent", {"name": "s", "prompt": "and this", "system_prompt": "PLAY s"}),
            ]
        return "done"

    stage = Stage(
        {"root": play, "child": [[("echo", {"text": "hi"})], "ok"], "s": ["ok"]},
        agents=[agent("child", tools=("echo",))],
        tools=[secret, echo],
        yes=True,
    )
    await stage.run(agent("root"), prompt="canary-prompt")
    children = [request for name, request in stage.model.requests if name in ("child", "s")]
    assert len(children) == 3
    for request in children:
        seen = repr((request.system, request.messages))
        assert "canary" not in seen
        assert "root" not in seen
    assert told(stage.model.of("child")[0]) == ["only this"]


async def test_no_way_to_delegate_carries_anything_of_the_parent_down(tmp_path: Path) -> None:
    """Canaries in history, results, vault, memory, tasks and workspace; children that look for them all."""
    copy = "You do one delegated task. Work through it with your tools, then answer."
    looking: list[tuple[str, dict[str, Any] | str]] = [
        ("vault_list", {}),
        ("vault_get", {"name": "plan"}),
        ("memory_list", {}),
        ("todo", {"action": "list"}),
        ("ls", {"path": "/home/agent"}),
        ("read", {"path": "/home/agent/note.txt"}),
        ("grep", {"pattern": "canary", "path": "/home/agent"}),
    ]
    hiding: list[tuple[str, dict[str, Any] | str]] = [
        ("vault_set", {"name": "plan", "value": "canary-vault", "summary": "canary-summary"}),
        ("memory_add", {"text": "canary-memory"}),
        ("todo", {"action": "add", "texts": ["canary-task"]}),
        ("write", {"path": "/home/agent/note.txt", "content": "canary-file"}),
        ("echo", {"text": "canary-result"}),
    ]
    ways: list[tuple[str, dict[str, Any] | str]] = [
        ("child", {"prompt": "1"}),
        ("delegate_task", {"agent_id": "child", "prompt": "2"}),
        ("parallel_tasks", {"tasks": [{"agent_id": "child", "prompt": "3"}]}),
        ("background", {"operation": "start", "agent_id": "child", "prompt": "4"}),
        ("spawn_agent", {"name": "s", "prompt": "5", "system_prompt": copy}),
        ("subagent", {"label": "l", "task_prompt": "6"}),
    ]

    def child(request: Any) -> Any:
        return looking if turn(request) == 0 and request.tools else "nothing"

    stage = Stage(
        {"root": [reply("canary-thought", hiding), ways, "done"], "child": child, copy: child},
        agents=[agent("child")],
        tools=[*file_tools(), echo],
        project=tmp_path,
        yes=True,
        delegation__tools=ALL,
        delegation__max_children=6,
        delegation__parent_ends="wait",
    )
    await stage.run(agent("root"), prompt="canary-prompt")
    below = [request for name, request in stage.model.requests if name != "root"]
    prompts = {told(request)[0] for request in below}
    assert prompts == {"1", "2", "3", "4", "5", "6"}
    assert all(len(results(request)) in (0, len(looking)) for request in below)
    for request in below:
        said = [m.text for m in request.messages if not isinstance(m, AssistantMessage)]
        assert "canary" not in repr((request.system, said)).replace("no match for canary", "")
    hidden = results(stage.model.of("root")[1])
    assert [message.is_error for message in hidden] == [False] * len(hiding), "they were there to be found"


async def test_a_child_cannot_call_what_its_parent_may_not_even_if_it_asks() -> None:
    ran: list[str] = []

    @tool(effect="read")
    async def danger() -> str:
        """Must not run."""
        ran.append("danger")
        return ""

    stage = Stage(
        {"root": [[("child", {"prompt": "x"})], "done"], "child": [[("danger", {})], "ok"]},
        agents=[agent("child", tools=("danger", "echo"))],
        tools=[danger, echo],
    )
    await stage.run(agent("root", tools=("echo", "child")))
    assert ran == []
    (result,) = results(stage.model.of("child")[1])
    assert result.text == "there is no tool 'danger' here. Your tools: echo"


async def test_an_agent_without_any_usable_tool_is_not_offered() -> None:
    stage = Stage(
        {"root": ["ok"]},
        agents=[agent("webby", tools=("web_fetch",)), agent("talker", tools=())],
        tools=[echo],
    )
    await stage.run()
    assert [s.name for s in stage.model.of("root")[0].tools if s.name in ("webby", "talker")] == ["talker"]
