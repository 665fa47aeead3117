"""The fake provider is as strict as the real ones, and does what its script says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from asking import MODEL_OF, WIRES, ask, asked, one_shot

from retinue.errors import ModelError
from retinue.models.http import Client
from retinue.testing import FakeProvider, ReplyRule, Script, SeenRequest, by_turn, call
from retinue.types import AssistantMessage, ModelRequest, ToolMessage, UserMessage

PATHS = {
    "openai": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
}
HEADERS: dict[str, dict[str, str]] = {
    "openai": {"Authorization": "Bearer k"},
    "responses": {"Authorization": "Bearer k"},
    "anthropic": {"x-api-key": "k", "anthropic-version": "2023-06-01"},
    "gemini": {"x-goog-api-key": "k"},
}
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c1", "name": "ls", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
HI = {"role": "user", "content": "hi"}
FCALL = {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": "ZmFrZSB0aG91Z2h0"}


def openai(**more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [HI], **more}


def responses(**more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "input": [HI], **more}


def anthropic(**more: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-5-5", "stream": True, "max_tokens": 10, "messages": [HI], **more}


def gemini(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"contents": list(contents) or [{"role": "user", "parts": [{"text": "hi"}]}], **more}


def said(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


async def post(
    server: FakeProvider, wire: str, sent: Any, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session:
        given = HEADERS[wire] if headers is None else headers
        data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        async with session.post(server.url + PATHS[wire], data=data, headers=given) as response:
            raw = await response.read()
            return response.status, json.loads(raw) if response.status != 200 else raw


GOOD = {"openai": openai(), "responses": responses(), "anthropic": anthropic(), "gemini": gemini()}


@pytest.mark.parametrize("wire", WIRES)
async def test_a_good_request_is_served_and_counted(wire: str, server: FakeProvider) -> None:
    server.reply("hello", pieces=1)
    status, raw = await post(server, wire, GOOD[wire])
    assert status == 200
    assert b"hello" in raw
    assert (server.served, len(server.requests), server.rejected) == (1, 1, [])


BAD: list[tuple[str, Any, str]] = [
    ("openai", openai(messages=[]), "empty array"),
    ("openai", openai(stream=False), "stream"),
    ("openai", openai(frequency=1), "Unrecognized request argument supplied: frequency"),
    ("openai", {"stream": True, "messages": [HI]}, "model"),
    ("openai", openai(messages=[{"role": "robot", "content": "x"}]), "Invalid value: 'robot'"),
    (
        "openai",
        openai(messages=[HI, {"role": "tool", "tool_call_id": "c1", "content": "x"}]),
        "preceeding message",
    ),
    ("openai", openai(messages=[HI, {"role": "assistant", "content": None}]), "got null"),
    ("openai", openai(messages=[HI, {"role": "assistant", "tool_calls": [CALL]}, HI]), "c1"),
    ("openai", openai(messages=[HI, {"role": "assistant", "tool_calls": [CALL]}]), "did not have response"),
    ("openai", openai(tools=[]), "empty array"),
    ("openai", openai(tools=[TOOL, TOOL]), "unique"),
    ("openai", openai(tools=[{"type": "function", "function": {"name": "a b"}}]), "does not match"),
    (
        "openai",
        openai(tools=[{**TOOL, "function": {"name": "a", "parameters": {"type": "string"}}}]),
        "object",
    ),
    ("openai", openai(tool_choice="auto"), "only allowed when 'tools'"),
    ("openai", openai(temperature=3), "temperature"),
    ("openai", openai(max_tokens=0), "max_tokens"),
    ("openai", openai(max_tokens=1, max_completion_tokens=1), "at the same time"),
    ("openai", openai(response_format={"type": "json_schema", "json_schema": {"schema": {}}}), "name"),
    (
        "openai",
        openai(
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "strict": True, "schema": {"type": "object"}},
            }
        ),
        "additionalProperties",
    ),
    ("responses", responses(input=[]), "empty array"),
    ("responses", responses(messages=[HI]), "Unknown parameter: 'messages'"),
    (
        "responses",
        responses(input=[HI, {"type": "function_call_output", "call_id": "c", "output": "x"}]),
        "No tool call",
    ),
    (
        "responses",
        responses(input=[HI, {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}, HI]),
        "No tool output found for function call c",
    ),
    (
        "responses",
        responses(
            input=[HI, {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAAAfake"}, HI]
        ),
        "required following item",
    ),
    ("responses", responses(max_output_tokens=3), ">= 16"),
    ("anthropic", {k: v for k, v in anthropic().items() if k != "max_tokens"}, "max_tokens: Field required"),
    ("anthropic", anthropic(max_tokens=10**6), "max_tokens"),
    ("anthropic", anthropic(messages=[]), "at least one message"),
    ("anthropic", anthropic(messages=[HI, HI]), "roles must alternate"),
    (
        "anthropic",
        anthropic(messages=[{"role": "assistant", "content": "x"}, HI]),
        'first message must use the "user"',
    ),
    ("anthropic", anthropic(messages=[HI, {"role": "assistant", "content": "x"}]), "prefill"),
    (
        "anthropic",
        anthropic(messages=[{"role": "user", "content": [{"type": "text", "text": " "}]}]),
        "non-empty",
    ),
    (
        "anthropic",
        anthropic(messages=[HI, {"role": "assistant", "content": [USE]}, HI]),
        "without `tool_result`",
    ),
    ("anthropic", anthropic(messages=[{"role": "user", "content": [RESULT]}]), "unexpected `tool_use_id`"),
    (
        "anthropic",
        anthropic(
            messages=[HI, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]
        ),
        "must define tools",
    ),
    ("anthropic", anthropic(tools=[{"name": "x"}]), "input_schema"),
    ("anthropic", anthropic(tools=[{"name": "a b", "input_schema": {"type": "object"}}]), "pattern"),
    ("anthropic", anthropic(temperature=0.5), "temperature"),
    ("anthropic", anthropic(seed=1), "seed: Extra inputs are not permitted"),
    (
        "anthropic",
        anthropic(system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5),
        "maximum of 4 blocks",
    ),
    (
        "anthropic",
        anthropic(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        "additionalProperties",
    ),
    ("gemini", {"contents": []}, "contents is not specified"),
    ("gemini", gemini(said("assistant", {"text": "x"})), "valid role"),
    ("gemini", gemini(said("user")), "must not be empty"),
    ("gemini", gemini(said("user", {"text": "x", "functionCall": {}})), "exactly one"),
    (
        "gemini",
        gemini(said("user", {"text": "x"}), said("model", FCALL), said("user", {"text": "y"})),
        "equal to the number",
    ),
    (
        "gemini",
        gemini(said("user", {"text": "x"}), said("model", {"functionCall": {"name": "ls", "args": {}}})),
        "missing a thought_signature",
    ),
    ("gemini", gemini(stream=True), 'Unknown name "stream"'),
    (
        "gemini",
        gemini(
            tools=[
                {
                    "functionDeclarations": [
                        {"name": "x", "parametersJsonSchema": {"type": "object", "const": 1}}
                    ]
                }
            ]
        ),
        'Unknown name "const"',
    ),
    ("gemini", gemini(generationConfig={"responseJsonSchema": {"type": "object"}}), "response_mime_type"),
]


@pytest.mark.parametrize(("wire", "sent", "complaint"), BAD, ids=[f"{w}-{c[:30]}" for w, _, c in BAD])
async def test_a_wrong_request_is_refused_in_the_providers_own_form(
    wire: str, sent: Any, complaint: str, server: FakeProvider
) -> None:
    server.reply("never")
    status, answer = await post(server, wire, sent)
    assert status == 400
    assert complaint in answer["error"]["message"]
    if wire == "anthropic":
        assert answer["type"] == "error"
        assert answer["error"]["type"] == "invalid_request_error"
    elif wire == "gemini":
        assert (answer["error"]["code"], answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    else:
        assert answer["error"]["type"] == "invalid_request_error"
    assert (server.served, server.pending, len(server.rejected)) == (0, 1, 1)


@pytest.mark.parametrize(
    ("wire", "status"), [("openai", 401), ("responses", 401), ("anthropic", 401), ("gemini", 403)]
)
async def test_without_a_key_nobody_is_served(wire: str, status: int, server: FakeProvider) -> None:
    assert (await post(server, wire, GOOD[wire], headers={}))[0] == status


async def test_anthropic_wants_its_version_header(server: FakeProvider) -> None:
    status, answer = await post(server, "anthropic", anthropic(), headers={"x-api-key": "k"})
    assert status == 400
    assert "anthropic-version" in answer["error"]["message"]


@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_not_json_is_refused(wire: str, server: FakeProvider) -> None:
    assert (await post(server, wire, b"{not json"))[0] == 400


@pytest.mark.parametrize("wire", WIRES)
async def test_a_request_nobody_scripted_is_an_error_that_is_kept(
    wire: str, server: FakeProvider, client: Client
) -> None:
    with pytest.raises(ModelError, match="no answer is scripted"):
        await ask(one_shot(wire, server, client), asked("surprise"))
    assert "surprise" in server.rejected[0]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_handler_answers_by_what_it_sees(wire: str, client: Client) -> None:
    async def answer(seen: SeenRequest) -> Script:
        assert seen.model == MODEL_OF[wire]
        return Script(text=f"turn {seen.turn} of {seen.asked}")

    async with FakeProvider(answer) as server:
        reply = await ask(one_shot(wire, server, client), asked("the story"))
    assert reply.message.text == "turn 0 of the story"


async def test_rules_answer_by_conversation_and_turn() -> None:
    rules = [
        ReplyRule(match="review", replies=(Script(text="first"), Script(text="later"))),
        ReplyRule(replies=(Script(text="anyone"),)),
    ]
    answer = by_turn(rules)

    def text(*turns: str) -> str:
        messages = [UserMessage(text="please review"), *(AssistantMessage(text=t) for t in turns)]
        found = answer(SeenRequest(wire="openai", model="m", system="", messages=tuple(messages)))
        assert isinstance(found, Script)
        return found.text

    assert [text(), text("a"), text("a", "b"), text()] == ["first", "later", "later", "first"]
    other = answer(SeenRequest(wire="openai", model="m", system="", messages=(UserMessage(text="hello"),)))
    assert isinstance(other, Script)
    assert other.text == "anyone"


async def test_in_its_own_process_it_writes_down_every_answer_it_serves(
    tmp_path: Path, client: Client
) -> None:
    script, log = tmp_path / "answers.json", tmp_path / "served.jsonl"
    script.write_text(
        json.dumps(
            [
                {
                    "match": "count",
                    "replies": [{"calls": [{"id": "", "name": "ls", "arguments": "{}"}]}, {"text": "2"}],
                },
                {"replies": [{"status": 429, "retry_after": 3}]},
            ]
        )
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retinue.testing.provider", "--script", str(script), "--log", str(log)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        addresses = json.loads(await process.stdout.readline())
        far = FakeProvider(port=addresses["port"])
        assert far.openai_url == addresses["openai_url"]
        model = one_shot("openai", far, client)
        first = await ask(model, asked("count files"))
        made = first.message.calls[0]
        history = (
            UserMessage(text="count files"),
            first.message,
            ToolMessage(call_id=made.id, name="ls", text="a b"),
        )
        assert (await ask(model, ModelRequest(system="", messages=history))).message.text == "2"
        with pytest.raises(ModelError) as caught:
            await ask(model, asked("something else"))
        assert caught.value.retry_after == 3
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [(line["asked"], line["turn"]) for line in lines] == [("count files", 0), ("count files", 1)]
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("wire", WIRES)
async def test_calls_without_an_id_get_one_in_the_providers_style(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply(calls=[call("ls"), call("ls", "mine")])
    reply = await ask(one_shot(wire, server, client), asked())
    made = [c.id for c in reply.message.calls]
    assert made[1] == "mine"
    assert made[0].startswith({"anthropic": "toolu_", "gemini": ""}.get(wire, "call_"))
