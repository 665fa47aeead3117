"""Pictures: in results of tools, by their addresses, and at servers that take none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from asking import READ, WIRES, ask, connected, one_shot

from retinue.errors import ModelError
from retinue.models.http import Client
from retinue.models.offline import OfflineModel
from retinue.models.pictures import pictures
from retinue.models.text_protocol import TextProtocol
from retinue.settings import WebSettings
from retinue.testing import FakeProvider, ScriptedModel
from retinue.types import (
    AssistantMessage,
    Image,
    Message,
    ModelRequest,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.web.fetch import Web

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PICTURE = Image.from_bytes(PNG)
CALLED = AssistantMessage(calls=(ToolCall(id="call_1", name="read", arguments='{"path": "a.png"}'),))


def conversation(*images: Image) -> tuple[Message, ...]:
    return (
        UserMessage(text="What is on it?"),
        CALLED,
        ToolMessage(call_id="call_1", name="read", text="[1 picture]", images=images),
    )


def request(*messages: Message) -> ModelRequest:
    return ModelRequest(system="You look.", messages=messages, tools=(READ,))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_picture_that_a_tool_returned_reaches_the_model(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("a bee")
    await ask(one_shot(wire, server, client), request(*conversation(PICTURE)))
    sent = server.requests[0].messages
    assert pictures(sent) == [PICTURE]
    result = sent[2]
    assert isinstance(result, ToolMessage)
    assert result.text.startswith("[1 picture]")
    assert bool(result.images) == (wire in ("anthropic", "responses"))  # else it follows as a message


@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
async def test_an_address_is_handed_to_the_provider_and_not_fetched(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("a bee")
    there = Image.from_url("https://pictures.example/bee.png")
    said = UserMessage(text="And this?", images=(there,))
    await ask(one_shot(wire, server, client), request(said))
    assert server.requests[0].messages == (said,)


async def test_a_model_over_the_text_protocol_sees_it_too() -> None:
    model = ScriptedModel(["a bee"])
    await ask(TextProtocol(model), request(*conversation(PICTURE)))
    assert pictures(model.requests[0].messages) == [PICTURE]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_takes_no_pictures_is_told_in_words_and_not_asked_twice(
    wire: str, server: FakeProvider, client: Client
) -> None:
    model = one_shot(wire, server, client)
    server.reply(status=400, message="this model has no eyes")
    server.reply("I cannot see it.")
    server.reply("Still not.")
    assert (await ask(model, request(*conversation(PICTURE)))).message.text == "I cannot see it."
    await ask(model, request(*conversation(PICTURE)))
    assert len(server.requests) == 3
    for seen in server.requests[1:]:
        assert not pictures(seen.messages)
        assert "not shown to you" in str(seen.messages)
    assert "this model has no eyes" in str(server.requests[1].messages)
    assert "this model has no eyes" not in str(server.requests[2].messages), "another's request, perhaps"


async def test_a_refusal_that_is_not_about_pictures_stays_one(server: FakeProvider, client: Client) -> None:
    server.reply(status=400, message="no")
    server.reply(status=400, message="no again")
    model = one_shot("openai", server, client)
    with pytest.raises(ModelError):
        await ask(model, request(*conversation(PICTURE)))
    server.reply("a bee")
    await ask(model, request(*conversation(PICTURE)))
    assert pictures(server.requests[-1].messages) == [PICTURE], "whoever asks next is shown what they sent"


async def test_a_picture_that_was_refused_beside_another_is_still_shown_alone(
    server: FakeProvider, client: Client
) -> None:
    model, other = one_shot("openai", server, client), Image.from_bytes(PNG + b"other")
    server.reply(status=400, message="one of them is broken")
    for _ in range(3):
        server.reply("seen")
    await ask(model, request(*conversation(PICTURE, other)))
    await ask(model, request(*conversation(PICTURE)))
    assert pictures(server.requests[-1].messages) == [PICTURE]
    third = Image.from_bytes(PNG + b"third")
    await ask(model, request(*conversation(PICTURE, other, third)))
    assert pictures(server.requests[-1].messages) == [third]


async def test_the_offline_model_is_told_that_there_was_one() -> None:
    reply = await ask(OfflineModel(), request(UserMessage(text="What is this?", images=(PICTURE,))))
    assert reply.message.text


@pytest_asyncio.fixture
async def gallery() -> AsyncIterator[str]:
    """A web server with a picture, a page and a redirect to an address that is closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        kind, body = (b"image/png", PNG) if path == b"/bee.png" else (b"text/html", b"<p>no picture</p>")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind
        if path == b"/moved":
            head = b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/bee.png"
        writer.write(head + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    opened = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with opened:
        yield f"http://127.0.0.1:{opened.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("path", "says"), [("/bee.png", ""), ("/page", "no PNG"), ("/moved", "10.0.0.1"), ("closed", "127.0.0.1")]
)
async def test_a_server_that_takes_bytes_alone_gets_what_may_be_fetched(
    server: FakeProvider, client: Client, gallery: str, path: str, says: str
) -> None:
    server.reply("seen")
    opened = () if path == "closed" else (gallery.removeprefix("http://"),)
    settings = msgspec.structs.replace(WebSettings(), allow_hosts=opened)
    url = gallery + (path if path.startswith("/") else "/bee.png")
    async with Web(settings) as web:
        client.picture = web.picture
        said = UserMessage(text="What is it?", images=(Image.from_url(url),))
        await ask(connected("gemini", server, client), request(said))
    (sent,) = server.requests[0].messages
    assert pictures([sent]) == ([] if says else [PICTURE])
    assert says in sent.text
