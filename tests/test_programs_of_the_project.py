"""Retinue starts no program by its name alone that a project brings, whatever `PATH` says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from retinue import AgentSpec, Retinue
from retinue.git import git
from retinue.programs import find_program, path_outside
from retinue.testing import ScriptedModel, call

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
WORKER = AgentSpec(
    name="worker", description="w", prompt="PLAY worker", tools=["ls", "glob", "grep", "write", "bash"]
)


def planted(project: Path, place: str, ran: Path) -> None:
    (project / place).mkdir(parents=True)
    for name in ("git", "rg", "bash"):
        program = project / place / name
        program.write_text(f'#!/bin/sh\necho {name} >> {ran}\nexec {shutil.which(name) or "false"} "$@"\n')
        program.chmod(0o755)


@pytest.mark.parametrize("way", ["absolute", "relative", "link"])
async def test_no_tool_starts_a_program_that_the_project_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    project, ran = tmp_path / "project", tmp_path / "ran"
    project.mkdir()
    planted(project, "node_modules/.bin", ran)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (tmp_path / "link").symlink_to(project / "node_modules/.bin")
    on_path = {
        "absolute": f"{project}/node_modules/.bin",
        "relative": "./node_modules/.bin",
        "link": str(tmp_path / "link"),
    }
    monkeypatch.setenv("PATH", f"{on_path[way]}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/none/python")  # beside which an rg may lie
    monkeypatch.chdir(project)
    calls = [
        call("ls", path="."),
        call("glob", pattern="**/*"),
        call("grep", pattern="x", path="."),
        call("write", path="b.py", content="x"),
        call("bash", command="echo x > c"),
    ]
    model = ScriptedModel([*calls, "done"])
    async with Retinue(model=model, agents=[WORKER], cwd=project, db="memory:", yes=True) as retinue:
        report = await retinue.run("worker", "go")
    assert report.status == "completed"
    assert not ran.exists()


def test_git_works_with_the_other_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path / "p", "bin", tmp_path / "ran")
    monkeypatch.setenv("PATH", f"{tmp_path}/p/bin:{os.environ['PATH']}")
    assert git(tmp_path / "p", "--version").stdout.startswith(b"git version")
    assert git(Path("/"), "--version", project=tmp_path / "p").stdout.startswith(b"git version")
    assert not (tmp_path / "ran").exists()


def test_a_program_is_looked_for_outside(tmp_path: Path) -> None:
    for name in ("project/bin", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x").write_text("")
        (tmp_path / name / "x").chmod(0o755)
    (tmp_path / "links").mkdir()
    (tmp_path / "links/x").symlink_to(tmp_path / "project/bin/x")
    path = f"{tmp_path}/project/bin:bin::.:{tmp_path}/links:{tmp_path}/other"
    assert find_program("x", tmp_path / "project", path=path) == f"{tmp_path}/other/x"
    assert find_program("x", tmp_path / "project", path=f"{tmp_path}/project/bin") is None
    assert find_program("x", Path("/"), path=path) == f"{tmp_path}/project/bin/x"
    assert path_outside(tmp_path / "project", path=path) == f"{tmp_path}/links:{tmp_path}/other"
