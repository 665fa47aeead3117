"""What a workflow changed is shown, and taken back to the last byte, unless somebody has changed it since."""

from __future__ import annotations

import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from projects import bash, opened, project, tree

from retinue.errors import ConfigError
from retinue.events import ChangesUndone, FilesChanged, ToolReturned
from retinue.testing.scripted import call
from retinue.types import AgentSpec

ROOT = AgentSpec(name="boss", description="asks others", prompt="You are the boss.")
MESS = """
printf 'changed\\n' > main.py; printf 'one\\ntwo\\n' > dos.txt; sed -i 's/three/four/' mixed.txt
printf '\\0\\1\\2' >> picture.bin; rm latin.txt; chmod 644 secret.txt; chmod -x tool.sh
git mv lib/two.py lib/deep/moved.py 2>/dev/null || mv lib/two.py lib/deep/moved.py
rm -r lib/deep/one.py; mkdir -p new/folder; echo hi > new/folder/file; mkdir bare; rmdir empty
rm link; ln -s tool.sh link; rm dangling; echo now a file > dangling; chmod 700 lib
"""


@pytest.mark.parametrize("git", [True, False])
async def test_undo_restores_every_byte_link_and_right_that_commands_and_tools_changed(
    tmp_path: Path, git: bool
) -> None:
    folder = project(tmp_path / "p", git=git)
    before = tree(folder)
    steps = [
        call("write", path="made/by/tool.txt", content="new\n"),
        call("edit", path="main.py", old="one", new="two"),
        bash(MESS),
        call("write", path="new/folder/file", content="again\n"),
        "done",
    ]
    async with opened(folder, steps) as retinue:
        report = await retinue.run("writer", "make a mess")
        assert tree(folder) != before
        found, _ = await retinue.changes.of(report.run_id)
        assert {"main.py", "made", "made/by", "picture.bin", "empty", "bare", "link", "secret.txt"} <= {
            change.path for change in found.changes
        }
        done = await retinue.changes.undo(report.run_id)
        assert not done.refused
        assert tree(folder) == before
        again = await retinue.changes.undo(report.run_id)
        assert not again.paths
        assert tree(folder) == before


async def test_a_file_that_changed_since_is_never_touched_and_then_nothing_is(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    before = tree(folder)
    steps = [
        call("edit", path="main.py", old="one", new="two"),
        call("write", path="dos.txt", content="x"),
        bash("echo 1 > made.txt"),
        "done",
    ]
    async with opened(folder, steps) as retinue:
        report = await retinue.run("writer", "go")
        (folder / "main.py").write_text("mine now\n")
        now = tree(folder)
        done = await retinue.changes.undo(report.run_id)
        assert [path for path, _ in done.refused] == ["main.py"]
        assert not done.paths
        assert tree(folder) == now
        done = await retinue.changes.undo(report.run_id, rest=True)
        assert set(done.paths) == {"dos.txt", "made.txt"}
        assert tree(folder) == {**before, "main.py": now["main.py"]}
        undone = [e for e in await retinue.store.events(report.run_id) if isinstance(e, ChangesUndone)]
        assert [(event.paths, len(event.left)) for event in undone] == [(("dos.txt", "made.txt"), 1)]


@pytest.mark.parametrize(
    "command",
    [
        "mkdir new; mv lib new/lib; ln -s new/lib lib",
        "rm -r lib; ln -s ../elsewhere lib",
        "rm -r lib; mkdir -p new/deep; echo 3 > new/deep/one.py; ln -s new lib",
        "mkdir new; mv lib new/lib; ln -s new/lib lib; echo 3 > lib/three.py; echo 4 > lib/two.py",
    ],
)
async def test_what_is_seen_through_a_link_of_the_workflows_own_is_not_what_was_there(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (tmp_path / "elsewhere/two.py").write_text("not of this project\n")
    folder = project(tmp_path / "p")
    before = tree(folder)
    async with opened(folder, [bash(command), "done"]) as retinue:
        report = await retinue.run("writer", "go")
        done = await retinue.changes.undo(report.run_id)
    assert not done.refused
    assert tree(folder) == before
    assert (tmp_path / "elsewhere/two.py").read_text() == "not of this project\n"


async def test_undo_of_the_rest_removes_no_only_copy_and_writes_through_no_link_that_stays(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    command = (
        "mkdir new; mv lib new/lib; ln -s new/lib lib; mv main.py new/; echo x > main.py; cp dos.txt dos2.txt"
    )
    async with opened(folder, [bash(command), "done"]) as retinue:
        report = await retinue.run("writer", "go")
        (folder / "other/deep").mkdir(parents=True)
        (folder / "lib").unlink()
        (folder / "lib").symlink_to("other")  # a person's
        (folder / "main.py").write_text("mine now\n")
        done = await retinue.changes.undo(report.run_id, rest=True)
    refused = dict(done.refused)
    assert refused["new/lib/two.py"] == "it holds what was in lib/two.py, which is not taken back"
    assert refused["new/main.py"] == "it holds what was in main.py, which is not taken back"
    assert refused["lib/two.py"] == "lib, which became a link, stays"
    assert "new/main.py in it stays" in refused["new"] or "new/lib" in refused["new"]
    assert (folder / "new/lib/two.py").read_text() == "TWO = 2\n"
    assert done.paths == ("dos2.txt",)
    assert list((folder / "other").rglob("*")) == [folder / "other/deep"]


async def test_what_is_left_out_is_said_and_what_was_ignored_or_large_is_never_removed(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    (folder / "large.bin").write_bytes(b"x" * 2_000_000)
    command = (
        "echo more >> large.bin; : > .gitignore; echo new > build/new.o; echo log > a.log; echo t > t.txt"
    )
    async with opened(folder, [bash(command), "done"], settings={"undo.file_mb": 1}) as retinue:
        report = await retinue.run("writer", "go")
        found, _ = await retinue.changes.of(report.run_id)
        assert {"large.bin", "build"} <= {line.split(":")[0] for line in found.left_out}
        await retinue.changes.undo(report.run_id)
    assert (folder / "build" / "out.o").read_bytes() == b"object"
    assert (folder / "large.bin").stat().st_size == 2_000_005
    assert (folder / ".gitignore").read_text() == "build/\n*.log\n"
    assert not (folder / "t.txt").exists()


async def test_the_record_is_private_goes_with_its_run_and_is_free_for_who_only_reads(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    shadow = tmp_path / "runs.db-shadow"
    async with opened(folder, [call("read", path="main.py"), "done"]) as retinue:
        await retinue.run("writer", "look")
        assert not shadow.exists()
    async with opened(folder, [bash("echo x > main.py"), "done"]) as retinue:
        report = await retinue.run("writer", "go")
        for path in (shadow, *shadow.rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == "HEAD", path
        assert stat.S_IMODE(shadow.stat().st_mode) == 0o700
        assert len(await retinue.store.kept(report.run_id)) == 2  # what was there, and what is
        await retinue.store.delete(report.run_id)
        assert not await retinue.store.kept(report.run_id)


async def test_what_a_workflow_did_not_change_in_the_end_is_no_change(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    steps = [bash("echo x > main.py"), bash("git checkout -q main.py"), "done"]
    async with opened(folder, steps) as retinue:
        report = await retinue.run("writer", "go")
        events = await retinue.store.events(report.run_id)
        assert sum(isinstance(event, FilesChanged) for event in events) == 2
        assert (await retinue.changes.of(report.run_id))[0].changes == ()


KILLED = """
import asyncio, os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from projects import bash, opened
folder = Path({folder!r})
async def main():
    command = f"echo half > main.py; rm -r lib; kill -9 {{os.getpid()}}; sleep 60"
    async with opened(folder, [bash(command), "done"]) as retinue:
        await retinue.run("writer", "go", run_id={run_id!r})
asyncio.run(main())
"""


@pytest.mark.parametrize("resumed", [True, False])
async def test_what_a_command_changed_before_kill_9_is_known_and_taken_back(
    tmp_path: Path, resumed: bool
) -> None:
    folder, run_id = project(tmp_path / "p"), "r1m7h4aaaaaaaaaaaa"
    before = tree(folder)
    code = KILLED.format(tests=str(Path(__file__).parent), folder=str(folder), run_id=run_id)
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert killed.returncode == -9
    async with opened(folder, ["gave up"]) as retinue:
        if resumed:
            await retinue.resume(run_id)
            await retinue.wait(run_id)
            kinds = [e for e in await retinue.store.events(run_id) if isinstance(e, FilesChanged)]
            assert [event.interrupted for event in kinds] == [True]
        found, _ = await retinue.changes.of(run_id)
        assert {"main.py", "lib", "lib/two.py"} <= {change.path for change in found.changes}
        assert bool(found.unfinished) is not resumed
        assert not (await retinue.changes.undo(run_id)).refused
        assert tree(folder) == before
        assert not (await retinue.changes.of(run_id))[0].changes


async def test_a_file_that_somebody_changed_since_it_was_read_is_refused_at_edit_and_at_write(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")

    def meddle(request: object) -> object:
        (folder / "main.py").write_text("print('one')  # theirs\n")
        return call("edit", path="main.py", old="one", new="two")

    steps = [
        call("read", path="main.py"),
        meddle,
        call("write", path="main.py", content="mine"),
        call("read", path="main.py"),
        [
            call("edit", "a", path="main.py", old="one", new="two"),
            call("edit", "b", path="main.py", old="theirs", new="ours"),
        ],
        call("edit", path="main.py", old="two", new="three"),
        "done",
    ]
    async with opened(folder, steps) as retinue:
        report = await retinue.run(
            "writer",
            "go",
        )
        events = await retinue.store.events(report.run_id)
    said = [event for event in events if isinstance(event, ToolReturned)]
    assert [event.is_error for event in said] == [False, True, True, False, False, False, False]
    assert "changed since you read it, by somebody else" in said[1].text
    assert (folder / "main.py").read_text() == "print('three')  # ours\n"


async def test_undo_of_a_child_and_of_what_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    child = [call("write", path="child.txt", content="c"), "made it"]
    root = [call("spawn_agent", name="helper", prompt="CHILD make it"), "done"]
    async with opened(
        folder, {"CHILD": child, "ROOT": root}, settings={"delegation.tools": ["spawn_agent"]}
    ) as retinue:
        report = await retinue.run(ROOT, "ROOT go")
        rows = await retinue.store.tree(report.run_id)
        kid = next(row for row in rows if row.parent_id)
        found, _ = await retinue.changes.of(kid.run_id)
        assert [change.path for change in found.changes] == ["child.txt"]
        with pytest.raises(ConfigError, match="is part of"):
            await retinue.changes.undo(kid.run_id)
        await retinue.changes.undo(report.run_id)
        assert not (folder / "child.txt").exists()


async def test_a_folder_that_somebody_has_files_in_stays_and_all_else_is_taken_back(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    before = tree(folder)
    made = "mkdir -p nd/deep; echo q > nd/deep/q; rm -r lib; echo file > lib"
    async with opened(folder, {"PLAY writer": [bash(made), "done"]}) as retinue:
        report = await retinue.run("writer", "go")
        (folder / "nd" / "deep" / "foreign").write_text("!")
        done = await retinue.changes.undo(report.run_id)
    assert done.refused == ()
    assert set(done.stays) == {"nd", "nd/deep"}
    now = tree(folder)
    assert {path for path in now if path not in before} == {"nd", "nd/deep", "nd/deep/foreign"}
    assert {path: now[path] for path in before} == before


async def test_a_file_in_the_place_of_a_folder_is_seen_before_anything_is_taken_back(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    made = "rm lib/deep/one.py; echo x > main.py; rm secret.txt; mkdir secret.txt"
    async with opened(folder, {"PLAY writer": [bash(made), "done"]}) as retinue:
        report = await retinue.run("writer", "go")
        (folder / "lib" / "deep").rmdir()
        (folder / "lib" / "deep").write_text("mine")
        (folder / "secret.txt" / "mine").write_text("mine")
        after = tree(folder)
        done = await retinue.changes.undo(report.run_id)
        assert dict(done.refused) == {
            "lib/deep/one.py": "lib/deep is a file now",
            "secret.txt": "secret.txt/mine is in it now",
        }
        assert tree(folder) == after


@pytest.mark.parametrize(
    ("with_git", "command", "what"), [(True, "rm -rf .git", "removed"), (False, "git init -q", "made")]
)
async def test_a_command_that_makes_or_removes_the_projects_repository_is_named(
    tmp_path: Path, with_git: bool, command: str, what: str
) -> None:
    folder = project(tmp_path / "p", git=with_git)
    async with opened(folder, {"PLAY writer": [bash(command), "done"]}) as retinue:
        report = await retinue.run("writer", "go")
        found, _ = await retinue.changes.of(report.run_id)
        done = await retinue.changes.undo(report.run_id)
    assert f".git: the project's repository, and it was {what}" in found.left_out
    assert done.left_out == found.left_out
