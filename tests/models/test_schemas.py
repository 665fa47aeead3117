"""Schemas fitted to what a provider accepts."""

from __future__ import annotations

import copy
from typing import Any, Literal

from pydantic import BaseModel, Field

from retinue.models.schemas import closed, gemini_schema, is_strict
from retinue.testing.wire_anthropic import _check_closed
from retinue.testing.wire_gemini import _check_schema


class Leg(BaseModel):
    length: float = Field(gt=0, le=10)
    kind: Literal["front", "back"] | None = None


class Bee(BaseModel):
    name: str = Field(min_length=1, pattern="^[A-Z]")
    legs: list[Leg] = Field(max_length=6)
    born: str = Field(json_schema_extra={"format": "date"})
    tag: Literal["bee"] = "bee"
    mother: Bee | None = None


SCHEMA = Bee.model_json_schema()


def test_geminis_copy_has_only_what_gemini_knows() -> None:
    before = copy.deepcopy(SCHEMA)
    made = gemini_schema(SCHEMA)
    _check_schema(made, "test")
    assert before == SCHEMA, "the original is left alone"
    bee = made["$defs"]["Bee"] if "$ref" in made else made
    assert bee["properties"]["tag"]["enum"] == ["bee"]
    assert "minLength: 1" in bee["properties"]["name"]["description"]
    assert bee["properties"]["legs"]["items"]["properties"]["length"]["maximum"] == 10


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "format": {"type": "string"},
            "title": {"type": "string"},
        },
        "required": ["pattern"],
    }
    assert gemini_schema(schema) == schema
    assert closed(schema)["properties"] == schema["properties"]


def test_members_of_an_all_of_are_joined() -> None:
    schema = {
        "allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}],
        "description": "d",
    }
    expected = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "description": "d",
    }
    assert gemini_schema(schema) == expected


def test_a_schema_that_refers_to_itself_keeps_its_reference() -> None:
    made = gemini_schema(SCHEMA)
    assert "Bee" in made["$defs"]
    assert "'$ref': '#/$defs/Bee'" in str(made)


def test_the_closed_copy_allows_nothing_unnamed_and_says_its_limits_in_words() -> None:
    before = copy.deepcopy(SCHEMA)
    made = closed(SCHEMA)
    _check_closed(made)
    assert before == SCHEMA
    assert made["$defs"]["Leg"]["additionalProperties"] is False
    assert "exclusiveMinimum: 0" in made["$defs"]["Leg"]["properties"]["length"]["description"]


def test_strictness_is_seen_at_any_depth() -> None:
    leaf: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    whole = {**leaf, "properties": {"a": {"type": "array", "items": leaf}}, "required": ["a"]}
    assert is_strict(whole)
    assert not is_strict({**whole, "properties": {"a": {"type": "array", "items": {"type": "object"}}}})
    assert not is_strict({**whole, "required": []})
    assert not is_strict({**leaf, "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]})
