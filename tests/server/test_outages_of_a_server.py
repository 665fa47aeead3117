"""Something fails under a real server with runs under way: all of them end by themselves, and are paid for once.

The same at length, with hundreds of runs and a real PostgreSQL that goes away: `scripts/outages.py`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import crowds
import pytest
from crowds import Crowd

RUNS = 12


def can_mount(folder: Path) -> bool:
    """Whether a folder can be given a disk of its own here."""
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(
            [*crowds.on_a_small_disk(folder, 1), "true"], check=False, capture_output=True
        ).returncode
        == 0
    )


async def test_runs_outlive_a_database_that_another_process_holds(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, RUNS, speaking=2)
    async with crowd.served():
        await crowd.begin()
        await crowd.suffer(crowds.locked(tmp_path / "log.db"), 2.5)
        outcome = await crowd.judge(patience=60)
    assert outcome.held, outcome
    assert outcome.in_reply == RUNS // 4
    assert outcome.taken_up == 0, "none of them was dropped meanwhile"
    assert any("locked by another program" in line for line in outcome.said)


async def test_runs_outlive_that_nothing_can_be_opened(tmp_path: Path) -> None:
    """Longer than a model that cannot be reached is tried again."""
    crowd = Crowd(tmp_path, RUNS, speaking=2)
    async with crowd.served() as serving:
        await crowd.begin()
        await crowd.suffer(crowds.without_handles(serving), 5)
        outcome = await crowd.judge(patience=60)
    assert outcome.held, (outcome, outcome.errors)
    said = [line for line in outcome.said if "Too many open files" in line]
    assert len(said) == 1, "it is said once"
    assert not any("Traceback" in line for line in outcome.said)


async def test_runs_outlive_a_disk_that_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("no file systems can be mounted here")
    crowd = Crowd(tmp_path, RUNS, speaking=2)
    within = crowds.on_a_small_disk(disk, 64)
    async with crowd.served(db=f"sqlite://{disk}/log.db", within=within) as serving:
        assert serving.process is not None
        await crowd.begin()
        await crowd.suffer(crowds.filled(Path(f"/proc/{serving.process.pid}/root{disk}")), 2.5)
        outcome = await crowd.judge(patience=60)
    assert outcome.held, outcome
    assert outcome.taken_up == 0
    assert any("no space left" in line for line in outcome.said)
