"""The tree of a workflow as it stands, from its events: who does what, since when, at what cost.

`Tree.apply` takes every live event; the views draw from the nodes. It is the terminal's counterpart of
`events.fold`, over all runs of a workflow and with what only a watcher needs. It draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from retinue.cli.view import words
from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CancelRequested,
    ChildStarted,
    ErrorRaised,
    LiveEvent,
    ModelReplied,
    Progressed,
    RunFinished,
    RunResumed,
    RunStarted,
    StepRetried,
    StepStarted,
    Streamed,
    ToolCalled,
    ToolReturned,
)
from retinue.types import ENDED, Report, Status, Usage

MOST_STREAMED = 8000
Shown = Status | Literal["rejected", "refused", "incomplete", "interrupted"]
"""A status; what a completed run may lack to be simply done; and that nobody works on a run any more."""


@dataclass(kw_only=True, slots=True, eq=False)
class Call:
    """A tool call that runs, or the last one that ran. `delegated`: the children it started show it."""

    name: str
    about: str
    began: float
    progress: str = ""
    ended: float | None = None
    is_error: bool = False
    delegated: bool = False


@dataclass(kw_only=True, slots=True, eq=False)
class Node:
    """One run of the workflow."""

    run_id: str
    agent: str
    began: float
    icon: str = ""
    label: str = ""
    task: str = ""
    model: str = ""
    background: bool = False
    status: Status = "pending"
    step: int = 0
    asking: str = ""
    """What the open model call is doing; empty when none is open."""
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    last: Call | None = None
    waiting: dict[str, ApprovalRequested] = field(default_factory=dict[str, ApprovalRequested])
    children: list[Node] = field(default_factory=list["Node"])
    own: Usage = Usage()
    tool_calls: int = 0
    rejected: int = 0
    refused: int = 0
    """Calls that would have asked a person, with no person to ask."""
    ended: float | None = None
    report: Report | None = None
    failure: str = ""
    failure_kind: str = ""

    @property
    def over(self) -> bool:
        return self.status in ENDED

    @property
    def shown(self) -> Shown:
        """The status for people: what lacks a part, here or below, does not look like what has all of it."""
        if self.status != "completed":
            return self.status
        if any(node.rejected for node in self.walk()):
            return "rejected"
        if any(node.refused for node in self.walk()):
            return "refused"
        return "incomplete" if self.report is not None and self.report.incomplete else "completed"

    @property
    def usage(self) -> Usage:
        """Of the run and everything below it."""
        if self.report is not None:
            return self.report.usage
        return sum((child.usage for child in self.children), self.own)

    def seconds(self, now: float) -> float:
        if self.report is not None:
            return self.report.duration_ms / 1000
        return (self.ended or now) - self.began

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


class Tree:
    """Every run of one workflow, kept up to date by its events."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.nodes: dict[str, Node] = {}
        self.approvals: dict[str, ApprovalRequested] = {}
        self.answered_by: dict[str, ApprovalAnswered] = {}
        self.text = ""
        """What the root is writing right now."""
        self.cancelling = ""

    def apply(self, event: LiveEvent) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    @property
    def refused(self) -> int:
        return sum(node.refused for node in self.nodes.values())

    def node(self, event: Any) -> Node | None:
        return self.nodes.get(event.run_id)

    @property
    def tool_calls(self) -> int:
        """Calls that really ran, anywhere in the tree."""
        return sum(node.tool_calls for node in self.nodes.values())


def _run_started(tree: Tree, event: RunStarted) -> None:
    node = tree.nodes.get(event.run_id)
    if node is None:
        node = Node(run_id=event.run_id, agent=event.spec.name, began=event.at)
        tree.nodes[event.run_id] = node
        parent = tree.nodes.get(event.parent_id or "")
        if parent is not None:
            parent.children.append(node)
    node.icon = words.one_line(event.spec.icon, 4)
    node.label = words.one_line(event.label)
    node.task = words.one_line(event.prompt)
    node.model = event.model
    node.began = event.at
    node.status = "running"
    if event.parent_id is None:
        tree.root = node


def _run_resumed(tree: Tree, event: RunResumed) -> None:
    node = tree.node(event)
    if node is None:
        return
    if node.ended is not None:
        node.began += event.at - node.ended  # the time in between was nobody's
    node.status = "waiting" if node.waiting else "running"
    node.ended, node.report, node.failure, node.failure_kind = None, None, "", ""
    tree.approvals.update(node.waiting)  # what was asked before still waits for its answer
    if node is tree.root:
        tree.cancelling = ""


def _step_started(tree: Tree, event: StepStarted) -> None:
    node = tree.node(event)
    if node is None:
        return
    node.step = event.step
    node.asking = "thinking"
    if node is tree.root:
        tree.text = ""


def _step_retried(tree: Tree, event: StepRetried) -> None:
    node = tree.node(event)
    if node is None:
        return
    wait = f" in {words.duration(event.wait)}" if event.wait >= 1 else ""
    node.asking = f"asking again{wait}: {words.one_line(event.reason, 100)}"
    if node is tree.root:
        tree.text = ""


def _streamed(tree: Tree, event: Streamed) -> None:
    node = tree.node(event)
    if node is None or event.thinking:
        return
    node.asking = "writing"
    if node is tree.root:
        tree.text = (tree.text + words.clean(event.text))[-MOST_STREAMED:]


def _model_replied(tree: Tree, event: ModelReplied) -> None:
    node = tree.node(event)
    if node is None:
        return
    node.asking = ""
    node.own = node.own + event.usage
    if node is tree.root and event.message.calls:
        tree.text = ""


def _tool_called(tree: Tree, event: ToolCalled) -> None:
    node = tree.node(event)
    if node is not None:
        node.calls[event.call_id] = Call(
            name=event.name, about=words.arguments(event.arguments), began=event.at
        )
        node.tool_calls += 1


def _progressed(tree: Tree, event: Progressed) -> None:
    node = tree.node(event)
    call = node.calls.get(event.call_id) if node else None
    if call is not None:
        call.progress = words.one_line(event.text, 100)


def _tool_returned(tree: Tree, event: ToolReturned) -> None:
    node = tree.node(event)
    if node is None:
        return
    node.own = node.own + event.usage
    call = node.calls.pop(event.call_id, None)
    if call is None:
        node.refused += event.not_run == "unattended"
        call = Call(name=event.name, about=words.one_line(event.text, 120), began=event.at)
    call.ended, call.is_error = event.at, event.is_error
    if not call.delegated:
        node.last = call


def _approval_requested(tree: Tree, event: ApprovalRequested) -> None:
    tree.approvals[event.approval_id] = event
    node = tree.node(event)
    if node is not None:
        node.waiting[event.approval_id] = event
        node.status = "waiting"


def _approval_answered(tree: Tree, event: ApprovalAnswered) -> None:
    tree.approvals.pop(event.approval_id, None)
    tree.answered_by[event.approval_id] = event
    node = tree.node(event)
    if node is not None:
        node.waiting.pop(event.approval_id, None)
        node.rejected += event.decision == "reject"
        node.status = "waiting" if node.waiting else "running"


def _child_started(tree: Tree, event: ChildStarted) -> None:
    parent = tree.node(event)
    if parent is None:
        return
    if event.call_id in parent.calls:
        parent.calls[event.call_id].delegated = True
    if event.child_id not in tree.nodes:
        node = Node(
            run_id=event.child_id,
            agent=event.agent,
            began=event.at,
            label=words.one_line(event.label),
            task=words.one_line(event.prompt),
            background=event.background,
        )
        tree.nodes[event.child_id] = node
        parent.children.append(node)


def _cancel_requested(tree: Tree, event: CancelRequested) -> None:
    node = tree.node(event)
    if node is not None and node is tree.root:
        tree.cancelling = event.reason or "cancelled"


def _error_raised(tree: Tree, event: ErrorRaised) -> None:
    node = tree.node(event)
    if node is not None:
        node.failure, node.failure_kind = event.message, event.kind


def _run_finished(tree: Tree, event: RunFinished) -> None:
    node = tree.node(event)
    if node is None:
        return
    node.status, node.report, node.ended = event.report.status, event.report, event.at
    node.asking = ""
    for approval_id in node.waiting:
        tree.approvals.pop(approval_id, None)


_HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    RunStarted: _run_started,
    RunResumed: _run_resumed,
    StepStarted: _step_started,
    StepRetried: _step_retried,
    Streamed: _streamed,
    ModelReplied: _model_replied,
    ToolCalled: _tool_called,
    Progressed: _progressed,
    ToolReturned: _tool_returned,
    ApprovalRequested: _approval_requested,
    ApprovalAnswered: _approval_answered,
    ChildStarted: _child_started,
    CancelRequested: _cancel_requested,
    ErrorRaised: _error_raised,
    RunFinished: _run_finished,
}
