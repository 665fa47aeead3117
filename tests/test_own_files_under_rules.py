"""What agent files, skills, instructions and tools really are: no name of theirs goes around a rule."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.agents import load_agents
from retinue.approvals import Rules
from retinue.attachments import attach
from retinue.authority.rules import parse_rule
from retinue.errors import ConfigError
from retinue.instructions import NestedInstructions, read_instructions
from retinue.kept_files import kept_by
from retinue.reading import Folder, Unreadable, read_named
from retinue.settings.trusted_folders import TrustedFolders
from retinue.skills import load_skills
from retinue.testing import ScriptedModel
from retinue.tool_files import find_tool_files

SECRET = "hunter2-word"
AGENT = f"---\nname: helper\ndescription: {SECRET}\n---\n{SECRET}\n"
SKILL = f"---\nname: helper\ndescription: {SECRET}\n---\n{SECRET}\n"
TOOL = f'def helper() -> str:\n    """{SECRET}"""\n    return ""\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".git").mkdir(parents=True)
    return made


def _agents(project: Path, rules: Rules) -> str:
    return str(
        load_agents(project, project.parent / "home", kept=kept_by(rules, project)).agents.get("helper")
    )


def _skills(project: Path, rules: Rules) -> str:
    found = load_skills(project, project.parent / "home", kept=kept_by(rules, project)).skills.get("helper")
    return "" if found is None else found.description + found.body()


def _tools(project: Path, rules: Rules) -> str:
    nobody = TrustedFolders()
    files = find_tool_files(project, nobody, project.parent / "home", kept_by(rules, project))
    return "".join(file.data.decode() for file in files)


def _instructions(project: Path, rules: Rules) -> str:
    return read_instructions(project, rules).text


def _nested(project: Path, rules: Rules) -> str:
    return str(NestedInstructions(project, rules).nearest("web/x.py"))


KINDS = {
    ".claude/agents/helper.md": (_agents, AGENT),
    ".agents/skills/helper/SKILL.md": (_skills, SKILL),
    ".retinue/tools/helper.py": (_tools, TOOL),
    "AGENTS.md": (_instructions, SECRET),
    "web/AGENTS.md": (_nested, SECRET),
}
Shown = Callable[[Path, Rules], str]


def _place(project: Path, name: str) -> Path:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize("name", KINDS)
def test_what_lies_in_its_place_is_read(project: Path, name: str) -> None:
    shown, text = KINDS[name]
    _place(project, name).write_text(text)
    assert SECRET in shown(project, Rules(deny=(parse_rule("read(private/**)"),)))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rule", ["read({name})", "*({project}/{name})", "agent:x effect:read({name})"])
def test_a_rule_that_denies_its_name_holds(project: Path, name: str, rule: str) -> None:
    shown, text = KINDS[name]
    _place(project, name).write_text(text)
    assert SECRET not in shown(project, Rules(deny=(parse_rule(rule.format(name=name, project=project)),)))


def test_a_rule_that_denies_the_name_of_a_link_to_a_folder_holds(project: Path) -> None:
    _place(project, "shared/skills/helper/SKILL.md").write_text(SKILL)
    _place(project, ".agents/skills/helper").symlink_to("../../shared/skills/helper")
    assert SECRET in _skills(project, Rules())
    assert SECRET not in _skills(project, Rules(deny=(parse_rule("read(.agents/**)"),)))


@pytest.mark.parametrize("name", [*KINDS][:3])
@pytest.mark.parametrize("how", ["link", "hard link", "link to its folder"])
@pytest.mark.parametrize(
    "rule", ["deny read(private/**)", "deny *({project}/private/**)", "ask read(private/**)"]
)
def test_a_rule_about_where_it_leads_holds(project: Path, name: str, how: str, rule: str) -> None:
    shown, text = KINDS[name]
    path = _place(project, name)
    there = _place(project, f"private/skills/helper/{path.name}")
    there.write_text(text)
    if how == "hard link":
        path.hardlink_to(there)
    elif how == "link":
        path.symlink_to(os.path.relpath(there, path.parent))
    else:
        path.parent.rmdir()
        path.parent.symlink_to(os.path.relpath(there.parent, path.parent.parent))
    assert SECRET in shown(project, Rules()) or (how, shown) == ("hard link", _skills)
    action, _, text = rule.format(project=project).partition(" ")
    rules = Rules(deny=(parse_rule(text),)) if action == "deny" else Rules(ask=(parse_rule(text),))
    assert SECRET not in shown(project, rules)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("how", ["link", "hard link"])
@pytest.mark.parametrize("secret", [".env", "keys/server.key", "deploy/credentials.json"])
def test_none_is_a_file_of_secrets_under_another_name(
    project: Path, name: str, how: str, secret: str
) -> None:
    shown, text = KINDS[name]
    path, there = _place(project, name), _place(project, secret)
    there.write_text(text)
    if how == "link":
        path.symlink_to(os.path.relpath(there, path.parent))
    else:
        path.hardlink_to(there)
    assert SECRET not in shown(project, Rules())


def test_rules_of_a_folder_hold_for_files_of_the_folders_above_it(project: Path) -> None:
    """A pattern is relative to where one works, and the agent file may be further up."""
    work = project / "work"
    there = _place(project, "work/private/a.md")
    there.write_text(AGENT)
    _place(project, ".claude/agents/helper.md").symlink_to("../../work/private/a.md")
    assert SECRET not in _agents(work, Rules(deny=(parse_rule("read(private/**)"),)))


def test_settings_are_no_file_of_secrets(project: Path) -> None:
    (project / ".env").write_text("model = 'x'\n")
    (project / "retinue.toml").symlink_to(".env")
    with pytest.raises(OSError, match="which usually holds secrets"):
        Folder(project).read("retinue.toml", 1000)


@pytest.mark.parametrize("make_link", [os.symlink, os.link])
async def test_a_file_that_a_person_names_is_no_file_of_secrets_under_another_name(
    project: Path, make_link: Callable[[str, Path], None]
) -> None:
    (project / ".env").write_text(SECRET)
    make_link(".env" if make_link is os.symlink else str(project / ".env"), project / "notes.txt")
    with pytest.raises(ConfigError, match=r"notes\.txt.*usually holds secrets"):
        await attach(project / "notes.txt", project=project)
    with pytest.raises(Unreadable, match="usually holds secrets"):
        read_named(project / "notes.txt", 1000, project=project)
    assert SECRET in str(await attach(project / ".env", project=project))


async def test_a_file_that_a_person_names_may_have_other_names(project: Path) -> None:
    (project / "a.txt").write_text("text")
    os.link(project / "a.txt", project / "b.txt")
    assert (await attach(project / "b.txt", project=project)).text == "text"


async def test_a_denied_agent_file_is_in_no_prompt_and_says_why(project: Path) -> None:
    _place(project, "private/a.md").write_text(AGENT)
    _place(project, ".claude/agents/helper.md").symlink_to("../../private/a.md")
    for deny in ([], ["read(private/**)"]):
        model = ScriptedModel(["done"])
        async with Retinue(
            model=model, db="memory:", cwd=project, settings={"approvals.deny": deny}
        ) as retinue:
            await retinue.run("general", "go")
            told = SECRET in str(model.requests[0])
            assert told is (not deny)
            if deny:
                with pytest.raises(ConfigError, match=r"private/a\.md.*denied by the rule 'read\(private"):
                    await retinue.run("helper", "go")
