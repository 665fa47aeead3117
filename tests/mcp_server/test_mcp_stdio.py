"""`retinue mcp serve` as a child of its host: the official client over real pipes, and hosts that misbehave."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hosting import ERAS, World, filling

from retinue.app import Retinue
from retinue.store.base import RunFilter, RunRow
from retinue.testing import FakeProvider, Script, SeenRequest, call

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "0"},
    },
}


@asynccontextmanager
async def raw(world: World) -> AsyncGenerator[RawHost]:
    """A host that writes what it likes."""
    process = await asyncio.create_subprocess_exec(
        *world.command,
        env=world.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    host = RawHost(process)
    try:
        yield host
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class RawHost:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def write(self, *messages: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.process.stdin.write(line + b"\n")

    async def read(self) -> dict[str, Any]:
        """The next message. Whatever is no JSON is a failure: stdout has the protocol and nothing else."""
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            return json.loads(await self.process.stdout.readline())

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            return await self.process.wait()


def calling(request_id: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


async def rows(world: World) -> list[RunRow]:
    async with Retinue(model="offline", db=world.db, cwd=world.folder) as retinue:
        return [*await retinue.runs(RunFilter())]


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_lists_calls_follows_and_answers_over_pipes(
    era: str, tmp_path: Path
) -> None:
    told: list[str] = []
    said: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with FakeProvider() as provider:
        provider.reply(calls=[call("write", path="a.txt", content="hello")])
        provider.reply(text="Written.")
        world = World(tmp_path, provider)
        async with world.host(era, elicitation_callback=filling(said, "approve")) as client:
            assert "general" in {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool("general", {"prompt": "write"}, progress_callback=hear)
            assert result.structured_content is not None
            assert result.structured_content["text"] == "Written."
        assert (world.folder / "a.txt").read_text() == "hello"
        assert len(said) == 1
        assert told[0] == "general: step 1"
        assert "general: write" in told
        assert [row.outcome for row in await rows(world)] == ["completed"]


async def test_malformed_and_huge_messages_get_an_error_and_cost_nothing_else(tmp_path: Path) -> None:
    async with raw(World(tmp_path)) as host:
        host.write(b"this is no json", b'{"jsonrpc": "2.0"}', b"[" * 100_000, b"\xff\xfe", b"")
        for _ in range(4):
            assert (await host.read())["error"]["code"] == -32700
        host.write(b'{"jsonrpc": "2.0", "id": 5, "method": "x", "params": ' + b"[" * 500 + b"]" * 500 + b"}")
        refused = await host.read()
        assert (refused["id"], refused["error"]["code"]) == (5, -32700), "the host knows which request it was"
        host.write(b'{"jsonrpc": "2.0", "id": 7, "method": "' + b"x" * 13_000_000 + b'"}')
        refused = await host.read()
        assert refused["error"]["code"] == -32600
        assert "12,000,000 bytes" in refused["error"]["message"]
        host.write(INITIALIZE)
        assert (await host.read())["result"]["protocolVersion"] == "2025-06-18"
        host.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        host.write({"jsonrpc": "2.0", "id": 1, "method": "no/such"})
        assert (await host.read())["error"]["code"] == -32601
        host.write({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": 3}})
        assert (await host.read())["error"]["code"] == -32602


async def test_closing_stdin_in_the_middle_of_a_call_cancels_it_and_ends_the_server(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def never(request: SeenRequest) -> Script:
        begun.set()
        return Script(gate=asyncio.Event())

    async with FakeProvider(never) as provider:
        world = World(tmp_path, provider)
        async with raw(world) as host:
            host.write(INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            host.write(calling(1, "general", prompt="x"))
            await begun.wait()
            assert host.process.stdin is not None
            host.process.stdin.close()
            assert await host.ended() == 0
        assert [row.status for row in await rows(world)] == ["cancelled"]


async def test_a_started_run_survives_the_end_of_its_host_and_of_a_server_that_is_told_to_stop(
    tmp_path: Path,
) -> None:
    """SIGTERM leaves by hand-over: the call is answered, and the next server goes on where the log ends."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def answer(request: SeenRequest) -> Script:
        if request.turn:
            begun.set()
            return Script(text="Found it.", gate=go)
        return Script(calls=(call("ls"),))

    async with FakeProvider(answer) as provider:
        world = World(tmp_path, provider)
        async with raw(world) as host:
            host.write(INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            host.write(calling(1, "general", prompt="x"))
            assert (await host.read())["id"] == 0
            await begun.wait()
            host.process.send_signal(signal.SIGTERM)  # its stdin stays open
            left = (await host.read())["result"]
            assert left["isError"]
            assert "nothing is lost" in left["content"][0]["text"]
            assert await host.ended() == 0
        assert [row.outcome for row in await rows(world)] == ["interrupted"]
        go.set()
        async with raw(world) as host:
            host.write(INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            host.write(calling(1, "result", run_id=left["structuredContent"]["run_id"]))
            assert (await host.read())["id"] == 0
            assert (await host.read())["result"]["content"][0]["text"] == "Found it."
        assert provider.served == 2  # what was paid for is not asked again
