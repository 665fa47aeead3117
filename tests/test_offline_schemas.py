"""The offline model answers in the form that it is asked for."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from asking_offline import CODE, request
from retinue.models.offline import answer
from retinue.types import (
    AssistantMessage,
    JsonSchema,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
        {
            "type": "object",
            "properties": {
                "findings": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "properties": {
                            "path": {"type": "string"},
                            "line": {"type": "integer", "minimum": 1},
                            "severity": {"enum": ["low", "high"]},
                        },
                        "required": ["path", "line", "severity"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["findings"],
        },
        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
        {
            "$ref": "#/$defs/it",
            "$defs": {"it": {"type": "object", "properties": {"found": {"type": "boolean"}}}},
        },
        {"anyOf": [{"type": "null"}, {"type": "object", "required": ["x"]}]},
        {"type": "string", "maxLength": 10, "minLength": 5},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"const": 7},
    ],
)
def test_an_answer_in_json_fits_its_schema(schema: JsonSchema) -> None:
    call = ToolCall(id="a", name="grep", arguments='{"pattern": "Retry"}')
    messages: list[Message] = [
        UserMessage(text="where is Retry defined?"),
        AssistantMessage(calls=(call,)),
        ToolMessage(call_id="a", name="grep", text="src/retry.py:3: class Retry:"),
    ]
    message, _ = answer(request("code-search", *messages, schema=schema))
    value = json.loads(message.text)
    assert list(Draft202012Validator(schema).iter_errors(value)) == []
    if "findings" in str(schema):
        assert value["findings"][0] == {"path": "src/retry.py", "line": 3, "severity": "low"}


def test_a_correction_is_answered_in_json_without_new_calls() -> None:
    schema: JsonSchema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
        "required": ["path", "line"],
    }
    call = ToolCall(id="a", name="grep", arguments='{"pattern": "Retry"}')
    messages: list[Message] = [
        UserMessage(text="where is Retry defined?"),
        AssistantMessage(calls=(call,)),
        ToolMessage(call_id="a", name="grep", text="src/retry.py:3: class Retry:"),
        AssistantMessage(text="It is at `src/retry.py:3`."),
        UserMessage(text="Your answer does not fit the schema. Answer with JSON alone."),
    ]
    message, _ = answer(request("code-search", *messages, tools=CODE, schema=schema))
    assert json.loads(message.text) == {"path": "src/retry.py", "line": 3}


def test_json_is_not_made_up_where_nothing_was_looked_at() -> None:
    schema: JsonSchema = {"type": "object", "properties": {"verdict": {"enum": ["pass", "fail"]}}}
    message, _ = answer(request("judge", UserMessage(text="is it fine?"), schema=schema))
    assert message.text.startswith("No JSON: no tool gave the offline model anything")
    asked = UserMessage(text="is it fine?"), message, UserMessage(text="That is not JSON.")
    again, _ = answer(request("judge", *asked, schema=schema))
    assert again.text.count("No JSON:") == 1
