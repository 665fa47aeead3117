"""How hard a model is asked to think, in every wire format, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest
from asking import READ, WIRES, ask, asked, one_shot

from retinue.models.http import Client
from retinue.testing import FakeProvider
from retinue.types import EFFORTS, Effort

TAKES = {
    "openai": "some-model",
    "responses": "gpt-6.1-sol",
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-3.8-flash",
}
TAKES_NONE = {
    "openai": "gpt-4o",
    "responses": "gpt-4.1",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-2.0-flash",
}


def sent(wire: str, body: dict[str, Any]) -> Any:
    return {
        "openai": body.get("reasoning_effort"),
        "responses": body.get("reasoning", {}).get("effort"),
        "anthropic": body.get("output_config", {}).get("effort"),
        "gemini": body.get("generationConfig", {}).get("thinkingConfig", {}).get("thinkingLevel"),
    }[wire]


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("wire", WIRES)
async def test_the_effort_is_sent_as_each_provider_spells_it(
    wire: str, effort: Effort, server: FakeProvider, client: Client
) -> None:
    server.reply("ok")
    reply = await ask(one_shot(wire, server, client, model=TAKES[wire]), asked(effort=effort))
    assert sent(wire, server.requests[0].body) == effort
    assert reply.effort == effort, "it was taken"


@pytest.mark.parametrize("wire", WIRES)
async def test_nothing_is_sent_where_nobody_asks_for_an_effort(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("ok")
    reply = await ask(one_shot(wire, server, client, model=TAKES[wire]), asked())
    assert sent(wire, server.requests[0].body) is None
    assert reply.effort == ""


@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_that_takes_none_is_told_none_and_nobody_says_that_it_obeyed(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("ok")
    server.reply("ok")
    model = one_shot(wire, server, client, model=TAKES_NONE[wire])
    first = await ask(model, asked(effort="high"))
    refused = len(server.rejected)
    second = await ask(model, asked(effort="high"))
    assert (first.effort, second.effort) == ("", "")
    assert len(server.rejected) == refused <= 1, "at most one refusal, and not a second one"
    assert all(sent(wire, each.body) is None for each in server.requests)


async def test_gemini_of_the_generation_before_is_given_tokens_to_think_with(
    server: FakeProvider, client: Client
) -> None:
    for effort in EFFORTS:
        server.reply("ok")
        reply = await ask(one_shot("gemini", server, client, model="gemini-2.5-pro"), asked(effort=effort))
        assert reply.effort == effort
    told = [each.body["generationConfig"]["thinkingConfig"] for each in server.requests]
    assert told == [{"thinkingBudget": 1024}, {"thinkingBudget": 8192}, {"thinkingBudget": 24_576}]


async def test_an_effort_stands_beside_the_form_of_an_answer(server: FakeProvider, client: Client) -> None:
    server.reply('{"a": "b"}')
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    model = one_shot("anthropic", server, client, model="claude-opus-5-5")
    await ask(model, asked(effort="low", schema=schema))
    config = server.requests[0].body["output_config"]
    assert (config["effort"], config["format"]["type"]) == ("low", "json_schema")


async def test_a_model_that_must_not_reason_beside_tools_does_not_count_as_told(
    server: FakeProvider, client: Client
) -> None:
    """OpenAI's newer models refuse both at once in chat completions: they are asked not to reason."""
    from retinue.models.openai import DIALECTS, OpenAIWire

    wire = OpenAIWire(base_url="http://x/v1", model="gpt-6-luna", dialect=DIALECTS["openai"])
    assert wire.effort(asked(effort="high", tools=(READ,))) == ""
    assert wire.effort(asked(effort="high")) == "high"


@pytest.mark.parametrize(
    ("wire", "wrong"),
    [
        ("openai", {"reasoning_effort": "highest"}),
        ("responses", {"reasoning": {"effort": "highest"}}),
        ("responses", {"reasoning": {"level": "high"}}),
        ("anthropic", {"output_config": {"effort": "highest"}}),
        ("anthropic", {"output_config": {"level": "high"}}),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "highest"}}}),
        ("gemini", {"generationConfig": {"thinkingConfig": {"effort": "high"}}}),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low", "thinkingBudget": 5}}}),
    ],
)
async def test_the_fake_provider_refuses_a_field_that_is_not_the_real_one(
    wire: str, wrong: dict[str, Any], server: FakeProvider, client: Client
) -> None:
    import json

    from retinue.errors import ModelError

    model = one_shot(wire, server, client, model=TAKES[wire])
    true_form = model._wire.encode
    model._wire.encode = lambda request: json.dumps({**json.loads(true_form(request)), **wrong}).encode()
    with pytest.raises(ModelError) as error:
        await ask(model, asked())
    assert error.value.kind == "invalid"
