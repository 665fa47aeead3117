"""The model of the benchmark: an OpenAI-compatible server whose answers follow from the conversation.

A parent calls its sub-agent N times in one turn; each child makes K `echo` calls, one a turn, then reports.
Run as a process of its own: its CPU is nobody's but its own. It is bare asyncio and httptools, so that it is
never what is waited for, whoever is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from httptools import HttpRequestParser

LATENCY = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS = 4
"""Pieces that a text comes in."""


def answer(body: dict[str, Any]) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    """The text or the calls that follow from a conversation."""
    system, asked = body["messages"][0]["content"], body["messages"][1]["content"]
    seen = [m["content"] for m in body["messages"] if m["role"] == "tool"]
    if "PARENT" in system:
        n, k = map(int, re.findall(r"\d+", asked)[:2])
        if not seen:
            return "", [("child", {"task": f"item {i} K={k}"}) for i in range(n)]
        return f"PARENT-DONE {sum('CHILD-DONE' in text for text in seen)}", []
    k = int(re.findall(r"K=(\d+)", asked)[0])
    return (
        (f"CHILD-DONE {len(seen)}", []) if len(seen) >= k else ("", [("echo", {"text": f"ping {len(seen)}"})])
    )


def events(text: str, calls: list[tuple[str, dict[str, str]]]) -> Iterator[Any]:
    def delta(**fields: Any) -> Any:
        return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}

    yield delta(role="assistant", content=None)
    step = max(1, len(text) // WORDS)
    for start in range(0, len(text), step):
        yield delta(content=text[start : start + step])
    for index, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        yield delta(
            tool_calls=[{"index": index, "id": f"c{index}", "type": "function", "function": function}]
        )
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}
    yield {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}


class Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._parser = HttpRequestParser(self)
        self._body: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = msgspec.json.decode(b"".join(self._body))
        self._body.clear()
        asyncio.get_running_loop().call_later(LATENCY, self._answer, body)

    def _answer(self, body: dict[str, Any]) -> None:
        common = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        parts = [HEAD]
        for event in [*events(*answer(body)), None]:
            data = b"[DONE]" if event is None else msgspec.json.encode(common | event)
            parts.append(b"%x\r\ndata: %s\n\n\r\n" % (len(data) + 8, data))
        parts.append(b"0\r\n\r\n")
        self._transport.write(b"".join(parts))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}/v1"}), flush=True)
    await server.serve_forever()


asyncio.run(main())
