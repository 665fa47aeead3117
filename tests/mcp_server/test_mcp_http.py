"""Hosts over streamable HTTP: tokens, whose runs are whose, requests from elsewhere, dropped requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from hosting import ERAS, TaskHandle, WithTasks, filling, task
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from retinue.app import Retinue
from retinue.mcp_server.hosted import HostedRuns
from retinue.mcp_server.http import StartRate, endpoint
from retinue.server.app import create_app
from retinue.server.limits import RateLimits
from retinue.server.security import Token
from retinue.server.serving import serve
from retinue.store.base import RunFilter
from retinue.testing import ScriptedModel, call
from retinue.types import AgentSpec, ModelRequest

BOSS = AgentSpec(name="boss", description="answers", prompt="You are the boss.", tools=("write",))
SECRETS = {name: f"rtn_{name}_0123456789abcdef" for name in ("alice", "bob", "carol", "root")}
TOKENS = [
    Token.of("alice", "approve", SECRETS["alice"]),
    Token.of("bob", "ask", SECRETS["bob"]),
    Token.of("carol", "watch", SECRETS["carol"]),
    Token.of("root", "admin", SECRETS["root"]),
]
DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}


@asynccontextmanager
async def serving(
    folder: Path, model: ScriptedModel, *, tokens: Any = (), limits: RateLimits | None = None
) -> AsyncGenerator[tuple[str, Retinue]]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    limits = limits or RateLimits()
    async with Retinue(model=model, cwd=folder, db="memory:", agents=[BOSS], answering="ask") as retinue:
        hosted = HostedRuns(retinue, admit=StartRate(limits))
        async with endpoint(hosted, limits) as route:
            app = create_app(retinue, tokens=tokens, limits=limits, routes=[route], stopping=hosted.leave)
            running = asyncio.create_task(
                name="serving",
                coro=serve(retinue, app, port=0, ready=ready.set_result, resume=False),
            )
            try:
                yield await ready, retinue
            finally:
                await stop(running)


async def stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.wait([running])


@asynccontextmanager
async def host(url: str, era: str, name: str = "", **more: Any) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {SECRETS[name]}"} if name else {}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=era, **more) as client:
            yield client


@pytest.mark.parametrize("era", ERAS)
async def test_two_hosts_at_once_call_answer_and_follow_over_http(era: str, tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> Any:
        asked = request.messages[0].text
        if request.messages[-1].text != asked:
            return "Written."
        return call("write", path=f"{asked[:1]}.txt", content="x")

    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with serving(tmp_path, ScriptedModel(answer), tokens=TOKENS) as (url, retinue):

        async def work(name: str) -> str:
            async with host(url, era, name, elicitation_callback=filling([], "approve")) as client:
                result = await client.call_tool("boss", {"prompt": name}, progress_callback=hear)
                assert result.structured_content is not None
                return result.structured_content["text"]

        assert await asyncio.gather(work("alice"), work("root")) == ["Written.", "Written."]
        assert {path.name for path in tmp_path.glob("?.txt")} == {"a.txt", "r.txt"}
        assert "boss: write" in told
        assert len(await retinue.runs()) == 2


async def test_a_tree_that_a_host_started_is_on_the_page_at_the_same_time(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        begun.set()
        await go.wait()
        return "Done."

    model = ScriptedModel({"You are the boss": [answer]})
    async with (
        serving(tmp_path, model) as (url, _),
        host(url, "auto") as client,
        httpx2.AsyncClient() as page,
    ):
        asking = asyncio.create_task(client.call_tool("boss", {"prompt": "x"}))
        await begun.wait()
        (run,) = (await page.get(f"{url}/api/v1/runs")).json()["runs"]
        assert (run["agent"], run["status"]) == ("boss", "running")
        go.set()
        fields = (await asking).structured_content
        assert fields is not None
        assert fields["run_id"] == run["run_id"]


async def test_a_token_reaches_its_own_runs_and_an_admin_all(tmp_path: Path) -> None:
    era = "2026-07-28"
    model = ScriptedModel(lambda request: "Done.")
    async with serving(tmp_path, model, tokens=TOKENS) as (url, retinue):
        async with host(url, era, "alice", extensions=[WithTasks()]) as client:
            handle = await client.session.call_tool("boss", {"prompt": "x"}, allow_claimed=True)
            assert isinstance(handle, TaskHandle)
            await retinue.wait(handle.task_id)
            assert (await task(client, "tasks/get", handle.task_id)).status == "completed"
            assert len((await client.list_resources()).resources) == 1
        async with host(url, era, "bob", extensions=[WithTasks()]) as client:
            for method in ("tasks/get", "tasks/cancel"):
                with pytest.raises(MCPError, match="task not found"):
                    await task(client, method, handle.task_id)
            with pytest.raises(MCPError):
                await client.read_resource(f"retinue://runs/{handle.task_id}")
            assert (await client.list_resources()).resources == []
        async with host(url, era, "root", extensions=[WithTasks()]) as client:
            assert (await task(client, "tasks/get", handle.task_id)).status == "completed"


async def test_a_role_decides_what_a_host_may_do(tmp_path: Path) -> None:
    model = ScriptedModel({"You are the boss": [call("write", path="a.txt", content="x"), "I could not."]})
    fill = filling([], "approve")
    async with serving(tmp_path, model, tokens=TOKENS) as (url, _):
        async with host(url, "legacy", "carol") as client:
            refused = await client.call_tool("boss", {"prompt": "x"})
            assert refused.is_error
            assert "role watch" in str(refused.content)
        async with host(url, "legacy", "bob", elicitation_callback=fill) as client:
            result = await client.call_tool("boss", {"prompt": "x"})
            assert result.structured_content is not None
            assert result.structured_content["outcome"] == "refused"  # who may not approve is not asked
        assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("era", ERAS)
async def test_only_an_admin_may_answer_with_a_rule_that_is_kept(era: str, tmp_path: Path) -> None:
    offered: list[list[str]] = []

    async def fill(context: Any, params: Any) -> ElicitResult:
        offered.append(params.requested_schema["properties"]["decision"]["enum"])
        return ElicitResult(action="accept", content={"decision": "approve_always"})

    def answer(request: ModelRequest) -> Any:
        return "Done." if len(request.messages) > 1 else call("write", path="a.txt", content="x")

    async with serving(tmp_path, ScriptedModel(answer), tokens=TOKENS) as (url, _):
        for name, outcome in (("alice", "rejected"), ("root", "completed")):
            async with host(url, era, name, elicitation_callback=fill) as client:
                fields = (await client.call_tool("boss", {"prompt": "x"})).structured_content
                assert fields is not None
                assert fields["outcome"] == outcome
    assert ["approve_always" in each for each in offered] == [False, True]


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_that_is_dropped_cancels_its_tree(era: str, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def never(request: ModelRequest) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with serving(tmp_path, ScriptedModel({"You are the boss": [never]})) as (url, retinue):
        async with host(url, era) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "boss", {"prompt": "x"})
            await begun.wait()
            tasks.cancel_scope.cancel()
        (row,) = await retinue.runs()
        assert (await retinue.wait(row.run_id)).status == "cancelled"


async def test_whoever_is_not_let_in_gets_no_further(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel({}), tokens=TOKENS) as (url, _), httpx2.AsyncClient() as http:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "server/discover",
            "Authorization": f"Bearer {SECRETS['alice']}",
        }

        async def post(content: bytes | None = None, **changed: str) -> httpx2.Response:
            body = json.dumps(DISCOVER).encode() if content is None else content
            sent = headers | {name.replace("_", "-"): value for name, value in changed.items()}
            return await http.post(f"{url}/mcp", content=body, headers=sent)

        assert (await post()).status_code == 200
        assert (await post(Authorization="Bearer wrong")).status_code == 401
        assert (await post(Authorization="")).status_code == 401
        assert (await post(Host="evil.example")).status_code == 421
        assert (await post(Origin="https://evil.example")).status_code == 403
        assert (await post(Sec_Fetch_Site="cross-site")).status_code == 403
        assert (await post(Content_Type="text/plain")).status_code == 415
        assert (await post(b"x" * 13_000_000)).status_code == 413
        broken = await post(b'{"jsonrpc": "2.0", ')
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, -32700)
        assert (await post()).status_code == 200


async def test_without_tokens_only_this_machine_by_its_own_name_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel({})) as (url, _):
        async with httpx2.AsyncClient() as http:
            rebound = await http.post(f"{url}/mcp", json=DISCOVER, headers={"Host": "evil.example"})
            assert rebound.status_code == 421
        async with host(url, "auto") as client:
            assert (await client.list_tools()).tools


async def test_a_session_belongs_to_the_token_that_began_it(tmp_path: Path) -> None:
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "0"},
        },
    }
    async with serving(tmp_path, ScriptedModel({}), tokens=TOKENS) as (url, _), httpx2.AsyncClient() as http:

        def sent(name: str, **more: str) -> dict[str, str]:
            accepts = {"Accept": "application/json, text/event-stream"}
            return {"Authorization": f"Bearer {SECRETS[name]}", **accepts, **more}

        began = await http.post(f"{url}/mcp", json=begin, headers=sent("alice"))
        session = {"Mcp-Session-Id": began.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await http.post(f"{url}/mcp", json=ping, headers=sent("bob", **session))).status_code == 404
        assert (await http.post(f"{url}/mcp", json=ping, headers=sent("alice", **session))).status_code == 200
        assert (await http.delete(f"{url}/mcp", headers=sent("alice", **session))).status_code == 200
        assert (await http.post(f"{url}/mcp", json=ping, headers=sent("alice", **session))).status_code == 404


async def test_a_run_away_host_is_told_to_wait(tmp_path: Path) -> None:
    limits = RateLimits(starts=0.001, starts_burst=1)
    model = ScriptedModel(lambda request: "Done.")
    async with serving(tmp_path, model, limits=limits) as (url, _), host(url, "legacy") as client:
        assert not (await client.call_tool("boss", {"prompt": "x"})).is_error
        refused = await client.call_tool("boss", {"prompt": "x"})
        assert refused.is_error
        assert "too many new runs" in str(refused.content)


async def test_a_server_that_stops_answers_its_calls_and_leaves_the_runs(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), list[Any]()

    async def never(request: ModelRequest) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel({"You are the boss": [never]})
    async with serving(tmp_path, model) as (url, retinue):
        async with host(url, "2026-07-28") as client, anyio.create_task_group() as tasks:

            async def ask() -> None:
                ended.append(await client.call_tool("boss", {"prompt": "x"}))

            tasks.start_soon(ask)
            await begun.wait()
            await stop(next(one for one in asyncio.all_tasks() if one.get_name() == "serving"))
        assert "nothing is lost" in str(ended[0].content)
        (row,) = await retinue.store.runs(RunFilter())
        assert row.status == "running"  # nothing was written about it
