"""What a host is told of a run: its story, what was refused in it, its report as a result, a line for a step.

Read from events and from nothing else, so a run that another process works on is told of in the same way.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from mcp_types import CallToolResult, TextContent
from msgspec import Struct

from retinue.events import (
    ApprovalRequested,
    ChildEnded,
    Event,
    LimitReached,
    LiveEvent,
    RunFinished,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.story import Story
from retinue.story_nodes import Node
from retinue.types import ENDED, Claim, Report, Source

MOST_TEXT = 60_000
"""Characters of a report in a result: hosts cut or refuse what is much longer. All of it is a resource."""
MOST_REFUSALS = 20
FIELDS: dict[str, Any] = {
    "run_id": {"type": "string", "description": "the run, also retinue://runs/RUN_ID"},
    "status": {"type": "string", "description": "pending, running, waiting, completed, error, cancelled"},
    "outcome": {
        "type": "string",
        "description": "the one word for how it stands: also incomplete, refused, rejected, interrupted",
    },
    "text": {"type": "string", "description": "the report, or how it stands so far"},
    "agent": {"type": "string"},
    "incomplete": {"type": "string", "description": "why the work is not finished, where it is not"},
    "error": {"type": "string", "description": "where it ended with one"},
    "sources": {
        "type": "array",
        "description": "what was really fetched or read; what is only cited has verified: false",
        "items": {"type": "object"},
    },
    "problems": {"type": "array", "items": {"type": "string"}, "description": "what is wrong with citations"},
    "usage": {"type": "object", "description": "tokens and US dollars of the run and everything below it"},
    "children": {"type": "object", "description": "how many sub-agents, and how they stand"},
    "refused": {
        "type": "array",
        "description": "calls that nobody was there to approve, or that a rule denied, each with what would "
        "allow it",
        "items": {"type": "object"},
    },
    "files": {"type": "array", "items": {"type": "string"}},
    "turns": {"type": "integer"},
    "tool_calls": {"type": "integer"},
    "failed_calls": {"type": "integer", "description": "how many of them ran and failed"},
    "duration_ms": {"type": "integer"},
    "model": {"type": "string"},
}
REQUIRED = ["run_id", "status", "outcome", "text"]


class RefusedCall(Struct, frozen=True, kw_only=True):
    """A call that did not run, since nobody was there to ask or a rule denied it, and what it was told."""

    agent: str
    tool: str
    why: str
    said: str


class RunAccount:
    """One workflow, as far as its events have been read."""

    def __init__(self) -> None:
        self.story = Story()
        self.refusals: list[RefusedCall] = []
        self.pos = 0
        """The place of the last event that was read."""

    def apply(self, event: LiveEvent) -> LiveEvent:
        event = self.story.apply(event)
        if isinstance(event, Event):
            self.pos = max(self.pos, event.pos)
        if isinstance(event, ToolReturned) and event.not_run in ("unattended", "denied"):
            node = self.story.nodes.get(event.run_id)
            agent = node.agent if node is not None else ""
            self.refusals.append(
                RefusedCall(agent=agent, tool=event.name, why=event.not_run, said=event.text[:1000])
            )
        return event

    @property
    def report(self) -> Report | None:
        """Of the root, once it has ended."""
        root = self.story.root
        return root.report if root is not None and root.status in ENDED else None

    def waits_only(self) -> bool:
        """Whether nothing is at work, here or below, that could ask as well."""
        return all(_is_waiting(node) for node in self.story.nodes.values() if not node.over)

    def children(self) -> dict[str, int]:
        """How many sub-agents there are at any depth, by how they stand."""
        below = [node for node in self.story.nodes.values() if node is not self.story.root]
        report = self.report
        not_started = report.shortfall.not_started if report is not None else 0
        return {"started": len(below), "not_started": not_started, **Counter(n.outcome for n in below)}


def _is_waiting(node: Node) -> bool:
    """Whether a run does nothing but wait, for a person or for its children."""
    held = bool(node.waiting) or any(not child.over for child in node.children)
    return held and all(call.delegated for call in node.calls.values())


def line_of(account: RunAccount, event: LiveEvent) -> str | None:
    """What a step of the tree is told as; None for what is no step of its own."""
    node = account.story.nodes.get(event.run_id)
    if node is None:
        return None
    who = _path(node)
    match event:
        case StepStarted():
            return f"{who}: step {event.step}"
        case ToolCalled():
            return f"{who}: {event.name}"
        case ApprovalRequested():
            return f"{who}: waits for an approval of {event.tool}"
        case LimitReached():
            return f"{who}: its provider takes nothing more for now: {event.reason}"
        case ChildEnded():
            return f"{who}: {event.label or event.agent} ended, {account.story.end_of(event)}"
        case RunFinished() if node.parent is None:
            return f"{who}: {event.report.outcome}"
        case _:
            return None


def _path(node: Node) -> str:
    names: list[str] = []
    at: Node | None = node
    while at is not None:
        names.append(at.label or at.agent)
        at = at.parent
    return " › ".join(reversed(names))


def standing_line(account: RunAccount) -> str:
    """How a run stands that has not ended, in a sentence."""
    root = account.story.root
    if root is None:
        return "it has not begun"
    at_work = [node for node in root.walk() if not node.over]
    doing = "; ".join(f"{_path(node)} at step {node.step}" for node in at_work[:4])
    more = f" and {len(at_work) - 4} more" if len(at_work) > 4 else ""
    waiting = len(account.story.approvals)
    asked = f" {waiting} call(s) wait for a person's approval." if waiting else ""
    return f"{root.outcome}: {doing}{more}.{asked}"


def result_of(account: RunAccount, report: Report) -> CallToolResult:
    """A report as the result of a tool: its text for reading, the rest as fields."""
    failed = report.status != "completed"
    text = report.text or report.error or report.incomplete or ""
    cut = text[:MOST_TEXT]
    if len(text) > MOST_TEXT:
        cut += f"\n\n[{len(text) - MOST_TEXT:,} more characters: read retinue://runs/{report.run_id}]"
    refusals = [msgspec.to_builtins(each) for each in account.refusals[:MOST_REFUSALS]]
    fields: dict[str, Any] = {
        "run_id": report.run_id,
        "status": report.status,
        "outcome": report.outcome,
        "text": cut,
        "agent": report.agent,
        "sources": [_source(source) for source in report.sources],
        "problems": list(report.problems),
        "claims": [_source(claim) for claim in report.claims],
        "uncited": report.uncited,
        "usage": report.usage.to_dict(),
        "children": account.children(),
        "refused": refusals,
        "files": list(report.files),
        "turns": report.turns,
        "tool_calls": report.tool_calls,
        "failed_calls": report.failed_calls,
        "duration_ms": report.duration_ms,
        "model": report.model,
    }
    besides = {"incomplete": report.incomplete, "error": report.error, "data": report.data}
    fields |= {name: value for name, value in besides.items() if value is not None}
    return CallToolResult(
        content=[TextContent(type="text", text=cut + _notes(account, report))],
        structured_content=fields,
        is_error=failed,
    )


def _notes(account: RunAccount, report: Report) -> str:
    """What whoever reads the text alone has to know besides."""
    notes = [f"run {report.run_id}: {report.outcome}"] if report.outcome != "completed" else []
    if report.incomplete and report.text:
        notes.append(f"incomplete: {report.incomplete}")
    if report.error and report.text:
        notes.append(f"error: {report.error}")
    notes += [f"{each.agent} · {each.tool}: {each.said}" for each in account.refusals[:5]]
    notes += [f"source: {problem}" for problem in report.problems[:5]]
    return "\n\n---\n" + "\n".join(notes) if notes else ""


def _source(source: Source | Claim) -> dict[str, Any]:
    """What is known of a source or a claim: a host pays for every word."""
    fields = msgspec.to_builtins(source)
    return {name: value for name, value in fields.items() if value or name == "verified"}


def unfinished(run_id: str, account: RunAccount, then: str) -> CallToolResult:
    """How a run stands that goes on, and what to do next."""
    root = account.story.root
    text = f"{standing_line(account)} {then}"
    fields = {
        "run_id": run_id,
        "status": root.status if root is not None else "pending",
        "outcome": root.outcome if root is not None else "pending",
        "text": text,
        "agent": root.agent if root is not None else "",
        "usage": root.usage.to_dict() if root is not None else {},
        "children": account.children(),
    }
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=fields)


def failure(text: str) -> CallToolResult:
    """An error of the tool: whoever called reads it and can act on it."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
