"""A tree whose children wrote in copies replays: what was merged, and what was said of copies that are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from projects import project
from test_isolation import BOSS, CODER, children, opened

from retinue import Answer, Retinue
from retinue.events import ApprovalRequested
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import ModelRequest

WRITES = [call("write", path="new.txt", content="n\n"), "did it"]


def merge(request: ModelRequest) -> Any:
    return call("merge_child", child_id=children(request)[0])


def meddles(folder: Path) -> Any:
    def step(request: ModelRequest) -> Any:
        (folder / "new.txt").write_text("theirs\n")
        return merge(request)

    return step


async def yes(question: ApprovalRequested) -> Answer:
    return Answer(decision="approve")


@pytest.mark.parametrize("way", ["unasked", "asked"])
@pytest.mark.parametrize("what", ["merged", "twice", "conflict", "nobody's", "secret"])
async def test_a_merge_replays_after_its_copy_is_gone(tmp_path: Path, way: str, what: str) -> None:
    folder = project(tmp_path / "p")
    coder = [call("write", path=".env", content="KEY=1\n"), "did it"] if what == "secret" else WRITES
    boss: dict[str, list[Any]] = {
        "merged": [merge, "done"],
        "secret": [merge, "done"],
        "twice": [merge, merge, "done"],
        "conflict": [
            meddles(folder),
            lambda request: call("merge_child", child_id=children(request)[0], rest=True),
            "done",
        ],
        "nobody's": [call("merge_child", child_id="cnobody"), "done"],
    }
    steps = {"TASK": coder, "PLAY boss": [call("coder", prompt="TASK"), *boss[what]]}
    options: dict[str, Any] = {"approve": yes}
    if way == "unasked":
        options["settings"] = {"approvals.allow": ["write", "edit", "merge_child"]}
    async with opened(folder, steps, yes=False, **options) as retinue:
        report = await retinue.run("boss", "go")
        assert (await retinue.replay(report.run_id)).diff == ""


async def test_a_tree_replays_after_a_person_has_merged(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    steps = {"TASK": WRITES, "PLAY boss": [call("coder", prompt="TASK"), "done"]}
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        await retinue.changes.merge(copy.run_id, retinue.services.worktrees)
        assert (folder / "new.txt").exists()
        assert (await retinue.replay(report.run_id)).diff == ""


@pytest.mark.parametrize(("merges", "files"), [(True, ("new.txt",)), (False, ())])
async def test_a_report_names_what_children_wrote_in_the_project_and_not_what_waits_in_a_copy(
    tmp_path: Path, merges: bool, files: tuple[str, ...]
) -> None:
    folder = project(tmp_path / "p")
    steps = {
        "TASK": WRITES,
        "PLAY boss": [call("coder", prompt="TASK"), *([merge] if merges else []), "done"],
    }
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        assert report.files == files
        assert (await retinue.replay(report.run_id)).diff == ""


async def test_a_report_names_what_a_child_wrote_that_works_where_its_parent_does(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    clerk = msgspec.structs.replace(CODER, name="clerk", prompt="PLAY clerk", isolation="")
    boss = msgspec.structs.replace(BOSS, tools=("clerk", "read", "write", "edit", "bash"))
    model = ScriptedModel({"PLAY clerk": WRITES, "PLAY boss": [call("clerk", prompt="TASK"), "done"]})
    async with Retinue(model=model, agents=[clerk, boss], cwd=folder, environ={}, yes=True) as retinue:
        report = await retinue.run("boss", "go")
        assert report.files == ("new.txt",)


@pytest.mark.parametrize("way", ["write", "bash", "typed"])
async def test_the_files_of_a_report_are_those_that_its_text_names_of_the_copy_it_worked_in(
    tmp_path: Path, way: str
) -> None:
    folder = project(tmp_path / "p")
    by_command = [call("bash", command="echo n > new.txt"), "{}"]
    steps = WRITES if way == "write" else by_command
    options: dict[str, Any] = {"output": {"type": "object"}} if way == "typed" else {}
    async with opened(folder, {"TASK": steps}) as retinue:
        report = await retinue.run("coder", "TASK", **options)
        assert ("created new.txt" in report.text) == (way != "typed")
        assert report.files == ("new.txt",)
        assert (await retinue.replay(report.run_id)).diff == ""


async def test_a_root_that_worked_in_a_copy_is_not_told_to_merge_itself(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, {"TASK": WRITES}) as retinue:
        report = await retinue.run("coder", "TASK")
    assert f"'retinue runs merge {report.run_id}' merges it" in report.text
    assert "merge_child" not in report.text
