"""Settings for one run alone: which may be given, and who may widen what the server allows.

A token below admin may narrow (fewer turns, less money, flat), never widen. Nobody chooses an address to send
the conversation to but an admin: a model's address would get the prompt, and perhaps a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue import settings as configuration
from retinue.server.errors import ApiError
from retinue.server.security import Identity
from retinue.settings import Settings
from retinue.trust import wider

FREE = frozenset({"knowledge.first"})
"""Either value is as good to a client: whoever may ask may have it looked up first."""
PER_RUN = FREE | frozenset(
    {
        "limits.max_turns",
        "limits.subagent_turns",
        "limits.timeout",
        "limits.model_timeout",
        "limits.tool_timeout",
        "limits.tree_turns",
        "limits.tree_input_tokens",
        "limits.tree_output_tokens",
        "limits.tree_seconds",
        "limits.max_cost",
        "delegation.max_children",
        "delegation.nested_children",
        "delegation.max_depth",
        "delegation.concurrency",
        "delegation.enabled",
        "delegation.policy",
    }
)


def check(given: Mapping[str, Any], model: str | None, who: Identity, settings: Settings) -> dict[str, Any]:
    """The overrides of a run, or an `ApiError` that says which one is not for this client."""
    now = configuration.flatten(settings.model_dump())
    for name, value in given.items():
        if name not in PER_RUN:
            raise ApiError(
                422,
                "invalid",
                f"{name[:80]!r} cannot be set for one run",
                fix="one of " + ", ".join(sorted(PER_RUN)),
            )
        if name not in FREE and wider(name, value, now.get(name)):
            who.require("admin", f"{name} beyond what the server is set to ({now.get(name)!r})")
    overrides = dict(given)
    if model is not None:
        if "://" in model:
            who.require("admin", "a model by its address")
        overrides["model"] = model
    return overrides
