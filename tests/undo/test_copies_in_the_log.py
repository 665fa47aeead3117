"""Work in a copy of the project that the project has not is a fact of the log, wherever the copy is by now."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from projects import project
from test_isolation import children, git, opened

from retinue.app import Retinue
from retinue.cli import main
from retinue.events import AnyEvent, CopyLeft, StepStarted
from retinue.fold import fold
from retinue.testing.scripted import Step, call
from retinue.types import ModelRequest

WRITES = [call("write", path="new.txt", content="n"), call("edit", path="main.py", old="one", new="two")]


def merge(request: ModelRequest) -> object:
    return call("merge_child", child_id=children(request)[0])


def team(*then: Any) -> dict[str, list[Any]]:
    return {"TASK": [*WRITES, "did it"], "PLAY boss": [call("coder", prompt="TASK"), *then, "done"]}


async def counts(retinue: Retinue, root_id: str) -> dict[str, tuple[int, int]]:
    """Of every run: whether its own copy has work that the project has not, and how many have below it."""
    return {row.agent: (row.copy_left, row.unmerged) for row in await retinue.store.tree(root_id)}


def told(events: list[AnyEvent]) -> list[tuple[int, int]]:
    return [(e.files, e.more) for e in events if isinstance(e, CopyLeft)]


async def test_what_nobody_merged_is_counted_until_somebody_does(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, team()) as retinue:
        root = (await retinue.run("boss", "go")).run_id
        assert await counts(retinue, root) == {"boss": (0, 1), "coder": (1, 1)}
        events = await retinue.store.events(root)
        assert told(events) == [(2, 1)]
        (child,) = {e.run_id for e in events} - {root}
        await retinue.changes.merge(child, retinue.services.worktrees)
        assert await counts(retinue, root) == {"boss": (0, 0), "coder": (0, 0)}
        events = await retinue.store.events(root)
        assert told(events) == [(2, 1), (0, -1)]
        assert fold(e for e in events if e.run_id == child).copy_left is None
        assert (await retinue.replay(root)).diff == ""
        assert (await retinue.fork(root, message="and?")) != root


async def test_what_its_parent_merged_is_not_counted(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, team(merge)) as retinue:
        report = await retinue.run("boss", "go")
        assert await counts(retinue, report.run_id) == {"boss": (0, 0), "coder": (0, 0)}
        assert report.outcome == "completed"


async def test_what_is_thrown_away_is_not_counted(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, team()) as retinue:
        root = (await retinue.run("boss", "go")).run_id
        (child,) = {e.run_id for e in await retinue.store.events(root)} - {root}
        await retinue.changes.discard(child, retinue.services.worktrees)
        assert await counts(retinue, root) == {"boss": (0, 0), "coder": (0, 0)}


async def test_a_fork_has_no_copy_of_the_run_that_it_is_of(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    async with opened(folder, {**team(), "PLAY boss": [*team()["PLAY boss"], "more"]}) as retinue:
        root = (await retinue.run("boss", "go")).run_id
        fork = await retinue.fork(root, message="and?")
        await retinue.wait(fork)
        assert await counts(retinue, fork) == {"boss": (0, 0), "coder": (0, 0)}


@pytest.mark.parametrize("with_git", [True, False])
def test_a_copy_that_is_not_here_is_told_of_alike_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], with_git: bool
) -> None:
    folder, db = project(tmp_path / "p", git=with_git), str(tmp_path / "runs.db")

    async def left() -> None:
        async with opened(folder, team()) as retinue:
            await retinue.run("boss", "go")

    asyncio.run(left())
    shutil.rmtree(tmp_path / "runs.db-worktrees")
    assert main(["runs", "list", "--json", "--db", db]) == 0
    assert json.loads(capsys.readouterr().out)["unmerged"] == 1
    assert main(["runs", "list", "--db", db]) == 0
    assert "completed, unmerged" in capsys.readouterr().out
    assert main(["runs", "show", "last", "--json", "--db", db]) == 0
    (fact,) = json.loads(capsys.readouterr().out)["unmerged"]
    assert (fact["agent"], fact["files"], fact["path"]) == ("coder", 2, "")
    assert main(["runs", "tree", "last", "--db", db]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "! not in the project: 2 files of coder; its copy is not here: merge it where it ran" in said
    assert ("git merge retinue/coder-" in said) == with_git


async def test_a_merge_that_a_conflict_kept_from_being_made_leaves_no_tick_until_it_is(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")

    def meddle(request: ModelRequest) -> object:
        (folder / "main.py").write_text("print('theirs')\n")
        return merge(request)

    def rest(request: ModelRequest) -> object:
        return call("merge_child", child_id=children(request)[0], rest=True)

    async with opened(folder, team(meddle, merge)) as retinue:
        report = await retinue.run("boss", "go")
        assert (report.outcome, report.shortfall.incomplete) == ("incomplete", 1)
        row = await retinue.store.run(report.run_id)
        assert row is not None
        assert (row.outcome, row.incomplete) == ("incomplete", 1)
        assert (await retinue.replay(report.run_id)).diff == ""
    (folder / "main.py").write_text("print('one')\n")
    async with opened(folder, team(meddle, rest)) as retinue:
        report = await retinue.run("boss", "go")
        assert (report.outcome, report.shortfall.incomplete) == ("completed", 0)
        assert (await counts(retinue, report.run_id))["boss"] == (0, 1)


def test_what_an_earlier_version_left_in_a_copy_is_listed_as_unmerged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, db = project(tmp_path / "p"), str(tmp_path / "runs.db")

    async def left() -> None:
        async with opened(folder, team()) as retinue:
            await retinue.run("boss", "go")

    asyncio.run(left())
    with (
        contextlib.closing(sqlite3.connect(db)) as link,
        link,
    ):  # as it was written before there was such a mark
        link.execute("DELETE FROM events WHERE type = 'copy_left'")
        link.execute("UPDATE runs SET copy_left = 0, unmerged = 0")
    assert main(["runs", "list", "--json", "--db", db]) == 0
    assert json.loads(capsys.readouterr().out)["unmerged"] == 1
    assert main(["runs", "list", "--db", db]) == 0
    assert "completed, unmerged" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "runs.db-worktrees")
    assert main(["runs", "list", "--json", "--db", db]) == 0
    assert json.loads(capsys.readouterr().out)["unmerged"] == 0


async def interrupted(folder: Path, *todo: Any) -> str:
    """A workflow whose process is gone while its child was at work in its copy, after it had done this."""
    gate = asyncio.Event()
    steps = {
        "TASK": [*todo, Step(text="never", gate=gate)],
        "PLAY boss": [call("coder", prompt="TASK")],
    }
    async with opened(folder, steps) as retinue:
        root = await retinue.start("boss", "go")
        async for event in retinue.watch(root):
            if isinstance(event, StepStarted) and event.depth == 1 and event.step == len(todo) + 1:
                break
        await retinue.leave()
    return root


@pytest.mark.parametrize("with_git", [True, False])
async def test_what_an_interrupted_child_left_in_its_copy_is_told_when_another_process_cancels_it(
    tmp_path: Path, with_git: bool
) -> None:
    folder = project(tmp_path / "p", git=with_git)
    root = await interrupted(folder, *WRITES)
    async with opened(folder, {}) as retinue:
        assert await retinue.cancel(root)
        assert await counts(retinue, root) == {"boss": (0, 1), "coder": (1, 1)}
        assert told(await retinue.store.events(root)) == [(2, 1)]
        shutil.rmtree(tmp_path / "runs.db-worktrees")
        (left,) = await retinue.changes.not_in_project(root, retinue.services.worktrees)
        assert (left.agent, left.files, bool(left.branch), left.path) == ("coder", 2, with_git, "")


async def test_the_copy_of_an_interrupted_child_that_changed_nothing_goes_when_it_is_cancelled(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    root = await interrupted(folder, call("read", path="main.py"))
    async with opened(folder, {}) as retinue:
        worktrees = retinue.services.worktrees
        assert len(worktrees.all()) == 1
        rows = await retinue.changes.with_old_copies(await retinue.runs(), worktrees)
        assert [(row.outcome, row.unmerged) for row in rows] == [("interrupted", 0)] * 2
        assert await retinue.cancel(root)
        assert worktrees.all() == []
        assert await counts(retinue, root) == {"boss": (0, 0), "coder": (0, 0)}
        rows = await retinue.changes.with_old_copies(await retinue.runs(), worktrees)
        assert [row.unmerged for row in rows] == [0, 0]
    assert "retinue" not in git(folder, "branch")


async def test_a_copy_stays_while_only_its_child_is_cancelled_and_the_workflow_may_go_on(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    root = await interrupted(folder, call("read", path="main.py"))
    async with opened(folder, {}) as retinue:
        (child,) = [row.run_id for row in await retinue.store.tree(root) if row.parent_id]
        assert await retinue.cancel(child)
        assert len(retinue.services.worktrees.all()) == 1


def test_a_merge_that_met_a_conflict_is_said_to_be_a_merge_and_no_child(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, db = project(tmp_path / "p"), str(tmp_path / "runs.db")

    def meddle(request: ModelRequest) -> object:
        (folder / "main.py").write_text("print('theirs')\n")
        return merge(request)

    async def conflict() -> None:
        async with opened(folder, team(meddle)) as retinue:
            assert (await retinue.run("boss", "go")).outcome == "incomplete"

    asyncio.run(conflict())
    assert main(["runs", "show", "last", "--db", db]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "! 1 merge not made; why says: the transcript above" in said
    assert "child incomplete" not in said
    assert "1 conflict" in said
