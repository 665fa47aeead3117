"""What is recorded of changes in spite of odd paths, cancelled calls, records that are busy, and bytes that are gone."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from projects import bash, opened, project, tree

from retinue import shadow
from retinue.app import Retinue
from retinue.engine.undo import ChangeSet, NetChange, put_back, undo
from retinue.events import FilesChanged, ToolReturned
from retinue.jail import Jail
from retinue.settings import UndoSettings
from retinue.settings.load import load
from retinue.testing.scripted import ScriptedModel, call
from retinue.tools.base import ToolContext, tool
from retinue.tools.changing import INLINE, replace_file
from retinue.types import AgentSpec, FileChange, FileState, ModelRequest, ToolCall
from retinue.workspace import Files


@pytest.mark.parametrize("way", ["lib/..", "lib/../", "./lib/deep/../.."])
async def test_a_project_is_recorded_however_its_folder_is_spelled(tmp_path: Path, way: str) -> None:
    folder = project(tmp_path / "p")
    before = tree(folder)
    steps = [call("write", path="x.txt", content="x"), bash("echo 2 > two.txt"), "done"]
    async with opened(folder / way, steps, db=str(tmp_path / "runs.db")) as retinue:
        report = await retinue.run("writer", "go")
        found, _ = await retinue.changes.of(report.run_id)
        assert [change.path for change in found.changes] == ["two.txt", "x.txt"]
        await retinue.changes.undo(report.run_id)
    assert tree(folder) == before


async def test_a_report_names_what_commands_changed_and_not_what_they_put_back(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    steps = [
        call("write", path="x.txt", content="x"),
        bash("echo 2 > two.txt; echo 3 > three.txt; rm lib/deep/*; mkdir empty"),
        bash("rm three.txt"),
        "done",
    ]
    async with opened(folder, steps, db=str(tmp_path / "runs.db")) as retinue:
        gone = {f"lib/deep/{each.name}" for each in (folder / "lib/deep").iterdir()}
        report = await retinue.run("writer", "go")
        assert gone
        assert report.files[0] == "x.txt"
        assert set(report.files) == {"x.txt", "two.txt", *gone}
        assert (await retinue.replay(report.run_id)).diff == ""


def test_a_way_back_from_a_link_leads_where_the_system_says(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (tmp_path / "to").symlink_to(folder / "lib")
    assert Retinue(model=ScriptedModel([]), cwd=tmp_path / "to" / "..", environ={}).cwd == folder


class Noted:
    """Changes as they are said to a recorder."""

    def __init__(self) -> None:
        self.voided = 0

    def alone(self, path: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def about_to(self, changes: tuple[FileChange, ...], before: bytes | None, after: bytes) -> None:
        return None

    def void(self, changes: tuple[FileChange, ...]) -> None:
        self.voided += 1

    def changed_since(self, path: str, sha256: str) -> str | None:
        return None


class SlowDisk(Files):
    """Files that are written when they are let."""

    def __init__(self, project: Path, error: OSError | None = None) -> None:
        super().__init__(project=project, workspace=None)
        self.begun, self.go, self.error = threading.Event(), threading.Event(), error

    def write(self, *args: Any, **options: Any) -> str:
        self.begun.set()
        self.go.wait()
        if self.error is not None:
            raise self.error
        return super().write(*args, **options)


@pytest.mark.parametrize("error", [None, OSError("the disk is full")])
async def test_a_write_that_is_cancelled_is_void_only_if_it_did_not_come_to_it(
    tmp_path: Path, error: OSError | None
) -> None:
    files, noted = SlowDisk(tmp_path, error), Noted()
    task = asyncio.create_task(replace_file(files, noted, "big.txt", lambda found: b"x" * (INLINE + 1)))
    await asyncio.to_thread(files.begun.wait)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # whoever cancels may be impatient
    asyncio.get_running_loop().call_soon(files.go.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    files.go.set()
    assert noted.voided == (0 if error is None else 1)
    assert (tmp_path / "big.txt").exists() is (error is None)


def test_bytes_that_are_gone_are_never_put_back_as_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"now")
    with Jail(tmp_path) as jail:
        for before in (
            FileState(kind="file", mode=0o644, sha256="0" * 64),
            FileState(kind="link", sha256="0" * 64),
        ):
            after = FileState(kind="file", mode=0o644, size=3, sha256="1" * 64)
            change = NetChange(path="a", before=before, after=after)
            assert put_back(jail, [(change, None)]) == [("a", "what was there before was not kept")]
    assert (tmp_path / "a").read_bytes() == b"now"


def test_a_file_that_could_not_be_read_before_is_not_made_empty_by_undo(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"now")
    (tmp_path / "a").chmod(0o644)
    sha256 = hashlib.sha256(b"now").hexdigest()
    change = NetChange(
        path="a",
        before=FileState(kind="file", kept=False),
        after=FileState(kind="file", mode=0o644, size=3, sha256=sha256),
    )
    done = undo(ChangeSet(project=tmp_path, changes=(change,)), lambda sha256: None)
    assert [path for path, _ in done.refused] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"now"


@pytest.mark.parametrize("name", ["enabled", "files", "file_mb", "kept_mb"])
def test_a_project_that_is_not_trusted_cannot_switch_off_what_is_recorded(tmp_path: Path, name: str) -> None:
    (tmp_path / "retinue.toml").write_text(f"[undo]\n{name} = {'false' if name == 'enabled' else 1}\n")
    loaded = load(cwd=tmp_path, environ={"HOME": str(tmp_path)})
    assert getattr(loaded.settings.undo, name) == getattr(UndoSettings(), name)
    assert any(f"undo.{name}" in warning for warning in loaded.warnings)


@pytest.mark.parametrize("address", ["{}/runs.db", "sqlite://{}/runs.db"])
async def test_a_database_in_the_project_is_neither_recorded_nor_shown_to_sealed_commands(
    tmp_path: Path, address: str
) -> None:
    folder = project(tmp_path / "p")
    for name in ("runs.db-worktrees", "runs.db-shadow"):
        (folder / name).mkdir(mode=0o700)
        (folder / name / "held").write_text("held\n")
    look = "cat runs.db* runs.db-shadow/* runs.db-shadow/*/* runs.db-worktrees/* 2>/dev/null | wc -c"
    options = {"approvals.sandbox": "project"}
    steps = [[bash(f"echo 1 > one.txt; {look}"), call("bash", "b2", command=look)], bash(look), "done"]
    async with opened(folder, steps, db=address.format(folder), settings=options) as retinue:
        report = await retinue.run("writer", "go")
        found, _ = await retinue.changes.of(report.run_id)
        paths = [change.path for change in found.changes]
        assert "one.txt" in paths
        assert not [path for path in (*paths, *found.left_out) if path.startswith("runs.db")]
        said = [e for e in await retinue.store.events(report.run_id) if isinstance(e, ToolReturned)]
        assert {event.text.split()[0] for event in said} == {"0"}, said


async def test_a_record_that_is_busy_is_left_out_for_that_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "PATIENCE", 0.01)
    folder = project(tmp_path / "p")
    other: list[sqlite3.Connection] = []

    def held(request: ModelRequest) -> ToolCall:
        (file,) = (tmp_path / "runs.db-shadow").glob("*/shadow.db")
        other.append(sqlite3.connect(file, isolation_level=None))
        other[0].execute("BEGIN IMMEDIATE")
        return bash("echo 1 > one.txt")

    def free(request: ModelRequest) -> ToolCall:
        other[0].close()
        return bash("echo 2 > two.txt")

    async with opened(folder, [bash("true"), held, free, "done"]) as retinue:
        report = await retinue.run("writer", "go")
        found, _ = await retinue.changes.of(report.run_id)
        assert [change.path for change in found.changes] == ["two.txt"]
        assert [line for line in found.left_out if line.startswith("what a command changed: ")]


async def test_what_a_file_tool_writes_while_something_else_is_watched_is_recorded_once(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")

    @tool(effect="execute")
    async def build(ctx: ToolContext) -> str:
        """Build."""
        await replace_file(ctx.files, ctx.changes, "made.txt", lambda found: b"made")
        (folder / "left.txt").write_text("left")
        return "built"

    builder = AgentSpec(name="builder", description="builds", prompt="PLAY builder", tools=("build",))
    model = ScriptedModel([call("build"), "done"])
    options: Any = {"db": str(tmp_path / "runs.db"), "cwd": folder, "environ": {}, "yes": True}
    async with Retinue(model=model, agents=[builder], tools=[build], **options) as retinue:
        report = await retinue.run(builder, "go")
        log = await retinue.store.events(report.run_id)
    noted = [
        (event.exact, change.path)
        for event in log
        if isinstance(event, FilesChanged)
        for change in event.changes
    ]
    assert noted == [(True, "made.txt"), (False, "left.txt")]


async def test_two_commands_of_one_reply_run_at_the_same_time(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")

    def meet(mine: str, other: str) -> ToolCall:
        waits = f"for i in $(seq 2000); do [ -e {other} ] && exit 0; sleep 0.01; done; exit 1"
        return bash(f"touch {mine}; {waits}")

    async with opened(folder, [[meet("a", "b"), meet("b", "a")], "done"]) as retinue:
        report = await retinue.run("writer", "go")
        log = await retinue.store.events(report.run_id)
    assert [event.is_error for event in log if isinstance(event, ToolReturned)] == [False, False]


@pytest.mark.parametrize("room", [True, False])
async def test_of_bytes_that_there_was_no_room_for_it_is_recorded_that_they_are_gone(
    tmp_path: Path, room: bool
) -> None:
    folder = project(tmp_path / "p")
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("as it was\n")
    steps = [
        call("write", "w", path="a.txt", content="new\n"),
        bash("echo new > b.txt; echo c > c.txt"),
        "done",
    ]
    async with opened(folder, steps, settings={} if room else {"undo.kept_mb": 0}) as retinue:
        report = await retinue.run("writer", "go")
        events = await retinue.store.events(report.run_id)
        changes = [one for event in events if isinstance(event, FilesChanged) for one in event.changes]
        assert {one.path: one.before.kept for one in changes} == {
            "a.txt": room,
            "b.txt": room,
            "c.txt": True,  # there was nothing
        }
        done = await retinue.changes.undo(report.run_id, rest=True)
    assert [path for path, _ in done.refused] == ([] if room else ["a.txt", "b.txt"])
    assert (folder / "a.txt").read_text() == ("as it was\n" if room else "new\n")
