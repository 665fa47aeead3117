"""An agent that has nothing but agents cannot work where only a root delegates: whoever asks for it reads why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from delegating import ALL

from retinue.events import ChildStarted, ToolReturned
from retinue.tools.base import tool
from trees import Stage, agent, results


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


TASK = {"agent_id": "lead", "prompt": "x"}
WAYS: list[tuple[str, dict[str, Any]]] = [
    ("lead", {"prompt": "x"}),
    ("delegate_task", TASK),
    ("parallel_tasks", {"tasks": [TASK]}),
    ("background", {"operation": "start", **TASK}),
]


async def asked(
    way: tuple[str, dict[str, Any]], kid: tuple[str, ...] = (), **dotted: Any
) -> tuple[list[str], list[str]]:
    """What the root was told, and whom it started."""
    stage = Stage(
        {"root": [[way], "done", "done"], "lead": [[("kid", {"prompt": "x"})], "led"], "kid": ["done"]},
        agents=[agent("lead", tools=("kid",)), agent("kid", tools=kid)],
        tools=[look],
        delegation__tools=ALL,
        yes=True,
        **dotted,
    )
    await stage.run()
    log = [e for e in await stage.log() if e.run_id == stage.root_id]
    return (
        [e.text for e in log if isinstance(e, ToolReturned)],
        [e.agent for e in log if isinstance(e, ChildStarted)],
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
async def test_under_flat_every_way_says_why_it_cannot_start_and_what_lets_it(
    way: tuple[str, dict[str, Any]],
) -> None:
    (said,), started = await asked(way)
    assert "the agent 'lead' cannot be started here: all it would have are agents (kid)" in said
    assert "delegation.policy" in said
    assert started == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
async def test_under_nested_it_starts(way: tuple[str, dict[str, Any]]) -> None:
    _, started = await asked(way, delegation__policy="nested")
    assert started == ["lead"]


async def test_where_its_agents_would_have_no_tool_either_it_has_to_name_those() -> None:
    (said,), started = await asked(WAYS[1], kid=("look",), delegation__policy="nested")
    assert "these would have none of their tools: it has to name those as well" in said
    assert started == []


async def test_where_the_depth_ends_the_limit_is_named() -> None:
    (said,), _ = await asked(WAYS[1], delegation__policy="nested", delegation__max_depth=2)
    assert "delegation.max_depth" in said


async def test_of_an_agent_that_may_not_be_named_here_it_is_said_why() -> None:
    def calls(name: str) -> Any:
        return [("delegate_task", {"agent_id": name, "prompt": "x"})]

    boss = msgspec.structs.replace(agent("boss"), tools=("clerk", "delegate_task"))
    stage = Stage(
        {"boss": [calls("boss"), calls("reader"), calls("clerc"), calls("nobody at all"), "done"]},
        agents=[boss, agent("clerk"), agent("reader")],
        delegation__tools=("delegate_task",),
    )
    await stage.run(boss)
    itself, other, nearly, nobody = (result.text for result in results(stage.model.of("boss")[-1]))
    assert "the agent 'boss' cannot be started here: no agent starts itself. Agents: clerk" in itself
    assert "'reader' cannot be started here: it is not among the tools of boss. Agents: clerk" in other
    assert "there is no agent 'clerc'. did you mean 'clerk'? Agents: clerk" in nearly
    assert "there is no agent 'nobody at all'. Agents: clerk" in nobody
