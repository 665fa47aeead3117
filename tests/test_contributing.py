"""What a newcomer is told to run is what the project runs: hooks, commands, examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
HOOKS = [
    hook
    for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repo["hooks"]
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def checks() -> list[str]:
    """The commands of `make check`."""
    makefile = (ROOT / "Makefile").read_text()
    [recipe] = re.findall(r"^check:.*\n((?:\t.*\n)+)", makefile, re.M)
    return [line.strip() for line in recipe.splitlines()]


def test_the_hooks_of_a_commit_are_the_commands_of_the_checks_and_of_the_whole_run() -> None:
    entries = [hook["entry"] for hook in HOOKS]
    assert entries == checks()
    script = (ROOT / "scripts" / "test.sh").read_text()
    lines = [line.removesuffix(" &") for line in script.splitlines()]
    assert [line for line in lines if line in entries] == entries
    for name in re.findall(r"^(\w+)=\$!$", script, re.M):
        assert f'wait "${name}"' in lines, "what runs beside the others is waited for, or its failure is lost"


def test_the_hooks_run_what_is_installed_and_fetch_nothing() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repo["repo"] for repo in repos} == {"local"}
    for hook in HOOKS:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False), hook
        assert os.access(ROOT / hook["entry"].split()[0], os.X_OK), hook


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "examples/README.md"])
def test_what_is_linked_named_or_made_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target
    for path in re.findall(r"(?:tests|docs|scripts|src|examples|bench)/[\w./-]*", text):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:\$ |`)make (\w+)", text):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_every_example_is_in_the_list() -> None:
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text())
    assert [path.name for path in EXAMPLES] == sorted(listed) != []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_without_a_key(example: Path, tmp_path: Path) -> None:
    """In a folder and with a home of its own, so that nothing set on this machine helps it."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(example)],
        check=False,
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "completed" in done.stdout


def test_the_agent_of_the_first_example_really_uses_its_tool() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import own_agent; print([m.text for m in own_agent.main() and own_agent.script.requests[-1].messages])",
        ],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "examples")},
        capture_output=True,
        text=True,
    )
    assert "A pear: 0.55 euros. (completed, 2 tool calls)" in done.stdout
    assert "'0.4'" in done.stdout
    assert "'0.55'" in done.stdout
