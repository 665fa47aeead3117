"""A parent's model is told, as facts, what its child and those below it went without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from delegating import ALL

from retinue.tools.base import tool
from trees import Stage, agent, results, told

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("doer", {"prompt": "x"}),
    ("spawn_agent", {"name": "w", "prompt": "x", "system_prompt": "PLAY doer"}),
    ("delegate_task", {"operation": "delegate", "agent_id": "doer", "prompt": "x"}),
    ("parallel_tasks", {"tasks": [{"agent_id": "doer", "prompt": "x"}]}),
    ("background", {"operation": "start", "agent_id": "doer", "prompt": "x"}),
]


@tool(effect="execute")
async def act(what: str) -> str:
    """Do it."""
    return f"did {what}"


def stage_of(way: tuple[str, dict[str, Any]], **dotted: Any) -> Stage:
    return Stage(
        {"root": [[way], "done", "done"], "doer": [[("act", {"what": "x"})], "done"]},
        agents=[agent("doer")],
        tools=[act],
        delegation__tools=list(ALL),
        **{"approvals__allow": ["spawn_agent"], **dotted},
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
@pytest.mark.parametrize("lack", ["refused", "denied"])
async def test_every_way_to_delegate_tells_what_the_child_went_without(
    way: tuple[str, dict[str, Any]], lack: str
) -> None:
    stage = stage_of(way, **({"approvals__deny": ["act"]} if lack == "denied" else {}))
    await stage.run()
    request = stage.model.of("root")[-1]
    text = told(request)[-1] if way[0] == "background" else results(request)[-1].text
    assert f' {lack}="1"' in text.replace('\\"', '"'), text
    if way[0] in ("spawn_agent", "delegate_task", "parallel_tasks"):
        body = json.loads(text)
        row = body["results"][0] if way[0] == "parallel_tasks" else body
        assert row["shortfall"] == {lack: 1}
        assert (row["success"], row["status"]) == (True, "completed")


async def test_a_child_that_lacks_nothing_is_told_as_before() -> None:
    stage = stage_of(WAYS[2], approvals__allow=["spawn_agent", "act"])
    await stage.run()
    text = results(stage.model.of("root")[-1])[-1].text
    assert "shortfall" not in json.loads(text)
    assert "refused" not in text
