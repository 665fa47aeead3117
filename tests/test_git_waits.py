"""Git is not started where it would wait for a pipe."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from retinue.git import GitFailed, git, waits_for

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
PIPES = (
    *(
        "HEAD",
        "config",
        "config.worktree",
        "packed-refs",
        "index",
        "shallow",
        "info/exclude",
        "info/attributes",
    ),
    *("objects/info/alternates", "refs/heads/deep/er", "FETCH_HEAD", "../.gitignore", "../.gitattributes"),
)


def repository(folder: Path) -> Path:
    subprocess.run([shutil.which("git") or "git", "init", "-q", str(folder)], check=True)
    return folder / ".git"


def pipe_at(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_the_place_of_a_file_of_git_is_not_waited_for(tmp_path: Path, name: str) -> None:
    pipe_at(repository(tmp_path) / name)
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        assert waits_for(folder).endswith("is a pipe")
        with pytest.raises(GitFailed, match="git would wait"):
            git(folder, "status")


@pytest.mark.parametrize("name", ["index", "refs/heads/x", "info/exclude"])
def test_nor_by_a_link_nor_in_what_a_work_tree_shares(tmp_path: Path, name: str) -> None:
    made = repository(tmp_path / "main")
    pipe_at(tmp_path / "pipe")
    shared = made / "worktrees/w"
    shared.mkdir(parents=True)
    (shared / "commondir").write_text("../..\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.git").write_text(f"gitdir: {shared}\n")
    assert waits_for(tmp_path / "w") == ""
    (made / name).unlink(missing_ok=True)
    (made / name).symlink_to(tmp_path / "pipe")
    assert waits_for(tmp_path / "w").endswith("is a pipe")


def test_other_repositories_are_not_in_its_way(tmp_path: Path) -> None:
    made = repository(tmp_path)
    (made / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(made / "s"))
    pipe_at(tmp_path / "src/pipe")
    pipe_at(made / "hooks/pipe")
    assert waits_for(tmp_path) == ""
    git(tmp_path, "status")
