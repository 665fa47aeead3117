"""What git ignores of a child's work is named and kept, but for caches; and what agents do to git is withstood."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from projects import bash, project
from test_isolation import git, opened
from test_isolation_kept import asked, merge, returned

WORK = "mkdir -p build/deep; echo r > build/deep/result.txt; echo l > my.log; echo k > kept.txt"
CACHES = (
    "mkdir -p __pycache__ build/node_modules build/tagged; touch __pycache__/a.pyc build/node_modules/x.js; "
    "touch build/tagged/CACHEDIR.TAG build/tagged/y; echo k > kept.txt"
)


@pytest.mark.parametrize("ignored", [True, False])
async def test_new_files_that_git_ignores_are_named_and_keep_their_copy(
    tmp_path: Path, ignored: bool
) -> None:
    folder = project(tmp_path / "p")
    settings = {"isolation.ignored": ignored}
    async with opened(folder, asked(bash(WORK), then=(merge, "done")), settings=settings) as retinue:
        report = await retinue.run("boss", "go")
        (told,) = await returned(retinue, report.run_id, "coder")
        (done,) = await returned(retinue, report.run_id, "merge_child")
        (copy,) = retinue.services.worktrees.all()
        assert (retinue.services.worktrees.path(copy.run_id) / "build/deep/result.txt").exists()
    assert (folder / "kept.txt").exists()
    for text in (told.text, done.text):
        assert "not merged: build/deep/result.txt: new, and ignored by git" in text
        assert "not merged: my.log: new, and ignored by git" in text
        assert "out.o" not in text


@pytest.mark.parametrize("ignored", [True, False])
async def test_a_file_that_git_ignores_and_the_project_has_otherwise_is_named_and_kept(
    tmp_path: Path, ignored: bool
) -> None:
    folder = project(tmp_path / "p")
    (folder / "build/same.o").write_text("same\n")
    before = (folder / "build/out.o").read_bytes()
    work = "mkdir -p build; echo other > build/out.o; echo same > build/same.o; echo k > kept.txt"
    settings = {"isolation.ignored": ignored}
    async with opened(folder, asked(bash(work), then=(merge, "done")), settings=settings) as retinue:
        report = await retinue.run("boss", "go")
        (told,) = await returned(retinue, report.run_id, "coder")
        (done,) = await returned(retinue, report.run_id, "merge_child")
        (copy,) = retinue.services.worktrees.all()
        assert (retinue.services.worktrees.path(copy.run_id) / "build/out.o").read_text() == "other\n"
    assert (folder / "build/out.o").read_bytes() == before
    for text in (told.text, done.text):
        assert "not merged: build/out.o: other than the project has it, and ignored by git" in text
        assert "same.o" not in text


async def test_a_file_of_the_same_size_and_time_is_told_apart_by_what_it_holds(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    mine = folder / "build/mode.env"
    mine.write_text("MODE=1")
    os.utime(mine, (1e9, 1e9))
    work = "mkdir -p build; printf MODE=2 > build/mode.env; touch -d @1000000000 build/mode.env; echo k > kept.txt"
    async with opened(folder, asked(bash(work), then=(merge, "done"))) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
        (copy,) = retinue.services.worktrees.all()
        theirs = retinue.services.worktrees.path(copy.run_id) / "build/mode.env"
        assert (theirs.read_text(), theirs.stat().st_mtime_ns) == ("MODE=2", mine.stat().st_mtime_ns)
    assert "not merged: build/mode.env: other than the project has it, and ignored by git" in done.text


async def test_caches_keep_no_copy(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, asked(bash(CACHES), then=(merge, "done"))) as retinue:
        await retinue.run("boss", "go")
        assert (folder / "kept.txt").exists()
        assert retinue.services.worktrees.all() == []


ORPHAN = (
    "git -c user.name=t -c user.email=t@example.org checkout -q --orphan other; git rm -rfq --cached .; "
    "echo n > new.txt; rm latin.txt"
)


@pytest.mark.parametrize("lost", [False, True])
async def test_a_child_that_leaves_its_branch_is_reported_and_merged_like_any_other(
    tmp_path: Path, lost: bool
) -> None:
    folder = project(tmp_path / "p")
    gone = "; git branch -q -D $(git branch --list 'retinue/*' --format='%(refname:short)')" if lost else ""
    async with opened(folder, asked(bash(ORPHAN + gone))) as retinue:
        report = await retinue.run("boss", "go")
        (told,) = await returned(retinue, report.run_id, "coder")
        assert "[Isolated: " in told.text
        assert "created new.txt" in told.text
        (copy,) = retinue.services.worktrees.all()
        if not lost:
            names = git(folder, "ls-tree", "-r", "--name-only", copy.branch).split()
            assert "new.txt" in names
            assert "main.py" in names
            assert "latin.txt" not in names
        done = await retinue.changes.merge(copy.run_id, retinue.services.worktrees)
        assert done.whole
    assert (folder / "new.txt").exists()
    assert not (folder / "latin.txt").exists()
