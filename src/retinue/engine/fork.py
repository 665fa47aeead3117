"""Fork: the beginning of a workflow, copied under new ids, to go on from there in another way.

A child's id follows from its parent's, so every id in the copy is new and the two workflows never meet.
The old one is only read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from retinue.errors import ConfigError
from retinue.events import AnyEvent, ApprovalAnswered, ApprovalRequested, ChildEnded, ChildStarted, RunStarted
from retinue.run import child_id


def forked(events: Iterable[AnyEvent], new_root: str, *, model: str | None = None) -> list[AnyEvent]:
    """These events of a workflow as the beginning of another, with another model if one is given."""
    ids: dict[str, str] = {}
    copies: list[AnyEvent] = []
    events = list(events)
    began = {event.run_id for event in events if isinstance(event, RunStarted)}
    for event in events:
        if isinstance(event, ChildStarted) and event.child_id not in began:
            continue  # cut between the two halves of one write: this child was not started
        if event.run_id not in ids:
            if event.run_id != event.root_id:
                raise ConfigError(f"the log names {event.run_id} before its parent has started it")
            ids[event.run_id] = new_root
        new = ids[event.run_id]
        change: dict[str, Any] = {
            "run_id": new,
            "root_id": new_root,
            "parent_id": ids.get(event.parent_id or ""),
            "pos": 0,
        }
        if isinstance(event, ChildStarted):
            ids[event.child_id] = child_id(new, event.call_id, event.key)
        if isinstance(event, ChildStarted | ChildEnded):
            change["child_id"] = ids[event.child_id]
        elif isinstance(event, ApprovalRequested | ApprovalAnswered):
            change["approval_id"] = f"{new}:{event.call_id}"
        elif isinstance(event, RunStarted) and event.parent_id is None:
            change |= _root(event, model)
        copies.append(msgspec.structs.replace(event, **change))
    return copies


def _root(event: RunStarted, model: str | None) -> dict[str, Any]:
    if model is None:
        return {"forked_from": event.run_id}
    settings = {**event.options.get("settings", {}), "model": model}
    return {
        "forked_from": event.run_id,
        "model": model,
        "options": {**event.options, "settings": settings},
    }
