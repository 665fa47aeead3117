"""Servers that call themselves OpenAI-compatible and are not quite: each is read all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asking import READ, ask, asked, listen

from retinue.errors import ModelError
from retinue.models.connect import connect
from retinue.models.http import Client
from retinue.models.retry import RetryPolicy
from retinue.models.sse import MOST_BYTES
from retinue.settings import Settings
from retinue.types import Reply, ThinkingDelta


@asynccontextmanager
async def serving(body: bytes, *, kind: str = "text/event-stream", length: bool = True) -> AsyncIterator[str]:
    """A server that answers everything with these bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    int(line[15:])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                await reader.readexactly(size)
                extra = b"content-length: %d\r\n" % len(body) if length else b"connection: close\r\n"
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s\r\n%s" % (kind.encode(), extra, body)
                )
                await writer.drain()
                if not length:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1#m"


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def answer_of(client: Client, body: bytes, **how: Any) -> Reply:
    async with serving(body, **how) as url:
        policy = RetryPolicy(attempts=1)
        model = connect(url, settings=Settings(), client=client, environ={}, policy=policy)
        return await ask(model, asked(tools=(READ,)))


def calling(*calls: dict[str, Any]) -> bytes:
    return chunk({"tool_calls": list(calls)})


async def test_calls_without_index_and_id(client: Client) -> None:
    one = {"function": {"name": "read", "arguments": '{"path":"a"}'}}
    two = {"function": {"name": "read", "arguments": '{"path":"b"}'}}
    reply = await answer_of(client, calling(one) + calling(two) + chunk({}, "tool_calls") + DONE)
    assert [c.arguments for c in reply.message.calls] == ['{"path":"a"}', '{"path":"b"}']
    ids = [c.id for c in reply.message.calls]
    assert all(ids)
    assert len(set(ids)) == 2


async def test_fragments_without_index_continue_the_last_call(client: Client) -> None:
    body = (
        calling({"id": "1", "function": {"name": "read", "arguments": '{"pa'}})
        + calling({"function": {"arguments": 'th":'}})
        + calling({"function": {"arguments": '"a"}'}})
        + calling({"id": "2", "function": {"name": "read", "arguments": "{}"}})
        + chunk({}, "tool_calls")
        + DONE
    )
    reply = await answer_of(client, body)
    assert [(c.id, c.arguments) for c in reply.message.calls] == [("1", '{"path":"a"}'), ("2", "{}")]


async def test_parallel_calls_that_all_have_index_zero(client: Client) -> None:
    body = (
        calling({"index": 0, "id": "x", "function": {"name": "read", "arguments": "{}"}})
        + calling({"index": 0, "id": "y", "function": {"name": "read", "arguments": "{}"}})
        + chunk({}, "stop")
        + DONE
    )
    reply = await answer_of(client, body)
    assert [c.id for c in reply.message.calls] == ["x", "y"]
    assert reply.stop == "tool_calls"


async def test_an_id_and_a_name_that_are_repeated_in_every_fragment(client: Client) -> None:
    body = (
        calling({"index": 0, "id": "x", "function": {"name": "read", "arguments": '{"path"'}})
        + calling({"index": 0, "id": "x", "function": {"name": "read", "arguments": ':"a"}'}})
        + chunk({}, "tool_calls")
        + DONE
    )
    reply = await answer_of(client, body)
    assert [(c.id, c.name, c.arguments) for c in reply.message.calls] == [("x", "read", '{"path":"a"}')]


async def test_arguments_as_an_object(client: Client) -> None:
    body = (
        calling({"index": 0, "function": {"name": "read", "arguments": {"path": "a"}}})
        + chunk({}, "stop")
        + DONE
    )
    reply = await answer_of(client, body)
    assert json.loads(reply.message.calls[0].arguments) == {"path": "a"}


async def test_the_same_id_for_several_calls(client: Client) -> None:
    body = calling(
        {"index": 0, "id": "call_0", "function": {"name": "read", "arguments": "{}"}},
        {"index": 1, "id": "call_0", "function": {"name": "read", "arguments": "{}"}},
    )
    reply = await answer_of(client, body + chunk({}, "tool_calls") + DONE)
    assert len({c.id for c in reply.message.calls}) == 2


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_under_either_name(field: str, client: Client) -> None:
    body = chunk({field: "let me see"}) + chunk({"content": "42"}, "stop") + DONE
    async with serving(body) as url:
        events = await listen(connect(url, settings=Settings(), client=client, environ={}), asked())
    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["let me see"]


async def test_content_as_a_list_of_parts(client: Client) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "42"},
    ]
    reply = await answer_of(client, chunk({"content": parts}, "stop") + DONE)
    assert (reply.message.text, reply.thinking) == ("42", "hm")


async def test_no_finish_reason_but_an_end_mark(client: Client) -> None:
    reply = await answer_of(client, chunk({"content": "hi"}) + DONE)
    assert (reply.message.text, reply.stop) == ("hi", "end")


async def test_no_end_mark_but_a_finish_reason(client: Client) -> None:
    reply = await answer_of(client, chunk({"content": "hi"}, "stop"), length=False)
    assert reply.message.text == "hi"


async def test_neither_end_mark_nor_finish_reason_is_a_lost_connection(client: Client) -> None:
    with pytest.raises(ModelError) as caught:
        await answer_of(client, chunk({"content": "half of"}), length=False)
    assert caught.value.kind == "connection"


async def test_usage_beside_the_last_choice_and_in_every_event(client: Client) -> None:
    body = chunk({"content": "h"}, usage={"prompt_tokens": 5, "completion_tokens": 1}) + chunk(
        {"content": "i"},
        "stop",
        usage={"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3},
    )
    used = (await answer_of(client, body + DONE)).usage
    assert (used.input_tokens, used.output_tokens, used.cached_tokens) == (5, 2, 3)


async def test_no_usage_at_all(client: Client) -> None:
    assert (await answer_of(client, chunk({"content": "hi"}, "stop") + DONE)).usage.total_tokens == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"message": "too fast", "code": 429}}, "rate_limit"),
        ({"error": {"message": "too fast", "type": "rate_limit_error"}}, "rate_limit"),
        ({"error": "upstream broke"}, "overloaded"),
        ({"object": "error", "message": "context length exceeded"}, "too_long"),
        ({"error": {"message": "bad upstream", "code": 502}}, "overloaded"),
    ],
)
async def test_an_error_object_with_status_200(error: dict[str, Any], kind: str, client: Client) -> None:
    with pytest.raises(ModelError) as caught:
        await answer_of(
            client, chunk({"content": "so far"}) + b"data: " + json.dumps(error).encode() + b"\n\n"
        )
    assert caught.value.kind == kind


async def test_an_error_as_a_plain_json_body_with_status_200(client: Client) -> None:
    with pytest.raises(ModelError, match="no such model"):
        await answer_of(client, b'{"error": {"message": "no such model"}}', kind="application/json")


async def test_a_body_in_one_piece_is_kept_up_to_a_limit_only(client: Client) -> None:
    body = b'{"choices": [], "padding": "' + b"x" * (MOST_BYTES + 1)
    with pytest.raises(ModelError, match=f"in one piece, more than the {MOST_BYTES:,} that") as caught:
        await answer_of(client, body + b'"}', kind="application/json")
    assert caught.value.kind == "protocol"


async def test_a_whole_completion_in_place_of_a_stream(client: Client) -> None:
    body = {
        "choices": [{"message": {"role": "assistant", "content": "all at once"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    reply = await answer_of(client, json.dumps(body).encode(), kind="application/json; charset=utf-8")
    assert (reply.message.text, reply.usage.output_tokens) == ("all at once", 4)


async def test_a_line_left_open_after_the_end_does_not_hold_up_the_answer(client: Client) -> None:
    """The server announces more bytes than it sends, and waits."""
    body = chunk({"content": "hi"}, "stop") + DONE

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99999\r\n\r\n"
        writer.write(head + body)
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1#m"
        async with asyncio.timeout(60):
            reply = await ask(connect(url, settings=Settings(), client=client, environ={}), asked())
        await client.close()
    assert reply.message.text == "hi"


async def test_what_a_vendor_attached_to_a_call_goes_back_with_it(client: Client) -> None:
    from retinue.models.openai import OpenAIWire
    from retinue.types import ModelRequest, ToolMessage, UserMessage

    signed = {"google": {"thought_signature": "abc"}}
    body = calling(
        {"index": 0, "id": "1", "function": {"name": "read", "arguments": "{}"}, "extra_content": signed}
    )
    reply = await answer_of(client, body + chunk({}, "tool_calls") + DONE)
    history = (UserMessage(text="?"), reply.message, ToolMessage(call_id="1", name="read", text="x"))
    sent = json.loads(
        OpenAIWire(base_url="http://x", model="m").encode(ModelRequest(system="", messages=history))
    )
    assert sent["messages"][1]["tool_calls"][0]["extra_content"] == signed


async def test_pieces_of_routed_reasoning_are_joined_and_go_back(client: Client) -> None:
    from retinue.models.openai import OpenAIWire
    from retinue.types import ModelRequest, ToolMessage, UserMessage

    def piece(**more: Any) -> bytes:
        return chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, **more}]})

    body = (
        piece(text="let me ")
        + piece(text="see")
        + piece(signature="sig")
        + calling({"index": 0, "id": "1", "function": {"name": "read", "arguments": "{}"}})
        + chunk({}, "tool_calls")
        + DONE
    )
    reply = await answer_of(client, body)
    history = (UserMessage(text="?"), reply.message, ToolMessage(call_id="1", name="read", text="x"))
    sent = json.loads(
        OpenAIWire(base_url="http://x", model="m").encode(ModelRequest(system="", messages=history))
    )
    whole = {"type": "reasoning.text", "index": 0, "text": "let me see", "signature": "sig"}
    assert sent["messages"][1]["reasoning_details"] == [whole]
