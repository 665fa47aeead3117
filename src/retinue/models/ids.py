"""Ids for tool calls that came without one, or with one that is not theirs alone."""

from __future__ import annotations

import secrets

from retinue.types import ToolCall

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


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
