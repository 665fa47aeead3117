"""An agent that has nothing but agents cannot work where only a root delegates: whoever asks for it reads why."""

from __future__ import annotations

from typing import Any

import pytest
from delegating import ALL

from retinue.events import ChildStarted, ToolReturned
from retinue.tools.base import tool
from trees import Stage, agent


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
