"""One reading of a log for people: how a run stands, how long it worked, what it went without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, Retinue, tool
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallCut,
    CallReviewed,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    HistoryPruned,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolReturned,
    decode,
)
from retinue.fold import fold
from retinue.story import Story
from retinue.testing import ScriptedModel, call
from retinue.types import AssistantMessage, Report, Shortfall, Usage

SPEC = AgentSpec(name="boss", description="", prompt="")


def told(*events: AnyEvent) -> Story:
    story = Story()
    for event in events:
        story.apply(event)
    return story


class Log:
    """Events of one run of a workflow, stamped by hand."""

    def __init__(self, run_id: str = "root", parent_id: str | None = None) -> None:
        self.run_id, self.parent_id, self.seq = run_id, parent_id, 0

    def __call__(self, kind: Any, at: float, **facts: Any) -> Any:
        self.seq += 1
        depth = 0 if self.parent_id is None else 1
        about = {"run_id": self.run_id, "root_id": "root", "parent_id": self.parent_id, "depth": depth}
        return kind(**about, seq=self.seq, at=at, **facts)

    def asked(self, at: float, name: str = "a") -> Any:
        what = {"tool": "bash", "arguments": "{}", "effect": "execute", "risk": "high"}
        return self(ApprovalRequested, at, approval_id=f"{self.run_id}:{name}", call_id=name, **what)

    def answered(self, at: float, name: str = "a", decision: str = "approve") -> Any:
        return self(
            ApprovalAnswered, at, approval_id=f"{self.run_id}:{name}", call_id=name, decision=decision
        )

    def ended(self, at: float, **facts: Any) -> Any:
        report = Report(run_id=self.run_id, agent="boss", text="", **{"status": "completed", **facts})
        return self(RunFinished, at, report=report)


def test_a_clock_stands_still_while_a_person_is_waited_for_here_or_below():
    root, child = Log(), Log("child", "root")
    began = [
        root(RunStarted, 0, spec=SPEC, prompt="go"),
        root(ChildStarted, 1, child_id="child", agent="boss", prompt="part"),
        child(RunStarted, 1, spec=SPEC, prompt="part"),
        root(StepStarted, 0, step=1, model="m"),
        child(StepStarted, 1, step=1, model="m"),
        child.asked(4),
        child.asked(6, "b"),
    ]
    story = told(*began)
    assert story.root is not None
    assert (story.root.seconds(20), story.nodes["child"].seconds(20)) == (4, 3)
    assert story.nodes["child"].outcome == "waiting"
    for event in (child.answered(10), child.answered(14, "b")):
        story.apply(event)
    assert (story.root.seconds(20), story.nodes["child"].seconds(20)) == (10, 9), "two questions, one wait"


def test_the_time_between_a_crash_and_its_resume_is_nobodys():
    root = Log()
    story = told(
        root(RunStarted, 0, spec=SPEC, prompt="go"),
        root(StepStarted, 2, step=1, model="m"),
        root(RunResumed, 102),
        root(StepStarted, 103, step=1, model="m"),
    )
    assert story.root is not None
    assert story.root.seconds(105) == 3, "from its first step on, as its report counts"


def test_a_run_whose_process_is_gone_is_interrupted_and_its_clock_stands():
    root = Log()
    story = told(
        root(RunStarted, 0, spec=SPEC, prompt="go"),
        root(StepStarted, 1, step=1, model="m"),
        root(StepStarted, 4, step=2, model="m"),
    )
    story.interrupt()
    assert story.root is not None
    assert (story.root.outcome, story.root.seconds(1000)) == ("interrupted", 3)
    story.apply(root(RunResumed, 50))
    assert story.root.outcome == "running"


def test_the_next_turn_begins_without_what_the_last_one_lacked():
    root = Log()
    events = [
        root(RunStarted, 0, spec=SPEC, prompt="go"),
        root.asked(1),
        root.answered(2, decision="reject"),
        root.ended(3),
    ]
    story = told(*events)
    assert story.root is not None
    assert story.root.outcome == "rejected", "also where the report is too old to say so"
    for event in (root(RunResumed, 10), root(MessageReceived, 10, text="again"), root.ended(11)):
        story.apply(event)
    assert story.root.outcome == "completed"


def test_how_a_child_ended_is_told_by_its_own_log_and_where_that_is_not_read_by_its_parents():
    root, child = Log(), Log("child", "root")
    below = [
        child(RunStarted, 1, spec=SPEC, prompt="part"),
        child.asked(2),
        child.answered(3, decision="reject"),
        child.ended(4),
    ]
    began = root(RunStarted, 0, spec=SPEC, prompt="go")
    facts = {"child_id": "child", "agent": "boss", "status": "completed", "usage": Usage()}
    silent, told_all = (
        root(ChildEnded, 5, **facts),
        root(ChildEnded, 6, **facts, shortfall=Shortfall(refused=1)),
    )
    assert told(began, *below).end_of(silent) == "rejected"
    assert told(began).end_of(silent) == "completed"
    assert told(began).end_of(told_all) == "refused"
    again = [
        child(RunResumed, 7),
        child(MessageReceived, 7, text="more"),
        child(StepStarted, 8, step=2, model="m"),
    ]
    assert told(began, *below, *again).end_of(silent) == "completed", "it has gone on since"


@tool(effect="write")
def change(path: str) -> str:
    """Change a file."""
    return path


async def test_story_and_report_agree_on_every_run_of_a_tree():
    agents = [
        AgentSpec(
            name="boss", description="b", prompt="You are the boss.", tools=("clerk", "helper", "change")
        ),
        AgentSpec(name="clerk", description="c", prompt="You are the clerk.", tools=("change",)),
        AgentSpec(name="helper", description="h", prompt="You are the helper.", tools=()),
    ]
    script = {
        "You are the boss": [[call("clerk", prompt="x"), call("helper", prompt="y")], "done"],
        "You are the clerk": [call("change", path="a"), "done"],
        "You are the helper": ["done"],
    }

    async def approve(asked: ApprovalRequested) -> Answer:
        return Answer(decision="reject", reason="no")

    model = ScriptedModel(script)
    async with Retinue(model=model, agents=agents, tools=[change], db="memory:", approve=approve) as retinue:
        run_id = await retinue.start("boss", "go")
        await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    story = told(*events)
    ends = {event.run_id: event.report for event in events if isinstance(event, RunFinished)}
    assert {run_id: node.outcome for run_id, node in story.nodes.items()} == {
        run_id: report.outcome for run_id, report in ends.items()
    }
    assert sorted(report.outcome for report in ends.values()) == ["completed", "rejected", "rejected"]


def test_the_story_of_a_log_of_the_first_version_can_still_be_told():
    stored = Path(__file__).with_name("stored") / "log-version-1.jsonl"
    story = told(*(decode(line) for line in stored.read_bytes().splitlines()))
    assert story.root is not None
    assert story.root.status == "completed"
    assert len(story.nodes) == 4
    assert {node.agent for node in story.root.children} == {"clerk"}


PAID = Usage(input_tokens=7, output_tokens=3, cost=0.25)


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (ModelReplied, {"step": 1, "message": AssistantMessage(text="x"), "stop": "end", "model": "m"}),
        (CallCut, {"step": 1}),
        (CallReviewed, {"call_id": "c", "tool": "t", "cleared": True}),
        (ClaimsJudged, {"asked": ("a",)}),
        (HistoryPruned, {"dropped": 1, "summary": "s"}),
        (ModelSampled, {"call_id": "c", "tool": "t", "server": "s"}),
        (ToolReturned, {"call_id": "c", "name": "t", "text": "x"}),
    ],
)
def test_whatever_a_model_was_paid_for_counts_for_its_run_and_above_it_as_in_its_log(
    kind: Any, facts: dict[str, Any]
) -> None:
    root, child = Log(), Log("child", "root")
    first = root(RunStarted, 0, spec=SPEC, prompt="go")
    began = [child(RunStarted, 1, spec=SPEC, prompt="part"), child(StepStarted, 1, step=1, model="m")]
    asked = root(ChildStarted, 1, child_id="child", agent="boss", prompt="part")
    paid = [child(kind, at, usage=PAID, **facts) for at in (2, 3)]
    story = told(first, asked, *began, *paid)
    assert story.root is not None
    assert story.nodes["child"].own == PAID + PAID == fold([*began, *paid]).usage
    assert (story.root.own, story.root.usage) == (Usage(), PAID + PAID)


def test_what_it_took_to_word_a_notice_counts_for_who_is_told() -> None:
    root = Log()
    ended = {"child_id": "child", "agent": "boss", "status": "completed", "usage": PAID}
    story = told(
        root(RunStarted, 0, spec=SPEC, prompt="go"),
        root(ChildStarted, 1, child_id="child", agent="boss", prompt="part", background=True),
        root(ChildEnded, 2, **ended, telling=PAID),
    )
    assert story.root is not None
    assert story.root.own == PAID
