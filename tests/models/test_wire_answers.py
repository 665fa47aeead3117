"""What every wire format must do with a good answer, over real sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asking import MODEL_OF, READ, WIRES, ask, asked, connected, listen, one_shot, shown

from retinue.errors import ModelError
from retinue.models.http import Client
from retinue.settings import Price, Settings
from retinue.testing import FakeProvider, call
from retinue.types import (
    AssistantMessage,
    Image,
    ModelRequest,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

pytestmark = pytest.mark.parametrize("wire", WIRES)


async def test_text_arrives_in_pieces_and_whole(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("Bees – 蜜蜂 🐝 – are insects.", delay=0.002)
    events = await listen(one_shot(wire, server, client), asked())
    assert len([e for e in events if isinstance(e, TextDelta)]) > 1
    assert shown(events) == "Bees – 蜜蜂 🐝 – are insects."
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert reply.message.text == shown(events)
    assert reply.stop == "end"
    assert reply.model == f"{wire}:{MODEL_OF[wire]}"


async def test_what_is_asked_reaches_the_provider(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("ok")
    model = one_shot(wire, server, client)
    await ask(model, asked("Who?", tools=(READ,), max_tokens=77, tool_choice="none"))
    seen = server.requests[0]
    assert (seen.wire, seen.model, seen.system) == (wire, MODEL_OF[wire], "You read.")
    assert seen.messages == (UserMessage(text="Who?"),)
    assert [tool.name for tool in seen.tools] == ["read"]
    assert seen.tools[0].schema["properties"] == {"path": {"type": "string"}}
    assert (seen.max_tokens, seen.tool_choice, seen.key) == (77, "none", "key-one")


async def test_parallel_calls_come_back_whole_and_their_results_are_accepted(
    wire: str, server: FakeProvider, client: Client
) -> None:
    model = one_shot(wire, server, client)
    server.reply("I look.", calls=[call("read", path="a.py"), call("read", path="ü/b.py")], split=3)
    request = asked("Compare", tools=(READ,))
    first = await ask(model, request)
    assert first.stop == "tool_calls"
    assert first.message.text == "I look."
    assert [c.name for c in first.message.calls] == ["read", "read"]
    assert '"a.py"' in first.message.calls[0].arguments
    assert len({c.id for c in first.message.calls}) == 2

    one, two = first.message.calls
    server.reply("same")
    history = (
        *request.messages,
        first.message,
        ToolMessage(call_id=one.id, name="read", text="x = 1"),
        ToolMessage(call_id=two.id, name="read", text="no such file", is_error=True),
        UserMessage(text="Be brief."),
        UserMessage(text="Please."),
    )
    await ask(model, ModelRequest(system="You read.", messages=history, tools=(READ,)))
    assert not server.rejected
    seen = [m for m in server.requests[1].messages if isinstance(m, ToolMessage)]
    assert [m.text for m in seen] == ["x = 1", "no such file"]
    assert [m.call_id for m in seen] == [one.id, two.id]
    if wire in ("anthropic", "gemini"):  # OpenAI has no field for it
        assert [m.is_error for m in seen] == [False, True]
    if wire != "responses":  # where messages of one role may follow each other
        assert server.requests[1].messages[-1] == UserMessage(text="Be brief.\n\nPlease.")


async def test_malformed_arguments_are_passed_on_untouched(
    wire: str, server: FakeProvider, client: Client
) -> None:
    broken = '{"path": "a.py'
    server.reply(calls=[ToolCall(id="", name="read", arguments=broken)])
    model = one_shot(wire, server, client)
    if wire == "gemini":  # never shows such a call, only says that there was one
        with pytest.raises(ModelError, match="MALFORMED_FUNCTION_CALL") as caught:
            await ask(model, asked(tools=(READ,)))
        assert caught.value.kind == "protocol"
        return
    reply = await ask(model, asked(tools=(READ,)))
    assert reply.message.calls[0].arguments == broken

    # and the conversation can go on after it
    server.reply("sorry")
    result = ToolMessage(call_id=reply.message.calls[0].id, name="read", text="not JSON", is_error=True)
    history = (UserMessage(text="?"), reply.message, result)
    await ask(model, ModelRequest(system="", messages=history, tools=(READ,)))
    assert not server.rejected
    (again,) = (m for m in server.requests[1].messages if isinstance(m, AssistantMessage))
    assert json.loads(again.calls[0].arguments) == {
        "malformed": broken
    }  # many servers read it before they answer


async def test_usage_counts_cached_tokens_within_the_input(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("ok", usage=Usage(input_tokens=1000, output_tokens=50, cached_tokens=800))
    settings = Settings(prices={MODEL_OF[wire]: Price(input=2.0, output=10.0)})
    reply = await ask(connected(wire, server, client, settings=settings), asked())
    used = reply.usage
    assert (used.input_tokens, used.output_tokens, used.cached_tokens) == (1000, 50, 800)
    assert used.cost == pytest.approx(0.0025)


async def test_the_price_of_a_local_server_is_unknown_not_zero(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("ok")
    assert (await ask(connected(wire, server, client), asked())).usage.cost is None


async def test_a_cut_answer_says_so(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("It is", stop="length")
    assert (await ask(one_shot(wire, server, client), asked())).stop == "length"


async def test_a_refusal_is_a_reply_that_says_so(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("I will not.", stop="refusal")
    reply = await ask(one_shot(wire, server, client), asked())
    assert (reply.stop, reply.message.text) == ("refusal", "I will not.")


async def test_an_answer_without_content_is_an_empty_reply(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("")
    reply = await ask(one_shot(wire, server, client), asked())
    assert (reply.message.text, reply.message.calls, reply.stop) == ("", (), "end")


async def test_images_reach_the_provider(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("a bee")
    picture = Image(media_type="image/png", data="aGVsbG8=")
    said = UserMessage(text="What is this?", images=(picture,))
    await ask(one_shot(wire, server, client), ModelRequest(system="", messages=(said,)))
    assert server.requests[0].messages == (said,)


async def test_a_picture_of_megabytes_is_sent_without_a_warning(
    wire: str, server: FakeProvider, client: Client, recwarn: pytest.WarningsRecorder
) -> None:
    server.reply("large")
    picture = Image(media_type="image/png", data="QUJD" * 600_000)
    await ask(
        one_shot(wire, server, client),
        ModelRequest(system="", messages=(UserMessage(text="?", images=(picture,)),)),
    )
    (sent,) = server.requests[0].messages
    assert isinstance(sent, UserMessage)
    assert sent.images[0].data == picture.data
    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning)]


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "legs": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


async def test_an_answer_can_be_held_to_a_schema(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply('{"name": "bee", "legs": 6}')
    reply = await ask(one_shot(wire, server, client), asked(schema=SCHEMA))
    assert reply.message.text == '{"name": "bee", "legs": 6}'
    told = server.requests[0].schema
    assert told is not None
    assert set(told["properties"]) == {"name", "legs"}


async def test_thinking_is_shown_apart_from_the_text(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("42", thinking="six times seven", delay=0.001)
    events = await listen(one_shot(wire, server, client), asked())
    assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == "six times seven"
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert (reply.thinking, reply.message.text) == ("six times seven", "42")


async def test_thoughts_behind_a_call_go_back_with_it(
    wire: str, server: FakeProvider, client: Client
) -> None:
    model = one_shot(wire, server, client)
    server.reply("I look.", thinking="hm, hm", calls=[call("read", path="a")])
    first = await ask(model, asked(tools=(READ,)))
    server.reply("done")
    result = ToolMessage(call_id=first.message.calls[0].id, name="read", text="x")
    history = (UserMessage(text="What is it about?"), first.message, result)
    await ask(model, ModelRequest(system="You read.", messages=history, tools=(READ,)))
    assert not server.rejected
    back = server.requests[1].messages[1]
    assert isinstance(back, AssistantMessage)
    assert back.text == "I look."
    expected = {
        "openai": {"reasoning_content": "hm, hm"},
        "anthropic": {
            "thinking": [{"type": "thinking", "thinking": "hm, hm", "signature": "c2lnbmVkIGJ5IHRoZSBmYWtl"}]
        },
        "gemini": {"signatures": [None, "ZmFrZSB0aG91Z2h0"]},
        "responses": {
            "reasoning": [
                {
                    "type": "reasoning",
                    "id": "rs_fake",
                    "summary": [{"type": "summary_text", "text": "hm, hm"}],
                    "encrypted_content": "gAAAAfake",
                }
            ]
        },
    }
    assert back.extra == expected[wire]


async def test_a_conversation_of_another_provider_can_be_continued(
    wire: str, server: FakeProvider, client: Client
) -> None:
    """Ids, signatures and empty answers of others are no obstacle."""
    other = AssistantMessage(
        text="",
        calls=(call("read", "functions.read:0", path="a"), call("read", "x.1.0", path="b")),
        extra={"elsewhere": {"signature": "??"}},
    )
    history = (
        UserMessage(text="Begin"),
        AssistantMessage(text=""),
        UserMessage(text="Go on"),
        other,
        ToolMessage(call_id="functions.read:0", name="read", text="1"),
        ToolMessage(call_id="x.1.0", name="read", text="2"),
    )
    server.reply("fine")
    reply = await ask(
        one_shot(wire, server, client), ModelRequest(system="", messages=history, tools=(READ,))
    )
    assert reply.message.text == "fine"
    assert not server.rejected


async def test_a_last_answer_without_tools_is_accepted_after_calls(
    wire: str, server: FakeProvider, client: Client
) -> None:
    history = (
        UserMessage(text="Begin"),
        AssistantMessage(calls=(call("read", "callone12", path="a"),)),
        ToolMessage(call_id="callone12", name="read", text="1"),
        UserMessage(text="Report now."),
    )
    server.reply("the report")
    reply = await ask(one_shot(wire, server, client), ModelRequest(system="", messages=history))
    assert reply.message.text == "the report"


async def test_a_call_without_arguments_is_an_empty_object_to_the_provider(
    wire: str, server: FakeProvider, client: Client
) -> None:
    history = (
        UserMessage(text="Begin"),
        AssistantMessage(calls=(ToolCall(id="callone12", name="read", arguments=""),)),
        ToolMessage(call_id="callone12", name="read", text=""),
    )
    server.reply("ok")
    await ask(one_shot(wire, server, client), ModelRequest(system="", messages=history, tools=(READ,)))
    seen = server.requests[0].messages[1]
    assert isinstance(seen, AssistantMessage)
    assert seen.calls[0].arguments == "{}"


async def test_an_absurd_limit_on_tokens_is_not_sent(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("ok")
    await ask(one_shot(wire, server, client), asked(max_tokens=999_000))
    assert server.requests[0].max_tokens in (None, 64_000)


@pytest.mark.parametrize(
    "how", [{"split": 1}, {"split": 7}, {"crlf": True, "split": 5}, {"comments": True, "split": 11}]
)
async def test_no_cut_of_the_bytes_changes_an_answer(
    wire: str, how: dict[str, Any], server: FakeProvider, client: Client
) -> None:
    server.reply("Ünïcödé 🐝🐝", thinking="多思", calls=[call("read", path="a\n🐝")], **how)
    reply = await ask(one_shot(wire, server, client), asked(tools=(READ,)))
    assert (reply.message.text, reply.thinking) == ("Ünïcödé 🐝🐝", "多思")
    assert reply.message.calls[0].name == "read"
    assert "🐝" in reply.message.calls[0].arguments or "\\ud83d" in reply.message.calls[0].arguments


async def test_closing_the_stream_closes_the_connection(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("a long story " * 50, hang_after=5, delay=0.001)
    stream = one_shot(wire, server, client).stream(asked())
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    await stream.aclose()
    await _until(lambda: server.left == 1)


async def test_cancelling_the_reader_closes_the_connection(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("never", hang_after=1, delay=0.001)
    task = asyncio.create_task(ask(one_shot(wire, server, client), asked()))
    await _until(lambda: server.at_once == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: server.left == 1)


async def _until(true) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.002)
