"""No tool changes a file unasked that says what runs later, with the person's rights."""

from __future__ import annotations

import os
import shutil
import subprocess
from os.path import normpath
from pathlib import Path
from typing import Any, Literal

import pytest

from retinue import AgentSpec, Retinue, tool
from retinue.authority.later import PLACES, run_later
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested
from retinue.sandbox.commands.guards import FOLDERS
from retinue.testing import ScriptedModel, call
from retinue.workspace import Files

WRITER = AgentSpec(name="writer", description="w", prompt="PLAY writer", tools=["write", "edit"])


async def asked(folder: Path, path: str, **options: Any) -> list[str]:
    """What a person is asked when this is written; they say no."""
    questions: list[str] = []

    async def person(question: ApprovalRequested) -> Answer:
        questions.append(question.reason)
        return Answer(decision="reject")

    model = ScriptedModel([call("write", path=path, content="x"), "done"])
    options = {"environ": {}, **options}
    async with Retinue(
        model=model, agents=[WRITER], cwd=folder, db="memory:", approve=person, **options
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


@pytest.mark.parametrize(
    "path", ["AGENTS.md", "sub/deep/AGENTS.md", "sub/agents.md", "CLAUDE.md", "sub/x/../AGENTS.md"]
)
async def test_what_agents_are_told_in_later_runs_asks_at_any_depth(tmp_path: Path, path: str) -> None:
    allowed = {"approvals.allow": ["write"]}
    (reason,) = await asked(tmp_path, path, settings=allowed)
    assert f"{normpath(path)} says what agents are told in later runs" in reason
    assert await asked(tmp_path, "docs/AGENTS.md.txt", settings=allowed) == []
    named = {"approvals.allow": [f"write({normpath(path)})"]}
    assert await asked(tmp_path, path, settings=named) == []


async def test_the_file_that_instructions_of_a_folder_are_a_link_to_is_meant_too(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/AGENTS.md").symlink_to("GEMINI.md")
    (reason,) = await asked(tmp_path, "sub/GEMINI.md", settings={"approvals.allow": ["write"]})
    assert "sub/AGENTS.md says what agents are told in later runs" in reason


WIDE = [
    "write(docs/**)",
    "write(**/config)",
    "write(*/*/.g?t/**)",
    "effect:write(docs/**)",
    "*(docs/)",
    "write(docs/*)",
]


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("docs/theme/.git/config", "write(docs/theme/.git/config)"),
        ("docs/theme/.git/hooks/pre-commit", "write(docs/**/.git/**)"),
        ("docs/theme/.git", "write(docs/*/.git)"),
        ("docs/.mcp.json", "write(docs/.mcp.json)"),
        ("docs/.claude/settings.json", "write(docs/.claude/)"),
        ("docs/AGENTS.md", "write(**/AGENTS.md)"),
        ("docs/.claude/AGENTS.md", "write(docs/.claude/AGENTS.md)"),
    ],
)
async def test_a_rule_about_a_folder_means_what_runs_later_there_only_if_it_says_its_name(
    tmp_path: Path, path: str, rule: str
) -> None:
    (reason,) = await asked(tmp_path, path, settings={"approvals.allow": WIDE})
    assert f"{path} says what" in reason
    assert await asked(tmp_path, path, settings={"approvals.allow": [rule]}) == []
    absolute = rule.replace("(", f"({tmp_path}/")
    assert await asked(tmp_path, path, settings={"approvals.allow": [absolute]}) == []
    assert await asked(tmp_path, "docs/deep/plain.md", settings={"approvals.allow": WIDE}) == []


@pytest.mark.parametrize(
    "rule", ["write(docs/.git/**)", "write(docs/*)", "write(.git/**)", "write(docs/**/git)"]
)
async def test_a_name_that_a_rule_says_of_another_folder_is_not_said_of_this_one(
    tmp_path: Path, rule: str
) -> None:
    allowed = {"approvals.allow": [rule, "write(docs/**)"]}
    (reason,) = await asked(tmp_path, "docs/theme/.git/config", settings=allowed)
    assert "says what runs later" in reason


async def test_a_rule_that_opens_a_file_of_secrets_does_not_open_what_runs_later(tmp_path: Path) -> None:
    (reason,) = await asked(tmp_path, "docs/.retinue/.env", settings={"approvals.allow": ["write(docs/**)"]})
    assert "docs/.retinue/.env says what runs later" in reason


@pytest.mark.parametrize("effect", ["write", "execute"])
async def test_a_tool_that_may_do_anything_with_a_path_asks_like_one_that_writes(
    tmp_path: Path, effect: Literal["write", "execute"]
) -> None:
    @tool(effect=effect)
    async def put(path: str) -> str:
        """Put something there."""
        raise AssertionError(path)

    questions: list[str] = []

    async def person(question: ApprovalRequested) -> Answer:
        questions.append(question.reason)
        return Answer(decision="reject")

    model = ScriptedModel([call("put", path="docs/x/.git/config"), "done"])
    allowed = {"approvals.allow": ["put", "put(docs/**)"]}
    putter = AgentSpec(name="putter", description="p", prompt="PLAY putter", tools=["put"])
    async with Retinue(
        model=model, agents=[putter], tools=[put], cwd=tmp_path, db="memory:", approve=person, environ={},
        settings=allowed,
    ) as retinue:  # fmt: skip
        await retinue.run("putter", "go")
    (reason,) = questions
    assert "docs/x/.git/config says what runs later" in reason


GIT = shutil.which("git") or "git"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def repository(folder: Path, *settings: str) -> None:
    subprocess.run([GIT, "init", "-q", str(folder)], check=True)
    for key, _, value in (each.partition("=") for each in settings):
        subprocess.run([GIT, "-C", str(folder), "config", "--add", key, value], check=True)


FOLDER_RULES = [
    "write(tools/**)",
    "write(tools/hooks/)",
    "write(scripts/*)",
    "write(*.gitconfig)",
    "write(pre*)",
]


@needs_git
@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("core.hooksPath=tools/hooks", "tools/hooks/pre-commit"),
        ("core.hooksPath=tools/hooks", "tools/hooks/deep/x"),
        ("core.hooksPath=linked", "tools/hooks/pre-commit"),
        ("core.hooksPath=.", "pre-commit"),
        ("include.path=../team.gitconfig", "team.gitconfig"),
        ("includeIf.gitdir:/nowhere/.path=../team.gitconfig", "team.gitconfig"),
        ("core.fsmonitor=scripts/watch.sh", "scripts/watch.sh"),
        ("filter.x.clean=python3 scripts/clean.py %f", "scripts/clean.py"),
        ("filter.x.process=./scripts/new", "scripts/new"),
        ("diff.x.textconv=scripts/watch.sh", "scripts/watch.sh"),
        ("merge.x.driver=scripts/watch.sh %A", "scripts/../scripts/watch.sh"),
    ],
)
async def test_what_the_settings_of_git_name_elsewhere_is_meant_too(
    tmp_path: Path, setting: str, path: str
) -> None:
    repository(tmp_path, setting)
    for name in ("tools/hooks", "scripts", "src"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linked").symlink_to("tools/hooks")
    for name in ("scripts/watch.sh", "scripts/clean.py"):
        (tmp_path / name).write_text("")
    (reason,) = await asked(tmp_path, path, settings={"approvals.allow": ["write"]})
    assert "says what runs later, with your rights" in reason
    assert await asked(tmp_path, "src/other.py", settings={"approvals.allow": ["write"]}) == []
    named = {"approvals.allow": [f"write({normpath(path)})"]}
    assert await asked(tmp_path, path, settings=named) == []
    (reason,) = await asked(tmp_path, path, settings={"approvals.allow": ["write(*)", *FOLDER_RULES]})
    assert "says what runs later, with your rights" in reason


@needs_git
async def test_it_is_the_settings_of_whom_the_program_serves_that_count(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    repository(project)
    home.mkdir()
    (home / ".gitconfig").write_text("[core]\n hooksPath = tools/hooks\n")
    allowed = {"approvals.allow": ["write"]}
    path = "tools/hooks/pre-commit"
    (reason,) = await asked(project, path, settings=allowed, environ={"HOME": str(home)})
    assert f"{path} says what runs later" in reason
    assert await asked(project, path, settings=allowed, environ={"HOME": str(project)}) == []


@needs_git
@pytest.mark.parametrize("head", ["away", "a pipe"])
async def test_where_git_sees_no_repository_any_more_what_it_would_run_is_meant_too(
    tmp_path: Path, head: str
) -> None:
    repository(tmp_path, "core.hooksPath=tools/hooks")
    (tmp_path / "tools/hooks").mkdir(parents=True)
    (tmp_path / ".git/HEAD").rename(tmp_path / ".git/H")
    if head == "a pipe":
        os.mkfifo(tmp_path / ".git/HEAD")
    (reason,) = await asked(tmp_path, "tools/hooks/pre-commit", settings={"approvals.allow": ["write"]})
    assert "tools/hooks/pre-commit says what runs later" in reason


@needs_git
async def test_what_a_repository_inside_the_project_names_is_meant_too(tmp_path: Path) -> None:
    (tmp_path / "hk").mkdir()
    repository(tmp_path / "inner", "core.hooksPath=../hk")
    (reason,) = await asked(tmp_path, "hk/pre-commit", settings={"approvals.allow": ["write"]})
    assert "hk/pre-commit says what runs later" in reason


@pytest.mark.parametrize(
    ("there", "path"),
    [
        (("new/objects/", "new/refs/"), "new/HEAD"),
        (("new/HEAD", "new/refs/"), "new/objects/x"),
        (("new/HEAD", "new/objects/", "new/refs/"), "new/config"),
        (("new/HEAD", "new/objects/", "new/refs/"), "new/hooks/post-update"),
        (("new/HEAD",), "new/commondir"),
        (("new/HEAD",), "new/objects/x"),
        (("new/HEAD",), "new/refs/heads/x"),
        ((), "new/HEAD"),
        (("objects/", "refs/"), "HEAD"),
    ],
)
async def test_a_folder_that_git_would_take_for_a_repository_is_meant_too(
    tmp_path: Path, there: tuple[str, ...], path: str
) -> None:
    for name in there:
        whole = tmp_path / name
        (whole if name.endswith("/") else whole.parent).mkdir(parents=True)
        if not name.endswith("/"):
            whole.write_text("")
    (reason,) = await asked(tmp_path, path, settings={"approvals.allow": ["write"]})
    assert f"{path} says what runs later" in reason
    for plain in ("docs/objects/x", "docs/config", "docs/HEAD.md"):
        assert await asked(tmp_path, plain, settings={"approvals.allow": ["write"]}) == []
    assert await asked(tmp_path, path, settings={"approvals.allow": [f"write({path})"]}) == []


@pytest.mark.parametrize("allowed", ["write", "write(docs/**)"])
async def test_writes_of_one_reply_make_no_repository_together(tmp_path: Path, allowed: str) -> None:
    names = ["config", "objects/x", "refs/x", "HEAD"]
    model = ScriptedModel([[call("write", path=f"docs/{name}", content="x") for name in names], "done"])
    async with Retinue(
        model=model, agents=[WRITER], cwd=tmp_path, db="memory:", environ={},
        settings={"approvals.allow": [allowed]},
    ) as retinue:  # fmt: skip
        await retinue.run("writer", "go")
    assert (tmp_path / "docs/objects/x").exists()
    assert not (tmp_path / "docs/HEAD").exists()


def test_files_that_make_a_repository_only_together_are_meant_all(tmp_path: Path) -> None:
    files = Files(tmp_path, None)
    parts = ["n/HEAD", "n/objects/a", "n/refs/b", "n/config"]
    assert run_later(parts[1:], files, {}) == {}
    assert list(run_later(parts, files, {})) == parts, "as a merge brings them"
    files.close()


async def test_other_files_a_rule_that_names_it_and_yes_ask_nobody(tmp_path: Path) -> None:
    assert await asked(tmp_path, "docs/git.md", settings={"approvals.allow": ["write"]}) == []
    assert await asked(tmp_path, ".gitignore", settings={"approvals.allow": ["write"]}) == []
    assert await asked(tmp_path, ".mcp.json", settings={"approvals.allow": ["write(.mcp.json)"]}) == []
    assert await asked(tmp_path, "retinue.toml", yes=True) == []


def test_what_a_sealed_command_cannot_change_a_tool_asks_about() -> None:
    assert {*FOLDERS, ".git"} == PLACES
