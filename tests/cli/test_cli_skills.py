"""`retinue skills`: listed, shown and checked, with codes that scripts can go by."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from world import Cli, Ended

from retinue.cli import exits
from skill_shapes import put, said, ten_skills


@pytest.fixture
def skills(cli: Cli) -> None:
    (cli.folder / ".git").mkdir()
    ten_skills(cli.folder, cli.home)


def test_a_folder_without_skills_says_how_to_make_one(invoke: Callable[..., Ended]) -> None:
    ended = invoke("skills", "list")
    assert ended.code == exits.OK
    assert ".agents/skills" in ended.err


@pytest.mark.usefixtures("skills")
def test_the_list_has_every_skill_and_tells_of_broken_ones(invoke: Callable[..., Ended]) -> None:
    ended = invoke("skills", "list")
    assert ended.code == exits.USAGE
    assert "forms" in ended.out
    assert "user" in next(line for line in ended.out.splitlines() if line.startswith("mine"))
    assert "'description' is missing" in ended.err
    rows = invoke("skills", "list", "--json").lines
    assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)
    assert next(row for row in rows if row["name"] == "release")["allowed_tools"] == [
        "Bash(git log:*)",
        "Read",
    ]


@pytest.mark.usefixtures("skills")
def test_one_skill_is_shown_with_what_it_does_not_get(invoke: Callable[..., Ended]) -> None:
    ended = invoke("skills", "show", "release")
    assert ended.code == exits.OK
    assert "WORD-release" in ended.out
    assert "Bash(git log:*) Read (grants nothing)" in ended.out
    assert "'allowed-tools' grants nothing here" in ended.err
    facts = json.loads(invoke("skills", "show", "forms", "--json").out)
    assert facts["files"] == ["assets/blank.pdf", "references/fields.md", "scripts/fill.sh"]
    wrong = invoke("skills", "show", "frms")
    assert wrong.code == exits.USAGE
    assert "did you mean 'forms'?" in wrong.err


def test_check_says_all_good_or_what_is_wrong(cli: Cli, invoke: Callable[..., Ended]) -> None:
    assert "nothing to check here" in invoke("skills", "check").err
    put(cli.folder / ".agents/skills/fine", said("fine"))
    good = invoke("skills", "check")
    assert (good.code, good.out) == (exits.OK, "")
    assert "all good" in good.err
    put(cli.folder / ".agents/skills/power", said("power") + "\nallowed-tools: '*'")
    warned = invoke("skills", "check", ".agents/skills/power")
    assert warned.code == exits.OK
    assert "'allowed-tools' grants nothing here" in warned.out
    put(cli.folder / ".agents/skills/bad", "name: bad")
    broken = invoke("skills", "check")
    assert broken.code == exits.USAGE
    assert "bad/SKILL.md:1: error: 'description' is missing" in broken.out
    assert invoke("skills", "check", "nowhere").code == exits.USAGE


@pytest.mark.usefixtures("skills")
def test_the_tool_is_shown_with_the_skills_it_reads(invoke: Callable[..., Ended]) -> None:
    facts = json.loads(invoke("tools", "show", "skill", "--json").out)
    assert "forms" in facts["schema"]["properties"]["name"]["enum"]
    assert invoke("tools", "show", "Skill").code == exits.OK


@pytest.mark.usefixtures("skills")
def test_doctor_names_skills_and_those_that_are_broken(invoke: Callable[..., Ended]) -> None:
    ended = invoke("doctor", "--json")
    rows = [row for row in ended.lines if row["group"] == "skills"]
    assert ended.code == exits.FAILED
    assert rows[0]["state"] == "ok"
    assert {"forms", "mine"} <= set(rows[0]["text"].split(", "))
    assert {row["state"] for row in rows[1:]} == {"problem"}
    assert any("'description' is missing" in row["text"] for row in rows[1:])


@pytest.mark.usefixtures("skills")
def test_a_skill_that_cannot_be_used_is_told_before_a_run(invoke: Callable[..., Ended]) -> None:
    said = "! 3 skill files cannot be used: 'retinue skills check' says why"
    assert said in invoke("ask", "hi", "--model", "offline").err
    assert "skill file" not in invoke("ask", "hi", "--model", "offline", "--quiet").err
