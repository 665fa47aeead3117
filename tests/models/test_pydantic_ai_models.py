"""Models of pydantic-ai, driven by its own test models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from asking import READ, ask, asked, listen, shown
from pydantic_ai import exceptions
from pydantic_ai.messages import ModelMessage, ModelResponse, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from retinue.errors import ConfigError, ModelError, ModelErrorKind
from retinue.models.connect import connect
from retinue.models.http import Client
from retinue.models.prices import Cost, Rates
from retinue.models.pydantic_ai import PydanticModel, to_messages
from retinue.settings import Settings
from retinue.types import (
    AssistantMessage,
    Image,
    ModelRequest,
    ModelSettings,
    Reply,
    ThinkingDelta,
    ToolMessage,
    UserMessage,
)


def streaming(*pieces: Any, seen: list[Any] | None = None) -> PydanticModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if seen is not None:
            seen.append((messages, info))
        for piece in pieces:
            yield piece

    rates = Rates(input=1.0, output=1.0, cached=1.0, written=1.0)
    return PydanticModel(
        FunctionModel(stream_function=stream), name="pydantic-ai:test", cost=Cost(rates=rates)
    )


async def test_text_streams_and_is_counted() -> None:
    events = await listen(streaming("Bees ", "are ", "insects."), asked())
    assert shown(events) == "Bees are insects."
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert (reply.message.text, reply.stop, reply.model) == ("Bees are insects.", "end", "pydantic-ai:test")
    assert reply.usage.output_tokens > 0
    assert reply.usage.cost


async def test_calls_come_in_fragments_and_in_parallel() -> None:
    model = streaming(
        {0: DeltaToolCall(name="read", json_args='{"pa', tool_call_id="one")},
        {0: DeltaToolCall(json_args='th": "a"}')},
        {1: DeltaToolCall(name="read", json_args='{"path": "b"}', tool_call_id="two")},
    )
    reply = await ask(model, asked(tools=(READ,)))
    assert reply.stop == "tool_calls"
    made = [(c.id, c.name, c.arguments) for c in reply.message.calls]
    assert made == [("one", "read", '{"path": "a"}'), ("two", "read", '{"path": "b"}')]


async def test_malformed_arguments_are_passed_on_untouched() -> None:
    model = streaming({0: DeltaToolCall(name="read", json_args='{"path": "a', tool_call_id="one")})
    assert (await ask(model, asked(tools=(READ,)))).message.calls[0].arguments == '{"path": "a'


async def test_the_whole_conversation_reaches_the_model() -> None:
    seen: list[Any] = []
    answer = AssistantMessage(text="I look.", calls=(_call("one"),))
    history = (
        UserMessage(text="What?", images=(Image(media_type="image/png", data="aGk="),)),
        answer,
        ToolMessage(call_id="one", name="read", text="no such file", is_error=True),
        UserMessage(text="Go on"),
    )
    request = ModelRequest(
        system="You read.", messages=history, tools=(READ,), temperature=0.2, max_tokens=50
    )
    await ask(streaming("ok", seen=seen), request)
    messages, info = seen[0]
    kinds = [[part.part_kind for part in message.parts] for message in messages]
    assert kinds == [["system-prompt", "user-prompt"], ["text", "tool-call"], ["tool-return", "user-prompt"]]
    assert messages[2].parts[0].outcome == "failed"
    assert [tool.name for tool in info.function_tools] == ["read"]
    assert (info.model_settings["temperature"], info.model_settings["max_tokens"]) == (0.2, 50)


async def test_every_setting_goes_by_its_name_there() -> None:
    seen: list[Any] = []
    settings = ModelSettings(
        top_p=0.5,
        stop="END",
        seed=7,
        parallel_tool_calls=False,
        service_tier="flex",
        extra_headers={"X-Team": "s3cret"},
        extra_body={"user": "7"},
    )
    await ask(streaming("ok", seen=seen), asked(tools=(READ,), settings=settings, tool_choice="required"))
    given = {name: value for name, value in seen[0][1].model_settings.items() if name != "timeout"}
    assert given == {
        "top_p": 0.5,
        "stop_sequences": ["END"],
        "seed": 7,
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "tool_choice": "required",
        "extra_headers": {"X-Team": "s3cret"},
        "extra_body": {"user": "7"},
    }


def test_what_pydantic_ai_does_not_send_is_known() -> None:
    model = PydanticModel(TestModel())
    told = {*TestModel.unsupported_settings} & {"top_p", "seed", "stop_sequences"}
    assert {*model.lacks(ModelSettings(top_p=0.5, seed=1, stop="x", effort="low"))} == {
        "effort",
        *("stop" if name == "stop_sequences" else name for name in told),
    }


async def test_thinking_is_shown_and_goes_back_whole() -> None:
    model = streaming(
        {0: DeltaThinkingPart(content="hm", signature="signed")},
        {1: DeltaToolCall(name="read", json_args="{}", tool_call_id="one")},
    )
    events = await listen(model, asked(tools=(READ,)))
    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["hm"]
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert reply.thinking == "hm"
    # The run may know the call by another id: its result must still find it.
    renamed = AssistantMessage(text="", calls=(_call("one.2"),), extra=reply.message.extra)
    history = (UserMessage(text="?"), renamed, ToolMessage(call_id="one.2", name="read", text="x"))
    sent = to_messages(ModelRequest(system="", messages=history))[1]
    assert isinstance(sent, ModelResponse)
    thought, made = sent.parts
    assert isinstance(thought, ThinkingPart)
    assert isinstance(made, ToolCallPart)
    assert (thought.signature, made.tool_call_id) == ("signed", "one.2")


async def test_plain_answers_keep_nothing_extra() -> None:
    assert (await ask(streaming("hi"), asked())).message.extra is None


async def test_its_own_test_model_calls_our_tools() -> None:
    reply = await ask(PydanticModel(TestModel()), asked(tools=(READ,)))
    assert [c.name for c in reply.message.calls] == ["read"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            exceptions.ModelHTTPError.for_category(
                exceptions.ModelRateLimitError, status_code=429, model_name="m"
            ),
            "rate_limit",
        ),
        (
            exceptions.ModelHTTPError.for_category(
                exceptions.ModelAuthenticationError, status_code=401, model_name="m"
            ),
            "auth",
        ),
        (
            exceptions.ModelHTTPError.for_category(
                exceptions.ModelServerError, status_code=500, model_name="m"
            ),
            "overloaded",
        ),
        (exceptions.ModelContextWindowExceededError(model_name="m", message="long"), "too_long"),
        (exceptions.ModelTimeoutError(model_name="m", message="slow"), "timeout"),
        (exceptions.ModelConnectionError(model_name="m", message="gone"), "connection"),
        (exceptions.UnexpectedModelBehavior("what?"), "protocol"),
        (exceptions.UserError("cannot"), "invalid"),
    ],
)
async def test_errors_get_our_kinds(error: Exception, kind: ModelErrorKind) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise error
        yield ""

    with pytest.raises(ModelError) as caught:
        await ask(PydanticModel(FunctionModel(stream_function=stream)), asked())
    assert caught.value.kind == kind


def test_connect_finds_it_by_name(client: Client) -> None:
    model = connect("pydantic-ai:test", settings=Settings(), client=client, environ={})
    assert model.name == "pydantic-ai:test"


def test_a_provider_only_pydantic_ai_knows_says_what_it_needs(client: Client) -> None:
    """Its package is not installed here: the message says so in one line, instead of 'unknown'."""
    with pytest.raises(ConfigError) as caught:
        connect("bedrock:anthropic.claude-haiku-5-5", settings=Settings(), client=client, environ={})
    assert "bedrock" in str(caught.value)
    assert "unknown provider" not in str(caught.value)
    assert "\n" not in str(caught.value)


def _call(call_id: str) -> Any:
    from retinue.testing import call

    return call("read", call_id, path="a")
