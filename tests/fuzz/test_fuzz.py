"""The fuzz targets hold for a moment of fuzzing, and the fuzzer finds what is wrong where something is."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.driver import TARGETS

DRIVER = Path(__file__).with_name("driver.py")
SECONDS = "1.5"


def drive(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DRIVER), *arguments], check=False, capture_output=True, text=True, timeout=100
    )


def counted(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("target", TARGETS)
def test_a_moment_of_fuzzing_finds_nothing(target: str, tmp_path: Path) -> None:
    done = drive(target, "--seconds", SECONDS, "--seed", "1", "--keep", str(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(str(counted(done)["tried"])) > 50, done.stdout


@pytest.mark.parametrize("engine", ["atheris", "hypothesis"])
def test_both_engines_find_a_planted_mistake_and_keep_its_input(engine: str, tmp_path: Path) -> None:
    if engine == "atheris" and importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no wheel for this machine and Python")
    done = drive("planted", "--seconds", "60", "--seed", "1", "--engine", engine, "--keep", str(tmp_path))
    assert done.returncode != 0, done.stdout
    assert counted(done)["engine"] == engine
    (kept,) = tmp_path.glob("planted-*")
    again = drive("planted", "--input", str(kept))
    assert again.returncode != 0
    assert "the planted mistake" in again.stderr


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris")
def test_coverage_leads_the_fuzzer_to_what_chance_does_not_find(tmp_path: Path) -> None:
    done = drive("planted_deep", "--seconds", "60", "--seed", "1", "--keep", str(tmp_path))
    assert "the deep mistake" in done.stderr, done.stdout
