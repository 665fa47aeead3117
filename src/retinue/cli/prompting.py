"""What a person typed as the prompt of an agent: words, standard input, further inputs.

Called by `ask` and `run`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from retinue.errors import ConfigError
from retinue.types import AgentSpec

MOST_TEXT = 400_000


def read_words(words: Sequence[str]) -> str:
    """The prompt. A word '-' stands for standard input; so does no word at all when something is piped in."""
    given = list(words)
    if not given and not sys.stdin.isatty():
        given = ["-"]
    if "-" not in given:
        return " ".join(given)
    piped = sys.stdin.buffer.read(MOST_TEXT * 4).decode("utf-8", "replace")
    if len(piped) > MOST_TEXT:
        raise ConfigError(
            f"standard input has more than {MOST_TEXT:,} characters",
            fix="give the agent the path of a file to read instead",
        )
    said = " ".join(word for word in given if word != "-")
    return f"{said}\n\n{piped}" if said else piped


def arguments(spec: AgentSpec, prompt: str, inputs: Sequence[str]) -> str | Mapping[str, Any]:
    """The prompt as it is, or with `--input`, the arguments of the agent's input schema."""
    if not inputs:
        return prompt
    from retinue.delegate import arguments_for

    given: dict[str, Any] = arguments_for(spec, prompt) if prompt.strip() else {}
    schema: dict[str, Any] = spec.input_schema or {}
    fields = cast("dict[str, Any]", schema.get("properties", {}))
    for item in inputs:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--input {item!r} is not KEY=VALUE", fix="for example --input focus=security")
        given[name.strip()] = _value(text, fields.get(name.strip()))
    return given


def _value(text: str, field: Any) -> Any:
    """A text where the schema wants a text; else JSON where it is JSON."""
    if isinstance(field, dict) and cast("dict[str, Any]", field).get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
