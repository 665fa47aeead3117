"""Values held against JSON schemas, and schemas that a model wrote looked over before they are used.

Used for the arguments of tools and for structured reports. Fetches nothing: a schema that refers to an
address outside itself is at fault, whoever wrote it. The only addresses it knows are the standard's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

_OF_OBJECTS = frozenset({"type", "properties", "required", "additionalProperties", "title", "description"})
_OF_TEXTS = frozenset({"type", "minLength", "title", "description", "default"})


def schema_problems(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """What keeps a value from fitting a JSON schema, in words a model can act on."""
    return Fit(schema).problems(value)


class Fit:
    """Holds many values against one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        self._validator: Any = None  # heavy, and most tools are never called

    def problems(self, value: Any, most: int = 5) -> list[str]:
        if _plainly_fits(value, self._schema):
            return []
        from jsonschema.exceptions import UnknownType
        from referencing.exceptions import Unresolvable

        if self._validator is None:
            from jsonschema import Draft202012Validator
            from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs] # it has none

            self._validator = Draft202012Validator(self._schema, registry=REGISTRY)
        problems: list[str] = []
        try:
            for error in self._validator.iter_errors(value):
                where = ".".join(str(part) for part in error.absolute_path)
                said = _unknown(error) if error.validator == "additionalProperties" else error.message
                problems.append(f"{where}: {said}" if where else said)
                if len(problems) == most:
                    break
        except (UnknownType, Unresolvable, RecursionError) as error:
            fault = schema_fault(self._schema)
            return [fault or f"it cannot be held against its schema ({type(error).__name__})"]
        return problems


def _plainly_fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether this is an object of texts, as the calls of agents are, and as its schema wants it.

    Loading the library takes from a tenth of a second to seconds, all of it in the event loop.
    """
    if not isinstance(value, dict) or schema.get("type") != "object" or schema.keys() - _OF_OBJECTS:
        return False
    fields, given = schema.get("properties", {}), cast("dict[str, Any]", value)
    return all(name in given for name in schema.get("required", ())) and all(
        isinstance(text, str)
        and name in fields
        and fields[name].get("type") == "string"
        and not fields[name].keys() - _OF_TEXTS
        and len(text) >= fields[name].get("minLength", 0)
        for name, text in given.items()
    )


def _unknown(error: Any) -> str:
    """Names that a closed object does not know, and those it does."""
    known = list(error.schema.get("properties", {}))
    given = [name for name in error.instance if name not in known]
    if error.validator_value is not False or not known or not given or "patternProperties" in error.schema:
        return str(error.message)
    return f"unknown: {', '.join(map(repr, given[:5]))}; known are {', '.join(known)}"


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a JSON schema itself. One that refers to anything outside itself is not taken."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs] # it has none
    from referencing.exceptions import NoSuchResource, Unresolvable
    from referencing.jsonschema import DRAFT202012

    wanted = ""
    try:
        Draft202012Validator.check_schema(dict(schema))
        resource = DRAFT202012.create_resource(dict(schema))
        resolver = REGISTRY.with_resource("", resource).crawl().resolver()
        for reference in _references(schema):
            wanted = reference
            resolver.lookup(reference)
    except SchemaError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        return f"{where}: {error.message}" if where else error.message
    except (NoSuchResource, Unresolvable):
        return f"it refers to {wanted!r}, which is not in it: nothing is fetched, so put it under $defs"
    except RecursionError:
        return "it is nested too deep"
    return None


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            yield from _references(item)
    elif isinstance(schema, dict):
        for key, value in cast("dict[str, Any]", schema).items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            elif key not in ("const", "enum", "default", "examples"):
                yield from _references(value)
