"""What the models of the API are made of: texts that can be stored, sizes, and the two kinds of model."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

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
Pair = Annotated[str, AfterValidator(storable), Field(max_length=4200, pattern=r"^[A-Za-z0-9_.-]{1,64}=")]
Json = Annotated[dict[str, JsonValue], AfterValidator(encodable)]


class Given(BaseModel):
    """What a client sends: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        """Raise for a field that is not there, with the one that was probably meant."""
        fields = cls.model_fields
        given = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        for name in given:
            if name not in fields:
                near = get_close_matches(name.lower()[:80], fields, 1)
                fix = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(fields)}"
                raise PydanticCustomError(
                    "unknown_field", "there is no field '{name}'", {"name": name[:80], "fix": fix}
                )
        return cast("Any", data)


class Shown(BaseModel):
    model_config = ConfigDict(from_attributes=True)
