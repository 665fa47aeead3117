"""`retinue research` says how it delegates before it starts, and writes its report without replacing another."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from retinue.cli.exporting import write_new
from retinue.errors import ConfigError


async def researched(tmp_path: Path, *more: str) -> tuple[str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retinue", "research", "what is in notes?", "--model", "offline"),
        *("--db", f"sqlite://{tmp_path}/a.db", *more),
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return out.decode(), err.decode()


async def test_it_says_its_policy_and_children_and_never_replaces_a_report(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Bees make honey.\n")
    _, said = await researched(tmp_path, "--thoroughness", "quick", "--max-cost", "2", "-o", "found")
    assert "policy flat, up to 3 sub-agents, at most $2.00" in said
    first = (tmp_path / "found.md").read_text()
    assert "Offline model" in first
    assert "<script" not in (tmp_path / "found.html").read_text()
    await researched(tmp_path, "-o", "found.md")
    assert (tmp_path / "found.md").read_text() == first
    assert (tmp_path / "found-2.md").exists()


async def test_a_dash_writes_no_file_and_quiet_says_nothing_of_it(tmp_path: Path) -> None:
    out, said = await researched(tmp_path, "-o", "-", "--quiet")
    assert "Offline model" in out
    assert "policy" not in said
    assert not list(tmp_path.glob("*.md"))


async def test_a_report_goes_beside_the_project_and_what_cannot_be_written_is_told_before_the_work(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "away").symlink_to(tmp_path)
    await researched(project, "-o", "../found.md")
    assert "Offline model" in (tmp_path / "found.md").read_text()
    for wanted, why in (("away/found2", "leads out of"), ("nowhere/found2", "there is no folder")):
        _, said = await researched(project, "-o", wanted)
        assert why in said
        assert "policy" not in said, "it began all the same"
        assert not (tmp_path / "found2.md").exists()


def test_a_new_file_follows_links_of_a_person_and_none_that_leads_out_of_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("project/docs", "reports"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(project)
    (project / "out").symlink_to(tmp_path / "reports")
    (project / "inner").symlink_to("docs")
    for path in ("project/../reports/a", "link/docs/b", "project/inner/c", "project/docs/../../reports/d"):
        write_new(tmp_path / path, b"x", project=project)
        assert (tmp_path / path).read_bytes() == b"x"
    for path in ("project/out/e", "link/out/e", "reports/../link/docs/../out/e"):
        with pytest.raises(ConfigError, match="leads out of"):
            write_new(tmp_path / path, b"x", project=project)
    with pytest.raises(ConfigError, match="is there already"):
        write_new(tmp_path / "reports/a", b"y", project=project)
    assert not (tmp_path / "reports/e").exists()
