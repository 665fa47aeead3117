"""A run as a person reads it afterwards: what it was asked, each step, what its tools gave, how it ended.

Made from the events of one run; children are a line each. Used by `retinue runs show`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from retinue.events import (
    AccessDenied,
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
    CodeWoken,
    CopyLeft,
    ErrorRaised,
    FilesChanged,
    GuardSpoke,
    HistoryPruned,
    LimitReached,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    RunFinished,
    RunQueued,
    RunRenamed,
    RunResumed,
    RunStarted,
    StepRetried,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.story import Story
from retinue.types import ToolCall
from retinue.view import words
from retinue.view.notes import noted
from retinue.view.paint import Line, cells, wrap
from retinue.view.picture import MARKS
from retinue.view.question import answer_text

SHORT_LINES = 8


class Transcript:
    """Lines from events. `full`: results are shown whole. `answer` is printed by the caller, at the end.
    `tree` is the whole workflow: how its children ended.
    """

    def __init__(self, *, width: int, full: bool = False, answer: str = "", tree: Story) -> None:
        self.width, self.full, self.answer = width, full, answer.strip()
        self.tree = tree
        self.asked: dict[str, float] = {}
        self.waited: dict[str, float] = {}
        """Seconds that calls spent waiting for a person, by call: no time of work."""
        self.lines: list[Line] = []
        self.begun: set[str] = set()
        """Calls that run, by the log."""
        self._calls: dict[str, ToolCall] = {}
        self._purpose = ""
        self._chain = False
        """Whether several models may answer, so that each reply says of whom it is."""

    def of(self, events: Iterable[AnyEvent]) -> list[Line]:
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)
        return self.lines

    def say(
        self, text: str, style: str = "", indent: int = 0, *, mark: str = "", mark_style: str = ""
    ) -> None:
        """Text in lines of the right width; the mark stands before the first."""
        lead = " " * indent
        for index, piece in enumerate(wrap(words.clean(text), max(20, self.width - indent - cells(mark)))):
            first: Line = [(mark, mark_style or style)] if index == 0 else [(" " * cells(mark), "")]
            self.lines.append([(lead, ""), *first, (piece, style)])

    def excerpt(self, text: str, style: str, indent: int) -> None:
        """A result: its beginning, unless all of it is wanted."""
        rows = words.clean(text if self.full else words.result(text)).rstrip("\n").split("\n")
        hidden = len(rows) - SHORT_LINES if not self.full and len(rows) > SHORT_LINES + 1 else 0
        for row in rows[:SHORT_LINES] if hidden else rows:
            if not self.full and len(row) > 400:
                row = row[:400] + "…"
            self.say(row, style, indent)
        if hidden:
            self.lines.append([(" " * indent + f"… {hidden} more lines (--full)", "dim italic")])

    def rule(self, text: str) -> None:
        self.lines += [
            [("", "")],
            [(f"── {text} ", "cyan"), ("─" * max(2, min(self.width, 100) - cells(text) - 4), "dim")],
        ]


def _started(script: Transcript, event: RunStarted) -> None:
    script.lines.append(
        [
            (f"{event.spec.icon} " if event.spec.icon else "", ""),
            (event.spec.name, "bold"),
            (f"  {words.model(event.model)}  {words.moment(event.at)}  run {event.run_id}", "dim"),
        ]
    )
    script._chain = "," in event.model  # pyright: ignore[reportPrivateUsage]  # its own module
    if event.parent_id:
        script.say(f"child of {event.parent_id}", "dim")
    if event.label:
        script.say(event.label, "", mark="label  ", mark_style="dim")
    for name, model in event.unmet.items():
        script.say(f"{name} is not sent: {model} has none", "dim")
    script.say(event.rendered or event.prompt, "bold", mark="» ", mark_style="cyan")


def _step(script: Transcript, event: StepStarted) -> None:
    script._purpose = "" if event.purpose == "work" else f", {event.purpose}"  # pyright: ignore[reportPrivateUsage]  # its own module


def _replied(script: Transcript, event: ModelReplied) -> None:
    facts = [
        f"step {event.step}{script._purpose}",  # pyright: ignore[reportPrivateUsage]  # its own module
        words.duration(event.duration_ms / 1000),
        f"{words.tokens(event.usage.total_tokens)} tokens",
    ]
    if event.usage.cost:
        facts.append(words.money(event.usage.cost))
    if event.effort:
        facts.append(words.effort(event.effort))
    if script._chain:  # pyright: ignore[reportPrivateUsage]  # its own module
        facts.append(words.model(event.model))
    script.rule(" · ".join(facts))
    if event.thinking and script.full:
        script.say(event.thinking, "dim italic", 2)
    text = event.message.text.strip()
    if text:
        script.say("the answer, see below" if text == script.answer else text)
    for call in event.message.calls:
        script._calls[call.id] = call  # pyright: ignore[reportPrivateUsage]  # its own module


def _called(script: Transcript, event: ToolCalled) -> None:
    script.begun.add(event.call_id)
    script.say(f"{event.name}  {words.arguments(event.arguments, 300)}", "", mark="▸ ", mark_style="cyan")


def _returned(script: Transcript, event: ToolReturned) -> None:
    took = words.duration(event.duration_ms / 1000 - script.waited.pop(event.call_id, 0.0))
    node = script.tree.nodes.get(event.run_id)
    outcome = node.outcome_of(event) if node else "error" if event.is_error else "completed"
    mark, style = MARKS[outcome]
    if event.is_error:
        call = script._calls.get(event.call_id)  # pyright: ignore[reportPrivateUsage]  # its own module
        about = words.arguments(call.arguments) if call else ""
        ended = f"failed after {took}"
        if event.not_run == "outcome_unknown" and event.call_id in script.begun:
            ended = "was cut off, and may have run in part"
        elif event.not_run:
            ended = "did not run"
        script.say(f"{event.name}  {about}  {ended}", "red", mark=f"{mark} ")
    else:
        ended = "" if outcome == "completed" else f"{outcome}  "
        script.say(f"{event.name}  {ended}{took}", "dim", mark=f"{mark} ", mark_style=style)
    script.excerpt(event.text, "red" if event.is_error else "dim", 4)


def _asked(script: Transcript, event: ApprovalRequested) -> None:
    script.asked[event.call_id] = event.at
    about = words.arguments(event.arguments, 300)
    script.say(f"{event.tool}  {about}  asked, risk {event.risk}", "yellow", mark="? ")
    if event.preview:
        script.excerpt(event.preview, "dim", 4)


def _answered(script: Transcript, event: ApprovalAnswered) -> None:
    asked = script.asked.pop(event.call_id, event.at)
    script.waited[event.call_id] = script.waited.get(event.call_id, 0.0) + event.at - asked
    rejected = event.decision == "reject"
    script.say(answer_text(event), "red" if rejected else "green", mark="✗ " if rejected else "✓ ")
    if event.arguments is not None:
        script.say(f"with other arguments: {event.arguments}", "yellow", 4)


def _child_started(script: Transcript, event: ChildStarted) -> None:
    kind = " in the background" if event.background else ""
    does = f"asks {event.agent} again" if event.continues else f"starts {event.agent}"
    script.say(f"{does}{kind}  {event.child_id}", "", mark="→ ", mark_style="blue")
    script.say(words.one_line(event.label or event.prompt, 300), "dim", 4)


def _child_ended(script: Transcript, event: ChildEnded) -> None:
    shown, took = script.tree.end_of(event), script.tree.took(event)
    mark, style = MARKS[shown]
    cost = f" · {words.money(took.usage.cost)}" if took.usage.cost != 0 else ""
    ended = words.outcome(shown, event.shortfall.denied) + (" in the background" if event.opens else "")
    script.say(
        f"{event.agent} {ended}  {words.duration(took.duration_ms / 1000)} · "
        f"{words.tokens(took.usage.total_tokens)} tokens{cost}  {event.child_id}",
        "",
        mark=f"← {mark} ",
        mark_style=style,
    )


def _message(script: Transcript, event: MessageReceived) -> None:
    script.say(
        event.text,
        "bold" if event.sender == "person" else "dim",
        mark=f"» {event.sender}: ",
        mark_style="cyan",
    )


def _noted(script: Transcript, event: AnyEvent) -> None:
    if not (told := noted(event)):
        return
    if isinstance(event, RunResumed):
        script.rule(told)
        return
    style, mark = _NOTES[type(event)]
    if isinstance(event, CallReviewed) and event.cleared:
        style, mark = "green", "✓ "
    script.say(told, style, mark=mark)


_NOTES: dict[type, tuple[str, str]] = {
    RunResumed: ("", ""),
    RunQueued: ("magenta", ""),
    StepRetried: ("magenta", ""),
    CallCut: ("magenta", ""),
    LimitReached: ("magenta", ""),
    HistoryPruned: ("magenta", ""),
    FilesChanged: ("magenta", ""),
    CallReviewed: ("yellow", "? "),
    ModelSampled: ("magenta", ""),
    ClaimsJudged: ("magenta", ""),
    GuardSpoke: ("yellow", "! "),
    AccessDenied: ("red", "! "),
    ChangesUndone: ("yellow", "■ "),
    RunRenamed: ("magenta", ""),
    CopyLeft: ("yellow", "! "),
    CancelRequested: ("yellow", "■ "),
}


def _error(script: Transcript, event: ErrorRaised) -> None:
    script.say(f"{event.kind}: {event.message}", "bold red", mark="✗ ")


def _finished(script: Transcript, event: RunFinished) -> None:
    report = event.report
    still = f", {words.count(report.at_work, 'child', 'children')} still at work" if report.at_work else ""
    script.rule(f"report: {words.outcome(report.outcome, report.shortfall.denied)}{still}")


_HANDLERS: dict[type, Callable[[Transcript, Any], None]] = {
    RunStarted: _started,
    StepStarted: _step,
    ModelReplied: _replied,
    ToolCalled: _called,
    ToolReturned: _returned,
    ApprovalRequested: _asked,
    ApprovalAnswered: _answered,
    ChildStarted: _child_started,
    ChildEnded: _child_ended,
    MessageReceived: _message,
    ErrorRaised: _error,
    RunFinished: _finished,
    **dict.fromkeys(_NOTES, _noted),
}


def event_line(event: AnyEvent, agent: str) -> Line:
    """One event in one line, for `runs events`."""
    return [
        (f"{event.pos:>4}  ", "cyan"),
        (words.moment(event.at)[11:] + f".{int(event.at * 1000) % 1000:03d}  ", "dim"),
        ("  " * event.depth + f"{agent}  ", "bold"),
        (_kind(event), "cyan"),
        (f"  {_gist(event)}", ""),
    ]


def _kind(event: AnyEvent) -> str:
    return str(type(event).__struct_config__.tag).replace("_", " ")


def _gist(event: AnyEvent) -> str:
    match event:
        case RunStarted():
            text = event.prompt
        case ToolCalled():
            text = f"{event.name}  {words.arguments(event.arguments)}"
        case ApprovalRequested():
            text = f"{event.tool}  {words.arguments(event.arguments)}  ({event.approval_id})"
        case ToolReturned():
            text = f"{event.name}  {'failed: ' if event.is_error else ''}{event.text}"
        case ModelReplied():
            calls = ", ".join(call.name for call in event.message.calls)
            text = (f"calls {calls}  " if calls else "") + event.message.text
        case ApprovalAnswered():
            text = answer_text(event)
        case CallCut() | CallReviewed() | FilesChanged() | GuardSpoke() | HistoryPruned() | StepRetried():
            text = noted(event)
        case ModelSampled() | ClaimsJudged():
            text = noted(event)
        case CodeWoken():
            text = (
                f"{'a timer was due' if event.clock else 'a later call was there first'}  ({event.call_id})"
            )
        case ChildStarted() | ChildEnded():
            text = f"{event.agent}  {event.child_id}"
        case RunFinished():
            text = event.report.incomplete or event.report.error or event.report.status
        case StepStarted():
            text = f"{event.step}  {event.model}"
        case _:
            text = getattr(event, "text", "") or getattr(event, "reason", "") or getattr(event, "message", "")
    return words.one_line(str(text))
