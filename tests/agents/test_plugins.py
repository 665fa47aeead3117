"""Plugin folders of other programs: named in the user's own settings, their agents, skills and servers are used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue import settings
from retinue.agents import load_agents
from retinue.mcp.config import configured
from retinue.skills import load_skills


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_CONFIG_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("RETINUE_CONFIG", raising=False)
    folder = tmp_path / "reviewer"
    (folder / ".claude-plugin").mkdir(parents=True)
    (folder / ".claude-plugin" / "plugin.json").write_text(
        json.dumps({"name": "reviewer", "agents": ["./who"]})
    )
    (folder / "who").mkdir()
    (folder / "who" / "critic.md").write_text(
        "---\nname: critic\ndescription: Use to have text criticised.\n---\nYou are the critic.\n"
    )
    (folder / "skills" / "style").mkdir(parents=True)
    (folder / "skills" / "style" / "SKILL.md").write_text(
        "---\nname: style\ndescription: How to write.\n---\nBriefly.\n"
    )
    server = {"command": "${CLAUDE_PLUGIN_ROOT}/serve", "args": ["--root", "${CLAUDE_PLUGIN_ROOT}"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"critics": server}}))
    return folder


def name_it(folder: Path) -> None:
    config = settings.user_file()
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"plugins = [{json.dumps(str(folder))}]\n")


def test_a_plugin_that_nobody_named_is_not_read(plugin: Path) -> None:
    assert "critic" not in load_agents(plugin).agents


def test_the_agents_skills_and_servers_of_a_named_plugin_are_there(plugin: Path, tmp_path: Path) -> None:
    name_it(plugin)
    agents = load_agents(tmp_path)
    assert agents.agents["critic"].spec.prompt == "You are the critic."
    assert "style" in load_skills(tmp_path).skills
    found = configured(settings.load(cwd=tmp_path), tmp_path, agents).servers["critics"]
    assert found.scope == "plugin"
    assert found.of_repository, "it waits until it is trusted"
    assert found.filled({}).command == f"{plugin}/serve"
    assert found.needs == ()


def test_what_a_project_has_of_the_same_name_wins(plugin: Path, tmp_path: Path) -> None:
    name_it(plugin)
    own = tmp_path / ".retinue" / "agents"
    own.mkdir(parents=True)
    (own / "critic.md").write_text("---\nname: critic\ndescription: Use mine.\n---\nYou are mine.\n")
    assert load_agents(tmp_path).agents["critic"].spec.prompt == "You are mine."


def test_a_plugin_that_cannot_be_used_is_said(plugin: Path, tmp_path: Path) -> None:
    (plugin / ".claude-plugin" / "plugin.json").write_text("{")
    name_it(plugin)
    problems = configured(settings.load(cwd=tmp_path), tmp_path, load_agents(tmp_path)).problems
    assert len(problems) == 1
    assert str(plugin) in problems[0]


def test_of_each_file_it_is_said_what_is_used_and_why_the_rest_is_not(tmp_path: Path) -> None:
    from retinue.agents import field_uses

    file = tmp_path / "a.md"
    file.write_text(
        "---\nname: a\ndescription: Use it.\neffort: high\nmemory: user\nbackground: true\ncolor: red\nodd: 1\n---\nYou.\n"
    )
    (found,) = field_uses([file])
    assert found.used == ("name", "description", "effort", "memory", "background")
    assert set(found.unused) == {"color", "odd"}
    assert "icon" in found.unused["color"]
