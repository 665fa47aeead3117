"""What a value may do that comes from somebody who is not trusted: narrow, and never widen.

Two ask: `settings` about a `retinue.toml` that came with a repository, and the server about the settings that
a client gives for one run. Every setting belongs to exactly one of the groups below; a test looks. Nothing
here reads a file or knows a type of a setting: a value that is none is left to whoever checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

# Each of these could send work or secrets somewhere else, let agents do more, or cost money, whatever its
# value: none is narrower than another.
TRUSTED_ONLY = frozenset(
    {
        "db",
        "model",
        "small_model",
        "approvals.allow",
        "approvals.auto_risk",
        "approvals.auto",
        "approvals.sandbox",
        "approvals.sandbox_network",
        "web.allow_hosts",
        "web.searxng_url",
        "web.brave_url",
        "web.tavily_url",
        "web.proxy",
        "web.robots",
        "knowledge.base_urls",
        "knowledge.contact",
        "code.engine",
        "workspace.root",
        "server.host",
        "server.port",
        "providers",
        "prices",
    }
)
ADDED = frozenset({"approvals.ask", "approvals.deny"})
"""Lists that narrow: what is given comes on top of what is there, and takes none of it away."""
SHORTENED = frozenset({"delegation.tools", "web.search", "knowledge.extra"})
"""Lists that widen: what is given has to be among what is there."""
CEILINGS = frozenset(
    {
        "approvals.callback_seconds",
        "limits.max_turns",
        "limits.subagent_turns",
        "limits.timeout",
        "limits.model_timeout",
        "limits.tool_timeout",
        "limits.tool_concurrency",
        "limits.tool_output",
        "limits.report_bytes",
        "limits.tree_turns",
        "limits.tree_input_tokens",
        "limits.tree_output_tokens",
        "limits.tree_seconds",
        "limits.max_cost",
        "delegation.max_children",
        "delegation.nested_children",
        "delegation.max_depth",
        "delegation.concurrency",
        "delegation.corrections",
        "context.max_tokens",
        "context.attachment_tokens",
        "web.max_bytes",
        "web.timeout",
        "web.inline_bytes",
        "knowledge.timeout",
        "knowledge.request_timeout",
        "code.timeout",
        "code.memory_mb",
        "code.output",
        "code.calls",
        "workspace.quota_mb",
    }
)
SWITCHES: dict[str, tuple[Any, ...]] = {
    "delegation.enabled": (False, True),
    "delegation.policy": ("flat", "nested"),
    "delegation.summary": ("cut", "model"),
    "context.mode": ("prune", "summarize"),
    "context.instructions": (False, True),
    "knowledge.first": (False, True),
}
"""Values from narrow to wide."""
HARMLESS = frozenset(
    {
        "default_agent",
        "delegation.parent_ends",
        "context.keep_turns",
        "context.threshold",
        "context.error_tokens",
        "context.knowledge_tokens",
        "context.task_tokens",
        "context.goal_tokens",
        "context.memory_tokens",
        "context.vault_tokens",
        "web.cache_ttl",
        "knowledge.agent",
        "knowledge.cache_ttl",
        "sheets.enabled",
    }
)
AUTO_IS_AT_LEAST: dict[str, float] = {
    "limits.model_timeout": 120,
    "limits.tree_turns": 250,
    "limits.tree_input_tokens": 7_500_000,
    "limits.tree_output_tokens": 750_000,
}
"""What `auto` comes to where it comes to least: anything up to here is narrower for certain."""


def wider(name: str, value: Any, now: Any) -> bool:
    """Whether a value allows more than the one that counts now."""
    if value == now or name in HARMLESS:
        return False
    if name in SWITCHES:
        order = SWITCHES[name]
        return value in order and now in order and order.index(value) > order.index(now)
    if name in SHORTENED:
        return isinstance(value, list | tuple) and not set(map(str, _items(value))) <= set(_items(now))
    if name not in CEILINGS or now is None or now == "none":
        return name in TRUSTED_ONLY
    if value is None or isinstance(value, str):
        return True  # no limit, or one that is worked out: not the one that was set
    if now == "auto":
        now = AUTO_IS_AT_LEAST.get(name)
    return not isinstance(now, int | float) or not isinstance(value, int | float) or value > now


def narrowed(found: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of these settings counts beside the ones that count now, and the names of those left out."""
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in found.items():
        if name in TRUSTED_ONLY or wider(name, value, now.get(name)):
            left_out.append(name)
        elif name in ADDED and isinstance(value, list):
            there = _items(now.get(name))
            kept[name] = [*there, *(one for one in _items(cast("Any", value)) if one not in there)]
        else:
            kept[name] = value
    return kept, sorted(left_out)


def _items(value: Any) -> list[Any]:
    return list(cast("list[Any] | tuple[Any, ...]", value)) if isinstance(value, list | tuple) else []
