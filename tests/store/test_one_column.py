"""To add a column to `runs`, one field is added to `StoredRun` or `RunRow`: everything else follows from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_migrate import restored

import retinue

FIELDS = """
    steps: Annotated[int, Added({StepStarted: lambda e: 1}, since=90)]
    mood: Annotated[str, Moved({RunFinished: lambda before, e: f"all {e.report.status}"}, first="busy", since=90)]
    asker: Annotated[str | None, Started(lambda e: e.spec.name, since=90)]
"""
SCRIPT = """
import asyncio, sys
from retinue.store.base import RunFilter
from retinue.store.connect import connect
from runlog import Log

async def main():
    store = connect(sys.argv[1])
    await store.open()
    for row in sorted(await store.runs(RunFilter()), key=lambda row: row.run_id):
        if row.run_id == row.root_id:
            print(row.run_id, row.steps, row.mood, row.asker)
    log = Log("new")
    await store.append([log.start(), log.step(), log.reply()])
    await store.append([log.step()])
    print(*[(row.steps, row.mood) for row in [await store.run("new")]])
    await store.append([log.finish()])
    print(*[(row.steps, row.mood, row.asker) for row in await store.runs(RunFilter(agent="general"))])
    await store.close()

asyncio.run(main())
"""
OLD = [
    "asks 1 busy root",
    "done 2 all completed root",
    "fail 1 all error root",
    "half 2 busy root",
    "poor 2 all completed root",
    "shut 2 all completed root",
    "stop 1 all cancelled root",
    "talk 3 all completed root",
]
NEW = ["(2, 'busy')", "(2, 'all completed', 'general')"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Retinue as it is, with three fields more."""
    made = tmp_path / "changed"
    shutil.copytree(Path(retinue.__file__).parent, made / "retinue")
    file = made / "retinue" / "store" / "runs.py"
    text = file.read_text()
    assert text.count("\n\n\nclass StoredRun") == 1
    text = text.replace("\n\n\nclass StoredRun", f"{FIELDS}\n\nclass StoredRun")
    file.write_text(text.replace("    RunStarted,\n", "    RunStarted,\n    StepStarted,\n", 1))
    return made


@pytest.mark.parametrize("database", ["new", "stored"])
def test_a_column_is_one_field(url: str, database: str, package: Path, tmp_path: Path) -> None:
    if database == "stored":
        if url == "memory:":
            pytest.skip("nothing is stored in memory")
        restored(url, tmp_path)
    path = f"{package}:{Path(__file__).parent}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, url],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*(OLD if database == "stored" else []), *NEW]
