"""Runs as resources, and `start` and `result` for clients without tasks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hosting import ERAS, filling, in_process
from mcp.shared.exceptions import MCPError
from mcp_types import TextResourceContents

from retinue.testing import ScriptedModel, call
from retinue.types import AgentSpec, ModelRequest

pytestmark = pytest.mark.parametrize("era", ERAS)
BOSS = AgentSpec(name="boss", description="answers", prompt="You are the boss.", tools=("write", "ls"))


async def read(client: Any, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def test_runs_are_resources_with_their_reports_and_transcripts(era: str, tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("ls"), "Nothing there."]})
    async with in_process(tmp_path, model, era, agents=[BOSS]) as (client, _):
        result = await client.call_tool("boss", {"prompt": "what is there?"})
        assert result.structured_content is not None
        run_id = result.structured_content["run_id"]
        (listed,) = (await client.list_resources()).resources
        assert str(listed.uri) == f"retinue://runs/{run_id}"
        assert listed.title == "boss: what is there?"
        assert len((await client.list_resource_templates()).resource_templates) == 3
        assert await read(client, f"retinue://runs/{run_id}") == "Nothing there."
        transcript = await read(client, f"retinue://runs/{run_id}/transcript")
        assert "what is there?" in transcript
        assert "ls" in transcript
        fields = json.loads(await read(client, f"retinue://runs/{run_id}/report.json"))
        assert (fields["status"], fields["tool_calls"]) == ("completed", 1)
        for wrong in ("retinue://runs/nobody", "file:///etc/passwd", f"retinue://runs/{run_id}/../x"):
            with pytest.raises(MCPError):
                await client.read_resource(wrong)


async def test_start_returns_at_once_and_result_waits_within_bounds_and_says_how_it_stands(
    era: str, tmp_path: Path
) -> None:
    go = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        await go.wait()
        return "Done."

    async with in_process(tmp_path, ScriptedModel({"You are the boss": [answer]}), era, agents=[BOSS]) as (
        client,
        _,
    ):
        await client.list_tools()
        started = (await client.call_tool("start", {"agent": "boss", "prompt": "x"})).structured_content
        assert started is not None
        given = {"run_id": started["run_id"]}
        stands = (await client.call_tool("result", {**given, "wait": 0.05})).structured_content
        assert stands is not None
        assert stands["status"] == "running"
        assert "boss at step 1" in stands["text"]
        go.set()
        ended = (await client.call_tool("result", given)).structured_content
        assert ended is not None
        assert (ended["status"], ended["text"]) == ("completed", "Done.")


async def test_a_run_that_was_started_asks_when_its_result_is_asked_for(era: str, tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "Written."]})
    said: list[str] = []
    async with in_process(
        tmp_path, model, era, agents=[BOSS], elicitation_callback=filling(said, "approve")
    ) as (client, retinue):
        started = (await client.call_tool("start", {"agent": "boss", "prompt": "x"})).structured_content
        assert started is not None
        result = await client.call_tool("result", {"run_id": started["run_id"]})
        assert result.structured_content is not None
        assert result.structured_content["text"] == "Written."
        assert len(said) == 1
        (row,) = await retinue.runs()
        assert row.outcome == "completed"


async def test_cancel_stops_what_was_started(era: str, tmp_path: Path) -> None:
    async def never(request: ModelRequest) -> str:
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel({"You are the boss": [never]})
    async with in_process(tmp_path, model, era, agents=[BOSS]) as (client, retinue):
        started = (await client.call_tool("start", {"agent": "boss", "prompt": "x"})).structured_content
        assert started is not None
        await client.call_tool("cancel", {"run_id": started["run_id"]})
        assert (await retinue.wait(started["run_id"])).status == "cancelled"
        result = await client.call_tool("result", {"run_id": started["run_id"]})
        assert result.is_error
