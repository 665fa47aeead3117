"""Agents as tools of a host, in both eras of the protocol: lists, calls, progress, questions, cancels."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest
from hosting import ERAS, filling, in_process
from mcp_types import CallToolResult, ElicitResult, TextContent

from retinue.events import CancelRequested, RunStarted
from retinue.store.base import RunFilter
from retinue.testing import ScriptedModel, call
from retinue.types import AgentSpec, ModelRequest

pytestmark = pytest.mark.parametrize("era", ERAS)
BOSS = AgentSpec(name="boss", description="answers", prompt="You are the boss.", tools=("clerk", "write"))
CLERK = AgentSpec(
    name="clerk",
    description="Use for numbers.",
    prompt="You are the clerk.",
    tools=("write",),
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"people": {"$ref": "#/$defs/Count"}},
        "required": ["people"],
        "$defs": {"Count": {"type": "integer"}},
    },
)
AGENTS = (BOSS, CLERK)


def text_of(result: CallToolResult) -> str:
    return "".join(each.text for each in result.content if isinstance(each, TextContent))


async def test_every_agent_is_a_tool_with_its_own_schemas(era: str, tmp_path: Path) -> None:
    async with in_process(tmp_path, ScriptedModel({}), era, agents=AGENTS) as (client, _):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"boss", "clerk", "code-search", "general", "ask", "start", "result", "cancel"} <= tools.keys()
        assert tools["clerk"].input_schema == CLERK.input_schema
        schema = tools["clerk"].output_schema
        assert schema is not None
        assert schema["properties"]["data"]["properties"] == {"people": {"$ref": "#/$defs/Count"}}
        assert schema["$defs"] == {"Count": {"type": "integer"}}
        assert "research" in tools  # as every agent


async def test_a_call_gives_the_report_with_its_fields_and_tells_of_each_step_of_the_tree(
    era: str, tmp_path: Path
) -> None:
    model = ScriptedModel(
        {
            "You are the boss": [call("clerk", city="Lyon"), "Lyon has 520,000."],
            "You are the clerk": ['{"people": 520000}', '{"people": 520000}'],
        }
    )
    told: list[tuple[float, str]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))

    async with in_process(tmp_path, model, era, agents=AGENTS) as (client, retinue):
        await client.list_tools()  # from now on the client holds results against their schemas
        result = await client.call_tool("boss", {"prompt": "how many?"}, progress_callback=hear)
        assert not result.is_error
        assert text_of(result) == "Lyon has 520,000."
        fields = result.structured_content
        assert fields is not None
        assert (fields["status"], fields["outcome"], fields["text"]) == (
            "completed",
            "completed",
            "Lyon has 520,000.",
        )
        assert fields["children"] == {"started": 1, "not_started": 0, "completed": 1}
        assert fields["usage"]["total_tokens"] > 0
        lines = [line for _, line in told]
        assert "boss: step 1" in lines
        assert "boss › clerk: step 1" in lines
        assert "boss: clerk ended, completed" in lines
        assert [count for count, _ in told] == sorted({count for count, _ in told})
        row = (await retinue.runs(RunFilter(roots_only=True)))[0]
        assert row.run_id == fields["run_id"]

        typed = await client.call_tool("clerk", {"city": "Lyon"})
        assert typed.structured_content is not None
        assert typed.structured_content["data"] == {"people": 520000}


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("clerk", {"town": "Lyon"}, "cannot use these arguments"),
        ("nobody", {"prompt": "x"}, "known agents"),
        ("ask", {}, "prompt is missing"),
        ("result", {"run_id": "r0", "wait": 0}, "there is no run 'r0'"),
        ("result", {"run_id": "r0", "wait": 9999}, "from 0 to 50"),
        ("start", {"agent": "boss"}, "one of prompt and arguments"),
    ],
)
async def test_what_is_wrong_with_a_call_is_a_tool_error_that_says_what_to_do(
    era: str, tmp_path: Path, tool: str, given: dict[str, Any], says: str
) -> None:
    async with in_process(tmp_path, ScriptedModel({}), era, agents=AGENTS) as (client, _):
        result = await client.call_tool(tool, given)
        assert result.is_error
        assert says in text_of(result)


async def test_a_run_that_fails_is_a_tool_error_with_its_fields(era: str, tmp_path: Path) -> None:
    async with in_process(tmp_path, ScriptedModel({}), era, agents=AGENTS) as (client, _):
        result = await client.call_tool("boss", {"prompt": "x"})
        assert result.is_error
        assert result.structured_content is not None
        assert result.structured_content["status"] == "error"


async def test_a_person_at_the_host_answers_in_a_form(era: str, tmp_path: Path) -> None:
    asks = call("write", path="a.txt", content="hello")
    model = ScriptedModel({"You are the boss": [[asks, call("write", path="b.txt", content="x")], "Done."]})
    said: list[str] = []
    fill = filling(said, "approve")
    async with in_process(tmp_path, model, era, agents=AGENTS, elicitation_callback=fill) as (client, _):
        result = await client.call_tool("boss", {"prompt": "write"})
        assert text_of(result) == "Done."
        assert (tmp_path / "a.txt").read_text() == "hello"
        assert sum("a.txt" in question for question in said) == 1
        assert len(said) == 2


async def test_what_a_person_rejects_does_not_run_and_the_agent_reads_why(era: str, tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "I could not."]})
    fill = filling([], "reject", reason="not today")
    async with in_process(tmp_path, model, era, agents=AGENTS, elicitation_callback=fill) as (client, _):
        result = await client.call_tool("boss", {"prompt": "write"})
        assert result.structured_content is not None
        assert result.structured_content["outcome"] == "rejected"
        assert not (tmp_path / "a.txt").exists()
        assert "not today" in str(model.requests[-1].messages)


async def test_without_a_form_it_is_refused_with_the_rule_that_would_allow_it(
    era: str, tmp_path: Path
) -> None:
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "I could not."]})
    async with in_process(tmp_path, model, era, agents=AGENTS) as (client, _):
        result = await client.call_tool("boss", {"prompt": "write"})
        fields = result.structured_content
        assert fields is not None
        assert fields["outcome"] == "refused"
        assert fields["refused"][0]["tool"] == "write"
        assert 'add "write(a.txt)" to allow' in fields["refused"][0]["said"]
        assert 'add "write(a.txt)" to allow' in text_of(result)
        assert not (tmp_path / "a.txt").exists()


async def test_without_a_form_it_can_wait_for_an_answer_from_elsewhere(era: str, tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "Written."]})
    async with in_process(tmp_path, model, era, agents=AGENTS, waits=True) as (client, retinue):

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            for asked in await retinue.approvals():
                await retinue.answer(asked.approval_id, "approve", by="the page")

        result = await client.call_tool("boss", {"prompt": "write"}, progress_callback=hear)
        assert text_of(result) == "Written."
        assert (tmp_path / "a.txt").exists()


async def test_an_answer_from_elsewhere_counts_and_the_form_is_withdrawn(era: str, tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "Written."]})

    async def fill(context: Any, params: Any) -> ElicitResult:
        (asked,) = await retinue.approvals()
        await retinue.answer(asked.approval_id, "approve", by="the page")
        if era == "legacy":
            await asyncio.Event().wait()  # until it is taken away
        return ElicitResult(action="accept", content={"decision": "reject"})  # too late

    async with in_process(tmp_path, model, era, agents=AGENTS, elicitation_callback=fill) as (
        client,
        retinue,
    ):
        async with asyncio.timeout(30):
            result = await client.call_tool("boss", {"prompt": "write"})
        assert text_of(result) == "Written."


async def test_a_call_that_is_dropped_cancels_its_whole_tree(era: str, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def wait(request: ModelRequest) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel({"You are the boss": [call("clerk", city="Lyon")], "You are the clerk": [wait]})
    async with in_process(tmp_path, model, era, agents=AGENTS) as (client, retinue):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "boss", {"prompt": "x"})
            await begun.wait()
            tasks.cancel_scope.cancel()
        rows = await retinue.runs(RunFilter())
        async with asyncio.timeout(20):
            for row in rows:
                await retinue.wait(row.run_id)
        assert {row.status for row in await retinue.runs(RunFilter())} == {"cancelled"}
        assert len(rows) == 2
        told = [
            event
            for event in await retinue.store.events(rows[0].root_id)
            if isinstance(event, CancelRequested)
        ]
        assert told[0].reason == "the host dropped the call"


async def test_a_run_stands_below_the_span_that_the_call_names(era: str, tmp_path: Path) -> None:
    above = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    model = ScriptedModel({"boss": ["done"]})
    async with in_process(tmp_path, model, era, agents=AGENTS) as (client, retinue):
        await client.call_tool("boss", {"prompt": "go"}, meta={"traceparent": above})
        (row,) = await retinue.store.runs(RunFilter())
        began = (await retinue.store.events(row.root_id))[0]
    assert isinstance(began, RunStarted)
    assert began.options.traceparent == above
