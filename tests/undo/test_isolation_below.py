"""Copies of copies: what a grandchild made can be merged, also after its parent's work is in the project."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from projects import project
from test_isolation import said

from retinue.app import Retinue
from retinue.cli import main
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import AgentSpec, ModelRequest

BOSS = AgentSpec(
    name="boss",
    description="asks others",
    prompt="You are the boss.",
    tools=("spawn_agent", "merge_child", "read", "write"),
)


def _spawned(name: str, prompt: str, *tools: str) -> object:
    return call("spawn_agent", name=name, prompt=prompt, tools=list(tools), isolation="worktree")


def _merge(request: ModelRequest) -> object:
    if any('agent=\\"middle\\"' in text for text in said(request)):
        waits = any("not merged: what its child deep" in text for text in said(request))
        assert waits != any(
            "changed deep.txt" in text or "created deep.txt" in text for text in said(request)
        )
    (found,) = {
        each for text in said(request) for each in re.findall(r"merge_child\(child_id=\'(c\w+)\'\)", text)
    }
    return call("merge_child", child_id=found)


def _steps(*middle: Any) -> dict[str, list[Any]]:
    """A main agent whose child starts one of its own: both write, each in a copy."""
    return {
        "GRAND": [call("write", path="deep.txt", content="d"), "deep done"],
        "MIDDLE": [_spawned("deep", "GRAND", "write"), *middle, "middle done"],
        "BEGIN": [_spawned("middle", "MIDDLE", "read", "write"), _merge, "done"],
    }


async def _ran(folder: Path, steps: Any) -> tuple[str, dict[str, str]]:
    """The workflow, and the copies that are left, by agent."""
    async with Retinue(
        model=ScriptedModel(steps),
        agents=[BOSS],
        cwd=folder,
        environ={},
        yes=True,
        db=str(folder.parent / "runs.db"),
        settings={"delegation.policy": "nested"},
    ) as retinue:
        report = await retinue.run("boss", "BEGIN")
        assert report.ok, report.error
        return report.run_id, {copy.agent: copy.run_id for copy in retinue.services.worktrees.all()}


@pytest.mark.parametrize("with_git", [True, False])
def test_work_of_a_grandchild_waits_in_its_copy_is_named_and_can_be_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], with_git: bool
) -> None:
    folder = project(tmp_path / "p", git=with_git)
    steps = _steps(call("write", path="middle.txt", content="m"))
    root, left = asyncio.run(_ran(folder, steps))
    assert (folder / "middle.txt").read_text() == "m"
    deep, middle, db = left["deep"], left["middle"], ["--db", str(tmp_path / "runs.db")]
    for shown in (root, middle):
        assert main(["runs", "show", shown, *db]) == 0
        told = " ".join(capsys.readouterr().err.split())
        assert "! not in the project: 1 file of deep (" in told
        assert re.search(rf"retinue runs merge {deep}( --db \S+)?, then {middle}", told)
    assert main(["runs", "merge", middle, "--discard", "--yes", *db]) == 2
    assert main(["runs", "merge", deep, "--yes", *db]) == 0
    assert not (folder / "deep.txt").exists()
    assert main(["runs", "merge", middle, "--yes", *db]) == 0
    assert (folder / "deep.txt").read_text() == "d"
    capsys.readouterr()
    assert main(["runs", "worktrees", *db]) == 0
    assert capsys.readouterr().out == ""


def test_a_copy_that_only_waited_for_one_of_it_goes_when_that_is_thrown_away(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    _, left = asyncio.run(_ran(folder, _steps(call("write", path="middle.txt", content="m"))))
    db = ["--db", str(tmp_path / "runs.db")]
    assert main(["runs", "merge", left["deep"], "--discard", "--yes", *db]) == 0
    assert not list((tmp_path / "runs.db-worktrees").glob("*.json"))


@pytest.mark.parametrize("named", [True, False])
def test_a_child_that_its_parent_made_up_merges_the_work_of_its_own(tmp_path: Path, named: bool) -> None:
    folder = project(tmp_path / "p")
    steps = _steps(_merge)
    if named:
        steps["BEGIN"][0] = _spawned("middle", "MIDDLE", "read", "write", "merge_child")
    _, left = asyncio.run(_ran(folder, steps))
    assert (folder / "deep.txt").read_text() == "d"
    assert left == {}
