"""Every way to delegate, as ordinary tools over one primitive. The loop never imports this package."""

from retinue.delegate.children import (
    AGENT_CALLS,
    AGENTS,
    GLANCES,
    PROMPT_SCHEMA,
    AskedAgain,
    ChildInfo,
    ChildRequest,
    ChildRunner,
    Policy,
    arguments_for,
    first_message,
    prompt_of,
)
from retinue.delegate.tools import agent_tool, delegation_tools

__all__ = [
    "AGENTS",
    "AGENT_CALLS",
    "GLANCES",
    "PROMPT_SCHEMA",
    "AskedAgain",
    "ChildInfo",
    "ChildRequest",
    "ChildRunner",
    "Policy",
    "agent_tool",
    "arguments_for",
    "delegation_tools",
    "first_message",
    "prompt_of",
]
