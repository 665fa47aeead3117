"""A rule about a path holds for the tools that look through folders too: what it closes is left out, and said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from retinue.approvals import Rules
from retinue.authority.rules import Asked
from retinue.settings import WebSettings
from retinue.tools import ripgrep
from retinue.tools.base import Tool
from retinue.tools.files import file_tools
from retinue.tools.web import web_tools
from retinue.web.fetch import Web
from retinue.workspace import Files
from trees import Stage, agent, results, settings_with

DENIED = "denied by the rule '*(secrets/**)'"


@pytest.fixture(params=["ripgrep", "plain"])
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "plain":
        monkeypatch.setattr(ripgrep, "find_rg", lambda project: None)
    for name, text in {
        "src/a.py": "needle = 1\n",
        "src/.env": "needle=4\n",
        "secrets/key": "needle 2\n",
        "secrets/deep/other.py": "nothing\n",
        "notes.txt": "needle 3\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "link").symlink_to("secrets")
    return tmp_path


async def seen(
    project: Path, *calls: tuple[str, dict[str, Any]], tools: Sequence[Tool] = (), **rules: Any
) -> list[str]:
    """What an agent reads when it makes these calls, one after the other."""
    dotted: dict[str, Any] = {
        f"approvals__{name}": (given,) if isinstance(given, str) else given for name, given in rules.items()
    }
    stage = Stage(
        {"root": [*([call] for call in calls), "done"]},
        tools=[*file_tools(), *tools],
        project=project,
        yes=True,
        **dotted,
    )
    await stage.run()
    return [message.text for message in results(stage.model.of("root")[-1])]


async def test_grep_on_a_folder_above_finds_nothing_in_what_is_denied(project: Path) -> None:
    for path in (".", str(project)):
        (text,) = await seen(project, ("grep", {"pattern": "needle", "path": path}), deny="*(secrets/**)")
        assert text.splitlines() == [
            "notes.txt:1: needle 3",
            "src/.env:1: needle=4",
            "src/a.py:1: needle = 1",
            f"[2 files left out: {DENIED}]",
        ]


async def test_what_grep_leaves_out_does_not_depend_on_what_is_in_it(project: Path) -> None:
    texts = await seen(
        project,
        ("grep", {"pattern": "needle 2"}),
        ("grep", {"pattern": "needle 9"}),
        deny="*(secrets/**)",
    )
    assert texts == [
        f"no match for {pattern} in .\n[2 files left out: {DENIED}]" for pattern in ("needle 2", "needle 9")
    ]


async def test_glob_and_ls_leave_out_what_is_denied(project: Path) -> None:
    globbed, named, listed = await seen(
        project,
        ("glob", {"pattern": "**/*.py"}),
        ("glob", {"pattern": "secrets/*"}),
        ("ls", {}),
        deny="*(secrets/**)",
    )
    assert globbed == f"src/a.py\n[1 file left out: {DENIED}]"
    assert named == f"no file matches secrets/* in secrets\n[1 file left out: {DENIED}]"
    assert "secrets" not in listed.replace(DENIED, "")
    assert listed.endswith(f"\n[1 entry left out: {DENIED}]")


@pytest.mark.parametrize("rule", ["*(**/.env*)", "grep(src/.env)", "Grep(**/.env)", "effect:read(src/.e*)"])
async def test_a_denied_file_is_left_out_by_every_way_to_write_the_rule(project: Path, rule: str) -> None:
    (text,) = await seen(project, ("grep", {"pattern": "needle", "path": "src"}), deny=rule)
    assert text == f"src/a.py:1: needle = 1\n[1 file left out: denied by the rule '{rule}']"


async def test_a_rule_with_a_whole_path_counts_too(project: Path) -> None:
    rule = f"*({project}/secrets/**)"
    (text,) = await seen(project, ("glob", {"pattern": "*"}), deny=rule)
    assert "secrets/key" not in text
    assert text.endswith(f"[2 files left out: denied by the rule '{rule}']")


async def test_a_rule_about_another_tool_or_agent_leaves_nothing_out(project: Path) -> None:
    for rule in ("write(secrets/**)", "agent:other *(secrets/**)"):
        (text,) = await seen(project, ("grep", {"pattern": "needle 2"}), deny=rule)
        assert text == "secrets/key:1: needle 2"


async def test_what_an_agent_is_denied_is_left_out_for_those_below_it(project: Path) -> None:
    stage = Stage(
        {
            "root": [[("child", {"prompt": "x"})], "done"],
            "child": [[("grep", {"pattern": "needle 2"})], "ok"],
        },
        agents=[agent("child")],
        tools=file_tools(),
        project=project,
    )
    await stage.run(agent("root", deny=("*(secrets/**)",)))
    (result,) = results(stage.model.of("child")[-1])
    secret = "[1 file left out: files like these usually hold secrets: name the path to ask]"
    assert result.text == f"no match for needle 2 in .\n[2 files left out: {DENIED}]\n{secret}"


async def test_what_a_person_must_be_asked_for_is_left_out_until_it_is_named(project: Path) -> None:
    rule = "*(secrets/**)"
    above, named = await seen(
        project,
        ("grep", {"pattern": "needle 2"}),
        ("grep", {"pattern": "needle 2", "path": "secrets"}),
        ask=rule,
    )
    why = f"the rule '{rule}' asks a person first: name the path to ask"
    assert above == f"no match for needle 2 in .\n[2 files left out: {why}]"
    assert named.startswith(
        f"refused: the rule '{rule}' wants a person asked, and this run has nobody to ask."
    )


async def test_what_a_person_was_asked_for_is_searched(project: Path) -> None:
    from test_approvals import answer, waiting

    stage = Stage(
        {"root": [[("grep", {"pattern": "needle 2", "path": "secrets"})], "done"]},
        tools=file_tools(),
        project=project,
        answering="ask",
        approvals__ask=("*(secrets/**)",),
    )
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    assert json.loads(asked.arguments)["path"] == "secrets"
    await answer(stage, asked)
    await task
    (result,) = results(stage.model.of("root")[-1])
    assert result.text == "secrets/key:1: needle 2"


async def test_nobody_is_pointed_at_a_denied_file_that_has_the_right_name(project: Path) -> None:
    (project / "src/keys").mkdir()
    near, elsewhere = await seen(
        project,
        ("read", {"path": "src/.emv"}),
        ("read", {"path": "src/keys/key"}),
        deny=("*(secrets/**)", "*(**/.env)"),
    )
    assert near == "there is no file or folder src/.emv"
    assert elsewhere == "there is no file or folder src/keys/key"


async def test_nobody_is_pointed_at_a_denied_file_through_a_link(project: Path) -> None:
    for rule in ("*(secrets/key)", f"*({project}/secrets/key)"):
        (text,) = await seen(project, ("read", {"path": "link/kez"}), deny=rule)
        assert text == "there is no file or folder link/kez"


@pytest.mark.parametrize("rule", ["*(secrets/)", "*(./secrets/)", "*(**/secrets/)"])
async def test_a_folder_with_a_slash_behind_it_is_all_that_is_in_it(project: Path, rule: str) -> None:
    read, found = await seen(
        project, ("read", {"path": "secrets/key"}), ("grep", {"pattern": "needle 2"}), deny=rule
    )
    assert read == f"denied by the rule '{rule}': read will not run. Find another way."
    assert found == f"no match for needle 2 in .\n[2 files left out: denied by the rule '{rule}']"


async def test_a_link_to_what_is_denied_shows_nothing_of_it(project: Path) -> None:
    listed, searched = await seen(
        project,
        ("ls", {"path": "link"}),
        ("grep", {"pattern": "needle", "path": "link"}),
        deny="*(secrets/**)",
    )
    assert listed.startswith(DENIED)
    assert searched.startswith(DENIED)


async def test_the_workspace_has_paths_that_rules_can_close(project: Path) -> None:
    rule = "*(/home/agent/web/**)"
    *_, text = await seen(
        project,
        ("write", {"path": "/home/agent/a.txt", "content": "needle"}),
        ("write", {"path": "/home/agent/web/b.txt", "content": "needle"}),
        ("glob", {"pattern": "**", "path": "/home/agent"}),
        deny=f"glob{rule[1:]}",
    )
    assert text == f"/home/agent/a.txt\n[1 file left out: denied by the rule 'glob{rule[1:]}']"


async def test_a_hard_link_passes_no_rule_about_its_file(project: Path) -> None:
    (project / "src/same.txt").hardlink_to(project / "secrets/key")
    for rule in ("*(secrets/**)", "read(secrets/**)", f"*({project}/secrets/**)", "*(**/key)"):
        (text,) = await seen(project, ("read", {"path": "src/same.txt"}), deny=rule)
        assert "needle" not in text, rule
        assert "denied" in text, rule
    (text,) = await seen(project, ("read", {"path": "src/same.txt"}), deny="*(other/**)")
    assert "needle 2" in text


async def test_a_search_leaves_out_the_hard_links_of_what_is_denied(project: Path) -> None:
    (project / "src/same.txt").hardlink_to(project / "secrets/key")
    (project / "src/b.py").hardlink_to(project / "src/a.py")
    grep = ("grep", {"pattern": "needle", "path": "src"})
    (text,) = await seen(project, grep, deny="*(secrets/**)")
    assert "same.txt:" not in text
    assert f"[1 file left out: {DENIED}]" in text
    assert "src/a.py:1" in text
    assert "src/b.py:1" in text


async def test_a_hard_link_of_a_file_elsewhere_is_not_allowed_by_a_rule_about_its_folder(
    project: Path,
) -> None:
    rules = Rules.of(settings_with(approvals__allow=("peek(src/**)",)).approvals)
    files = Files(project=project, workspace=None)
    (project / "src/same.txt").hardlink_to(project / "secrets/key")
    (project / "src/twin.txt").hardlink_to(project / "src/a.py")

    def judged(path: str) -> str:
        asked = Asked(
            tool="peek", effect="spend", risk="low", agent="a", arguments={"path": path}, files=files
        )
        return rules.judge(asked).action

    assert judged("src/same.txt") == "ask"
    assert judged("src/twin.txt") == "allow"
    files.close()


@pytest.fixture
async def web() -> AsyncIterator[list[Tool]]:
    async with Web(WebSettings(), environ={}) as web:
        yield web_tools(web)


@pytest.mark.parametrize(
    "rule", ["effect:read", "effect:read(secrets/**)", "read(secrets/**)", "*(secrets/**)"]
)
async def test_extract_from_a_file_is_reading_for_every_rule(
    project: Path, rule: str, web: list[Tool]
) -> None:
    (project / "src/same.csv").hardlink_to(project / "secrets/key")
    for path in ("secrets/key", "link/key", "src/same.csv"):
        (text,) = await seen(project, ("extract", {"source": path}), deny=rule, tools=web)
        assert "needle" not in text, path
        assert "denied" in text, path


async def test_extract_from_a_file_is_no_use_of_the_network(project: Path, web: list[Tool]) -> None:
    (text,) = await seen(project, ("extract", {"source": "notes.txt"}), deny="effect:network", tools=web)
    assert text.startswith("Data from notes.txt:")
