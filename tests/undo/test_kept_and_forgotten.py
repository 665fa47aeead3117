"""What is kept to take changes back: in either database, in what is saved and exported, and no longer than that."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from projects import bash, opened, project, tree

from pg import postgres_url as postgres_url
from retinue.app import Retinue
from retinue.shadow import Shadow
from retinue.store.salvage import salvage
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import AgentSpec

CODER = AgentSpec(
    name="coder", description="codes", prompt="You code.", tools=("write", "bash"), isolation="worktree"
)
BOSS = AgentSpec(name="boss", description="asks", prompt="PLAY boss", tools=("coder", "write", "bash"))
MESS = [call("write", path="main.py", content="x\n"), bash("rm lib/two.py; printf '\\0' >> picture.bin")]


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a database in another place has its shadows."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def shadows(retinue: Retinue) -> list[Path]:
    return retinue.services.shadows.known()


async def test_with_postgresql_changes_are_shown_and_taken_back_to_the_last_byte(
    tmp_path: Path, postgres_url: str
) -> None:
    folder = project(tmp_path / "p")
    before = tree(folder)
    async with opened(folder, [*MESS, "done"], db=postgres_url) as retinue:
        report = await retinue.run("writer", "go")
    assert tree(folder) != before
    async with opened(folder, [], db=postgres_url) as retinue:  # another process would see no more
        found, content = await retinue.changes.of(report.run_id)
        assert {change.path for change in found.changes} == {"main.py", "lib/two.py", "picture.bin"}
        assert all(content(change.before.sha256) is not None for change in found.changes)
        assert not (await retinue.changes.undo(report.run_id)).refused
        assert tree(folder) == before
        await retinue.store.delete(report.run_id)
        assert await retinue.store.kept(report.run_id) == []


async def test_with_postgresql_what_a_killed_command_changed_is_taken_back(
    tmp_path: Path, postgres_url: str
) -> None:
    folder = project(tmp_path / "p")
    before = tree(folder)
    await killed(folder, postgres_url)
    assert tree(folder) != before
    async with opened(folder, [], db=postgres_url) as retinue:
        await retinue.cancel("r0killed")
        assert not (await retinue.changes.undo("r0killed")).refused
    assert tree(folder) == before


async def killed(folder: Path, db: str) -> None:
    """A run whose process dies in the middle of a command that has changed something."""
    program = f"""
        import asyncio, os, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from projects import bash, opened
        async def go():
            command = f"rm lib/two.py; echo x > main.py; kill -9 {{os.getpid()}}; sleep 60"
            async with opened(Path({str(folder)!r}), [bash(command), "done"], db={db!r}) as retinue:
                await retinue.start("writer", "go", run_id="r0killed")
                await retinue.wait("r0killed")
        asyncio.run(go())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), env={**os.environ}
    )
    assert await process.wait() == -signal.SIGKILL


async def test_what_is_saved_of_a_damaged_database_can_still_be_taken_back(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    before = tree(folder)
    async with opened(folder, [*MESS, "done"]) as retinue:
        report = await retinue.run("writer", "go")
    await asyncio.to_thread(salvage, tmp_path / "runs.db", tmp_path / "saved.db")
    async with opened(folder, [], db=str(tmp_path / "saved.db")) as retinue:
        assert not (await retinue.changes.undo(report.run_id)).refused
    assert tree(folder) == before


# -- no longer than needed -----------------------------------------------------


async def test_the_shadow_of_a_copy_goes_with_the_copy(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    steps = {
        "TASK": [call("write", path="new", content="n"), "did"],
        "PLAY boss": [call("coder", prompt="TASK"), "x"],
    }
    model = ScriptedModel(steps)
    db = str(tmp_path / "runs.db")
    async with Retinue(model=model, agents=[CODER, BOSS], cwd=folder, environ={}, yes=True, db=db) as retinue:
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        assert len(shadows(retinue)) == 2
        await retinue.changes.discard(copy.run_id, retinue.services.worktrees)
        assert len(shadows(retinue)) == 1


async def test_pruning_removes_the_shadows_of_projects_without_workflows_and_no_others(
    tmp_path: Path,
) -> None:
    one, two = project(tmp_path / "one"), project(tmp_path / "two")
    async with opened(one, [*MESS, "done"]) as retinue:
        gone = (await retinue.run("writer", "go")).run_id
    async with opened(two, [*MESS, "done"]) as retinue:
        stays = (await retinue.run("writer", "go")).run_id
    async with opened(tmp_path, [], db=str(tmp_path / "runs.db")) as retinue:
        assert len(shadows(retinue)) == 2
        await retinue.store.delete(gone)
        assert await retinue.changes.tidy(retinue.services.worktrees) > 0
        assert len(shadows(retinue)) == 1
        assert await retinue.changes.tidy(retinue.services.worktrees) == 0
        assert not (await retinue.changes.undo(stays)).refused


async def test_what_a_killed_command_left_goes_with_its_workflow(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    await killed(folder, str(tmp_path / "runs.db"))
    async with opened(folder, []) as retinue:
        await retinue.cancel("r0killed")
        await retinue.store.delete("r0killed")
        await retinue.changes.tidy(retinue.services.worktrees)
        assert shadows(retinue) == []


async def test_deleting_forgets_what_its_commands_began_from_and_keeps_what_copies_need(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    await killed(folder, str(tmp_path / "runs.db"))
    async with opened(folder, []) as retinue:
        await retinue.cancel("r0killed")
        shadow = retinue.services.shadows.of(folder, retinue.settings.undo)
        assert shadow is not None
        assert shadow.begun(["r0killed"])
        shadow.begin("another", "worktree")
        await retinue.changes.forget("r0killed")
        assert not shadow.begun(["r0killed"])
        assert shadow.at("another", "worktree") is not None


async def test_where_databases_share_a_folder_what_another_remembers_is_left_alone(
    tmp_path: Path, postgres_url: str
) -> None:
    folder = project(tmp_path / "p")
    await killed(folder, postgres_url)
    async with opened(tmp_path, [], db=postgres_url) as retinue:
        await retinue.cancel("r0killed")
        await retinue.store.delete("r0killed")  # to this one it is as if it had never been
        await retinue.changes.tidy(retinue.services.worktrees)
        assert len(shadows(retinue)) == 1


def test_a_shadow_that_somebody_removed_is_made_anew_by_whoever_has_it_open(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")

    def opened_shadow() -> Shadow:
        return Shadow(tmp_path / "s", folder, most_bytes=10**6, most_files=1000)

    mine = opened_shadow()
    mine.now()
    from retinue.shadow import remove_idle

    assert remove_idle(tmp_path / "s") > 0
    mine.begin("r", "c")
    (folder / "main.py").write_text("changed\n")
    after_a_crash = opened_shadow()
    found = after_a_crash.changed_since("r", "c")
    assert found is not None
    assert [change.path for change in found.changes] == ["main.py"]
    assert remove_idle(tmp_path / "s") == 0, "something is remembered in it"
