"""How copies of a project are made: what is in them, how they are called, and who is shown them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from projects import bash, project
from test_isolation import CODER, KILLED, git, opened
from test_isolation_kept import asked, returned

from retinue.app import Retinue
from retinue.cli import main
from retinue.errors import ToolError
from retinue.shadow import WORKTREE
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import ModelRequest

PATHS = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]


async def test_the_main_agent_is_shown_how_to_merge_what_an_isolated_agent_did(tmp_path: Path) -> None:
    folder, shown = project(tmp_path / "p"), list[str]()

    def look(request: ModelRequest) -> str:
        shown.extend(tool.name for tool in request.tools)
        return "done"

    async with Retinue(
        model=ScriptedModel([look]), agents=[CODER], cwd=folder, environ={}, db=str(tmp_path / "runs.db")
    ) as retinue:
        await retinue.run("general", "go")
    assert {"coder", "merge_child"} <= set(shown)


@pytest.mark.parametrize("url", ["{}/runs.db", "sqlite:///{}/runs.db"])
async def test_a_database_in_the_project_is_in_no_copy_and_on_no_branch(tmp_path: Path, url: str) -> None:
    folder = project(tmp_path / "p")
    steps = {
        "FIRST": [bash("echo a > a.txt"), "did it"],
        "SECOND": [bash("echo b > b.txt"), "did it"],
        "PLAY boss": [call("coder", "x1", prompt="FIRST"), call("coder", "x2", prompt="SECOND"), "done"],
    }
    async with opened(folder, steps, db=url.format(folder)) as retinue:
        await retinue.run("boss", "go")
        copies = retinue.services.worktrees
        assert len(copies.all()) == 2
        for copy in copies.all():
            there = copies.path(copy.run_id)
            assert [path.name for path in there.glob("runs.db*")] == []
            assert "runs.db" not in git(folder, "ls-tree", "-r", "--name-only", copy.branch)
            assert len(copies.plan(copy, retinue.settings.undo).going) == 1


async def test_names_with_quotes_and_lines_are_on_the_branch(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / '"quoted').write_text("1")
    async with opened(
        folder, asked(bash("printf 2 > '\"new\"'; printf 3 > \"$(printf 'a\\nb')\""))
    ) as retinue:
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
    assert git(folder, "show", f'{copy.branch}:"quoted') == "1"
    assert git(folder, "show", f'{copy.branch}:"new"') == "2"
    assert git(folder, "show", f"{copy.branch}:a\nb") == "3"


async def test_a_branch_of_the_person_called_as_ours_are_hinders_nobody(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    git(folder, "branch", "retinue")
    async with opened(folder, asked(bash("echo hi > new.txt"))) as retinue:
        report = await retinue.run("boss", "go")
        (said,) = await returned(retinue, report.run_id, "coder")
        assert not said.is_error
        (copy,) = retinue.services.worktrees.all()
    assert git(folder, "show", f"{copy.branch}:new.txt") == "hi\n"


async def test_of_a_copy_that_could_not_be_made_nothing_is_left(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, asked()) as retinue:
        copies, undo = retinue.services.worktrees, retinue.settings.undo
        await asyncio.to_thread(copies.path("c1").parent.mkdir, parents=True)
        (copies.path("c1").parent / ".c1.json").mkdir()  # where it would be written down
        with pytest.raises(ToolError, match="not started"):
            copies.make("c1", "r1", "coder", folder, undo, ignored=False)
        source = retinue.services.shadows.of(folder, undo)
        assert source is not None
        assert source.at("c1", WORKTREE) is None
        assert not copies.path("c1").exists()
    assert git(folder, "branch", "--list", "retinue*") == ""
    assert len(git(folder, "worktree", "list").splitlines()) == 1


class Noting:
    """A lock that notes who held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.held: list[threading.Thread] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self.held.append(threading.current_thread())

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def test_the_copy_of_a_main_agent_is_made_beside_the_event_loop(tmp_path: Path) -> None:
    folder, noting = project(tmp_path / "p"), Noting()
    async with opened(folder, {"You write code": [bash("echo hi > new.txt"), "did it"]}) as retinue:
        retinue.services.worktrees.alone = noting  # pyright: ignore[reportAttributeAccessIssue] # as a lock is
        await retinue.run("coder", "go")
        assert len(retinue.services.worktrees.all()) == 1
    assert noting.held
    assert threading.main_thread() not in noting.held


async def test_a_missing_copy_of_a_child_that_is_taken_up_is_made_beside_the_event_loop(
    tmp_path: Path,
) -> None:
    folder, noting, run_id = project(tmp_path / "p"), Noting(), "r1m7h4cccccccccccc"
    code = KILLED.format(paths=PATHS, folder=str(folder), run_id=run_id)
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert killed.returncode == -9
    for each in (tmp_path / "runs.db-worktrees").iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    steps = {"TASK": [bash("echo anew > new.txt"), "did it"], "PLAY boss": ["done"]}
    async with opened(folder, steps) as retinue:
        retinue.services.worktrees.alone = noting  # pyright: ignore[reportAttributeAccessIssue] # as a lock is
        await retinue.resume(run_id, yes=True)
        await retinue.wait(run_id)
        (copy,) = retinue.services.worktrees.all()
        assert (retinue.services.worktrees.path(copy.run_id) / "new.txt").read_text() == "anew\n"
    assert noting.held
    assert threading.main_thread() not in noting.held


async def _left_behind(folder: Path) -> str:
    async with opened(folder, asked(bash("echo hi > new.txt"))) as retinue:
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        return copy.run_id


def test_the_copies_of_a_deleted_workflow_are_named_and_can_be_thrown_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    child, db = asyncio.run(_left_behind(project(tmp_path / "p"))), str(tmp_path / "runs.db")
    assert main(["runs", "delete", "last", "--force", "--db", db]) == 0
    assert child in capsys.readouterr().err
    assert main(["runs", "merge", child, "--discard", "--yes", "--db", db]) == 0
    assert not (tmp_path / "runs.db-worktrees" / child).exists()
