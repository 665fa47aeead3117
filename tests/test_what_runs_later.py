"""No tool changes a file unasked that says what runs later, with the person's rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Retinue
from retinue.authority.later import PLACES
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested
from retinue.sandbox.commands.guards import FOLDERS
from retinue.testing import ScriptedModel, call

WRITER = AgentSpec(name="writer", description="w", prompt="PLAY writer", tools=["write", "edit"])


async def asked(folder: Path, path: str, **options: Any) -> list[str]:
    """What a person is asked when this is written; they say no."""
    questions: list[str] = []

    async def person(question: ApprovalRequested) -> Answer:
        questions.append(question.reason)
        return Answer(decision="reject")

    model = ScriptedModel([call("write", path=path, content="x"), "done"])
    async with Retinue(
        model=model, agents=[WRITER], cwd=folder, db="memory:", environ={}, approve=person, **options
    ) as retinue:
        await retinue.run("writer", "go")
    return questions


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git/config",
        "sub/.git/config",
        ".mcp.json",
        "retinue.toml",
        ".retinue/tools/t.py",
        ".claude/agents/a.md",
        ".agents/skills/s/SKILL.md",
        "link/pre-commit",
        ".GIT/hooks/x",
        "./.git/../.mcp.json",
    ],
)
@pytest.mark.parametrize("settings", [{"approvals.allow": ["write"]}, {"approvals.auto_risk": "medium"}])
async def test_a_rule_about_writing_does_not_mean_what_runs_later(
    tmp_path: Path, path: str, settings: dict[str, Any]
) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / "link").symlink_to(".git/hooks")
    (reason,) = await asked(tmp_path, path, settings=settings)
    assert "says what runs later, with your rights" in reason
    assert not (tmp_path / ".git/hooks/pre-commit").exists()


@pytest.mark.parametrize(
    ("link", "to", "path"),
    [
        (".mcp.json", "servers.json", "servers.json"),
        (".claude", "shared", "shared/agents/a.md"),
        (".git/hooks", "../hk", "hk/pre-commit"),
        (".git/hooks/pre-commit", "../../scripts/pc", "scripts/pc"),
    ],
)
async def test_what_such_a_place_leads_to_by_a_link_is_meant_too(
    tmp_path: Path, link: str, to: str, path: str
) -> None:
    for name in (".git", "shared/agents", "hk", "scripts"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(to)
    (reason,) = await asked(tmp_path, path, settings={"approvals.allow": ["write"]})
    assert f"{link} says what runs later" in reason


async def test_other_files_a_rule_that_names_it_and_yes_ask_nobody(tmp_path: Path) -> None:
    assert await asked(tmp_path, "docs/git.md", settings={"approvals.allow": ["write"]}) == []
    assert await asked(tmp_path, ".gitignore", settings={"approvals.allow": ["write"]}) == []
    assert await asked(tmp_path, ".mcp.json", settings={"approvals.allow": ["write(.mcp.json)"]}) == []
    assert await asked(tmp_path, "retinue.toml", yes=True) == []


def test_what_a_sealed_command_cannot_change_a_tool_asks_about() -> None:
    assert {*FOLDERS, ".git"} == PLACES
