"""The five programs that show what a product does with the library: each does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def run(name: str, folder: Path, *arguments: str, said: str = "") -> str:
    """What an example prints, in a folder and with a home of its own."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        check=False,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        input=said,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_research_team_has_at_most_90_lines_as_ruff_formats_them() -> None:
    path = EXAMPLES / "research_team.py"
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"],
        check=True,
        input=path.read_text("utf-8"),
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    assert len(formatted.splitlines()) <= 90


def test_the_research_team_delegates_asks_books_advises_and_is_cancelled(tmp_path: Path) -> None:
    lines = run("research_team.py", tmp_path).splitlines()
    called = {line.split()[0] for line in lines}
    assert {"counter", "surveyor", "forecaster", "population", "distance", "weather", "book"} <= called
    assert 'lead wants to use book {"trip": {"city": "Lyon"}}' in lines
    assert "completed city='Lyon' reasons=['near', 'warm'] 0.0" in lines
    assert lines[-1] == "cancelled"


def test_a_service_that_is_stopped_at_work_goes_on_after_a_restart(tmp_path: Path) -> None:
    lines = run("service.py", tmp_path).splitlines()
    assert lines == ["asked: running", "after a restart: completed Bees are well known."]


def test_a_batch_that_is_killed_does_only_what_is_missing(tmp_path: Path) -> None:
    said = run("batch.py", tmp_path)
    assert "500 of 500 completed" in said
    [killed] = re.findall(r"killed after (\d+) of 500", said)
    [asked] = re.findall(r"asked the model (\d+) times in all", said)
    assert 100 < int(killed) < 500
    assert 500 <= int(asked) <= 520, "only the 20 that were under way may be asked twice"


def test_a_chat_goes_on_with_the_next_start(tmp_path: Path) -> None:
    first = run("chat.py", tmp_path, "chat.db", said="Bees?\nWasps?\n")
    assert "question number 2: 'Wasps?'" in first
    assert "question number 3: 'Hornets?'" in run("chat.py", tmp_path, "chat.db", said="Hornets?\n")


def test_the_tests_of_an_agent_pass_under_pytest(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path), str(EXAMPLES / "test_grocer.py")],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("...")
