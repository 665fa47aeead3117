"""What the models of the API are made of: texts that can be stored, sizes, and the two kinds of model."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

Moment = Annotated[float, Field(description="seconds since 1970, UTC")]
MOST_TEXT = 400_000
MOST_RENDERED = 200_000


def storable(text: str) -> str:
    """JSON from a client may hold half of a character, which no file and no database takes."""
    if "\0" in text:
        raise ValueError("a text cannot hold the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a character") from None
    return text


def encodable(value: Any) -> Any:
    """The same for a whole value."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (UnicodeEncodeError, ValueError, RecursionError):
        raise ValueError("holds characters or numbers that cannot be stored") from None
    return value


def not_too_much(texts: list[str]) -> list[str]:
    if sum(map(len, texts)) > MOST_RENDERED:
        raise ValueError(f"more than {MOST_RENDERED:,} characters at once")
    return texts


Text = Annotated[str, AfterValidator(storable), Field(max_length=MOST_TEXT)]
Word = Annotated[str, AfterValidator(storable), Field(max_length=200)]
Json = Annotated[dict[str, JsonValue], AfterValidator(encodable)]


class Given(BaseModel):
    """What a client sends: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    model_config = ConfigDict(from_attributes=True)
