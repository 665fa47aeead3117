"""What is cancelled while a thread of ours changes files ends after that thread, and its log tells of all of it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from projects import bash, project, tree
from projects import opened as opened_for_writer
from test_isolation import CODER, children, git, opened

from retinue.app import Retinue
from retinue.engine.recorder import KeptBytes
from retinue.engine.worktrees import Copy, MergePlan, Worktrees
from retinue.errors import ToolError
from retinue.events import FilesChanged
from retinue.settings import UndoSettings
from retinue.shadow import Shadow
from retinue.testing.scripted import ScriptedModel, call
from retinue.tools.base import tool
from retinue.types import AgentSpec, ModelRequest

Hold = Callable[[type, str], "Held"]


class Held:
    """A method that waits in its thread until it is let go on, once it is shut."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def shut(self) -> None:
        self.go.clear()
        self.begun.clear()

    def __get__(self, owner: object, kind: type) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.begun.set()
            self.go.wait()
            return self._method(owner, *args, **options)

        return call


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hold]:
    made: list[Held] = []

    def put(kind: type, name: str) -> Held:
        made.append(Held(getattr(kind, name)))
        monkeypatch.setattr(kind, name, made[-1])
        return made[-1]

    yield put
    for held in made:
        held.go.set()


async def elapse() -> None:
    """Long enough for whoever was cancelled to come to an end, if nothing is waited for."""
    for _ in range(100):
        await asyncio.to_thread(int)


async def cancelled_in(retinue: Retinue, run_id: str, held: Held) -> None:
    await asyncio.to_thread(held.begun.wait)
    await retinue.cancel(run_id, "stop")
    await elapse()
    held.go.set()
    assert (await retinue.wait(run_id)).status == "cancelled"


WRITES = [call("write", path="new.txt", content="n"), bash("echo two > main.py"), "did it"]


async def test_a_run_that_is_cancelled_while_it_merges_ends_with_all_of_it_in_its_record(
    tmp_path: Path, hold: Hold
) -> None:
    folder = project(tmp_path / "p", git=False)
    before, held = tree(folder), hold(Worktrees, "merge")
    steps = {
        "TASK": WRITES,
        "PLAY boss": [
            call("coder", prompt="TASK"),
            lambda request: call("merge_child", child_id=children(request)[0]),
        ],
    }
    async with opened(folder, steps) as retinue:
        held.shut()
        run_id = await retinue.start("boss", "go")
        await cancelled_in(retinue, run_id, held)
        assert (folder / "new.txt").read_text() == "n"
        found, _ = await retinue.changes.of(run_id)
        assert [change.path for change in found.changes] == ["main.py", "new.txt"]
        await retinue.changes.undo(run_id)
    assert tree(folder) == before


@pytest.mark.parametrize("all_of_it", [False, True])
async def test_a_merge_of_a_person_who_gives_up_is_in_the_log_as_it_was_made(
    tmp_path: Path, hold: Hold, all_of_it: bool
) -> None:
    """`all_of_it`: every task of the merge is cancelled, as when a loop ends."""
    folder = project(tmp_path / "p", git=False)
    before, held = tree(folder), hold(Worktrees, "merge")
    steps = {"TASK": WRITES, "PLAY boss": [call("coder", prompt="TASK"), "done"]}
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        worktrees = retinue.services.worktrees
        (copy,) = worktrees.all()
        held.shut()
        others = asyncio.all_tasks()
        merging = asyncio.create_task(retinue.changes.merge(copy.run_id, worktrees))
        await asyncio.to_thread(held.begun.wait)
        for task in asyncio.all_tasks() - others if all_of_it else (merging,):
            task.cancel()
        await elapse()
        held.go.set()
        with pytest.raises(asyncio.CancelledError):
            await merging
        assert (folder / "new.txt").read_text() == "n"
        events = [e for e in await retinue.store.events(report.run_id) if isinstance(e, FilesChanged)]
        assert [event.void for event in events] == [False]
        await retinue.changes.undo(report.run_id)
    assert tree(folder) == before


async def test_a_merge_of_a_person_is_not_made_of_anything_but_what_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path / "p", git=False)
    real = Worktrees.plan

    def plan(worktrees: Worktrees, copy: Copy, settings: UndoSettings) -> MergePlan:
        """Somebody writes into the copy just after it was looked at."""
        found = real(worktrees, copy, settings)
        (worktrees.path(copy.run_id) / "late.txt").write_text("late")
        return found

    steps = {"TASK": WRITES, "PLAY boss": [call("coder", prompt="TASK"), "done"]}
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        worktrees = retinue.services.worktrees
        (copy,) = worktrees.all()
        monkeypatch.setattr(Worktrees, "plan", plan)
        with pytest.raises(ToolError):
            await retinue.changes.merge(copy.run_id, worktrees)
        assert not (folder / "new.txt").exists()
        assert (await retinue.changes.of(report.run_id))[0].changes == ()
        await retinue.changes.merge(copy.run_id, worktrees)
    assert (folder / "late.txt").exists()


async def test_a_copy_that_is_made_while_its_run_is_cancelled_goes_with_the_workflow(
    tmp_path: Path, hold: Hold
) -> None:
    folder = project(tmp_path / "p")
    held = hold(Worktrees, "_made")
    steps = {"TASK": WRITES, "PLAY boss": [call("coder", prompt="TASK")]}
    async with opened(folder, steps) as retinue:
        held.shut()
        run_id = await retinue.start("boss", "go")
        await cancelled_in(retinue, run_id, held)
        with retinue.services.worktrees.alone:
            assert retinue.services.worktrees.all() == []
    assert git(folder, "branch", "--list", "retinue/*") == ""


async def test_a_command_that_was_cancelled_before_it_began_has_changed_nothing(
    tmp_path: Path, hold: Hold
) -> None:
    folder = project(tmp_path / "p", git=False)
    held = hold(Shadow, "_scanned")
    async with opened_for_writer(folder, [bash("echo two > ran.txt")]) as retinue:
        held.shut()
        run_id = await retinue.start("writer", "go")
        await cancelled_in(retinue, run_id, held)
        (folder / "main.py").write_text("an hour of a person's work\n")
        found, _ = await retinue.changes.of(run_id)
        assert (found.changes, found.unfinished) == ((), ())
        await retinue.changes.undo(run_id)
    assert (folder / "main.py").read_text() == "an hour of a person's work\n"
    assert not (folder / "ran.txt").exists()


async def test_a_command_whose_record_is_cancelled_is_recorded_all_the_same(
    tmp_path: Path, hold: Hold
) -> None:
    folder = project(tmp_path / "p", git=False)
    before, held = tree(folder), hold(Shadow, "changed_since")
    async with opened_for_writer(folder, [bash("echo two > ran.txt")]) as retinue:
        held.shut()
        run_id = await retinue.start("writer", "go")
        await cancelled_in(retinue, run_id, held)
        found, _ = await retinue.changes.of(run_id)
        assert ([change.path for change in found.changes], found.unfinished) == (["ran.txt"], ())
        await retinue.changes.undo(run_id)
    assert tree(folder) == before


async def test_a_child_that_is_asked_again_while_it_is_merged_works_in_a_copy_of_its_own(
    tmp_path: Path, hold: Hold
) -> None:
    folder = project(tmp_path / "p", git=False)
    held = hold(Worktrees, "merge")

    @tool
    async def until_it_merges() -> str:
        """Waits."""
        await asyncio.to_thread(held.begun.wait)
        asked.append(asyncio.create_task(let_go()))
        return "it does"

    async def let_go() -> None:
        await elapse()
        held.go.set()

    def both(request: ModelRequest) -> Any:
        child = children(request)[0]
        return [
            call("merge_child", child_id=child),
            call("until_it_merges"),
            call("delegate_task", operation="delegate", child_id=child, prompt="more"),
        ]

    asked: list[asyncio.Task[None]] = []
    steps = {
        "TASK": [*WRITES, bash("cat new.txt > second.txt"), "did more"],
        "PLAY boss": [call("coder", prompt="TASK"), both, "done"],
    }
    boss = AgentSpec(
        name="boss",
        description="asks coders",
        prompt="PLAY boss",
        tools=("coder", "merge_child", "until_it_merges", "delegate_task", *(CODER.tools or ())),
    )
    options: dict[str, Any] = {"agents": [CODER, boss], "db": str(tmp_path / "runs.db")}
    settings = {"limits.tool_concurrency": 2, "delegation.tools": ["agents", "delegate_task"]}
    async with Retinue(
        model=ScriptedModel(steps),
        cwd=folder,
        environ={},
        yes=True,
        tools=[until_it_merges],
        settings=settings,
        **options,
    ) as retinue:
        held.shut()
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        changes, _ = retinue.services.worktrees.changes(copy, retinue.settings.undo)
        assert [change.path for change in changes] == ["second.txt"]
        assert (retinue.services.worktrees.path(copy.run_id) / "second.txt").read_text() == "n"
    assert (folder / "new.txt").read_text() == "n"


async def test_a_command_whose_look_fails_does_not_own_what_is_changed_later(tmp_path: Path) -> None:
    folder = project(tmp_path / "p", git=False)
    steps = [bash("mkdir out && cd out && touch $(seq 40)"), "done"]
    async with opened_for_writer(folder, steps, settings={"undo.files": 40}) as retinue:
        report = await retinue.run("writer", "go")
        shutil.rmtree(folder / "out")
        (folder / "main.py").write_text("an hour of a person's work\n")
        found, _ = await retinue.changes.of(report.run_id)
        assert (found.changes, found.unfinished) == ((), ())
        assert len(found.left_out) == 1
        await retinue.changes.undo(report.run_id)
    assert (folder / "main.py").read_text() == "an hour of a person's work\n"


async def test_a_command_that_has_returned_does_not_own_what_is_changed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path / "p", git=False)

    def busy(shadow: Shadow, *call: str) -> None:
        raise sqlite3.OperationalError("database is locked")

    async with opened_for_writer(folder, [bash("echo two > ran.txt"), "done"]) as retinue:
        monkeypatch.setattr(Shadow, "end", busy)
        report = await retinue.run("writer", "go")
        monkeypatch.undo()
        (folder / "main.py").write_text("an hour of a person's work\n")
        found, _ = await retinue.changes.of(report.run_id)
        assert ([change.path for change in found.changes], found.unfinished) == (["ran.txt"], ())


async def test_a_write_that_is_cancelled_before_it_is_noted_leaves_an_earlier_one_alike_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path / "p", git=False)
    before, kept = tree(folder), KeptBytes.keep
    armed = asyncio.Event()

    async def keep(self: KeptBytes, sha256: str, data: bytes) -> bool:
        if armed.is_set():
            asked.append(asyncio.create_task(retinue.cancel(run_id, "stop")))
            await asyncio.Event().wait()
        return await kept(self, sha256, data)

    def again(request: ModelRequest) -> Any:
        armed.set()
        return call("write", path="main.py", content="mine")

    asked: list[asyncio.Task[Any]] = []
    monkeypatch.setattr(KeptBytes, "keep", keep)
    first = call("write", path="main.py", content="mine")
    steps = [call("read", path="main.py"), first, bash("echo other > main.py")]
    async with opened_for_writer(folder, [*steps, call("read", path="main.py"), again]) as retinue:
        run_id = await retinue.start("writer", "go")
        assert (await retinue.wait(run_id)).status == "cancelled"
        assert armed.is_set()
        await retinue.changes.undo(run_id)
    assert tree(folder) == before
