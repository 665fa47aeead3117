"""What a delegation gives a child besides its task: a copy of the project, skills of its parent; never more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, Retinue
from retinue.events import ApprovalRequested, RunStarted, ToolReturned
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest
from skill_shapes import put, said

ALL = ["agents", "spawn_agent", "parallel_tasks", "subagent", "delegate_task", "background"]
WRITER = AgentSpec(
    name="writer", description="writes", prompt="You write.", tools=("read", "write"), origin="spawn"
)
WRITES = [call("write", path="new.txt", content="by the child\n"), "written"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)\n")
    put(folder / ".agents/skills/forms", said("forms"), "WORD-forms")
    put(folder / ".agents/skills/other", said("other"), "WORD-other")
    return folder


def opened(project: Path, steps: Any, **options: Any) -> Retinue:
    options.setdefault("settings", {})
    options["settings"] |= {"delegation.tools": ALL}
    given = {"db": str(project.parent / "runs.db"), "cwd": project, "environ": {}, "yes": True}
    return Retinue(model=ScriptedModel(steps), agents=[WRITER], **given | options)


async def returned(retinue: Retinue, run_id: str) -> list[ToolReturned]:
    return [e for e in await retinue.store.events(run_id) if isinstance(e, ToolReturned) and not e.depth]


def offered(request: ModelRequest) -> list[str]:
    return next((t.schema["properties"]["name"]["enum"] for t in request.tools if t.name == "skill"), [])


@pytest.mark.parametrize(
    ("way", "arguments"),
    [
        ("spawn_agent", {"name": "maker", "prompt": "TASK", "tools": ["write"]}),
        ("subagent", {"label": "make", "task_prompt": "TASK"}),
        ("delegate_task", {"agent_id": "writer", "prompt": "TASK"}),
        ("background", {"operation": "start", "agent_id": "writer", "prompt": "TASK"}),
        ("parallel_tasks", {"tasks": [{"agent_id": "writer", "prompt": "TASK", "isolation": "worktree"}]}),
    ],
)
async def test_a_child_is_given_a_copy_by_every_way_to_delegate_and_its_parent_merges_it(
    project: Path, way: str, arguments: dict[str, Any]
) -> None:
    if way != "parallel_tasks":
        arguments = {**arguments, "isolation": "worktree"}
    before: list[bool] = []

    def merge(request: ModelRequest) -> Any:
        before.append((project / "new.txt").exists())
        copies = retinue.services.worktrees.all()
        assert "merge_child" in [tool.name for tool in request.tools]
        return call("merge_child", child_id=copies[0].run_id)

    waiting = [lambda request: call("parallel_tasks", operation="wait")] if way == "background" else []
    steps = {"TASK": [*WRITES, "in short: written"], "": [call(way, **arguments), *waiting, merge, "done"]}
    async with opened(project, steps) as retinue:
        report = await retinue.run("general", "go")
        merged = (await returned(retinue, report.run_id))[-1]
        assert (merged.name, merged.is_error) == ("merge_child", False), merged.text
        assert before == [False], "nothing of it was in the project before"
        assert (project / "new.txt").read_text() == "by the child\n"
        assert not (await retinue.changes.undo(report.run_id)).refused
    assert not (project / "new.txt").exists()


@pytest.mark.parametrize(
    ("way", "arguments"),
    [
        ("spawn_agent", {"name": "maker", "prompt": "TASK"}),
        ("subagent", {"label": "make", "task_prompt": "TASK"}),
        ("delegate_task", {"agent_id": "planner", "prompt": "TASK"}),
        ("background", {"operation": "start", "agent_id": "planner", "prompt": "TASK"}),
    ],
)
async def test_a_copy_is_refused_where_there_is_no_project_before_anybody_is_asked(
    way: str, arguments: dict[str, Any]
) -> None:
    asked: list[str] = []

    async def approve(question: ApprovalRequested) -> Answer:
        asked.append(question.tool)
        return Answer(decision="approve")

    model = ScriptedModel({"": [call(way, **arguments, isolation="worktree"), "done"], "TASK": ["never"]})
    async with Retinue(
        model=model,
        db="memory:",
        environ={},
        approve=approve,
        project=False,
        settings={"delegation.policy": "nested", "delegation.tools": [way], "approvals.ask": [way]},
    ) as retinue:
        report = await retinue.run("general", "go")
        ended = await returned(retinue, report.run_id)
        begun = [e for e in await retinue.store.events(report.run_id) if isinstance(e, RunStarted)]
    assert [(e.name, e.is_error) for e in ended] == [(way, True)]
    assert "no project here to copy" in ended[0].text
    assert len(begun) == 1, "nothing was started"
    assert asked == []


@pytest.mark.parametrize("way", ["spawn_agent", "subagent"])
async def test_a_made_up_child_reads_those_skills_of_its_parent_that_it_is_given_and_no_other(
    project: Path, way: str
) -> None:
    seen: list[list[str]] = []

    def look(request: ModelRequest) -> Any:
        seen.append(offered(request))
        return call("skill", name="forms")

    task = {
        "spawn_agent": {"name": "maker", "prompt": "TASK", "tools": ["read"]},
        "subagent": {"label": "make", "task_prompt": "TASK", "allowed_tools": ["read"]},
    }[way]
    steps = {"TASK": [look, "read", "in short"], "": [call(way, **task, skills=["forms"]), "done"]}
    async with opened(project, steps) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
    assert seen == [["forms"]]
    read = next(e for e in events if isinstance(e, ToolReturned) and e.name == "skill")
    assert "WORD-forms" in read.text


async def test_without_a_word_of_skills_a_made_up_child_is_offered_none(project: Path) -> None:
    seen: list[list[str]] = []

    def look(request: ModelRequest) -> Any:
        seen.append(offered(request))
        return "done"

    steps = {"TASK": [look], "": [call("spawn_agent", name="maker", prompt="TASK"), "done"]}
    async with opened(project, steps) as retinue:
        await retinue.run("general", "go")
    assert seen == [[]]


@pytest.mark.parametrize("wanted", ["other", "*", "../../../etc", "./.agents/skills/other"])
async def test_a_skill_that_the_parent_is_not_offered_is_not_handed_on(project: Path, wanted: str) -> None:
    boss = AgentSpec(
        name="boss",
        description="asks",
        prompt="You ask.",
        tools=("spawn_agent", "read", "skill"),
        skills=("forms",),
    )
    calls = [call("spawn_agent", name="maker", prompt="TASK", skills=[wanted])]
    async with opened(project, {"TASK": ["never"], "": [*calls, "done"]}) as retinue:
        report = await retinue.run(boss, "go")
        ended = await returned(retinue, report.run_id)
        begun = [e for e in await retinue.store.events(report.run_id) if isinstance(e, RunStarted)]
    assert [(e.name, e.is_error) for e in ended] == [("spawn_agent", True)]
    assert "forms" in ended[0].text, "it is told which it has"
    assert len(begun) == 1


async def test_a_grandchild_has_at_most_the_skills_of_its_parent_and_a_resumed_child_has_its_own(
    project: Path,
) -> None:
    seen: dict[str, list[str]] = {}

    def look(name: str, *then: Any) -> Any:
        def play(request: ModelRequest) -> Any:
            seen[name] = offered(request)
            return then[0] if then else "done"

        return play

    below = call("spawn_agent", name="low", prompt="LOWEST", skills=["other"])
    middle = [look("middle", below), "middle done", look("again")]
    steps = {
        "LOWEST": ["never"],
        "TASK": middle,
        "": [call("spawn_agent", name="mid", prompt="TASK", skills=["forms"]), "done", "told"],
    }
    async with opened(project, steps, settings={"delegation.policy": "nested"}) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
        refused = next(e for e in events if isinstance(e, ToolReturned) and e.depth == 1)
        assert (refused.name, refused.is_error) == ("spawn_agent", True)
        child = json.loads((await returned(retinue, report.run_id))[0].text)["child_id"]
        await retinue.resume(child, message="and now?")
        await retinue.wait(report.run_id)
    assert seen == {"middle": ["forms"], "again": ["forms"]}


@pytest.mark.parametrize("extra", [{"isolation": "worktree"}, {"skills": ["forms"]}])
async def test_a_child_that_is_asked_again_keeps_its_own_place_and_skills(
    project: Path, extra: dict[str, Any]
) -> None:
    def again(request: ModelRequest) -> Any:
        child = json.loads(request.messages[-1].text)["child_id"]
        return call("spawn_agent", operation="continue", child_id=child, prompt="more", **extra)

    first = call("spawn_agent", name="maker", prompt="TASK")
    async with opened(project, {"TASK": ["one", "two"], "": [first, again, "done"]}) as retinue:
        report = await retinue.run("general", "go")
        ended = await returned(retinue, report.run_id)
    assert [e.is_error for e in ended] == [False, True]
