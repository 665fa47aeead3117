"""`delegate_task`: an agent that is there gets a task."""

from __future__ import annotations

import json

from delegating import ALL, echo, error_of, inner

from trees import Stage, agent, results


async def test_delegate_runs_a_registered_agent_with_its_own_config() -> None:
    target = agent("expert", temperature=0.3, tools=("echo",))
    stage = Stage(
        {
            "root": [
                [("delegate_task", {"operation": "list_agents"})],
                [("delegate_task", {"agent_id": "expert", "prompt": "why?"})],
                "done",
            ],
            "expert": ["because"],
        },
        agents=[target],
        tools=[echo],
        delegation__tools=ALL,
    )
    await stage.run()
    listed, delegated = results(stage.model.of("root")[-1])
    assert json.loads(listed.text) == {"agents": [{"agent_id": "expert", "description": "the agent expert"}]}
    assert inner(json.loads(delegated.text)["report"]) == "because"
    (request,) = stage.model.of("expert")
    assert (request.temperature, [spec.name for spec in request.tools]) == (0.3, ["echo"])


async def test_an_unknown_agent_is_an_error_that_lists_the_known_ones() -> None:
    stage = Stage(
        {"root": [[("delegate_task", {"agent_id": "nobody", "prompt": "x"})], "done"]},
        agents=[agent("a"), agent("b")],
        delegation__tools=ALL,
    )
    await stage.run()
    assert error_of(stage) == "there is no agent 'nobody'. Agents: a, b"
