"""What happens in a workflow, as an editor is told: text, thoughts, the plan, tool calls, children.

Fed with the events of one session, live or from its log. A child is a tool call whose inner calls name it as
their parent (`_meta`), since the protocol has no tree; agents that are called by name are their own call. It
sends nothing and answers nothing.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from acp import helpers, schema

from retinue.acp.calls import CALLS_SHOWN, diffs, kind_of, location_of
from retinue.events import (
    ChildStarted,
    FilesChanged,
    LimitReached,
    LiveEvent,
    MessageReceived,
    ModelReplied,
    Progressed,
    RunFinished,
    RunStarted,
    StepRetried,
    Streamed,
    ToolCalled,
    ToolReturned,
)
from retinue.story import Story
from retinue.types import Effect, Outcome, Report
from retinue.view import words

MOST_SHOWN = 20_000
"""Characters of a result that an editor is sent; the log has all of it."""
Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
    | schema.AgentPlanUpdate
    | schema.SessionInfoUpdate
)
_PLANNED: dict[str, schema.PlanEntryStatus] = {
    "open": "pending",
    "doing": "in_progress",
    "done": "completed",
    "dropped": "completed",
}
_FAILED: frozenset[Outcome] = frozenset({"error", "cancelled", "rejected", "refused", "interrupted"})


@dataclass(kw_only=True, slots=True)
class _Task:
    text: str
    status: str = "open"


@dataclass(kw_only=True, slots=True)
class _ShownCall:
    """A call that the editor knows."""

    id: str
    name: str
    edits: bool = False
    delegates: bool = False


class SessionUpdates:
    """`past`: the person's own words are told too, since the editor has not seen them typed."""

    def __init__(self, cwd: str, *, past: bool = False) -> None:
        self.story = Story()
        self.past = past
        self.own: Counter[str] = Counter()
        """What this editor said itself and has not heard yet."""
        self._cwd = cwd
        self._calls: dict[tuple[str, str], _ShownCall] = {}
        self._of_child: dict[str, str] = {}
        """The tool call that a child is shown as."""
        self._streamed = ""
        self._said = ""
        self._tasks: list[_Task] = []
        self._plan: list[tuple[str, schema.PlanEntryStatus]] = []

    def of(self, event: LiveEvent) -> list[Update]:
        event = self.story.apply(event)
        tell = self.HANDLERS.get(type(event))
        told: list[Update] = [] if tell is None else tell(self, event)
        return [*told, *self._planned()]

    def call_id(self, run_id: str, call_id: str) -> str | None:
        """How the editor knows a call."""
        shown = self._calls.get((run_id, call_id))
        return None if shown is None else shown.id

    # -- words -----------------------------------------------------------------

    def _started(self, event: RunStarted) -> list[Update]:
        if event.parent_id is not None:
            return []
        title = words.one_line(event.label or event.prompt, 80)
        told: list[Update] = [
            schema.SessionInfoUpdate(session_update="session_info_update", title=title),
        ]
        return [*told, *self._by_person(event.prompt)]

    def _message(self, event: MessageReceived) -> list[Update]:
        if event.parent_id is not None or event.sender != "person" or event.about:
            return []
        return self._by_person(event.text)

    def _by_person(self, text: str) -> list[Update]:
        if not self.past and self.own[text]:
            self.own[text] -= 1
            return []
        return [helpers.update_user_message_text(text)]

    def _stream(self, event: Streamed) -> list[Update]:
        if event.depth or not event.text:
            return []
        if event.thinking:
            return [helpers.update_agent_thought_text(event.text)]
        self._streamed += event.text
        return [helpers.update_agent_message_text(event.text)]

    def _retried(self, event: StepRetried) -> list[Update]:
        if event.depth or not self._streamed:
            return []
        self._streamed = ""
        return [note(f"the model is asked again, and what stands above is void: {event.reason}")]

    def _limit(self, event: LimitReached) -> list[Update]:
        return [note(f"{words.parked(event.until, event.at)}: {event.reason}")] if not event.depth else []

    def _replied(self, event: ModelReplied) -> list[Update]:
        told: list[Update] = []
        if not event.depth:
            streamed, self._streamed = self._streamed, ""
            self._said = event.message.text
            if event.thinking and not streamed and self.past:
                told.append(helpers.update_agent_thought_text(event.thinking))
            rest = event.message.text[len(streamed) :]
            if rest:
                told.append(helpers.update_agent_message_text(rest))
        for call in event.message.calls:
            key = f"{event.run_id}/{event.step}/{call.id}"
            told.append(self._announced(event.run_id, call.id, key, call.name, call.arguments))
        return told

    def _finished(self, event: RunFinished) -> list[Update]:
        if event.parent_id is not None:
            return self._child_finished(event)
        report, told = event.report, list[Update]()
        if report.text and report.text.strip() != self._said.strip():
            told.append(helpers.update_agent_message_text(f"\n\n{report.text}"))
        told += [note(each) for each in _shortcomings(report)]
        self._said = ""
        return told

    # -- tool calls ------------------------------------------------------------

    def _announced(
        self,
        run_id: str,
        call_id: str,
        key: str,
        name: str,
        arguments: str,
        *,
        effect: Effect | None = None,
        status: schema.ToolCallStatus = "pending",
    ) -> Update:
        given = _object(arguments)
        edits = diffs(name, given, self._cwd)
        self._calls[run_id, call_id] = _ShownCall(id=key, name=name, edits=bool(edits))
        where = location_of(name, given, self._cwd)
        started = helpers.start_tool_call(
            key,
            self._title(run_id, f"{name} {words.arguments(arguments)}"),
            kind=kind_of(name, effect),
            status=status,
            content=edits or None,
            locations=[where] if where else None,
            raw_input=given or arguments,
        )
        started.field_meta = self._inside(run_id)
        return started

    def _title(self, run_id: str, text: str) -> str:
        node = self.story.nodes.get(run_id)
        path: list[str] = []
        while node is not None and node.parent is not None:
            path.insert(0, node.agent)
            node = node.parent
        return words.one_line(" › ".join((*path, text)), 200)

    def _inside(self, run_id: str) -> dict[str, Any] | None:
        parent = self._of_child.get(run_id)
        return None if parent is None else {"retinue": {"parentToolCallId": parent, "runId": run_id}}

    def _called(self, event: ToolCalled) -> list[Update]:
        shown = self._calls.get((event.run_id, event.call_id))
        if shown is None:  # a call from code, which no model announced
            key = f"{event.run_id}/{event.seq}/{event.call_id}"
            return [
                self._announced(
                    event.run_id,
                    event.call_id,
                    key,
                    event.name,
                    event.arguments,
                    effect=event.effect,
                    status="in_progress",
                )
            ]
        given = _object(event.arguments)
        edits = diffs(event.name, given, self._cwd)
        if event.name == "todo":
            self._todo(given)
        return [
            helpers.update_tool_call(
                shown.id,
                status="in_progress",
                kind=kind_of(event.name, event.effect),
                content=edits or None,
                raw_input=given or event.arguments,
            )
        ]

    def _progressed(self, event: Progressed) -> list[Update]:
        shown = self._calls.get((event.run_id, event.call_id))
        if shown is None or shown.edits or shown.delegates:
            return []
        return [helpers.update_tool_call(shown.id, content=[_text(event.text)])]

    def _returned(self, event: ToolReturned) -> list[Update]:
        shown = self._calls.pop((event.run_id, event.call_id), None)
        if shown is None:
            return []
        node = self.story.nodes.get(event.run_id)
        outcome = node.outcome_of(event) if node is not None else "error" if event.is_error else "completed"
        failed = event.is_error or outcome in _FAILED
        keeps = (shown.edits and not failed) or shown.delegates
        return [
            helpers.update_tool_call(
                shown.id,
                status="failed" if failed else "completed",
                content=None if keeps else [_text(event.text)],
                raw_output={"text": event.text[:MOST_SHOWN], "outcome": outcome},
            )
        ]

    def _changed(self, event: FilesChanged) -> list[Update]:
        shown = self._calls.get((event.run_id, event.call_id))
        if shown is None or event.void or not event.changes:
            return []
        paths = [os.path.join(self._cwd, change.path) for change in event.changes[:CALLS_SHOWN]]
        return [
            helpers.update_tool_call(
                shown.id, locations=[schema.ToolCallLocation(path=path) for path in paths]
            )
        ]

    # -- children --------------------------------------------------------------

    def _child_started(self, event: ChildStarted) -> list[Update]:
        shown = self._calls.get((event.run_id, event.call_id))
        if shown is not None:
            shown.delegates = event.as_tool
        if event.as_tool and shown is not None:
            self._of_child[event.child_id] = shown.id
            return []
        again = event.child_id in self._of_child
        self._of_child[event.child_id] = event.child_id
        if again:
            return [helpers.update_tool_call(event.child_id, status="in_progress")]
        started = helpers.start_tool_call(
            event.child_id,
            self._title(event.run_id, f"{event.agent}: {event.label or event.prompt}"),
            kind="other",
            status="in_progress",
            content=[_text(event.prompt)],
            raw_input={"agent": event.agent, "prompt": event.prompt},
        )
        parent = self._inside(event.run_id) or {"retinue": {"runId": event.child_id}}
        if shown is not None:
            parent = {"retinue": {"parentToolCallId": shown.id, "runId": event.child_id}}
        started.field_meta = parent
        return [started]

    def _child_finished(self, event: RunFinished) -> list[Update]:
        key = self._of_child.get(event.run_id)
        if key is None:
            return []
        report = event.report
        text = report.text or report.error or report.incomplete or ""
        failed = report.outcome in _FAILED
        return [
            helpers.update_tool_call(
                key,
                status="failed" if failed else "completed",
                content=[_text(text)],
                raw_output={"outcome": report.outcome, "tokens": report.usage.total_tokens},
            )
        ]

    # -- the plan --------------------------------------------------------------

    def _todo(self, given: dict[str, Any]) -> None:
        """What the tool `todo` does with these arguments; a wrong call changes nothing there either."""
        texts: list[Any] = given.get("texts") or []
        if given.get("action") == "add":
            self._tasks += [_Task(text=str(each)) for each in texts]
        number = given.get("id")
        if given.get("action") == "update" and isinstance(number, int) and 0 < number <= len(self._tasks):
            task = self._tasks[number - 1]
            task.status = str(given.get("status") or task.status)
            task.text = str(texts[0]) if texts else task.text

    def _planned(self) -> list[Update]:
        """The tasks of whoever keeps a list of them; else, from two children of the root on, these."""
        plan: list[tuple[str, schema.PlanEntryStatus]] = [
            (task.text, _PLANNED.get(task.status, "pending")) for task in self._tasks
        ]
        root = self.story.root
        if not plan and root is not None and len(root.children) > 1:
            plan = [
                (
                    words.one_line(f"{child.agent}: {child.label or child.task}", 120),
                    "completed" if child.over else "in_progress",
                )
                for child in root.children
            ]
        if plan == self._plan:
            return []
        self._plan = plan
        return [helpers.update_plan(helpers.plan_entry(text, status=status) for text, status in plan)]

    HANDLERS: ClassVar[dict[type, Callable[[SessionUpdates, Any], list[Update]]]] = {
        RunStarted: _started,
        MessageReceived: _message,
        Streamed: _stream,
        StepRetried: _retried,
        LimitReached: _limit,
        ModelReplied: _replied,
        RunFinished: _finished,
        ToolCalled: _called,
        Progressed: _progressed,
        ToolReturned: _returned,
        FilesChanged: _changed,
        ChildStarted: _child_started,
    }


def _shortcomings(report: Report) -> list[str]:
    found = [f"{report.outcome}: {report.error}"] if report.error else []
    if report.incomplete:
        found.append(f"not finished: {report.incomplete}")
    return [*found, *report.problems]


def _object(arguments: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def note(text: str) -> Update:
    """A word of ours between what the model says."""
    return helpers.update_agent_message_text(f"\n\n*[{words.one_line(text, 500)}]*\n\n")


def _text(text: str) -> schema.ContentToolCallContent:
    shown = (
        text
        if len(text) <= MOST_SHOWN
        else f"{text[:MOST_SHOWN]}\n[{len(text) - MOST_SHOWN:,} more characters]"
    )
    return helpers.tool_content(helpers.text_block(words.clean(shown)))
