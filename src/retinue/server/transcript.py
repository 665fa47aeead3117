"""A run as a person reads it: its events as parts, with Markdown rendered where a text is Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    ChildEnded,
    ChildStarted,
    ErrorRaised,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.server import markdown
from retinue.server.models import Part
from retinue.server.shapes import is_diff
from retinue.story import Story
from retinue.types import Outcome
from retinue.view.notes import noted

_FAILED: frozenset[Outcome] = frozenset({"error", "cancelled", "rejected", "refused"})
"""What did not do what it was asked to. What is incomplete did a part of it, and says so."""
_MARKDOWN = frozenset({"prompt", "thinking", "reply", "message", "report"})


async def parts(events: Iterable[AnyEvent], story: Story) -> list[Part]:
    """Of events of one run. `story` is its workflow: how calls and children ended."""
    found: list[Part] = []
    for event in events:
        for facts in _facts(event, story):
            text = str(facts["text"])
            html = await markdown.render(text) if facts["kind"] in _MARKDOWN else None
            found.append(Part(pos=event.pos, at=event.at, html=html, **facts))
    return found


def _facts(event: AnyEvent, story: Story) -> list[dict[str, Any]]:
    match event:
        case RunStarted():
            return [{"kind": "prompt", "text": event.prompt, "title": event.spec.name}]
        case ModelReplied():
            return _reply(event)
        case ToolCalled():
            return [{"kind": "call", "text": event.arguments, "title": event.name, "call_id": event.call_id}]
        case ToolReturned():
            outcome = story.nodes[event.run_id].outcome_of(event)
            return [
                {
                    "kind": "result",
                    "text": event.text,
                    "title": event.name,
                    "call_id": event.call_id,
                    "outcome": outcome,
                    "is_error": outcome in _FAILED,
                    "is_diff": is_diff(event.text),
                    "duration_ms": event.duration_ms,
                }
            ]
        case ApprovalRequested() | ApprovalAnswered():
            return [_approval(event)]
        case ChildStarted() | ChildEnded():
            return [_child(event, story)]
        case MessageReceived():
            return [{"kind": "message", "text": event.text, "title": event.sender}]
        case RunFinished():
            report = event.report
            return [
                {
                    "kind": "report",
                    "text": report.text,
                    "title": report.error or report.incomplete or "",
                    "status": report.status,
                    "outcome": report.outcome,
                    "is_error": report.outcome in _FAILED,
                    "duration_ms": story.took(event).duration_ms,
                }
            ]
        case ErrorRaised():
            return [{"kind": "error", "text": event.message, "title": event.kind, "is_error": True}]
        case _:
            said = noted(event)
            return [{"kind": "note", "text": said}] if said else []


def _reply(event: ModelReplied) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if event.thinking:
        found.append({"kind": "thinking", "text": event.thinking, "step": event.step})
    if event.message.text.strip():
        found.append(
            {
                "kind": "reply",
                "text": event.message.text,
                "title": event.model,
                "step": event.step,
                "duration_ms": event.duration_ms,
            }
        )
    return found


def _approval(event: ApprovalRequested | ApprovalAnswered) -> dict[str, Any]:
    if isinstance(event, ApprovalRequested):
        text = event.preview or event.arguments
        return {
            "kind": "approval",
            "text": text,
            "title": f"{event.tool} (risk {event.risk})",
            "call_id": event.call_id,
            "is_diff": is_diff(text),
        }
    said = {
        "approve": "approved",
        "approve_run": "approved for the rest of the run",
        "approve_tool": "approved with every further call of this tool",
        "approve_always": "approved always, in this folder",
        "reject": "rejected",
    }
    return {
        "kind": "answer",
        "text": event.reason,
        "title": f"{said[event.decision]} by {event.by}",
        "call_id": event.call_id,
        "is_error": event.decision == "reject",
    }


def _child(event: ChildStarted | ChildEnded, story: Story) -> dict[str, Any]:
    if isinstance(event, ChildStarted):
        return {
            "kind": "child_started",
            "text": event.prompt,
            "title": event.agent,
            "child_id": event.child_id,
            "call_id": event.call_id,
        }
    outcome = story.end_of(event)
    return {
        "kind": "child_ended",
        "text": event.notice,
        "title": event.agent,
        "child_id": event.child_id,
        "call_id": event.call_id,
        "status": event.status,
        "outcome": outcome,
        "is_error": outcome in _FAILED,
        "duration_ms": story.took(event).duration_ms,
    }
