"""What a model is told of the ways to delegate: which agents it may name, in a schema for small models.

Called where a run is shown its tools. Changes what is shown alone: a call is read as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from retinue.types import AgentSpec, JsonSchema, ToolSpec

MOST_SAID = 80
"""Characters that are said of an agent where nothing else tells what it is for."""


def offered(spec: ToolSpec, agents: Sequence[AgentSpec], *, described: bool) -> ToolSpec:
    """A way to delegate as a model is shown it. `described`: it is shown elsewhere what these agents are for.

    A small model leaves out what is not required: so the agent's name is, wherever one may be named.
    """
    schema = _plain(spec.schema)
    tasks = schema.get("$defs", {}).get("Task")
    for part in (schema, *([tasks] if tasks else [])):
        if "agent_id" not in part["properties"] or not agents:
            continue
        part["properties"]["agent_id"] |= {
            "enum": [agent.name for agent in agents],
            "description": _which(agents, described),
        }
        asked = ("operation", "agent_id") if "text" in part["properties"] else ("agent_id", "prompt")
        part["required"] = list(asked)
    return ToolSpec(name=spec.name, description=spec.description, schema=schema)


def _which(agents: Sequence[AgentSpec], described: bool) -> str:
    if described:
        return "the agent's name"
    return "the agent's name. " + " ".join(f"{agent.name}: {_short(agent.description)}" for agent in agents)


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return (text if len(text) <= MOST_SAID else text[: MOST_SAID - 1] + "…") + "."


def _plain(schema: JsonSchema) -> dict[str, Any]:
    """A copy without 'or null' and 'by default null': to leave a thing out says the same."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        made[key] = _plain(cast("JsonSchema", value)) if isinstance(value, dict) else value
    either: list[JsonSchema] = made.get("anyOf", [])
    if len(either) == 2 and {"type": "null"} in either:
        (kept,) = (each for each in either if each != {"type": "null"})
        rest = {key: value for key, value in made.items() if key not in ("anyOf", "default")}
        return {**kept, **rest}
    return made
