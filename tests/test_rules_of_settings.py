"""Rules in settings: one that cannot be read is told with its file and line, a misspelt tool with what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Retinue, settings, tool
from retinue.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "none.toml").touch()
    monkeypatch.setenv(settings.CONFIG_VARIABLE, str(tmp_path / "none.toml"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def made(project: Path, text: str, **options: Any) -> Retinue:
    (project / "retinue.toml").write_text(text)
    return Retinue(cwd=project, model="offline", db="memory:", project=True, environ={}, **options)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[approvals]\ndeny = ["bash(git *"]\n', 2),
        ('approvals.ask = ["write", "bash(git *"]\n', 1),
        ('[approvals]\n\ndeny = [\n  "write",\n  "bash(git *",\n]\n', 5),
        ('[approvals]\ndeny = ["effect:wirte"]\n', 2),
        ('[approvals]\ndeny = [""]\n', 2),
        ('[limits]\nmax_turns = 5\n[approvals]\ndeny = ["risk:much"]\n', 4),
    ],
)
def test_a_rule_that_cannot_be_read_is_told_with_its_file_and_line(
    project: Path, text: str, line: int
) -> None:
    with pytest.raises(ConfigError) as error:
        made(project, text)
    assert (error.value.file, error.value.line) == (str(project / "retinue.toml"), line)
    assert error.value.fix


def test_a_rule_of_a_program_names_its_setting() -> None:
    with pytest.raises(ConfigError, match=r"^approvals.deny: cannot read the rule 'bash\(git \*'"):
        Retinue(model="offline", db="memory:", environ={}, settings={"approvals.deny": ["bash(git *"]})


def test_a_host_that_is_none_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "config.toml"
    mine.write_text('[web]\nallow_hosts = [\n  "wiki.corp",\n  "a b",\n]\n')
    monkeypatch.setenv(settings.CONFIG_VARIABLE, str(mine))
    with pytest.raises(ConfigError, match="is no host") as error:
        Retinue(cwd=tmp_path, model="offline", db="memory:", environ={})
    assert (error.value.file, error.value.line) == (str(mine), 4)


async def test_a_misspelt_tool_in_a_rule_is_told_with_what_was_meant(project: Path) -> None:
    rules = '[approvals]\ndeny = ["bahs(git *)", "write", "Bash(ls)", "mcp__x__bas", "wr*", "my_own", "effect:read"]\n'
    async with made(project, rules) as retinue:
        (warning,) = retinue.loaded.warnings
    where = f"{project / 'retinue.toml'}:2"
    assert (
        warning
        == f"{where}: approvals.deny: there is no tool 'bahs' in the rule 'bahs(git *)'; did you mean 'bash'?"
    )


@tool
def bahs() -> str:
    """It is there."""
    return ""


async def test_a_tool_or_an_agent_of_that_name_is_no_slip(project: Path) -> None:
    rules = '[approvals]\ndeny = ["bahs", "planer"]\n'
    spec = AgentSpec(name="planer", description="d", prompt="p", tools=())
    async with made(project, rules, tools=[bahs], agents=[spec]) as retinue:
        assert retinue.loaded.warnings == ()


async def test_settings_that_are_read_again_are_checked_again(project: Path) -> None:
    async with made(project, '[approvals]\ndeny = ["write"]\n') as retinue:
        (project / "retinue.toml").write_text('[approvals]\ndeny = ["wrte"]\n')
        assert "did you mean 'write'" in retinue.reload().warnings[0]
        (project / "retinue.toml").write_text('[approvals]\ndeny = ["bash(git *"]\n')
        with pytest.raises(ConfigError, match="cannot read the rule"):
            retinue.reload()
        assert retinue.settings.approvals.deny == ("wrte",)
