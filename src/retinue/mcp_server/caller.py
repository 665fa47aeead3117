"""Who calls, and what the program that they call with can do.

On stdio, and over HTTP without tokens, that is whoever owns the machine, who may reach every run of the
folder. A token reaches the runs that it started itself, unless it is an admin's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

TASKS = "io.modelcontextprotocol/tasks"
HERE = "mcp"
"""What the runs of whoever owns the machine say of who had them started."""
STATE = "caller"

Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """`name` is who answers are said to be by, `key` what the runs that they start are known by."""

    name: str = "host"
    key: str = HERE
    role: str = "admin"
    may_ask: bool = True
    may_answer: bool = True
    may_keep: bool = True
    """Whether an answer of theirs may become a rule of the settings."""
    sees_all: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Abilities:
    """What the client said that it can do. `modern`: nothing can be asked of it but in a result."""

    modern: bool
    tasks: bool
    forms: bool
    traceparent: str = ""
    """The span of the client that this request belongs to."""


def caller_of(ctx: Context) -> Caller:
    """Who sent this request: what the transport found out, else the owner of the machine."""
    if ctx.request is None:
        return Caller()
    return ctx.request.scope["state"][STATE]


def abilities_of(ctx: Context) -> Abilities:
    declared = ctx.session.client_capabilities
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    asks = declared.elicitation if declared is not None else None
    # Whoever names no mode has forms: the other one is younger.
    forms = asks is not None and (asks.form is not None or asks.url is None)
    extensions = (declared.extensions if declared is not None else None) or {}
    return Abilities(
        modern=modern, tasks=modern and TASKS in extensions, forms=forms, traceparent=_traceparent(ctx)
    )


def _traceparent(ctx: Context) -> str:
    """As the request says it, else the header that it came with."""
    said = (ctx.meta or {}).get("traceparent")
    if isinstance(said, str):
        return said
    return "" if ctx.request is None else ctx.request.headers.get("traceparent", "")
