"""JSON schemas of types that a program gave, and whether a value fits the type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from retinue.types.messages import JsonSchema


def schema_of(given: Any) -> JsonSchema:
    """The JSON schema of a type, or of a mapping that is one."""
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    from pydantic import (
        PydanticSchemaGenerationError,
        PydanticUserError,
        TypeAdapter,
    )  # heavy: only for types

    try:
        return TypedSchema(TypeAdapter[Any](given).json_schema(), given)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(
            f"no JSON schema can be made of {given!r}: give a JSON schema, a pydantic model, a dataclass "
            f"or a TypedDict ({str(error).splitlines()[0]})"
        ) from None


class TypedSchema(dict[str, Any]):
    """The JSON schema of a type, which knows the type: an answer that fits the one may not fit the other."""

    def __init__(self, schema: JsonSchema, kind: Any) -> None:
        super().__init__(schema)
        self.kind = kind


def type_problems(value: Any, kind: Any) -> list[str]:
    """What a type has against a value that came as JSON, by its own validators."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter[Any](kind).validate_json(msgspec.json.encode(value))
    except ValidationError as error:
        return [f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in error.errors()]
    return []
