"""What every wire format must do when something goes wrong, over real sockets."""

from __future__ import annotations

import socket
import time
from email.utils import formatdate
from typing import Any

import pytest
from asking import MODEL_OF, WIRES, ask, asked, connected, listen, one_shot, shown

from retinue.errors import ModelError, ModelErrorKind
from retinue.models.connect import connect
from retinue.models.http import Client
from retinue.models.retry import RetryPolicy
from retinue.settings import Settings
from retinue.testing import FakeProvider, Script
from retinue.types import Reply, Retrying

pytestmark = pytest.mark.parametrize("wire", WIRES)


async def failure(wire: str, server: FakeProvider, client: Client, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(one_shot(wire, server, client), asked(**more))
    return caught.value


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "messages: something is off", "invalid"),
        (400, "This model's maximum context length is 8192 tokens, you asked for 9000", "too_long"),
        (400, "prompt is too long: 250000 tokens > 200000 maximum", "too_long"),
        (400, "The input token count (1100000) exceeds the maximum number of tokens allowed", "too_long"),
        (413, "too large", "too_long"),
        (401, "no", "auth"),
        (403, "no right to this model", "auth"),
        (404, "no such model", "not_found"),
        (408, "slow", "timeout"),
        (429, "slow down", "rate_limit"),
        (402, "pay first", "rate_limit"),
        (500, "oops", "overloaded"),
        (503, "busy", "overloaded"),
        (529, "Overloaded", "overloaded"),
    ],
)
async def test_a_refusal_has_its_kind_and_the_providers_words(
    wire: str, status: int, message: str, kind: ModelErrorKind, server: FakeProvider, client: Client
) -> None:
    server.fail(status, message)
    error = await failure(wire, server, client)
    assert (error.kind, error.status) == (kind, status)
    assert message in str(error)
    assert wire in str(error)


async def test_retry_after_in_seconds(wire: str, server: FakeProvider, client: Client) -> None:
    server.fail(429, "slow down", retry_after=7)
    assert (await failure(wire, server, client)).retry_after == 7


async def test_retry_after_as_a_date(wire: str, server: FakeProvider, client: Client) -> None:
    server.fail(429, "slow down", retry_after=formatdate(time.time() + 30, usegmt=True))
    wait = (await failure(wire, server, client)).retry_after
    assert wait is not None
    assert 20 < wait <= 31


async def test_retry_after_in_milliseconds_is_the_more_exact_one(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.add(Script(status=429, retry_after=1, headers={"retry-after-ms": "250"}))
    assert (await failure(wire, server, client)).retry_after == 0.25


@pytest.mark.parametrize("garbage", ["soon", "", "-3"])
async def test_a_senseless_retry_after_does_no_harm(
    wire: str, garbage: str, server: FakeProvider, client: Client
) -> None:
    server.fail(429, "slow down", retry_after=garbage)
    assert (await failure(wire, server, client)).retry_after in (None, 0.0)


async def test_a_wrong_key_is_an_auth_error_that_does_not_show_it(wire: str, client: Client) -> None:
    async with FakeProvider(keys=["the-right-key"]) as server:
        with pytest.raises(ModelError) as caught:
            await ask(one_shot(wire, server, client, keys=("sk-secret-123456789",)), asked())
    assert caught.value.kind == "auth"
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(one_shot(wire, server, client, keys=("sk-secret-123456789",)))


async def test_a_connection_lost_in_the_middle_is_a_connection_error(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("a long story " * 20, drop_after=4, delay=0.001)
    assert (await failure(wire, server, client)).kind == "connection"


async def test_an_answer_that_ends_too_early_is_not_taken_for_a_whole_one(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("a long story", nothing=True)
    error = await failure(wire, server, client)
    assert error.kind == "connection"
    assert "before it was complete" in str(error)


async def test_nobody_listening_is_a_connection_error(
    wire: str, server: FakeProvider, client: Client
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server.port = free.getsockname()[1]
        error = await failure(wire, server, client)
    assert error.kind == "connection"


async def test_a_silent_server_is_a_timeout(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("never", hang_after=1)
    error = await failure(wire, server, client, timeout=0.2)
    assert error.kind == "timeout"
    assert "within 0.2 s; for a slow model, raise limits.model_timeout" in str(error)


async def test_a_stalled_stream_is_given_up_before_the_total_time(wire: str, server: FakeProvider) -> None:
    server.reply("never", hang_after=2)
    async with Client(environ={}, stall=0.2) as client:
        error = await failure(wire, server, client, timeout=3600)
    assert error.kind == "timeout"


async def test_broken_json_is_a_protocol_error(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("some text", garbage_after=2)
    error = await failure(wire, server, client)
    assert error.kind == "protocol"
    assert '{"choices": [{"del' in str(error)


async def test_an_error_inside_the_stream_is_raised(wire: str, server: FakeProvider, client: Client) -> None:
    server.reply("some text", error_after=3, message="The engine is overloaded")
    error = await failure(wire, server, client)
    assert error.kind == "overloaded"
    assert "The engine is overloaded" in str(error)


async def test_text_that_was_shown_is_declared_void_when_the_call_is_made_again(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("the wrong half of a story", drop_after=5, delay=0.002)
    server.reply("the whole story")
    events = await listen(connected(wire, server, client), asked())
    again = [e for e in events if isinstance(e, Retrying)]
    assert [e.text_shown for e in again] == [True]
    after = events[events.index(again[0]) + 1 :]
    assert shown(after) == "the whole story"
    assert isinstance(events[-1], Reply)
    assert events[-1].message.text == "the whole story"
    assert server.served == 2


async def test_a_rate_limited_key_is_exchanged_for_another_at_once(wire: str, client: Client) -> None:
    async with FakeProvider() as server:
        server.fail(429, "slow down", retry_after=40)
        server.reply("thanks")
        server.reply("again")
        name = {"responses": "openai"}.get(wire, wire)
        variable = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}[
            name
        ]
        environ = server.environ() | {variable: "first-key, second-key"}
        model_name = f"{name}:{MODEL_OF[name]}"
        model = connect(
            model_name,
            settings=Settings(),
            client=client,
            environ=environ,
            policy=RetryPolicy(first_wait=0.001),
        )
        events = await listen(model, asked())
        assert [(e.wait, e.attempt) for e in events if isinstance(e, Retrying)] == [(0.0, 1)]
        await ask(model, asked())
        assert [seen.key for seen in server.requests] == ["first-key", "second-key", "second-key"]
