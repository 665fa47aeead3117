"""A project with a little of everything, a workspace and an agent in both."""

from __future__ import annotations

from pathlib import Path

import pytest
from working import Agent

from retinue.workspace import Files
from retinue.workspace_folder import Workspace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    files = {
        ".gitignore": "build/\n*.log\n!keep.log\n",
        "README.md": "# The project\n\nneedle in the readme\n",
        "src/a.py": "one\nneedle = 1\nthree\nfour\nneedle = 2\n",
        "src/deep/b.py": "def b():\n    return 'Needle'\n",
        "src/deep/.gitignore": "local.py\n",
        "src/deep/local.py": "needle\n",
        "src/deep/build/out.py": "needle\n",
        "src/notes.txt": "needle\n",
        "build/made.py": "needle\n",
        "run.log": "needle\n",
        "keep.log": "needle\n",
        ".github/ci.yml": "needle: yes\n",
        ".git/config": "needle\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text("needle canary\n")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "out.py").symlink_to(tmp_path / "outside" / "secret.py")
    (folder / "lib").symlink_to("src/deep")
    (tmp_path / ".gitignore").write_text("*\n")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


@pytest.fixture
def agent(project: Path, workspace: Workspace) -> Agent:
    return Agent(Files(project, workspace))
