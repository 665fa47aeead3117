"""Tasks over the log: their states, questions and cancels, and a task that outlives kill -9."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hosting import TASKS, TaskHandle, WithTasks, World, filling, in_process, task
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, InputRequiredResult

from retinue.app import Retinue
from retinue.testing import FakeProvider, Script, ScriptedModel, SeenRequest, call
from retinue.types import AgentSpec, ModelRequest

ERA = "2026-07-28"
BOSS = AgentSpec(name="boss", description="answers", prompt="You are the boss.", tools=("write",))


async def begun(client: Client, tool: str, **given: Any) -> TaskHandle:
    handle = await client.session.call_tool(tool, given, allow_claimed=True)
    assert isinstance(handle, TaskHandle)
    return handle


async def ended(client: Client, task_id: str) -> Any:
    """The task once it is over: asked for again and again, as clients do."""
    async with asyncio.timeout(60):
        while (state := await task(client, "tasks/get", task_id)).status == "working":
            await asyncio.sleep(0.02)
    return state


async def test_a_client_with_tasks_gets_a_handle_that_is_the_run_and_then_its_result(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        await go.wait()
        return "Done."

    model = ScriptedModel({"You are the boss": [answer]})
    async with in_process(tmp_path, model, "auto", agents=[BOSS], extensions=[WithTasks()]) as (
        client,
        retinue,
    ):
        assert not {"start", "result"} & {tool.name for tool in (await client.list_tools()).tools}
        capabilities = client.server_capabilities
        assert capabilities is not None
        assert capabilities.extensions == {TASKS: {}}
        handle = await begun(client, "boss", prompt="x")
        assert handle.status == "working"
        assert [row.run_id for row in await retinue.runs()] == [handle.task_id]
        state = await task(client, "tasks/get", handle.task_id)
        assert (state.status, state.result) == ("working", None)
        assert "boss at step 1" in (state.status_message or "")
        go.set()
        state = await ended(client, handle.task_id)
        assert state.status == "completed"
        assert state.result is not None
        assert state.result["structuredContent"]["text"] == "Done."
        again = await task(client, "tasks/get", handle.task_id)
        assert again.result == state.result


async def test_a_question_of_a_task_is_input_required_and_answered_by_an_update(tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "Written."]})
    forms = filling([], "approve")
    async with in_process(
        tmp_path, model, ERA, agents=[BOSS], extensions=[WithTasks()], elicitation_callback=forms
    ) as (client, retinue):
        handle = await begun(client, "boss", prompt="x")
        state = await ended(client, handle.task_id)
        assert state.status == "input_required"
        assert state.input_requests is not None
        ((key, request),) = state.input_requests.items()
        assert request["method"] == "elicitation/create"
        assert "a.txt" in request["params"]["message"]
        assert [asked.approval_id for asked in await retinue.approvals()] == [key]  # on the page too
        said = {"action": "accept", "content": {"decision": "approve"}}
        await task(client, "tasks/update", handle.task_id, input_responses={"unknown": said})
        assert (await task(client, "tasks/get", handle.task_id)).status == "input_required"
        await task(client, "tasks/update", handle.task_id, input_responses={key: said})
        await retinue.wait(handle.task_id)
        assert (await ended(client, handle.task_id)).status == "completed"
        assert (tmp_path / "a.txt").exists()


async def test_a_question_of_a_task_still_waits_after_a_restart(tmp_path: Path) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "Written."]})
    more: Any = {
        "agents": [BOSS],
        "extensions": [WithTasks()],
        "elicitation_callback": filling([], "approve"),
    }
    async with in_process(tmp_path, model, ERA, db=db, **more) as (client, retinue):
        handle = await begun(client, "boss", prompt="x")
        asked = (await ended(client, handle.task_id)).input_requests
        await retinue.leave()
    async with in_process(tmp_path, model, ERA, db=db, **more) as (client, _):
        state = await ended(client, handle.task_id)
        assert (state.status, state.input_requests) == ("input_required", asked)
        said = {key: {"action": "accept", "content": {"decision": "approve"}} for key in asked or {}}
        await task(client, "tasks/update", handle.task_id, input_responses=said)
        async with asyncio.timeout(60):
            while (state := await task(client, "tasks/get", handle.task_id)).status != "completed":
                await asyncio.sleep(0.02)
    assert (tmp_path / "a.txt").exists()


async def test_questions_that_are_open_at_once_come_in_one_round(tmp_path: Path) -> None:
    """A client without tasks is answered with them, and calls again: it does so only so often."""
    asks = [call("asker", prompt="a"), call("asker", prompt="b"), call("asker", prompt="c")]
    boss = AgentSpec(name="boss", description="x", prompt="You are the boss.", tools=("asker", "write"))
    asker = AgentSpec(name="asker", description="asks", prompt="You ask.", tools=("write",))

    def answer(request: ModelRequest) -> Any:
        if "You are the boss" in request.system:
            return "Done." if len(request.messages) > 1 else asks
        asked = request.messages[0].text
        return (
            "Written."
            if request.messages[-1].text != asked
            else call("write", path=f"{asked}.txt", content="x")
        )

    forms = filling([], "approve")
    async with in_process(
        tmp_path, ScriptedModel(answer), ERA, agents=[boss, asker], elicitation_callback=forms
    ) as (client, _):
        first = await client.session.call_tool("boss", {"prompt": "x"}, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        assert len(first.input_requests or {}) == 3
        said = ElicitResult(action="accept", content={"decision": "approve"})
        last = await client.session.call_tool(
            "boss",
            {"prompt": "x"},
            input_responses=dict.fromkeys(first.input_requests or {}, said),
            request_state=first.request_state,
        )
        assert last.structured_content is not None
        assert last.structured_content["children"]["completed"] == 3
    assert {path.name for path in tmp_path.glob("*.txt")} == {"a.txt", "b.txt", "c.txt"}


async def test_a_cancelled_task_ends_with_its_tree(tmp_path: Path) -> None:
    async def never(request: ModelRequest) -> str:
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel({"You are the boss": [never]})
    async with in_process(tmp_path, model, ERA, agents=[BOSS], extensions=[WithTasks()]) as (client, retinue):
        handle = await begun(client, "boss", prompt="x")
        await task(client, "tasks/cancel", handle.task_id)
        state = await ended(client, handle.task_id)
        assert state.status == "cancelled"
        assert [row.status for row in await retinue.runs()] == ["cancelled"]
        await task(client, "tasks/cancel", handle.task_id)  # what has ended is acknowledged too


async def test_a_run_that_failed_is_a_completed_task_with_an_error_of_the_tool(tmp_path: Path) -> None:
    async with in_process(tmp_path, ScriptedModel({}), ERA, agents=[BOSS], extensions=[WithTasks()]) as (
        client,
        _,
    ):
        state = await ended(client, (await begun(client, "boss", prompt="x")).task_id)
        assert state.status == "completed"
        assert state.result is not None
        assert state.result["isError"]


@pytest.mark.parametrize("task_id", ["nothing", "", "r" * 5000, "../../etc/passwd", "a\0b"])
async def test_an_unknown_task_is_an_error_of_the_parameters(tmp_path: Path, task_id: str) -> None:
    async with in_process(tmp_path, ScriptedModel({}), ERA, extensions=[WithTasks()]) as (client, _):
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            more = {"input_responses": {}} if method == "tasks/update" else {}
            with pytest.raises(MCPError) as refused:
                await task(client, method, task_id, **more)
            assert refused.value.error.code == -32602


async def test_who_did_not_declare_tasks_is_told_what_is_missing(tmp_path: Path) -> None:
    async with in_process(tmp_path, ScriptedModel({}), ERA) as (client, _):
        with pytest.raises(MCPError) as refused:
            await task(client, "tasks/get", "r1")
        assert refused.value.error.code == -32021
        assert refused.value.error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_a_run_of_another_folder_is_no_task_here(tmp_path: Path) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    here.mkdir()
    async with Retinue(model=ScriptedModel(["Done."]), db=db, cwd=elsewhere, agents=[BOSS]) as other:
        run_id = (await other.run("boss", "x")).run_id
    async with in_process(here, ScriptedModel({}), ERA, db=db, extensions=[WithTasks()]) as (client, _):
        with pytest.raises(MCPError):
            await task(client, "tasks/get", run_id)


async def test_a_task_survives_kill_9_and_is_paid_for_once(tmp_path: Path) -> None:
    second, go = asyncio.Event(), asyncio.Event()

    async def answer(request: SeenRequest) -> Script:
        if request.turn == 0:
            return Script(calls=(call("ls"),))
        second.set()
        return Script(text="Found it.", gate=go)

    async with FakeProvider(answer) as provider:
        world = World(tmp_path, provider)
        async with world.host(ERA, extensions=[WithTasks()]) as client:
            handle = await begun(client, "general", prompt="look")
            await second.wait()  # the first answer is paid for, the second was asked for
            world.kill()
        go.set()
        async with world.host(ERA, extensions=[WithTasks()]) as client:
            state = await ended(client, handle.task_id)
            assert state.status == "completed"
            assert state.result is not None
            assert state.result["structuredContent"]["text"] == "Found it."
        assert provider.served == 2
