"""What is particular to each provider's requests, beyond what all of them have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import READ, ask, asked, one_shot

from retinue.errors import ModelError
from retinue.models.anthropic import AnthropicWire
from retinue.models.gemini import FOREIGN_CALL, GeminiWire
from retinue.models.http import Client
from retinue.models.keys import Key
from retinue.models.openai import DIALECTS, Dialect, OpenAIWire
from retinue.models.responses import ResponsesWire
from retinue.testing import FakeProvider, call
from retinue.types import AssistantMessage, ModelRequest, ToolMessage, ToolSpec, UserMessage

CALLED = (
    UserMessage(text="Begin"),
    AssistantMessage(text="I look.", calls=(call("read", "call-one", path="a"),)),
    ToolMessage(call_id="call-one", name="read", text="x"),
)
EACH = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def body(wire: Any, request: ModelRequest) -> dict[str, Any]:
    return json.loads(wire.encode(request))


def openai(model: str = "m", dialect: Dialect | None = None) -> OpenAIWire:
    return OpenAIWire(base_url="http://x/v1", model=model, dialect=dialect)


def anthropic(model: str = "claude-sonnet-5-5") -> AnthropicWire:
    return AnthropicWire(base_url="https://x", model=model)


def gemini(model: str = "gemini-3.8-flash") -> GeminiWire:
    return GeminiWire(base_url="https://x", model=model)


# --- chat completions


def test_only_openai_itself_gets_max_completion_tokens() -> None:
    assert body(openai(), asked(max_tokens=5))["max_tokens"] == 5
    sent = body(openai("gpt-4o", DIALECTS["openai"]), asked(max_tokens=5))
    assert sent["max_completion_tokens"] == 5
    assert "max_tokens" not in sent


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "o4-mini", "gpt-5.6-luna", "gpt-6-sol"])
def test_reasoning_models_of_openai_get_no_temperature(model: str) -> None:
    assert "temperature" not in body(openai(model, DIALECTS["openai"]), asked(temperature=0.3))
    assert body(openai(model), asked(temperature=0.3))["temperature"] == 0.3, "elsewhere it may be any model"


def test_newer_models_are_asked_not_to_reason_when_they_get_tools_here() -> None:
    sent = body(openai("gpt-6-luna", DIALECTS["openai"]), asked(tools=(READ,)))
    assert sent["reasoning_effort"] == "none"
    assert "reasoning_effort" not in body(openai("gpt-6-luna", DIALECTS["openai"]), asked())


def test_a_gateway_that_wants_no_reasoning_beside_tools_is_obliged_and_remembered() -> None:
    wire = openai("some-alias")
    request = asked(tools=(READ,))
    refusal = ModelError(
        "openai answered 400: Function tools with reasoning_effort are not supported for gpt-6-sol",
        kind="invalid",
        status=400,
    )
    mended = wire.mend(request, refusal)
    assert mended is not None
    assert json.loads(mended)["reasoning_effort"] == "none"
    assert body(wire, request)["reasoning_effort"] == "none"
    assert wire.mend(request, refusal) is None, "not a second time"


def test_a_server_that_refuses_to_demand_a_call_is_asked_without_and_remembered() -> None:
    wire = openai("some-alias")
    request = asked(tools=(READ,), tool_choice="required")
    assert body(wire, request)["tool_choice"] == "required"
    refusal = ModelError(
        "openai answered 400: tool_choice 'required' is not supported", kind="invalid", status=400
    )
    assert wire.mend(asked(tools=(READ,)), refusal) is None, "none was demanded"
    mended = wire.mend(request, refusal)
    assert mended is not None
    assert "tool_choice" not in json.loads(mended)
    assert "tool_choice" not in body(wire, request)
    assert body(wire, asked(tools=(READ,), tool_choice="none"))["tool_choice"] == "none"
    assert wire.mend(request, refusal) is None, "not a second time"


def test_mistral_gets_ids_of_nine_characters_and_no_user_after_a_tool() -> None:
    history = (*CALLED, UserMessage(text="and?"))
    sent = body(openai("m", DIALECTS["mistral"]), ModelRequest(system="", messages=history, tools=(READ,)))
    made, result = sent["messages"][1]["tool_calls"][0]["id"], sent["messages"][2]["tool_call_id"]
    assert made == result
    assert len(made) == 9
    assert made.isalnum()
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


def test_deepseek_is_told_the_schema_in_words() -> None:
    sent = body(openai("deepseek-v4-pro", DIALECTS["deepseek"]), asked(schema=EACH))
    assert sent["response_format"] == {"type": "json_object"}
    assert '"additionalProperties":false' in sent["messages"][0]["content"]


@pytest.mark.parametrize(("schema", "strict"), [(EACH, True), ({**EACH, "required": []}, False)])
def test_a_schema_is_strict_only_if_openai_would_take_it(schema: dict[str, Any], strict: bool) -> None:
    assert body(openai(), asked(schema=schema))["response_format"]["json_schema"]["strict"] is strict


async def test_openrouter_says_itself_what_it_charged() -> None:
    reader = openai("m", DIALECTS["openrouter"]).reader(asked())
    reader.feed(
        b'{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"cost":0.25}}'
    )
    outcome = reader.finish()
    assert outcome is not None
    assert outcome.cost == 0.25


def test_encoded_tools_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    from retinue.models.wire import Encoded

    encoded = Encoded(lambda tools: made.append(len(tools)) or b"[]")
    encoded((READ,))
    encoded((READ,))
    encoded((ToolSpec(name=READ.name, description=READ.description, schema=READ.schema),))
    assert made == [1]
    encoded((ToolSpec(name=READ.name, description="another", schema=READ.schema),))
    encoded((ToolSpec(name=READ.name, description=READ.description, schema=dict(READ.schema)),))
    assert made == [1, 1, 1]


# --- responses


def test_nothing_is_stored_at_the_provider() -> None:
    sent = body(ResponsesWire(base_url="https://x/v1", model="gpt-6.1-sol"), asked(temperature=1.0))
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert "temperature" not in sent


def test_reasoning_that_cannot_be_decrypted_is_left_out() -> None:
    wire = ResponsesWire(base_url="https://x/v1", model="gpt-6.1-sol")
    kept = [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "old"}, {"text": 4}]
    history = (
        UserMessage(text="?"),
        AssistantMessage(text="This", extra={"responses": kept}),
        UserMessage(text="!"),
    )
    request = ModelRequest(system="", messages=history)
    assert "old" in wire.encode(request).decode()
    error = ModelError("The encrypted content for item r could not be verified", kind="invalid", status=400)
    mended = wire.mend(request, error)
    assert mended is not None
    assert "old" not in mended.decode()
    assert "This" in mended.decode()
    assert wire.mend(asked(), error) is None


# --- messages


def test_the_prompt_is_cached_up_to_tools_system_and_last_message() -> None:
    request = ModelRequest(
        system="You read.",
        messages=CALLED,
        tools=(READ, READ.__class__(name="ls", description="", schema={"type": "object"})),
    )
    sent = body(anthropic(), request)
    mark = {"type": "ephemeral"}
    assert "cache_control" not in sent["tools"][0]
    assert sent["tools"][-1]["cache_control"] == mark
    assert sent["system"][-1]["cache_control"] == mark
    assert sent["messages"][-1]["content"][-1]["cache_control"] == mark
    assert json.dumps(sent).count("cache_control") == 3


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("claude-3-5-haiku-latest", True),
        ("claude-sonnet-4-5", True),
        ("claude-opus-4-6", True),
        ("claude-opus-4-7", False),
        ("claude-sonnet-5-5", False),
        ("claude-haiku-5-5", False),
        ("claude-opus-9", False),
        ("MiniMax-M3", True),
    ],
)
def test_newer_claude_models_get_no_temperature(model: str, taken: bool) -> None:
    assert ("temperature" in body(anthropic(model), asked(temperature=0.5))) is taken


@pytest.mark.parametrize(
    ("model", "most"), [("claude-sonnet-5-5", 64_000), ("claude-3-haiku", 4096), ("GLM-5", 16_384)]
)
def test_an_answer_may_be_as_long_as_the_model_allows(model: str, most: int) -> None:
    assert body(anthropic(model), asked())["max_tokens"] == most
    assert body(anthropic(model), asked(max_tokens=100))["max_tokens"] == 100


def test_a_tool_is_forced_only_where_the_model_lets_it_be() -> None:
    request = asked(tools=(READ,), tool_choice="required")
    assert body(anthropic("claude-haiku-5-5"), request)["tool_choice"] == {"type": "any"}
    assert "tool_choice" not in body(anthropic("claude-sonnet-5-5"), request)


async def test_an_older_claude_answers_a_schema_through_a_hidden_tool(
    server: FakeProvider, client: Client
) -> None:
    server.reply('{"a": "bee"}')
    model = one_shot("anthropic", server, client, model="claude-3-5-haiku-latest")
    reply = await ask(model, asked(schema=EACH))
    assert (reply.message.text, reply.message.calls, reply.stop) == ('{"a": "bee"}', (), "end")
    assert [tool.name for tool in server.requests[0].tools] == ["final_answer"]


def test_with_tools_an_older_claude_may_call_or_answer() -> None:
    sent = body(anthropic("claude-3-5-haiku-latest"), asked(schema=EACH, tools=(READ,)))
    assert [tool["name"] for tool in sent["tools"]] == ["read", "final_answer"]
    assert sent["tool_choice"] == {"type": "any"}


def test_a_token_goes_into_the_authorization_header() -> None:
    assert anthropic().headers(Key("k"))["x-api-key"] == "k"
    bearer = AnthropicWire(base_url="https://x", model="m", bearer=True).headers(Key("k"))
    assert bearer["Authorization"] == "Bearer k"
    assert "x-api-key" not in bearer


async def test_thinking_that_is_refused_is_left_out(server: FakeProvider, client: Client) -> None:
    """The fake refuses a signature it did not make, as the real one does after a change of the prompt."""
    kept = [{"type": "thinking", "thinking": "hm", "signature": "not the fake's"}, {"text": 4}]
    history = (
        UserMessage(text="?"),
        AssistantMessage(text="This", extra={"anthropic": kept}),
        UserMessage(text="And?"),
    )
    server.reply("That")
    reply = await ask(one_shot("anthropic", server, client), ModelRequest(system="", messages=history))
    assert reply.message.text == "That"
    assert len(server.rejected) == 1
    assert server.requests[0].messages[1] == AssistantMessage(text="This")


def test_thinking_text_and_calls_go_back_in_the_order_they_came() -> None:
    thought = {"type": "thinking", "thinking": "", "signature": "s"}
    kept = [thought, {"text": 3}, {"type": "redacted_thinking", "data": "d"}, {"text": 3}, {"call": 1}]
    said = AssistantMessage(text="onetwo", calls=(call("read", "c1", path="a"),), extra={"anthropic": kept})
    history = (UserMessage(text="?"), said, ToolMessage(call_id="c1", name="read", text="x"))
    blocks = body(anthropic(), ModelRequest(system="", messages=history, tools=(READ,)))["messages"][1][
        "content"
    ]
    assert [b.get("text") or b["type"] for b in blocks] == [
        "thinking",
        "one",
        "redacted_thinking",
        "two",
        "tool_use",
    ]
    assert blocks[0] == thought


# --- generateContent


def test_a_call_of_another_model_gets_the_documented_placeholder() -> None:
    request = ModelRequest(system="", messages=CALLED, tools=(READ,))
    part = body(gemini(), request)["contents"][1]["parts"][1]
    assert part["thoughtSignature"] == FOREIGN_CALL
    assert "thoughtSignature" not in json.dumps(body(gemini("gemini-2.5-flash"), request))


def test_an_older_gemini_gets_tools_or_a_schema_but_the_schema_in_words_beside_tools() -> None:
    both = asked(schema=EACH, tools=(READ,))
    older = body(gemini("gemini-2.5-flash"), both)
    assert "generationConfig" not in older
    assert "fits this schema" in older["systemInstruction"]["parts"][0]["text"]
    newer = body(gemini(), both)
    assert newer["generationConfig"]["responseMimeType"] == "application/json"


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://x", "https://x/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://x/v1/", "https://x/v1/models/m:streamGenerateContent?alt=sse"),
        ("https://x/v1beta", "https://x/v1beta/models/m:streamGenerateContent?alt=sse"),
    ],
)
def test_the_address_of_a_gemini_model(base: str, url: str) -> None:
    assert GeminiWire(base_url=base, model="m").url == url


async def test_a_blocked_prompt_is_a_refusal(server: FakeProvider, client: Client) -> None:
    server.reply("", stop="refusal")
    reply = await ask(one_shot("gemini", server, client), asked())
    assert (reply.stop, reply.message.text) == ("refusal", "")


def test_thoughts_count_as_output() -> None:
    reader = gemini().reader(asked())
    reader.feed(
        b'{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":'
        b'{"promptTokenCount":100,"candidatesTokenCount":5,"thoughtsTokenCount":20,"cachedContentTokenCount":60}}'
    )
    outcome = reader.finish()
    assert outcome is not None
    assert (outcome.tokens.input, outcome.tokens.output, outcome.tokens.cached) == (100, 25, 60)


def test_html_of_a_gateway_becomes_a_line_of_text() -> None:
    from retinue.models.failures import read_body

    said = read_body(b"<html><head><title>502</title></head>\n<body><h1>Bad Gateway</h1></body></html>")
    assert said.message == "502 Bad Gateway"


def test_the_wait_that_gemini_asks_for_is_read_from_its_details() -> None:
    from retinue.models.failures import answered
    from retinue.models.keys import KeyPool

    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    raw = json.dumps(
        [{"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": details}}]
    )
    error = answered(429, {}, raw.encode(), keys=KeyPool(()), key=None)
    assert (error.kind, error.retry_after) == ("rate_limit", 34.5)
