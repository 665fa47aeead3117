"""What a call costs that could carry something away does not grow with what ended children have read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attacking import Attacker, retinue_in

from retinue import AgentSpec
from retinue.authority.flows import known_to
from retinue.engine import concern
from retinue.events import ChildEnded, ChildStarted, MessageReceived, RunFinished, RunStarted
from retinue.fold import apply, fold, remains
from retinue.run_state import RunState
from retinue.testing import call
from retinue.types import Limits, Report, Usage

SPEC = AgentSpec(name="leaf", description="l", prompt="You work.")


def stamp(kind: Any, run_id: str = "r", **fields: Any) -> Any:
    parent = None if run_id == "r" else "r"
    return kind(run_id=run_id, root_id="r", parent_id=parent, depth=0, seq=1, at=1.0, **fields)


class Asked(RunState):
    """Counts how often it is asked what it has read."""

    times = 0

    def reads(self, call_id: str = "") -> dict[str, None]:
        self.times += 1
        return super().reads(call_id)


def finished(run_id: str) -> Any:
    report = Report(run_id=run_id, agent="leaf", status="completed", text="done", usage=Usage())
    return stamp(RunFinished, run_id, report=report)


def ended_child(child_id: str) -> Asked:
    """One that has read a file of its own."""
    began = stamp(
        RunStarted, child_id, spec=SPEC, prompt="go", system="", model="m", private=(f"{child_id}.txt",)
    )
    left = remains(fold([began, finished(child_id)]))
    child = Asked()
    for name in ("started", "report", "finished", "private"):
        setattr(child, name, getattr(left, name))
    return child


def test_what_a_run_was_told_of_its_children_is_not_gathered_again_with_each_call() -> None:
    own = RunState()
    children = {child_id: ended_child(child_id) for child_id in map("c{}".format, range(20))}
    for child_id in children:
        began = {"child_id": child_id, "agent": "leaf", "call_id": "1"}
        apply(own, stamp(ChildStarted, **began, prompt="go", reserved=Limits()))
        if child_id != "c19":
            private = (f"{child_id}.txt",)
            ended = {"status": "completed", "ended_by": "", "usage": Usage(), "duration_ms": 1}
            apply(own, stamp(ChildEnded, **began, **ended, private=private))
    workflow = [own, *children.values()]
    for _ in range(2):
        assert sorted(known_to(own, "k", workflow)) == sorted(f"{child_id}.txt" for child_id in children)
        apply(own, finished("r"))
        apply(own, stamp(MessageReceived, text="go on", sender="person"))  # another turn
    assert [child.times for child in children.values()] == [0] * 19 + [2]
    again = {"child_id": "c0", "agent": "leaf", "call_id": "2", "continues": True}
    apply(own, stamp(ChildStarted, **again, prompt="more", reserved=Limits()))
    children["c0"].private["more.txt"] = None
    assert "more.txt" in known_to(own, "k", workflow)


async def test_nobody_asks_what_was_read_for_a_call_that_goes_nowhere(
    project: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(own: RunState, call_id: str, workflow: Any) -> tuple[str, ...]:
        asked.append(call_id)
        return known_to(own, call_id, workflow)

    monkeypatch.setattr(concern, "known_to", counted)
    steps = [
        call("read", "c1", path="notes.md"),
        call("glob", "c2", pattern="*"),
        call("web_fetch", "c3", url=f"{attacker.url}/x"),
        "done",
    ]
    root = AgentSpec(name="root", description="r", prompt="You work.", tools=("read", "glob", "web_fetch"))
    async with retinue_in(project, attacker, steps, agents=[root]) as retinue:
        await retinue.run("root", "go")
    assert set(asked) == {"c3"}
