"""Clients that send half, take nothing, or are too many: the others are served, and nothing is held for them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from api import Api, serving
from process import Serving

from retinue.server.connections import neighbourhood
from retinue.server.limits import RateLimits
from retinue.testing import ScriptedModel, Step, call
from retinue.tools.base import tool

HALF = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX: "
QUICK = RateLimits(requests_burst=10**6, head_seconds=0.3, stalled_seconds=0.5, body_seconds=0.2)
PLENTY = {"limits": {"max_turns": 1000, "tree_turns": 1000, "timeout": 1000}}


def port_of(api: Api) -> int:
    return int(api.url.rpartition(":")[2])


@contextlib.asynccontextmanager
async def connected(api: Api) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(api))
    try:
        yield reader, writer
    finally:
        writer.close()


async def to_the_end(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server ends the connection."""
    async with asyncio.timeout(30):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


@contextlib.contextmanager
def many_sockets(port: int, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """So many connections of one address, each of which has said only this."""
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port), timeout=30)
            made.append(one)
            with contextlib.suppress(ConnectionError):
                one.sendall(said)
        yield made
    finally:
        for one in made:
            one.close()


async def healthy(api_url: str) -> None:
    """An ordinary request on a connection of its own."""
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.get(f"{api_url}/api/v1/health") as response,
    ):
        assert response.status == 200


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8000, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("said", [b"", HALF, b"\x16\x03\x01\x02"], ids=["nothing", "half", "not http"])
async def test_thousands_of_half_sent_requests_block_nobody(tmp_path: Path, said: bytes) -> None:
    async with Serving(tmp_path) as server:
        await server.start()
        assert server.process is not None
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (1100, 1100))
        with many_sockets(server.port, 3000, said):
            await healthy(server.url)
            assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 1100


async def test_half_a_head_is_told_that_it_is_too_late(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, limits=QUICK) as api, connected(api) as (reader, writer):
        writer.write(HALF)
        assert (await to_the_end(reader)).startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_another(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, limits=QUICK) as api, connected(api) as (reader, writer):

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"y")
                    await writer.drain()
                    await asyncio.sleep(0.02)

        writer.write(HALF)
        dripping = asyncio.create_task(drip())
        await to_the_end(reader)
        dripping.cancel()


async def test_a_second_head_has_no_more_time_than_the_first(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, limits=QUICK) as api, connected(api) as (reader, writer):
        whole = f"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1:{port_of(api)}\r\n\r\n".encode()
        writer.write(whole + whole + HALF)
        said = await to_the_end(reader)
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"200", b"408"]


async def test_a_body_that_nobody_asked_for_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.server.connections.AFTER_THE_BODY", 0.1)
    async with serving(ScriptedModel([]), folder, limits=QUICK) as api, connected(api) as (reader, writer):
        head = f"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1:{port_of(api)}\r\nContent-Length: 100\r\n\r\n"
        writer.write(head.encode() + b"x")
        assert (await to_the_end(reader)).startswith(b"HTTP/1.1 200 ")


async def test_who_was_answered_before_the_body_was_sent_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.server.connections.AFTER_THE_BODY", 10**6)
    monkeypatch.setattr("retinue.server.connections.AFTER_THE_ANSWER", 0.1)
    async with serving(ScriptedModel([]), folder, limits=QUICK) as api, connected(api) as (reader, writer):
        head = f"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1:{port_of(api)}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert (await to_the_end(reader)).startswith(b"HTTP/1.1 408 ")


async def test_nonsense_in_the_middle_of_an_answer_ends_the_connection(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(ScriptedModel([]), folder) as api, connected(api) as (reader, writer):
        head = f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port_of(api)}\r\n"
        writer.write((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
        await reader.readuntil(b"snapshot")
        writer.write(b"no size of a chunk\r\n")
        await to_the_end(reader)
        async with asyncio.timeout(30):
            while api.server.streams["person"]:
                await asyncio.sleep(0.01)
    assert "Fatal error" not in caplog.text


async def test_at_the_limit_the_half_sent_make_room_and_the_answered_stay(folder: Path) -> None:
    """Several tabs of one browser, and somebody else on the machine who opens connections and more of them."""
    gate = asyncio.Event()
    limits = RateLimits(requests_burst=10**6, connections_of_one=20)
    async with serving(ScriptedModel([Step(text="x", gate=gate)]), folder, limits=limits) as api:
        run_id = await api.ask()
        async with contextlib.AsyncExitStack() as tabs:
            streams = [
                await tabs.enter_async_context(contextlib.aclosing(api.stream(f"runs/{run_id}/stream")))
                for _ in range(12)
            ]
            for stream in streams:
                await anext(stream)
            for _ in range(3):
                crowd = await asyncio.to_thread(lambda: many_sockets(port_of(api), 40, HALF).__enter__())
                await healthy(api.url)
                for one in crowd:
                    one.close()
            gate.set()
            for stream in streams:
                async with asyncio.timeout(30):
                    async for told in stream:
                        if told.data["type"] == "run_finished":
                            break
                    else:
                        raise AssertionError("a stream ended before its run")


async def test_whoever_rests_makes_room_and_a_server_full_of_answers_says_so(folder: Path) -> None:
    limits = RateLimits(requests_burst=10**6, connections_of_one=4)
    async with serving(ScriptedModel([]), folder, limits=limits) as api, contextlib.AsyncExitStack() as held:
        whole = f"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1:{port_of(api)}\r\n\r\n".encode()
        for _ in range(10):
            reader, writer = await held.enter_async_context(connected(api))
            writer.write(whole)
            assert b" 200 " in await reader.readline()
        watch = whole.replace(b"health", b"stream")
        for _ in range(4):
            reader, writer = await held.enter_async_context(connected(api))
            writer.write(watch)
            await reader.readuntil(b"snapshot")
        reader, writer = await held.enter_async_context(connected(api))
        writer.write(whole)
        assert (await to_the_end(reader)).startswith(b"HTTP/1.1 503 ")


@tool(effect="read")
async def large(what: str) -> str:
    """Give much."""
    return what * 20_000


async def finished(api: Api) -> str:
    run_id = await api.ask()
    await api.ended(run_id)
    return run_id


def much() -> ScriptedModel:
    return ScriptedModel(
        [*([call("large", what=f"{n:02d}{m:02d}") for m in range(20)] for n in range(5)), "done"]
    )


def quiet_client(api: Api, request: str) -> socket.socket:
    """A client that asks, and takes nothing: its window is small, and it is soon full."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", port_of(api)))
    one.sendall(f"GET {request} HTTP/1.1\r\nHost: 127.0.0.1:{port_of(api)}\r\n\r\n".encode())
    return one


def held_for(api: Api, one: socket.socket) -> bool:
    """Whether the server's end of a connection is still there, in this process or in the system."""
    name = one.getsockname()
    wanted = f"{0x7F000001:08X}"
    here = "".join(reversed([wanted[i : i + 2] for i in range(0, 8, 2)]))
    mine, theirs = f"{here}:{port_of(api):04X}", f"{here}:{name[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1] == mine and row[2] == theirs and row[9] != "0" for row in rows)


@pytest.mark.parametrize("path", ["stream", "events?limit=1000", "export"])
async def test_a_client_that_takes_nothing_is_disconnected_and_nothing_is_kept_for_it(
    folder: Path, path: str
) -> None:
    """Also where the answer was whole before it stalled: what is left of it is in a buffer."""
    async with serving(much(), folder, tools=[large], settings=PLENTY, limits=QUICK) as api:
        run_id = await finished(api)
        one = quiet_client(api, f"/api/v1/runs/{run_id}/{path}")
        try:
            async with asyncio.timeout(30):
                while not held_for(api, one):
                    await asyncio.sleep(0.01)
                while held_for(api, one) or api.server.streams["person"]:
                    await asyncio.sleep(0.01)
        finally:
            one.close()
        assert api.server.hub.channels == {}


async def test_a_quiet_stream_that_is_stuck_is_found_without_anything_new_to_send(folder: Path) -> None:
    """What is stuck is less than anybody's buffer: nothing waits to be written, and nobody takes it."""
    async with serving(much(), folder, tools=[large], settings=PLENTY, limits=QUICK, heartbeat=1000) as api:
        run_id = await finished(api)
        events: list[dict[str, Any]] = (await api.get(f"runs/{run_id}/events?limit=1000"))["events"]
        returned = [event["pos"] for event in events if event["type"] == "tool_returned"]
        # A few results: the system takes all of it for the client, and the client nothing.
        one = quiet_client(api, f"/api/v1/runs/{run_id}/stream?after={returned[-3] - 1}")
        try:
            async with asyncio.timeout(30):
                while not api.server.streams["person"]:
                    await asyncio.sleep(0.01)
                while api.server.streams["person"] or held_for(api, one):
                    await asyncio.sleep(0.01)
        finally:
            one.close()


async def test_a_slow_client_that_takes_a_little_is_kept(folder: Path) -> None:
    async with serving(much(), folder, tools=[large], settings=PLENTY, limits=QUICK) as api:
        run_id = await finished(api)
        one = quiet_client(api, f"/api/v1/runs/{run_id}/stream?until=end")
        one.setblocking(False)
        loop = asyncio.get_running_loop()
        taken, last, began = 0, b"", loop.time()
        try:
            while loop.time() - began < 6 * QUICK.stalled_seconds:  # far longer than one may take nothing
                last = await loop.sock_recv(one, 20_000)
                taken += len(last)
                await asyncio.sleep(0.02)
            async with asyncio.timeout(60):
                while not last.endswith(b"0\r\n\r\n"):
                    last = await loop.sock_recv(one, 1_000_000)
                    assert last, "it was disconnected"
                    taken += len(last)
        finally:
            one.close()
        assert taken > 4_000_000  # more than the system would have taken for it


async def test_pipelined_requests_whose_answers_nobody_takes_are_given_up(folder: Path) -> None:
    async with serving(much(), folder, tools=[large], settings=PLENTY, limits=QUICK) as api:
        run_id = await finished(api)
        one = quiet_client(api, f"/api/v1/runs/{run_id}/events?limit=1000")
        whole = f"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1:{port_of(api)}\r\n\r\n".encode()
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            one.send(whole * 5000)
        try:
            async with asyncio.timeout(30):
                while held_for(api, one):
                    await asyncio.sleep(0.01)
            await healthy(api.url)
        finally:
            one.close()


def test_a_network_of_version_six_is_one_address() -> None:
    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::ffff:1")
    assert neighbourhood("2001:db8::1") != neighbourhood("2001:db8:0:1::1")
    assert neighbourhood("::ffff:192.0.2.1") == neighbourhood("192.0.2.1") != neighbourhood("192.0.2.2")
    assert neighbourhood("fe80::1%eth0") == neighbourhood("fe80::2")
