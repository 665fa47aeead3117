"""What an isolated child made is never lost, and nothing of the person's is: not by a merge, nor by its end."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from projects import bash, project
from test_isolation import children, git, opened

from retinue.app import Retinue
from retinue.cli import main
from retinue.engine.answers import Answer
from retinue.engine.worktrees import Copy, MergePlan
from retinue.errors import ConfigError, Fenced, ToolError
from retinue.events import ApprovalRequested, ToolReturned
from retinue.shadow import WORKTREE
from retinue.testing.scripted import call
from retinue.types import ModelRequest


def merge(request: ModelRequest) -> object:
    return call("merge_child", child_id=children(request)[0])


def asked(*todo: object, then: Any = ("done",)) -> dict[str, list[Any]]:
    """A boss who asks a coder to do this, and goes on as he is told."""
    return {"TASK": [*todo, "did it"], "PLAY boss": [call("coder", prompt="TASK"), *then]}


async def returned(retinue: Retinue, run_id: str, name: str) -> list[ToolReturned]:
    events = await retinue.store.events(run_id)
    return [event for event in events if isinstance(event, ToolReturned) and event.name == name]


@pytest.mark.parametrize("with_git", [True, False])
async def test_what_a_child_makes_git_ignore_is_not_removed_from_the_project(
    tmp_path: Path, with_git: bool
) -> None:
    folder = project(tmp_path / "p", git=with_git)
    steps = asked(bash("echo lib/ >> .gitignore"), then=(merge, "done"))
    async with opened(folder, steps) as retinue:
        await retinue.run("boss", "go")
        assert "lib/\n" in (folder / ".gitignore").read_text()
        assert (folder / "lib" / "two.py").read_text() == "TWO = 2\n"
        assert retinue.services.worktrees.all() == []  # all of it is in the project


async def test_a_change_below_what_a_child_makes_git_ignore_is_told_and_its_copy_kept(tmp_path: Path) -> None:
    folder = project(tmp_path / "p", git=False)
    steps = asked(bash("echo lib/ >> .gitignore; echo 'TWO = 3' > lib/two.py"), then=(merge, "done"))
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
        (copy,) = retinue.services.worktrees.all()
        kept = retinue.services.worktrees.path(copy.run_id)
        assert "lib/two.py" in done.text
        assert str(kept) in done.text
        assert (kept / "lib" / "two.py").read_text() == "TWO = 3\n"
        assert (folder / "lib" / "two.py").read_text() == "TWO = 2\n"


async def test_a_copy_with_a_file_that_is_too_large_to_be_merged_stays(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    steps = asked(bash("head -c 11000000 /dev/zero > big.bin; echo hi > small.txt"), then=(merge, "done"))
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
        (copy,) = retinue.services.worktrees.all()
        kept = retinue.services.worktrees.path(copy.run_id)
        assert (kept / "big.bin").stat().st_size == 11_000_000
        assert str(kept) in done.text
    assert (folder / "small.txt").exists()
    assert git(folder, "branch", "--list", copy.branch) != ""


async def test_the_report_of_a_child_names_what_cannot_be_merged_also_if_there_is_nothing_else(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, asked(bash("head -c 11000000 /dev/zero > big.bin"))) as retinue:
        report = await retinue.run("boss", "go")
        (said,) = await returned(retinue, report.run_id, "coder")
        assert "big.bin" in said.text
        assert len(retinue.services.worktrees.all()) == 1


async def test_nothing_is_merged_or_removed_when_it_is_not_known_how_the_project_was(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")

    def forgotten(request: ModelRequest) -> object:
        (copy,) = retinue.services.worktrees.all()
        source = retinue.services.shadows.of(folder, retinue.settings.undo)
        assert source is not None
        source.end(copy.run_id, WORKTREE)
        return merge(request)

    async with opened(folder, asked(bash("echo hi > new.txt"), then=(forgotten, "done"))) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
        assert done.is_error
        (copy,) = retinue.services.worktrees.all()
        assert (retinue.services.worktrees.path(copy.run_id) / "new.txt").read_text() == "hi\n"


async def test_other_worktrees_of_the_person_that_are_not_there_now_are_left_alone(tmp_path: Path) -> None:
    folder, other = project(tmp_path / "p"), tmp_path / "other"
    git(folder, "worktree", "add", "-q", "--detach", str(other))
    other.rename(tmp_path / "unplugged")
    async with opened(folder, asked(bash("echo hi > new.txt"), then=(merge, "done"))) as retinue:
        await retinue.run("boss", "go")
        assert (folder / "new.txt").exists()
        assert retinue.services.worktrees.all() == []
    (tmp_path / "unplugged").rename(other)
    assert git(other, "rev-parse", "HEAD") == git(folder, "rev-parse", "HEAD")
    assert len(git(folder, "worktree", "list").splitlines()) == 2


async def test_git_is_never_led_to_another_repository_by_what_an_agent_writes_to_its_copy(
    tmp_path: Path,
) -> None:
    folder, other = project(tmp_path / "p"), project(tmp_path / "other")
    before = git(other, "for-each-ref"), (other / ".git" / "index").read_bytes()
    steps = asked(bash(f"echo 'gitdir: {other}/.git' > .git; echo hi > new.txt"))
    async with opened(folder, steps) as retinue:
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        assert git(folder, "show", f"{copy.branch}:new.txt") == "hi\n"
        retinue.services.worktrees.remove(copy, retinue.settings.undo)
    objects = git(other, "count-objects").split()[0]
    assert (git(other, "for-each-ref"), (other / ".git" / "index").read_bytes()) == before
    assert objects == git(project(tmp_path / "third"), "count-objects").split()[0]
    assert len(git(folder, "worktree", "list").splitlines()) == 1


async def test_a_copy_of_a_copy_is_not_led_to_another_repository_either(tmp_path: Path) -> None:
    folder, other = project(tmp_path / "p"), project(tmp_path / "other")
    async with opened(folder, asked()) as retinue:
        copies, undo = retinue.services.worktrees, retinue.settings.undo
        copies.make("c1", "r1", "coder", folder, undo, ignored=False)
        (copies.path("c1") / ".git").write_text(f"gitdir: {other}/.git\n")
        inner = copies.make("c2", "r1", "coder", copies.path("c1"), undo, ignored=False)
        assert git(folder, "branch", "--list", inner.branch) != ""
        assert git(other, "branch", "--list", "retinue*") == ""


@pytest.mark.parametrize("path", [".git", "./lib/../.git"])
async def test_the_tools_do_not_write_to_what_makes_a_copy_part_of_its_repository(
    tmp_path: Path, path: str
) -> None:
    folder = project(tmp_path / "p")
    steps = asked(call("write", path=path, content="gitdir: /nowhere\n"), bash("echo hi > new.txt"))
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        (refused,) = await returned(retinue, report.run_id, "write")
        assert refused.is_error
        (copy,) = retinue.services.worktrees.all()
        assert (
            git(retinue.services.worktrees.path(copy.run_id), "branch", "--show-current").strip()
            == copy.branch
        )


async def test_a_workflow_that_another_process_has_taken_over_keeps_its_copies(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")

    def fenced(request: ModelRequest) -> object:
        raise Fenced("somebody else works on it", run_id="r")

    async with opened(folder, asked(then=(fenced, "done"))) as retinue:
        with pytest.raises(Fenced):
            await retinue.run("boss", "go")
        assert len(retinue.services.worktrees.all()) == 1


async def test_a_copy_is_never_filled_or_merged_with_empty_files_for_lost_bytes(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, asked()) as retinue:
        copies, undo = retinue.services.worktrees, retinue.settings.undo
        copy = copies.make("c1", "r1", "coder", folder, undo, ignored=False)
        (copies.path("c1") / "main.py").write_text("print('two')\n")
        assert len(copies.plan(copy, undo).going) == 1
        own = retinue.services.shadows.of(copies.path("c1"), undo)
        assert own is not None
        _lose(own.folder / "shadow.db")
        with pytest.raises(ToolError, match=r"main\.py"):
            copies.plan(copy, undo)
        source = retinue.services.shadows.of(folder, undo)
        assert source is not None
        _lose(source.folder / "shadow.db")
        with pytest.raises(ToolError, match="not started"):
            copies.make("c2", "r1", "coder", folder, undo, ignored=False)
        assert copies.copy_of("c2") is None


def _lose(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("DELETE FROM blobs")
    db.close()


async def _left_behind(folder: Path) -> str:
    async with opened(folder, asked(bash("echo hi > new.txt"))) as retinue:
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        return copy.run_id


def test_a_copy_is_thrown_away_only_if_somebody_says_so(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    child, db = asyncio.run(_left_behind(folder)), str(tmp_path / "runs.db")
    kept = tmp_path / "runs.db-worktrees" / child / "new.txt"
    words = ["runs", "merge", child, "--discard", "--db", db]
    assert main(words) != 0
    assert kept.exists()
    assert main([*words, "--yes"]) == 0
    assert not kept.exists()


def test_where_nobody_can_be_asked_nothing_is_merged_unless_somebody_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(tmp_path / "p", git=False)
    child, db = asyncio.run(_left_behind(folder)), str(tmp_path / "runs.db")
    words = ["runs", "merge", child, "--db", db]
    assert main(words) == 2
    shown = capsys.readouterr()
    assert "+hi" in shown.out
    assert "--yes" in shown.err
    assert not (folder / "new.txt").exists()
    assert main([*words, "--yes"]) == 0
    assert (folder / "new.txt").read_text() == "hi\n"


def test_a_merge_that_meets_a_conflict_names_the_flag_as_it_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(tmp_path / "p", git=False)
    child, db = asyncio.run(_left_behind(folder)), str(tmp_path / "runs.db")
    (folder / "new.txt").write_text("mine\n")
    assert main(["runs", "merge", child, "--yes", "--db", db]) == 1
    said = capsys.readouterr().err
    assert "merge the rest with --rest" in said
    assert "rest=true" not in said


@pytest.mark.parametrize("with_git", [True, False])
def test_work_that_nobody_merged_is_named_wherever_its_run_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], with_git: bool
) -> None:
    folder = project(tmp_path / "p", git=with_git)
    child, db = asyncio.run(_left_behind(folder)), str(tmp_path / "runs.db")
    where = f"branch retinue/coder-{child[-8:]}" if with_git else str(tmp_path / "runs.db-worktrees" / child)

    def shown(verb: str) -> str:
        assert main(["runs", verb, "last", "--db", db]) == 0
        return " ".join(capsys.readouterr().err.split())

    def as_json(*words: str) -> Any:
        assert main(["runs", *words, "--json", "--db", db]) == 0
        return json.loads(capsys.readouterr().out)

    def listed() -> str:
        assert main(["runs", "list", "--db", db]) == 0
        return capsys.readouterr().out

    (fact,) = as_json("show", "last")["unmerged"]
    assert (fact["run_id"], fact["agent"], fact["files"]) == (child, "coder", 1)
    assert where in (f"branch {fact['branch']}", fact["path"])
    assert as_json("list")["unmerged"] == 1
    assert "completed, unmerged" in listed()
    said = f"! not in the project: 1 file of coder ({where}); retinue runs merge {child}"
    for verb in ("show", "tree", "diff"):
        assert said in shown(verb)
    (folder / "new.txt").write_text("mine\n")
    assert "1 file of coder, 1 conflict (" in shown("tree")
    (folder / "new.txt").unlink()
    assert main(["runs", "merge", child, "--yes", "--db", db]) == 0
    for verb in ("show", "tree", "diff"):
        assert "not in the project" not in shown(verb)
    assert as_json("show", "last")["unmerged"] == []
    assert as_json("list")["unmerged"] == 0
    assert "unmerged" not in listed()


async def test_the_copy_of_a_child_at_work_is_not_thrown_away(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    tried: list[Exception] = []

    async def discard(request: ModelRequest) -> object:
        (copy,) = retinue.services.worktrees.all()
        try:
            await retinue.changes.discard(copy.run_id, retinue.services.worktrees)
        except ConfigError as error:
            tried.append(error)
        return bash("echo hi > new.txt")

    steps = asked(discard)
    async with opened(folder, steps) as retinue:
        await retinue.run("boss", "go")
        assert len(tried) == 1
        (copy,) = retinue.services.worktrees.all()
        assert (retinue.services.worktrees.path(copy.run_id) / "new.txt").exists()


async def test_a_merge_of_a_person_that_is_not_made_is_not_recorded_as_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, asked(bash("echo hi > lib/new.txt; echo hi > top.txt"))) as retinue:
        report = await retinue.run("boss", "go")
        copies = retinue.services.worktrees
        (copy,) = copies.all()
        carry_out = copies.merge

        def in_the_way(copy: Copy, plan: MergePlan) -> list[tuple[str, str]]:
            """Somebody puts a file there at the last moment."""
            shutil.rmtree(folder / "lib")
            (folder / "lib").write_text("a file now")
            return carry_out(copy, plan)

        monkeypatch.setattr(copies, "merge", in_the_way)
        done = await retinue.changes.merge(copy.run_id, copies)
        assert "merged 1 of 2" in done.result.text
        assert not done.whole
        assert (folder / "top.txt").exists()
        found, _ = await retinue.changes.of(report.run_id)
        assert [change.path for change in found.changes] == ["top.txt"]
        assert len(copies.all()) == 1


async def test_what_is_merged_into_the_copy_of_another_run_is_no_change_of_the_project(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, asked(bash("echo hi > new.txt"))) as retinue:
        report = await retinue.run("boss", "go")
    async with opened(folder, {}) as retinue:  # the workflow has cleared up by now
        copies, undo = retinue.services.worktrees, retinue.settings.undo
        (copy,) = copies.all()
        copies.remove(copy, undo)
        between = copies.make("c1", report.run_id, "coder", folder, undo, ignored=False)
        copies.make(copy.run_id, report.run_id, "coder", copies.path("c1"), undo, ignored=False)
        (copies.path(copy.run_id) / "deep.txt").write_text("deep")
        await retinue.changes.merge(copy.run_id, copies)
        assert (copies.path(between.run_id) / "deep.txt").read_text() == "deep"
        found, _ = await retinue.changes.of(report.run_id)
        assert "deep.txt" not in [change.path for change in found.changes]


async def test_what_a_person_was_shown_is_what_is_merged(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    seen: list[ApprovalRequested] = []

    async def person(question: ApprovalRequested) -> Answer:
        if question.tool == "merge_child":
            seen.append(question)
            if len(seen) == 1:  # somebody changes the copy while the person reads
                (copy,) = retinue.services.worktrees.all()
                (retinue.services.worktrees.path(copy.run_id) / "sneaked.txt").write_text("evil\n")
        return Answer(decision="approve")

    steps = asked(
        bash("echo n > new.txt; chmod 755 main.py; ln -s /etc elsewhere"), then=(merge, merge, "done")
    )
    async with opened(folder, steps, yes=False, approve=person) as retinue:
        report = await retinue.run("boss", "go")
        first, second = await returned(retinue, report.run_id, "merge_child")
    assert first.is_error
    assert "changed after the person was shown" in first.text
    assert not second.is_error
    assert "sneaked.txt" not in seen[0].preview
    assert "sneaked.txt" in seen[1].preview
    assert seen[0].answers == ("approve", "reject")
    assert "main.py: mode 644 becomes 755" in seen[0].preview
    assert "elsewhere: nothing becomes link to /etc" in seen[0].preview


async def test_what_a_rule_denies_does_not_come_by_a_merge(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    before = (folder / "main.py").read_bytes()
    steps = asked(bash("echo evil > main.py"), then=(merge, "done"))
    async with opened(folder, steps, settings={"approvals.deny": ["*(main.py)"]}) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
    assert done.not_run == "denied"
    assert (folder / "main.py").read_bytes() == before


async def test_what_cannot_be_merged_by_its_name_or_kind_is_told_and_its_copy_kept(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / "own/.git").mkdir(parents=True)  # nobody's change
    steps = asked(bash("echo x > $'odd\\xff'; mkdir -p sub/.git; echo x > sub/a.txt"), then=(merge, "done"))
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
        (copy,) = retinue.services.worktrees.all()
        kept = retinue.services.worktrees.path(copy.run_id)
        assert "not merged: odd\\xff: its name is no text" in done.text
        assert "not merged: sub/.git: a repository of its own" in done.text
        assert "own/.git" not in done.text
        assert str(kept) in done.text
        assert (kept / "sub/.git").is_dir()
        assert (folder / "sub/a.txt").read_text() == "x\n"


async def test_a_second_merge_removes_nothing_behind_a_link_that_the_first_one_made(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    steps = asked(bash("mkdir new; mv lib new/lib; ln -s new/lib lib; echo child > main.py"))
    async with opened(folder, steps) as retinue:
        await retinue.run("boss", "go")
        copies, undo = retinue.services.worktrees, retinue.settings.undo
        (copy,) = copies.all()
        (folder / "main.py").write_text("mine\n")  # a conflict: so the copy stays
        copies.merge(copy, copies.plan(copy, undo))
        assert (folder / "lib").is_symlink()
        again = copies.plan(copy, undo)
        assert [change.path for change, _ in again.going] == []
        assert [each.path for each in again.conflicts] == ["main.py"]
        assert (folder / "new/lib/two.py").read_text() == "TWO = 2\n"
