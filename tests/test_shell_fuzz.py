"""Rules for commands against bash itself, for a moment; `tests/fuzz/shell_trial.py` does it for as long as you like."""

from __future__ import annotations

import json
import random
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.shell_commands import Commands
from fuzz.shell_rules import suggestion_means_one_command
from fuzz.shell_trial import everyday

TRIAL = Path(__file__).parent / "fuzz/shell_trial.py"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="it needs Linux and bash"
)


def trial(*words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(TRIAL), *words], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", [1, secrets.randbelow(2**31)], ids=["fixed", "fresh"])
def test_what_the_published_rules_allow_runs_nothing_else_under_bash(seed: int) -> None:
    found = trial("allow", "--commands", "1500", "--seed", str(seed), "--real-every", "4")
    assert found["beyond"] == [], f"seed {seed}"
    assert found["distinct"] >= 100, "too little is allowed to say anything"
    assert found["programs"] >= found["distinct"] * 0.5, "the stubs see what runs"


@pytest.mark.parametrize("seed", [2, secrets.randbelow(2**31)], ids=["fixed", "fresh"])
def test_what_runs_a_denied_program_under_bash_is_denied_or_asked_about(seed: int) -> None:
    found = trial("deny", "--commands", "400", "--seed", str(seed))
    assert found["beyond"] == [], f"seed {seed}"
    assert found["ran"] >= 200


def test_a_suggested_rule_means_the_command_it_was_suggested_for_and_no_other() -> None:
    seed = random.Random().getrandbits(32)
    draw = Commands(seed, everyday(), {})
    for command in ("mark", "  mark", *(draw() for _ in range(1500))):
        try:
            suggestion_means_one_command(command)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {command!r}: {error}") from None
