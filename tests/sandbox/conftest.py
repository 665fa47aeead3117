"""One engine of each kind that this machine can run, shared by the tests of a file, as by the runs of a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from sealed import PLANTED

from retinue.sandbox import open_engine
from retinue.sandbox.base import Engine
from retinue.settings import CodeSettings


@pytest_asyncio.fixture(params=["monty", "cpython"], scope="module", loop_scope="module")
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    opened, notice = open_engine(CodeSettings(engine=request.param))
    if notice is not None:
        pytest.skip(notice)
    yield opened
    await opened.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with keys, a folder of somebody else, and a project that is a repository."""
    for name in (
        ".ssh/id_rsa",
        ".aws/credentials",
        ".config/gh/hosts.yml",
        ".netrc",
        ".local/share/retinue/runs.db",
    ):
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text(PLANTED)
    (tmp_path / "home/.gitconfig").write_text(
        "[user]\n\tname = A Person\n\temail = a@example.org\n[x]\n\ty = " + PLANTED
    )
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text(PLANTED)
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("a\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    monkeypatch.setenv("PLANTED_KEY", PLANTED)
    git = ["git", "-C", str(project)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    return tmp_path
