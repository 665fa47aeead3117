"""What the shadow of a project takes in, what it leaves out, and what it keeps no longer than it is needed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from projects import project

from retinue import git as git_module
from retinue.engine.shadows import Shadows
from retinue.git import GitFailed
from retinue.sandbox.commands.guards import Guards
from retinue.settings import UndoSettings
from retinue.shadow import WORKTREE, Shadow
from retinue.store.memory import MemoryStore


def shadow_of(folder: Path) -> Shadow:
    return Shadow(folder.parent / "shadow", folder, most_bytes=1_000_000, most_files=1000)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def kinds(shadow: Shadow) -> dict[str, str]:
    return {path: seen.kind for path, seen in shadow.now().items()}


def test_what_git_tracks_is_never_ignored(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / "build" / "other.o").write_bytes(b"other")
    shadow = shadow_of(folder)
    assert kinds(shadow)["build"] == "ignored"
    git(folder, "add", "-f", "build/out.o")
    found = kinds(shadow)
    assert (found["build"], found["build/out.o"], found["build/other.o"]) == ("folder", "file", "ignored")
    shadow.begin("r", "c")
    (folder / "build" / "out.o").write_bytes(b"changed")
    difference = shadow.changed_since("r", "c")
    assert difference is not None
    assert [change.path for change in difference.changes] == ["build/out.o"]
    shadow.close()


def test_what_git_tracks_is_found_from_a_folder_below_and_in_a_linked_worktree(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / "lib" / ".gitignore").write_text("*.py\n")
    assert kinds(shadow_of(folder / "lib"))["two.py"] == "file"
    git(folder, "worktree", "add", "-q", "-b", "other", str(tmp_path / "q" / "linked"))
    linked = tmp_path / "q" / "linked"
    (linked / ".gitignore").write_text("lib/\n")
    assert kinds(shadow_of(linked))["lib/two.py"] == "file"


def test_what_a_person_ignores_everywhere_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text(".env\n")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    folder = project(tmp_path / "p")
    for name in (".env", "mine.txt", "here.txt", "later.txt"):
        (folder / name).write_text("KEY=1")
    (folder / ".git" / "info" / "exclude").write_text("here.txt")
    shadow = shadow_of(folder)
    found = kinds(shadow)
    assert (found[".env"], found["mine.txt"], found["here.txt"]) == ("ignored", "file", "ignored")
    (home / "own").write_text("mine.txt")
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/own\n")
    (tmp_path / "other").mkdir()
    again = Shadow(tmp_path / "other", folder, most_bytes=1_000_000, most_files=1000)
    found = kinds(again)
    assert (found[".env"], found["mine.txt"], found["here.txt"]) == ("file", "ignored", "ignored")
    (folder / ".git" / "info" / "exclude").write_text("")
    assert kinds(again)["here.txt"] == "file"


def test_a_copy_that_stays_keeps_only_what_it_began_from(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "a").write_bytes(b"first")
    shadow = shadow_of(folder)
    first = shadow.begin("copy", WORKTREE)["a"].sha
    seen: list[str] = []
    for at in range(5):
        shadow.begin("r", f"c{at}")
        (folder / "a").write_bytes(os.urandom(1000))
        shadow.changed_since("r", f"c{at}")
        shadow.end("r", f"c{at}")
        seen.append(shadow.now()["a"].sha)
    assert [shadow.content(sha) is not None for sha in seen] == [False] * 4 + [True]
    assert shadow.content(first) == b"first"
    base = shadow.at("copy", WORKTREE)
    assert base is not None
    assert base["a"].sha == first
    shadow.end("copy", WORKTREE)
    assert shadow.content(first) is None


@pytest.mark.parametrize("name", ["q/.gitignore", ".gitignore", ".git/index", ".git/HEAD"])
@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_a_pipe_or_a_giant_where_git_looks_for_a_file_stops_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr("retinue.git.SECONDS", 5)
    folder = project(tmp_path / "p")
    (folder / "q").mkdir()
    (folder / "old.log").write_text("ignored")
    shadow = shadow_of(folder)
    shadow.begin("r", "c1")
    place = folder / name
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.touch()
        os.truncate(place, 6_000_000_000)
    (folder / "main.py").unlink()
    (folder / "q/new.txt").write_text("new")
    found = None
    for again in (shadow, shadow_of(folder)):
        found = again.changed_since("r", "c1")
        assert found is not None
        assert {"main.py", "q/new.txt"} <= {change.path for change in found.changes}
        assert "old.log" not in {line.split(":")[0] for line in found.left_out}
    words = f"{name}: a pipe" if kind == "pipe" else f"{name}: larger than 1,"
    assert any(words in line for line in (found.left_out if found else ()))
    place.unlink()
    found = shadow.changed_since("r", "c1")
    assert found is not None
    assert not any(", so what git ignores" in line for line in found.left_out)


def test_what_nobody_looks_after_is_told_when_it_changes(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / "one.log").write_text("1")
    (folder / "two.log").write_text("2")
    (folder / "same.log").write_text("3")
    shadow = shadow_of(folder)
    shadow.begin("r", "c1")
    (folder / "one.log").write_text("overwritten")
    (folder / "two.log").unlink()
    (folder / "sub/.git").mkdir(parents=True)
    (folder / "sub/file.txt").write_text("x")
    Path(os.fsdecode(os.fsencode(folder) + b"/odd\xff")).write_text("x")
    found = shadow.changed_since("r", "c1")
    assert found is not None
    assert [change.path for change in found.changes] == ["sub", "sub/file.txt"]
    assert found.left_out == (
        "odd\\xff: its name is no text, and it was made",
        "one.log: ignored by git, and it was changed",
        "sub/.git: a repository of its own, and it was made",
        "two.log: ignored by git, and it was removed",
    )


async def test_shadows_of_a_store_in_memory_go_with_it(tmp_path: Path) -> None:
    shadows = Shadows(MemoryStore())
    shadow = shadows.of(project(tmp_path / "p"), UndoSettings())
    assert shadow is not None
    shadow.begin("r", "before")
    kept = shadows.beside("")
    assert kept.is_dir()
    await shadows.close()
    assert not kept.exists()


async def test_what_stands_in_for_something_while_a_command_is_sealed_is_nobodys_change(
    tmp_path: Path,
) -> None:
    """Two commands at once: the second begins or ends while the first has its stand-ins in the project."""
    folder, shadows = project(tmp_path / "p"), Shadows(MemoryStore())
    shadow = shadows.of(folder, UndoSettings())
    assert shadow is not None
    shadow.begin("r", "before")
    guards = Guards()
    guards.guard(str(folder), [], [], [])
    try:
        made = {os.path.relpath(path, folder) for path in guards.closed}
        assert {".retinue", ".claude", ".mcp.json", "retinue.toml", "refs"} <= made
        shadow.begin("r", "during")
        (folder / "new.txt").write_text("n")
        (folder / "retinue.toml" / "x").write_text("somebody else's")
        before = shadow.changed_since("r", "before")
    finally:
        guards.leave()
    during = shadow.changed_since("r", "during")
    for found in (before, during):
        assert found is not None
        assert [change.path for change in found.changes] == ["new.txt", "retinue.toml", "retinue.toml/x"]
        assert found.left_out == ()
    await shadows.close()


def test_a_git_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = tmp_path / "bin" / "git"
    stuck.parent.mkdir()
    stuck.write_text("#!/bin/sh\nexec sleep 1000\n")
    stuck.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stuck.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(git_module, "SECONDS", 0.2)
    project = tmp_path / "project"
    project.mkdir()
    with pytest.raises(GitFailed, match=r"git status took longer than 0\.2 s"):
        git_module.git(project, "status")
