"""What a log means for people: `Story` turns the events of a workflow into what every face shows of it.

The counterpart of `fold`, which is what the model needs: here are all runs of a workflow, who does what and
since when, how each ended, what it used and what it went without. Terminal, lists, exports, API and page
render this and work nothing out again. `Story.apply` takes every live event, or a stored log in its order.

Pure: it touches no store, draws nothing, and neither shortens nor cleans a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from retinue.events import (
    KNOWLEDGE_FIRST,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallCut,
    CallReviewed,
    CancelRequested,
    ChangesUndone,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    ErrorRaised,
    Event,
    FilesChanged,
    HistoryPruned,
    LimitPassed,
    LimitReached,
    LiveEvent,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    Progressed,
    RunFinished,
    RunRenamed,
    RunResumed,
    RunStarted,
    StepRetried,
    StepStarted,
    Streamed,
    ToolCalled,
    ToolReturned,
)
from retinue.standing import next_turn, reported
from retinue.story_nodes import Call, Node, Took
from retinue.types import Outcome, ended_as

MOST_STREAMED = 8000
"""Characters of what a root is writing that are kept to be shown."""


class Story:
    """Every run of one workflow, kept up to date by its events."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.nodes: dict[str, Node] = {}
        self.approvals: dict[str, ApprovalRequested] = {}
        self.answered_by: dict[str, ApprovalAnswered] = {}
        self.pieces: dict[tuple[str, int], Took] = {}
        """What pieces of work after the first took, by the events that end them."""
        self.text = ""
        """What the root is writing right now."""
        self.undone: set[str] = set()
        """Files that it changed and that a person took back, unless it changed them again."""
        self.cancelling = ""
        self.last_at = 0.0
        """When somebody last worked on it."""

    def apply(self, event: LiveEvent) -> LiveEvent:
        """Returns the event with every fact that it has today: earlier versions left some to the reader."""
        event = self._with_facts(event)
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
        if isinstance(event, Event):
            node = self.nodes.get(event.run_id)
            if node is not None:
                node.move(event)
                node.last_at = event.at
            if not isinstance(event, RunResumed):
                self.last_at = max(self.last_at, event.at)
        return event

    def _with_facts(self, event: LiveEvent) -> LiveEvent:
        node = self.nodes.get(event.run_id)
        if isinstance(event, RunResumed) and event.stopped_at is None:
            return msgspec.structs.replace(event, stopped_at=self.last_at or None)
        if isinstance(event, RunFinished) and node is not None:
            report = reported(node.standing, event.report)
            return event if report is event.report else msgspec.structs.replace(event, report=report)
        if isinstance(event, ToolReturned) and not event.outcome and node is not None:
            outcome = node.returned[event.call_id] = node.ended_now(event)
            return msgspec.structs.replace(event, outcome=outcome)
        if isinstance(event, ChildEnded):
            child = self.nodes.get(event.child_id)
            report = child.report if child is not None and not child.courtesy else None
            if child is not None and report is not None and not report.ended_by:
                return msgspec.structs.replace(event, shortfall=child.lacking)
        return event

    def interrupt(self) -> None:
        """The process that worked on it is gone: nothing runs, and every clock stands where the log ends."""
        for node in self.nodes.values():
            node.interrupted = not node.over
            if node.interrupted:
                node.last_at = self.last_at

    def node(self, event: Any) -> Node | None:
        return self.nodes.get(event.run_id)

    def took(self, event: ChildEnded | RunFinished) -> Took:
        """What the piece of work took that ends here: of a child that was asked again, that one alone."""
        if isinstance(event, ChildEnded):
            whole = Took(duration_ms=event.duration_ms, usage=event.usage)
        else:
            whole = Took(duration_ms=event.report.duration_ms, usage=event.report.usage)
        return self.pieces.get((event.run_id, event.seq), whole)

    def end_of(self, event: ChildEnded) -> Outcome:
        """How a child ended, in one word. Its own log may not have been read."""
        node = self.nodes.get(event.child_id)
        known = node is not None and node.status == event.status  # it may have gone on since
        if node is not None and known:
            return node.outcome
        return ended_as(event.status, event.shortfall, event.ended_by)

    @property
    def tool_calls(self) -> int:
        """Calls that really ran, anywhere in the tree."""
        return sum(node.tool_calls for node in self.nodes.values())


def with_facts(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """The events of a workflow, from its first, with every fact that they have today: for whoever reads them
    by themselves."""
    story = Story()
    return [story.apply(event) for event in events]  # pyright: ignore[reportReturnType] # each as it came


def _run_started(story: Story, event: RunStarted) -> None:
    node = story.nodes.get(event.run_id)
    if node is None:
        parent = story.nodes.get(event.parent_id or "")
        node = Node(run_id=event.run_id, agent=event.spec.name, began=event.at, parent=parent)
        story.nodes[event.run_id] = node
        if parent is not None:
            parent.children.append(node)
    node.icon = event.spec.icon
    node.label = event.label
    node.task = event.prompt
    node.model = event.model
    node.began = event.at
    if event.parent_id is None:
        story.root = node


def _run_resumed(story: Story, event: RunResumed) -> None:
    node = story.node(event)
    if node is None:
        return
    node.report, node.failure, node.failure_kind, node.interrupted = None, "", "", False
    node.own = node.own + event.cut
    story.approvals.update(node.waiting)  # what was asked before still waits for its answer
    if node is story.root:
        story.cancelling = ""


def _step_started(story: Story, event: StepStarted) -> None:
    node = story.node(event)
    if node is None:
        return
    node.step = event.step
    node.asking, node.retried, node.parked = "thinking", None, None
    if node is story.root:
        story.text = ""


def _step_retried(story: Story, event: StepRetried) -> None:
    node = story.node(event)
    if node is None:
        return
    node.asking, node.retried = "retrying", event
    if node is story.root:
        story.text = ""


def _spent(story: Story, event: CallCut | ModelSampled | ClaimsJudged) -> None:
    node = story.node(event)
    if node is not None:
        node.own = node.own + event.usage


def _limit_reached(story: Story, event: LimitReached) -> None:
    node = story.node(event)
    if node is None:
        return
    node.asking, node.parked = "parked", event
    if node is story.root:
        story.text = ""


def _limit_passed(story: Story, event: LimitPassed) -> None:
    node = story.node(event)
    if node is not None:
        node.asking, node.parked = "thinking", None


def _streamed(story: Story, event: Streamed) -> None:
    node = story.node(event)
    if node is None or event.thinking:
        return
    node.asking = "writing"
    if node is story.root:
        story.text = (story.text + event.text)[-MOST_STREAMED:]


def _model_replied(story: Story, event: ModelReplied) -> None:
    node = story.node(event)
    if node is None:
        return
    node.asking, node.effort = "", event.effort
    if "," in node.model:  # of a chain, who answered
        node.model = event.model
    node.own = node.own + event.usage
    if node is story.root and event.message.calls:
        story.text = ""


def _tool_called(story: Story, event: ToolCalled) -> None:
    node = story.node(event)
    if node is not None:
        cleared = event.call_id in node.cleared
        node.calls[event.call_id] = Call(
            name=event.name, arguments=event.arguments, began=event.at, cleared=cleared
        )
        node.tool_calls += 1


def _progressed(story: Story, event: Progressed) -> None:
    node = story.node(event)
    call = node.calls.get(event.call_id) if node else None
    if call is not None:
        call.progress = event.text


def _tool_returned(story: Story, event: ToolReturned) -> None:
    node = story.node(event)
    if node is None:
        return
    node.own = node.own + event.usage
    call = node.calls.pop(event.call_id, None)
    if call is None:
        call = Call(name=event.name, began=event.at, not_run=event.not_run, said=event.text)
    call.ended, call.is_error = event.at, event.is_error
    if event.not_run == "outcome_unknown":
        node.unknown.append(call)
    if event.unmerged > 0:
        node.unmerged.add(event.merge_of)
    elif event.unmerged < 0:
        node.unmerged.discard(event.merge_of)
    if not call.delegated:
        node.last = call


def _approval_requested(story: Story, event: ApprovalRequested) -> None:
    story.approvals[event.approval_id] = event
    node = story.node(event)
    if node is not None:
        node.waiting[event.approval_id] = event


def _approval_answered(story: Story, event: ApprovalAnswered) -> None:
    story.approvals.pop(event.approval_id, None)
    story.answered_by[event.approval_id] = event
    node = story.node(event)
    if node is not None:
        node.waiting.pop(event.approval_id, None)


def _call_reviewed(story: Story, event: CallReviewed) -> None:
    node = story.node(event)
    if node is not None:
        node.own = node.own + event.usage
        if event.cleared:
            node.cleared.add(event.call_id)


def _child_started(story: Story, event: ChildStarted) -> None:
    parent = story.node(event)
    if parent is None:
        return
    if event.call_id in parent.calls:
        parent.calls[event.call_id].delegated = True
    if event.continues and event.child_id in parent.ends:
        parent.asked_after[event.child_id] = parent.ends[event.child_id]
    if event.continues and event.child_id in story.nodes:
        again = story.nodes[event.child_id]
        again.before = again.report or again.before
        again.background, again.courtesy = event.background, False
    if event.child_id not in story.nodes:
        node = Node(
            run_id=event.child_id,
            agent=event.agent,
            began=event.at,
            parent=parent,
            label=event.label,
            task=event.prompt,
            background=event.background,
            courtesy=event.call_id == KNOWLEDGE_FIRST,
        )
        story.nodes[event.child_id] = node
        parent.children.append(node)


def _cancel_requested(story: Story, event: CancelRequested) -> None:
    node = story.node(event)
    if node is not None and node is story.root:
        story.cancelling = event.reason or "cancelled"


def _error_raised(story: Story, event: ErrorRaised) -> None:
    node = story.node(event)
    if node is not None:
        node.failure, node.failure_kind = event.message, event.kind


def _run_finished(story: Story, event: RunFinished) -> None:
    node = story.node(event)
    if node is None:
        return
    node.own = node.own + event.cut
    # What it left at work is a part of it: until that has ended, it goes on.
    node.report = None if event.report.at_work else event.report
    if node.before is not None:
        story.pieces[event.run_id, event.seq] = Took(
            duration_ms=event.report.duration_ms - node.before.duration_ms,
            usage=event.report.usage - node.before.usage,
        )
    node.asking, node.interrupted, node.parked = "", False, None
    for approval_id in node.waiting:
        story.approvals.pop(approval_id, None)


def _child_ended(story: Story, event: ChildEnded) -> None:
    node = story.node(event)
    if node is not None:
        node.own = node.own + event.telling
        earlier = node.asked_after.get(event.child_id)
        if earlier is not None:
            piece = Took(
                duration_ms=event.duration_ms - earlier.duration_ms, usage=event.usage - earlier.usage
            )
            story.pieces[event.run_id, event.seq] = piece
        node.ends[event.child_id] = event


def _history_pruned(story: Story, event: HistoryPruned) -> None:
    node = story.node(event)
    if node is not None:
        node.own = node.own + event.usage


def _message_received(story: Story, event: MessageReceived) -> None:
    node = story.node(event)
    if node is None:
        return
    if next_turn(node.standing, event) and event.sender == "person":
        for each in node.walk():
            each.unknown.clear()
            each.unmerged.clear()
    node.report = None  # the next turn of a conversation, if it had ended


def _changes_undone(story: Story, event: ChangesUndone) -> None:
    story.undone.update(event.paths)


def _run_renamed(story: Story, event: RunRenamed) -> None:
    node = story.node(event)
    if node is not None:
        node.label = event.label


def _files_changed(story: Story, event: FilesChanged) -> None:
    if not event.void:
        story.undone.difference_update(change.path for change in event.changes)


_HANDLERS: dict[type, Callable[[Story, Any], None]] = {
    ChangesUndone: _changes_undone,
    FilesChanged: _files_changed,
    RunStarted: _run_started,
    RunRenamed: _run_renamed,
    RunResumed: _run_resumed,
    StepStarted: _step_started,
    StepRetried: _step_retried,
    CallCut: _spent,
    LimitReached: _limit_reached,
    LimitPassed: _limit_passed,
    Streamed: _streamed,
    ModelReplied: _model_replied,
    ToolCalled: _tool_called,
    Progressed: _progressed,
    ToolReturned: _tool_returned,
    ApprovalRequested: _approval_requested,
    ApprovalAnswered: _approval_answered,
    CallReviewed: _call_reviewed,
    ModelSampled: _spent,
    ClaimsJudged: _spent,
    ChildStarted: _child_started,
    ChildEnded: _child_ended,
    HistoryPruned: _history_pruned,
    CancelRequested: _cancel_requested,
    ErrorRaised: _error_raised,
    MessageReceived: _message_received,
    RunFinished: _run_finished,
}
