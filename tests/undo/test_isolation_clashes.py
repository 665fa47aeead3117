"""A folder on one side and a file or a link on the other: a merge sees it beforehand, whole or nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from projects import bash, project, tree
from test_isolation import opened
from test_isolation_kept import asked

from retinue.cli import main


async def _left_behind(folder: Path, command: str) -> str:
    """A child has worked and nobody merged it: its id."""
    async with opened(folder, asked(bash(command))) as retinue:
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        return copy.run_id


def _folder_becomes_file(folder: Path) -> None:
    (folder / "lib" / "mine").write_text("mine")


def _file_is_edited(folder: Path) -> None:
    (folder / "main.py").write_text("mine")


def _folder_is_moved_behind_a_link(folder: Path) -> None:
    (folder / "lib").rename(folder / "moved")
    (folder / "lib").symlink_to("moved")


def _folder_is_a_file_now(folder: Path) -> None:
    (folder / "empty").rmdir()
    (folder / "empty").write_text("mine")


CASES = {
    "rm -r lib; echo f > lib; echo o > other": _folder_becomes_file,
    "rm main.py; mkdir main.py; echo in > main.py/f; echo o > other": _file_is_edited,
    "echo k > lib/new; echo o > other": _folder_is_moved_behind_a_link,
    "echo k > empty/new; echo o > other": _folder_is_a_file_now,
}


@pytest.mark.parametrize("command", CASES)
def test_a_folder_on_one_side_only_is_a_conflict_and_nothing_is_merged_by_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    folder = project(tmp_path / "p")
    child, db = asyncio.run(_left_behind(folder, command)), str(tmp_path / "runs.db")
    CASES[command](folder)
    before = tree(folder)
    words = ["runs", "merge", child, "--yes", "--db", db]
    assert main(words) == 1
    assert "conflict in " in capsys.readouterr().err
    assert tree(folder) == before
    assert main([*words, "--rest"]) == 1  # something is left in the copy
    assert "which stays" in capsys.readouterr().err
    assert tree(folder) == {**before, "other": tree(folder)["other"]}


def test_a_folder_that_the_child_removed_stays_with_what_others_have_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(tmp_path / "p")
    child, db = asyncio.run(_left_behind(folder, "rm -r lib")), str(tmp_path / "runs.db")
    (folder / "lib" / "deep" / "mine").write_text("mine")
    assert main(["runs", "merge", child, "--yes", "--db", db]) == 0
    assert [path.name for path in (folder / "lib").rglob("*")] == ["deep", "mine"]
    assert main(["runs", "worktrees", "--db", db]) == 0
    assert child not in capsys.readouterr().out


def test_where_nobody_can_be_asked_the_conflict_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(tmp_path / "p")
    child = asyncio.run(_left_behind(folder, "echo theirs > main.py"))
    _file_is_edited(folder)
    assert main(["runs", "merge", child, "--db", str(tmp_path / "runs.db")]) == 2
    assert "conflict in main.py" in capsys.readouterr().err


def test_work_of_a_workflow_that_was_deleted_is_said_to_be_on_its_branch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, db = project(tmp_path / "p"), str(tmp_path / "runs.db")
    child = asyncio.run(_left_behind(folder, "echo theirs > other"))
    assert main(["runs", "delete", "last", "--db", db]) == 0
    capsys.readouterr()
    assert main(["runs", "merge", child, "--yes", "--db", db]) == 2
    told = capsys.readouterr().err
    assert "was deleted" in told
    assert "its branch retinue/" in told
