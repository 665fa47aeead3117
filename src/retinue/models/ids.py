"""Ids for tool calls that came without one, or with one that is not theirs alone; names that can be sent."""

from __future__ import annotations

import hashlib
import re
import secrets

from retinue.types import ToolCall

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def sendable(name: str) -> str:
    """The name of a call as every provider takes it back.

    Models call tools that do not exist by names that no tool could have. The call stays in the conversation,
    and a conversation that a provider refuses could never go on.
    """
    if _NAME.fullmatch(name):
        return name
    return ("_" + re.sub(r"[^a-zA-Z0-9_-]", "_", name))[:64]


def sendable_id(call_id: str) -> str:
    """The id of a call as the strictest provider takes it: ids that differ stay different."""
    if _ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', call_id)[:31]}-{digest}"


def new_id() -> str:
    """Nine letters and digits: the only form that every provider takes."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


def unique_ids(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls with an id each: some servers leave ids out, or give several calls the same one."""
    if not calls:
        return calls
    seen = {""}
    found: list[ToolCall] = []
    for call in calls:
        if call.id in seen:
            call = ToolCall(id=new_id(), name=call.name, arguments=call.arguments)
        seen.add(call.id)
        found.append(call)
    return tuple(found)
