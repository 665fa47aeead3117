"""An agent may say how a workflow that begins with it delegates; settings and flags win over that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue import AgentSpec, Retinue
from retinue.agents.document import parse
from retinue.agents.fields import asked_for
from retinue.agents.loader import read_agent
from retinue.testing import ScriptedModel
from retinue.testing.script import call

SEVEN = AgentSpec(
    name="seven",
    description="x",
    prompt="x",
    tools=("parallel_tasks", "one"),
    policy="flat",
    children=7,
)
ONE = AgentSpec(name="one", description="x", prompt="x", tools=())


def batch(count: int) -> Any:
    tasks = [{"agent_id": "one", "prompt": f"part {n}"} for n in range(count)]
    return call("parallel_tasks", tasks=tasks)


async def started(tmp_path: Path, count: int, settings: dict[str, Any]) -> int:
    """How many children a root `seven` has that asks for so many."""

    def say(request: Any) -> Any:
        root = any(tool.name == "parallel_tasks" for tool in request.tools)
        return batch(count) if root and len(request.messages) == 1 else "done"

    async with Retinue(
        model=ScriptedModel(say), db="memory:", cwd=tmp_path, environ={}, agents=[SEVEN, ONE]
    ) as retinue:
        run_id = await retinue.start("seven", "go", settings=settings)
        await retinue.wait(run_id)
        return len(await retinue.store.tree(run_id)) - 1


async def test_an_agent_that_declares_seven_children_may_start_seven(tmp_path: Path) -> None:
    assert await started(tmp_path, 7, {}) == 7


async def test_one_more_than_it_declares_is_refused_as_ever(tmp_path: Path) -> None:
    assert await started(tmp_path, 8, {}) == 0


async def test_what_a_person_sets_for_the_run_wins_over_what_the_agent_declares(tmp_path: Path) -> None:
    assert await started(tmp_path, 7, {"delegation.max_children": 2}) == 0
    assert await started(tmp_path, 2, {"delegation.max_children": 2}) == 2


FILE = "---\nname: many\ndescription: x\npolicy: nested\nchildren: 500\n---\nYou are many.\n"


def test_a_file_of_a_repository_cannot_choose_how_many_children_there_are(tmp_path: Path) -> None:
    path = tmp_path / "many.md"
    path.write_text(FILE)
    read, _, findings = read_agent(path, scope="project")
    assert read is not None
    assert (read.spec.policy, read.spec.children) == ("", None)
    assert sum("a repository may not choose" in finding.message for finding in findings) == 2


def test_a_file_of_the_person_may(tmp_path: Path) -> None:
    path = tmp_path / "many.md"
    path.write_text(FILE)
    mine, _, _ = read_agent(path, scope="user")
    assert mine is not None
    assert (mine.spec.policy, mine.spec.children) == ("nested", 500)


def test_what_a_file_asks_for_in_children_is_part_of_what_is_trusted() -> None:
    fewer = FILE.replace("500", "5")
    assert asked_for(parse(FILE, "many.md"), FILE) != asked_for(parse(fewer, "many.md"), fewer)
