"""A log as a tree of what was done, for `story`: every run with its calls, and the questions that were asked.

Reads events, and changes nothing. How a run stands is the business of `retinue.story`, which it is read with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from retinue.errors import RunError
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    ChildStarted,
    Decision,
    ModelReplied,
    ToolCalled,
    ToolReturned,
)
from retinue.story import Story
from retinue.story_nodes import Node
from retinue.types import NotRun, Outcome, Report, Usage

REFUSED: frozenset[NotRun] = frozenset({"denied", "forbidden", "rejected", "unattended"})
"""Why a call did not run that a rule, a person or nobody's being there kept from running."""
Wanted = Mapping[str, object | Callable[[Any], object]]
"""Arguments that a call is to have: a value that it equals, or a function that says whether it will do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTold:
    """One call of a tool that a model asked for. `arguments` are those it ran with: a person may have edited
    them. Of one that did not run, `not_run` says why; `result` is what the model was told, `is_error` that
    it failed."""

    agent: str
    run_id: str
    name: str
    arguments: dict[str, Any]
    raw: str = "{}"
    """The arguments as they were written: a model may write what is no JSON."""
    result: str = ""
    is_error: bool = False
    not_run: NotRun = ""

    @property
    def ran(self) -> bool:
        """Whether the tool really ran."""
        return not self.not_run

    @property
    def refused(self) -> bool:
        """Whether a rule or a person said no, or nobody was there to be asked."""
        return self.not_run in REFUSED

    def has(self, wanted: Wanted) -> bool:
        """Whether it has these arguments, and maybe others."""
        return all(
            name in self.arguments
            and (value(self.arguments[name]) if callable(value) else value == self.arguments[name])
            for name, value in wanted.items()
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionTold:
    """One question to a person, about a call with these `arguments`. `decision` is None while nobody has
    answered it; `by` is who did."""

    agent: str
    tool: str
    arguments: dict[str, Any]
    decision: Decision | None = None
    by: str = ""


@dataclass(kw_only=True, slots=True)
class RunTold:
    """One run of a tree: who it was, what it was asked, its `calls`, its `children`, its `outcome`. `usage`
    has those below it in it, `turns` are its own."""

    run_id: str
    agent: str
    prompt: str
    outcome: Outcome
    usage: Usage
    report: Report | None
    turns: int = 0
    calls: list[CallTold] = field(default_factory=list[CallTold])
    children: list[RunTold] = field(default_factory=list["RunTold"])

    def walk(self) -> Iterator[RunTold]:
        """Itself and all below it, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeTold:
    """A run and all below it. `by_call` has the children that a call started, by its run and its place."""

    root: RunTold
    questions: tuple[QuestionTold, ...]
    by_call: Mapping[tuple[str, int], list[str]]


def tree_told(events: Iterable[AnyEvent], run_id: str) -> TreeTold:
    """What a run and all below it did, by the events of its workflow, in their order."""
    reader = _Reader()
    for event in events:
        reader.apply(event)
    node = reader.story.nodes.get(run_id)
    if node is None:
        raise RunError(f"the log has no run {run_id!r}", run_id=run_id)
    return reader.told(node)


class _Reader:
    """Gathers what each run called and asked, beside the `Story` of the same events."""

    def __init__(self) -> None:
        self.story = Story()
        self.turns: dict[str, int] = {}
        self.calls: dict[str, dict[str, CallTold]] = {}
        self.children: dict[tuple[str, str], list[str]] = {}
        self.questions: dict[str, tuple[str, QuestionTold]] = {}

    def apply(self, event: AnyEvent) -> None:
        self.story.apply(event)
        match event:
            case ModelReplied():
                self.turns[event.run_id] = self.turns.get(event.run_id, 0) + 1
                for call in event.message.calls:
                    self._call(event.run_id, call.id, call.name, call.arguments)
            case ToolCalled():
                self._call(event.run_id, event.call_id, event.name, event.arguments)
            case ToolReturned():
                self._returned(event)
            case ChildStarted():
                self.children.setdefault((event.run_id, event.call_id), []).append(event.child_id)
            case ApprovalRequested():
                told = QuestionTold(
                    agent=self._agent(event.run_id), tool=event.tool, arguments=_object(event.arguments)
                )
                self.questions[event.approval_id] = (event.run_id, told)
            case ApprovalAnswered() if event.approval_id in self.questions:
                run_id, asked = self.questions[event.approval_id]
                told = QuestionTold(
                    agent=asked.agent,
                    tool=asked.tool,
                    arguments=asked.arguments if event.arguments is None else _object(event.arguments),
                    decision=event.decision,
                    by=event.by,
                )
                self.questions[event.approval_id] = (run_id, told)
            case _:
                pass

    def _agent(self, run_id: str) -> str:
        node = self.story.nodes.get(run_id)
        return node.agent if node is not None else ""

    def _call(self, run_id: str, call_id: str, name: str, raw: str) -> None:
        told = CallTold(
            agent=self._agent(run_id), run_id=run_id, name=name, arguments=_object(raw), raw=raw or "{}"
        )
        self.calls.setdefault(run_id, {})[call_id] = told

    def _returned(self, event: ToolReturned) -> None:
        calls = self.calls.setdefault(event.run_id, {})
        called = calls.get(event.call_id)
        calls[event.call_id] = CallTold(
            agent=self._agent(event.run_id),
            run_id=event.run_id,
            name=event.name,
            arguments=called.arguments if called else {},
            raw=called.raw if called else "{}",
            result=event.text,
            is_error=event.is_error,
            not_run=event.not_run,
        )

    def told(self, node: Node) -> TreeTold:
        below = {each.run_id for each in node.walk()}
        by_call = {
            (run_id, index): self.children[run_id, call_id]
            for run_id in below
            for index, call_id in enumerate(self.calls.get(run_id, {}))
            if (run_id, call_id) in self.children
        }
        questions = tuple(told for run_id, told in self.questions.values() if run_id in below)
        return TreeTold(root=self._run(node), questions=questions, by_call=by_call)

    def _run(self, node: Node) -> RunTold:
        return RunTold(
            run_id=node.run_id,
            agent=node.agent,
            prompt=node.task,
            outcome=node.outcome,
            usage=node.usage,
            report=node.report,
            turns=self.turns.get(node.run_id, 0),
            calls=list(self.calls.get(node.run_id, {}).values()),
            children=[self._run(child) for child in node.children],
        )


def _object(raw: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
