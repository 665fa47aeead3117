"""`retinue research` says how it delegates before it starts, and writes its report without replacing another."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path


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
