"""What may have been read when something was handed on, judged or begun is in a replay what it was then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attacking import Attacker, events_of, retinue_in

from retinue import AgentSpec, tool
from retinue.engine.answers import Answer
from retinue.engine.record import Record
from retinue.events import ChildEnded, MessageReceived, RunStarted, ToolCalled
from retinue.testing import call

TOOLS = ("run_code", "mark", "web_fetch", "leaf")


@pytest.mark.parametrize("other", ["leaf(prompt='go')", "web_fetch('{url}/x?d=1')"])
async def test_what_code_does_while_another_call_waits_for_a_person_is_replayed(
    project: Path, attacker: Attacker, other: str
) -> None:
    """The answers of a record are all there at once: what then waits for one must not begin before that."""

    @tool(effect="write")
    async def mark(what: str) -> str:
        """Mark.

        Args:
            what: what
        """
        return "marked"

    async def approve(asked: object) -> Answer:
        await attacker.heard.wait()
        return Answer(decision="approve")

    code = f"import asyncio\nawait asyncio.gather(mark(what='m'), {other})".replace("{url}", attacker.url)
    script = {
        "You fetch": [call("web_fetch", url=f"{attacker.url}/x?d=1"), "done"],
        "You work": [call("run_code", code=code), "done"],
    }
    root = AgentSpec(name="root", description="r", prompt="You work.", mode="code", tools=TOOLS)
    leaf = AgentSpec(name="leaf", description="l", prompt="You fetch.", tools=("web_fetch",))
    async with retinue_in(
        project, attacker, script, agents=[root, leaf], tools=[mark], approve=approve
    ) as retinue:
        report = await asyncio.wait_for(retinue.run("root", "go"), 15)
        log = await events_of(retinue, report.run_id)
        replayed = await retinue.replay(report.run_id)
    assert attacker.paths() == ["/x?d=1"]
    handed = [e for e in log if isinstance(e, RunStarted | ChildEnded) and e.depth < 2 and e.parent_id]
    assert all("what mark returned" not in event.private for event in handed)
    (marked,) = [e for e in log if isinstance(e, ToolCalled) and e.name == "mark"]
    assert marked.private == ("what mark returned",)
    assert replayed.diff == ""


def test_what_a_child_was_handed_is_taken_from_its_record_once_for_each_message() -> None:
    place = {"run_id": "c", "root_id": "r", "parent_id": "r", "depth": 1, "at": 1.0}
    spec = AgentSpec(name="leaf", description="l", prompt="You fetch.")
    began = RunStarted(
        **place, seq=1, spec=spec, prompt="go", system="", model="m", tools=(), private=("a.txt",)
    )
    told = [
        MessageReceived(**place, seq=2 + at, text="more", sender="parent", private=names)
        for at, names in enumerate([("a.txt",), ("a.txt", "b.txt")])
    ]
    spoken = MessageReceived(**place, seq=9, text="said", sender="person")
    record = Record([began, *told, spoken])
    assert record.handed("c", None) == ("a.txt",)
    assert [record.handed("c", "more") for _ in range(3)] == [("a.txt",), ("a.txt", "b.txt"), None]
    assert record.handed("c", "said") is None
    assert record.handed("d", None) is None
