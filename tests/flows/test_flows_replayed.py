"""What may have been read when something was handed on, judged or begun is in a replay what it was then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attacking import Attacker, events_of, results, retinue_in

from retinue import AgentSpec, tool
from retinue.engine.answers import Answer
from retinue.engine.record import Record
from retinue.events import ChildEnded, Event, MessageReceived, RunStarted, StepStarted, ToolCalled
from retinue.store.memory import MemoryStore
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


@pytest.mark.parametrize("what", ["an address", "a file of secrets"])
async def test_who_takes_a_run_up_without_approving_all_is_replayed_without_it(
    project: Path, attacker: Attacker, what: str
) -> None:
    (project / ".env").write_text("KEY=abcdef123456")
    second = {
        "an address": ("web_fetch", "url", f"{attacker.url}/x?d=1"),
        "a file of secrets": ("read", "path", ".env"),
    }
    name, argument, value = second[what]
    steps = [call("read", "c1", path="notes.md"), call(name, "c2", **{argument: value}), "done"]
    root = AgentSpec(name="root", description="r", prompt="You work.", tools=("read", "web_fetch"))
    async with retinue_in(project, attacker, steps, agents=[root]) as retinue:
        begun = await retinue.run("root", "go", yes=True)
        log = await events_of(retinue, begun.run_id)
    cut = next(at for at, e in enumerate(log) if isinstance(e, StepStarted) and e.step == 2)
    store = MemoryStore()
    await store.append([event for event in log[:cut] if isinstance(event, Event)])
    async with retinue_in(
        project, attacker, steps[1:], db=store, agents=[root], answering="refuse"
    ) as retinue:
        await retinue.resume(begun.run_id, yes=False, take_over=True)
        await asyncio.wait_for(retinue.wait(begun.run_id), 15)
        refused = results(await events_of(retinue, begun.run_id))[-1]
        replayed = await retinue.replay(begun.run_id)
    assert refused.not_run == "unattended"
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
