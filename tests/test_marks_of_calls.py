"""A call that started children is marked by the worst of them, and a report by its outcome, in every face."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import AgentSpec, Retinue
from retinue.errors import ModelError
from retinue.events import RunFinished, ToolCalled, ToolReturned
from retinue.server.transcript import parts
from retinue.story import Story
from retinue.testing import ScriptedModel, call
from retinue.testing.scripted import Step
from retinue.tools.base import tool
from retinue.types import ModelRequest, ToolMessage
from retinue.view.answer import summary
from retinue.view.page import page
from retinue.view.paint import plain
from retinue.view.picture import MARKS
from retinue.view.transcript import Transcript
from trees import Stage, agent, never, results, turn


@tool(effect="execute")
async def act(what: str) -> str:
    """Do it."""
    return f"did {what}"


@tool(effect="read")
async def look(what: str) -> str:
    """Look at it."""
    return f"saw {what}"


PARTS: dict[str, Any] = {
    "fine": ["fine"],
    "broken": [ModelError("bad thing", kind="invalid")],
    "endless": [[("look", {"what": str(n)})] for n in range(9)],
    "doer": [[("act", {"what": "x"})], "done"],
}


def batch(*names: str, **more: Any) -> tuple[str, dict[str, Any]]:
    tasks = [{"agent_id": name, "prompt": "x"} for name in names]
    return ("parallel_tasks", {"operation": "execute_batch", "tasks": tasks, **more})


CASES: list[tuple[tuple[str, dict[str, Any]], str, str]] = [
    (("fine", {"prompt": "x"}), "completed", "completed"),
    (("broken", {"prompt": "x"}), "error", "incomplete"),
    (("endless", {"prompt": "x"}), "incomplete", "incomplete"),
    (("doer", {"prompt": "x"}), "refused", "refused"),
    (("delegate_task", {"operation": "delegate", "agent_id": "doer", "prompt": "x"}), "refused", "refused"),
    (batch("fine", "fine"), "completed", "completed"),
    (batch("fine", "broken"), "error", "incomplete"),
    (batch("endless", "fine"), "incomplete", "incomplete"),
    (batch("doer", "endless"), "refused", "refused"),
    (batch("fine", "nobody"), "incomplete", "incomplete"),
    (batch("fine", "nobody", wait_all=False), "incomplete", "incomplete"),
    (("background", {"operation": "start", "agent_id": "broken", "prompt": "x"}), "completed", "incomplete"),
]


@pytest.mark.parametrize(("asked", "outcome", "whole"), CASES, ids=lambda value: str(value)[:60])
async def test_the_mark_of_a_call_is_that_of_the_worst_of_its_children(
    asked: tuple[str, dict[str, Any]], outcome: str, whole: str
) -> None:
    stage = Stage(
        {"root": [[asked], "done", "done"], **PARTS},
        agents=[agent(name, **({"max_turns": 2} if name == "endless" else {})) for name in PARTS],
        tools=[act, look],
        delegation__tools=["agents", "delegate_task", "parallel_tasks", "background"],
    )
    report = await stage.run()
    assert report.outcome == whole
    log = await stage.log()
    mine = [event for event in log if event.run_id == stage.root_id]
    story = Story()
    for event in log:
        story.apply(event)
    returned = next(event for event in mine if isinstance(event, ToolReturned))
    node = story.nodes[stage.root_id]
    assert node.outcome_of(returned) == outcome
    mark = MARKS[outcome][0]  # pyright: ignore[reportArgumentType]
    lines = [plain(line) for line in Transcript(width=200, tree=story).of(mine)]
    assert [line for line in lines if line.startswith(f"{mark} {asked[0]}  ")], lines
    assert [line for line in lines if line.startswith(f"── report: {whole}")], lines
    html = page(log)
    assert f"<summary>{mark} {asked[0]} · " in html
    assert re.search(rf"<h4>report: {whole}</h4>", html)
    found = await parts(mine, story)
    result = next(part for part in found if part.kind == "result")
    assert (result.outcome, result.is_error) == (outcome, outcome not in ("completed", "incomplete"))
    last = next(part for part in found if part.kind == "report")
    assert (last.outcome, last.status) == (whole, "completed")
    assert isinstance(mine[-1], RunFinished)


@pytest.mark.parametrize(
    ("begun", "asked", "outcome"),
    [
        (batch("fine", "broken", wait_all=False), ("parallel_tasks", {"operation": "wait"}), "error"),
        (batch("fine", "doer", wait_all=False), ("parallel_tasks", {"operation": "wait"}), "refused"),
        (batch("fine", "endless", wait_all=False), ("parallel_tasks", {"operation": "wait"}), "incomplete"),
        (batch("fine", "fine", wait_all=False), ("parallel_tasks", {"operation": "wait"}), "completed"),
        (
            ("background", {"operation": "start", "agent_id": "doer", "prompt": "x"}),
            ("background", {"operation": "wait"}),
            "refused",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_the_mark_of_a_wait_is_that_of_the_worst_it_waited_for(
    begun: tuple[str, dict[str, Any]], asked: tuple[str, dict[str, Any]], outcome: str
) -> None:
    def root(request: ModelRequest) -> Any:
        if (now := turn(request)) != 1:
            return [begun] if now == 0 else "done"
        said = next(m.text for m in request.messages if isinstance(m, ToolMessage))
        children: list[str] = re.findall(r'"child_id": ?"(\w+)"', said)
        named = {"child_id": children[0]} if asked[0] == "background" else {"child_ids": children}
        return [(asked[0], {**asked[1], **named})]

    stage = Stage(
        {"root": root, **PARTS},
        agents=[agent(name, **({"max_turns": 2} if name == "endless" else {})) for name in PARTS],
        tools=[act, look],
        delegation__tools=["agents", "parallel_tasks", "background"],
    )
    await stage.run()
    log = await stage.log()
    story = Story()
    for event in log:
        story.apply(event)
    first, waited = (e for e in log if isinstance(e, ToolReturned) and e.run_id == stage.root_id)
    node = story.nodes[stage.root_id]
    assert (node.outcome_of(first), node.outcome_of(waited)) == ("completed", outcome)
    html = page(log)
    assert f"<summary>{MARKS[outcome][0]} {asked[0]} · " in html  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [({}, "refused"), ({"approvals__deny": ["act"]}, "error")],
    ids=["asked", "denied"],
)
async def test_a_call_that_did_not_run_is_not_said_to_have_failed(
    settings: dict[str, Any], outcome: str
) -> None:
    stage = Stage({"root": [[("act", {"what": "x"})], "done"]}, tools=[act], **settings)
    await stage.run()
    log = await stage.log()
    story = Story()
    for event in log:
        story.apply(event)
    returned = next(event for event in log if isinstance(event, ToolReturned))
    assert story.nodes[stage.root_id].outcome_of(returned) == outcome
    lines = [plain(line) for line in Transcript(width=200, tree=story).of(log)]
    mark = MARKS[outcome][0]  # pyright: ignore[reportArgumentType]
    assert f"{mark} act  what=x  did not run" in lines, lines


async def test_a_call_that_was_cut_off_is_not_said_not_to_have_run() -> None:
    """By a process that died: what it did by then nobody knows, but that it began is known."""
    parts: dict[str, Any] = {"root": [[("act", {"what": "x"})], "done"]}
    before = Stage(parts, tools=[act], yes=True)
    await before.run()
    log = await before.log()
    begun = next(at for at, event in enumerate(log) if isinstance(event, ToolCalled))
    after = Stage(parts, tools=[act], yes=True, root_id=before.root_id)
    await after.store.append([msgspec.structs.replace(event, pos=0) for event in log[: begun + 1]])
    report = await (await after.resume())
    story = Story()
    for event in await after.log():
        story.apply(event)
    lines = [plain(line) for line in Transcript(width=200, tree=story).of(await after.log())]
    assert "✗ act  what=x  was cut off, and may have run in part" in lines, lines
    assert not [line for line in lines if "did not run" in line]
    (told,) = results(after.model.of("root")[-1])
    assert told.text.startswith("outcome unknown: the process stopped while this call was running")
    assert report.outcome == "completed", "its model was told, and answers for what it made of that"
    below = " ".join(plain(line) for line in summary(report, story))
    assert "! act (what=x) was cut off while it ran: what it did is not known" in below
    parts["root"].append("nothing")
    next_turn = await (await Stage(parts, store=after.store, root_id=after.root_id).resume("and now?"))
    story = Story()
    for event in await after.log():
        story.apply(event)
    assert "was cut off" not in " ".join(plain(line) for line in summary(next_turn, story))


async def test_a_call_that_a_cancel_cut_off_is_said_to_be_cut_off_by_a_cancel() -> None:
    """Also below the run that was cancelled: its own log has no cancel, and it ended all the same."""
    begun = asyncio.Event()

    @tool(name="act", effect="execute")
    async def endless(what: str) -> str:
        """Do it."""
        begun.set()
        return str(await never())

    parts: dict[str, Any] = {"root": [[("doer", {"prompt": "x"})], "done"], "doer": PARTS["doer"]}
    before = Stage(parts, agents=[agent("doer")], tools=[endless], yes=True)
    task = await before.start()
    await begun.wait()
    before.workflow.cancel(before.root_id, "enough")
    assert (await task).outcome == "cancelled"
    after = Stage(
        parts, agents=[agent("doer")], tools=[act], yes=True, store=before.store, root_id=before.root_id
    )
    await (await after.resume())
    (told,) = results(after.model.of("doer")[-1])
    assert told.text.startswith("outcome unknown: the run was cancelled while this call was running")


async def test_a_log_of_one_run_alone_is_marked_as_the_whole_workflow_is() -> None:
    """Of a very large workflow only the log of the run itself is read."""
    stage = Stage(
        {"root": [[batch("doer", "fine")], "done"], **PARTS},
        agents=[agent(name) for name in PARTS],
        tools=[act, look],
        delegation__tools=["parallel_tasks"],
    )
    await stage.run()
    mine = [event for event in await stage.log() if event.run_id == stage.root_id]
    story = Story()
    for event in mine:
        story.apply(event)
    lines = [plain(line) for line in Transcript(width=200, tree=story).of(mine)]
    assert [line for line in lines if line.startswith("! parallel_tasks")], lines
    assert [line for line in lines if line.startswith("← ! doer refused")], lines


async def test_the_end_names_the_run_whose_log_tells_of_a_denied_call(tmp_path: Path) -> None:
    team = [
        AgentSpec(name="boss", description="b", prompt="You are boss.", tools=("mid", "leaf", "read")),
        AgentSpec(name="mid", description="m", prompt="You are mid.", tools=("leaf", "read")),
        AgentSpec(name="leaf", description="l", prompt="You are leaf.", tools=("read",)),
    ]
    model = ScriptedModel(
        {
            "You are boss": [call("mid", prompt="go"), "done"],
            "You are mid": [call("leaf", prompt="go"), "done"],
            "You are leaf": [call("read", path="a.txt"), "done"],
        }
    )
    rules: dict[str, Any] = {"approvals.deny": ["read"], "delegation.policy": "nested"}
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=team, settings=rules) as retinue:
        report = await retinue.run("boss", "go")
        story = Story()
        for event in await retinue.store.events(report.run_id):
            story.apply(event)
    (leaf,) = [node for node in story.nodes.values() if node.agent == "leaf"]
    lines = "\n".join("".join(text for text, _ in line) for line in summary(report, story))
    assert f"1 call denied by a rule; which one says: retinue runs show {leaf.run_id}" in " ".join(
        lines.split()
    )


async def test_the_mark_of_code_is_that_of_the_worst_child_it_asked() -> None:
    team = [
        AgentSpec(name="coder", description="c", prompt="You are coder.", tools=("run_code", "leaf")),
        AgentSpec(name="leaf", description="l", prompt="You are leaf.", tools=(), max_turns=1),
    ]
    code = "found = await leaf(prompt='go')\nprint(found.text)"
    model = ScriptedModel(
        {
            "You are coder": [call("run_code", code=code), "done"],
            "You are leaf": [Step(text="half of the", stop="length")],
        }
    )
    async with Retinue(model=model, db="memory:", project=False, agents=team, yes=True) as retinue:
        report = await retinue.run("coder", "go")
        events = await retinue.store.events(report.run_id)
    (ran,) = [e for e in events if isinstance(e, ToolReturned) and e.name == "run_code"]
    assert (ran.outcome, report.outcome) == ("incomplete", "incomplete")
