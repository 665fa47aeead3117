"""Replies without end: each part of one is bounded in sum, on every wire, and refused once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asking import WIRES, asked, connected, listen

from retinue.errors import ModelError
from retinue.models import wire as wires
from retinue.models.http import Client
from retinue.replies import MOST_CHARACTERS, collected
from retinue.testing import FakeProvider

PIECE = "x" * 500
AT_ONCE = 100
"""Events in one write: small ones, and enough of them to be quick."""


class Flood:
    """A server that answers every request with a head, and then one thing over and over."""

    def __init__(self, first: bytes, again: list[bytes], head: bytes) -> None:
        self._first, self._again, self._head = first, again, head
        self.asked = 0
        self.sent = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        writer.write(self._head + self._first)
        turn = 0
        with contextlib.suppress(OSError):
            while True:
                block = self._again[turn % len(self._again)]
                writer.write(block)
                self.sent += len(block)
                turn += 1
                await writer.drain()


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chat(**delta: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta}]})


def named(call: int, arguments: str) -> dict[str, Any]:
    return {"index": call, "id": f"c{call}", "function": {"name": "look", "arguments": arguments}}


def part(**fields: Any) -> bytes:
    return event({"candidates": [{"content": {"parts": [fields]}}]})


def block(index: int, **fields: Any) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": fields})


def delta(**fields: Any) -> bytes:
    return event({"type": "content_block_delta", "index": 0, "delta": fields})


def item(index: int, **fields: Any) -> bytes:
    return event({"type": "response.output_item.added", "output_index": index, "item": fields})


def said(kind: str) -> bytes:
    return event({"type": f"response.{kind}.delta", "output_index": 0, "delta": PIECE})


MANY = range(60_000)
TOOL = {"type": "tool_use", "id": "t", "name": "look"}
FUNCTION = {"type": "function_call", "call_id": "c", "name": "look", "arguments": ""}
FLOODS: dict[tuple[str, str], tuple[bytes, list[bytes]]] = {
    ("openai", "text"): (b"", [chat(content=PIECE)]),
    ("openai", "thinking"): (b"", [chat(reasoning_content=PIECE)]),
    ("openai", "arguments"): (b"", [chat(tool_calls=[named(0, PIECE)])]),
    ("openai", "calls"): (b"", [chat(tool_calls=[named(n, "")]) for n in MANY]),
    ("openai", "details"): (
        b"",
        [chat(reasoning_details=[{"type": "reasoning.encrypted", "index": 0, "data": PIECE}])],
    ),
    ("responses", "text"): (b"", [said("output_text")]),
    ("responses", "thinking"): (b"", [said("reasoning_summary_text")]),
    ("responses", "arguments"): (item(0, **FUNCTION), [said("function_call_arguments")]),
    ("responses", "calls"): (b"", [item(n, **FUNCTION) for n in MANY]),
    ("responses", "details"): (
        b"",
        [item(n, type="reasoning", id="r", encrypted_content=PIECE) for n in MANY],
    ),
    ("anthropic", "text"): (block(0, type="text"), [delta(type="text_delta", text=PIECE)]),
    ("anthropic", "thinking"): (
        block(0, type="thinking"),
        [delta(type="thinking_delta", thinking=PIECE)],
    ),
    ("anthropic", "arguments"): (
        block(0, **TOOL),
        [delta(type="input_json_delta", partial_json=PIECE)],
    ),
    ("anthropic", "calls"): (b"", [block(n, **TOOL) for n in MANY]),
    ("anthropic", "details"): (
        block(0, type="thinking"),
        [delta(type="signature_delta", signature=PIECE)],
    ),
    ("gemini", "text"): (b"", [part(text=PIECE)]),
    ("gemini", "thinking"): (b"", [part(text=PIECE, thought=True)]),
    ("gemini", "arguments"): (b"", [part(functionCall={"name": "look", "args": {"what": PIECE}})]),
    ("gemini", "calls"): (b"", [part(functionCall={"name": "look", "args": {}})]),
    ("gemini", "details"): (
        b"",
        [part(functionCall={"name": "look", "args": {}}, thoughtSignature=PIECE)],
    ),
}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


async def refused(wire: str, flood: Flood, client: Client, **more: Any) -> ModelError:
    """How a model as users have it, with its retries, ends against such a server."""
    async with flood.running() as port, asyncio.timeout(120):
        server = FakeProvider(port=port)  # only its address is used
        model = connected(wire, server, client)
        stream = model.stream(asked(**more))
        with pytest.raises(ModelError) as caught:
            await collected(model.name, stream, lambda _: None)
    return caught.value


@pytest.mark.parametrize(("wire", "what"), FLOODS)
async def test_no_part_of_a_reply_is_kept_without_end(wire: str, what: str, client: Client) -> None:
    first, again = FLOODS[wire, what]
    blocks = [b"".join(again[n : n + AT_ONCE]) for n in range(0, len(again), AT_ONCE)]
    if len(again) == 1:
        blocks = [again[0] * AT_ONCE]
    flood = Flood(first, blocks, STREAM)
    error = await refused(wire, flood, client)
    assert error.kind == "too_large"
    assert flood.asked == 1, "it was not asked for again: that would be no shorter, and paid for too"
    assert flood.sent < 8 * MOST_CHARACTERS


@pytest.mark.parametrize("again", [b": still here\n\n", b"data: {}\n\n", b"\n\n"])
async def test_what_says_nothing_is_bounded_in_sum_too(
    again: bytes, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wires, "MOST_STREAMED", 4 * 1024 * 1024)
    flood = Flood(b"", [again * 1000], STREAM)
    assert (await refused("openai", flood, client)).kind == "too_large"
    assert flood.asked == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_signs_of_life_alone_do_not_go_on_beyond_the_time_of_a_call(wire: str, client: Client) -> None:
    class Slow(Flood):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            writer.write(STREAM)
            with contextlib.suppress(OSError):
                while not writer.is_closing():
                    writer.write(b": still here\n\n")
                    await writer.drain()
                    await asyncio.sleep(0.01)

    error = await refused(wire, Slow(b"", [], b""), client, timeout=0.3)
    assert error.kind == "timeout"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("status", [b"400 Bad Request", b"200 OK"])
async def test_a_body_without_end_is_bounded(wire: str, status: bytes, client: Client) -> None:
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n\r\n"
    flood = Flood(b'{"error": {"message": "', [b"x" * 65536], head)
    async with flood.running() as port, asyncio.timeout(120):
        with pytest.raises(ModelError):
            await listen(connected(wire, FakeProvider(port=port), client), asked())
    assert flood.sent < 4 * 80 * 1024 * 1024, "each try is bounded, and so is their number"
