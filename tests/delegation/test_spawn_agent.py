"""`spawn_agent`: start, list and end children that are designed on the spot."""

from __future__ import annotations

import asyncio
import json

import pytest
from delegating import ALL, answer_of, echo, error_of, inner

from retinue.events import (
    ChildStarted,
    RunStarted,
)
from trees import Stage, agent, never, results, turn


async def test_spawn_gives_success_child_id_report_and_metrics() -> None:
    call = {"name": "helper", "prompt": "count", "system_prompt": "PLAY helper"}
    stage = Stage({"root": [[("spawn_agent", call)], "done"], "helper": ["three"]}, yes=True, tools=[echo])
    await stage.run()
    body = answer_of(stage)
    started = next(e for e in await stage.log() if isinstance(e, ChildStarted))
    assert (body["success"], inner(body["report"]), body["child_id"]) == (True, "three", started.child_id)
    assert set(body["metrics"]) == {"duration_ms", "tokens_input", "tokens_output"}
    child = [e for e in await stage.log(started.child_id) if isinstance(e, RunStarted)]
    assert child[0].spec.lifecycle == "temporary"
    assert child[0].tools == ("echo",), "all of its parent's tools, without the ways to delegate"


async def test_spawn_takes_tools_and_model_and_refuses_unknown_tools() -> None:
    call = {"name": "h", "prompt": "x", "system_prompt": "PLAY h", "tools": ["fly"]}
    stage = Stage({"root": [[("spawn_agent", call)], "done"]}, yes=True, tools=[echo])
    await stage.run()
    assert error_of(stage) == "unknown tool 'fly'. Your tools: echo"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({}, "the operation 'spawn' needs name and prompt"),
        ({"name": "x"}, "the operation 'spawn' needs prompt"),
        ({"name": "x", "prompt": "  "}, "the operation 'spawn' needs prompt"),
        ({"operation": "terminate"}, "the operation 'terminate' needs child_id"),
        (
            {"name": "x", "prompt": "p", "provider": "anthropic"},
            "provider is 'anthropic' and model is missing: name the model as well, or neither",
        ),
        (
            {"name": "x", "prompt": "p", "mcp_servers": ["nope", "fs"]},
            "unknown MCP server 'fs', 'nope'. Your servers: none",
        ),
        (
            {"operation": "terminate", "child_id": "c0"},
            "there is no child 'c0' of yours. Your children: none",
        ),
    ],
)
async def test_a_wrong_spawn_says_what_it_needs(call: dict[str, str], says: str) -> None:
    stage = Stage({"root": [[("spawn_agent", call)], "done"]}, yes=True)
    await stage.run()
    assert error_of(stage) == says


async def test_list_children_and_terminate() -> None:
    gone = asyncio.Event()

    async def worker(request):
        try:
            await never()
        finally:
            gone.set()

    def play(request):
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "worker", "prompt": "dig"})]
        if turn(request) == 1:
            return [("spawn_agent", {"operation": "list_children"})]
        if turn(request) == 2:
            child = json.loads(results(request)[-1].text)["children"][0]
            assert (child["agent"], child["status"], child["background"]) == ("worker", "running", True)
            return [("spawn_agent", {"operation": "terminate", "child_id": child["child_id"]})]
        return "done"

    stage = Stage({"root": play, "worker": worker}, agents=[agent("worker")], yes=True, delegation__tools=ALL)
    await stage.run()
    body = answer_of(stage)
    assert (body["success"], body["status"]) == (False, "cancelled")
    assert body["error"] == "terminated by its parent"
    assert gone.is_set()


async def test_spawning_asks_a_person_and_without_one_is_refused_with_the_rule_that_would_allow_it() -> None:
    stage = Stage({"root": [[("spawn_agent", {"name": "h", "prompt": "x"})], "done"]})
    await stage.run()
    assert error_of(stage) == (
        "refused: delegate needs a person's approval (risk medium), and this run has nobody to ask. To allow "
        'it, add "spawn_agent" to allow under [approvals] in the settings, or run with --yes (in a program: yes=True).'
    )
