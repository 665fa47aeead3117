"""Skills of the shapes in use are found, checked and used; none gets anything that it was not given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, ConfigError, Retinue
from retinue.events import RunStarted, ToolReturned
from retinue.skills import check_skills, load_skills
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest
from skill_shapes import put, said, ten_skills

WORKING = {"commits", "deep", "forms", "loose", "manual", "mine", "other-name", "power", "release", "style"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "secret.md").write_text("the secret of the project\n")
    ten_skills(folder, home)
    return folder


def app(project: Path, model: Any, **options: Any) -> Retinue:
    return Retinue(**{"model": model, "db": "memory:", "cwd": project, "environ": {}, **options})


def offered(request: ModelRequest) -> list[str]:
    """The names that the tool `skill` takes, or none if it is not there."""
    return next((t.schema["properties"]["name"]["enum"] for t in request.tools if t.name == "skill"), [])


async def results(project: Path, *calls: dict[str, Any], agent: str = "general", **options: Any) -> list[Any]:
    model = ScriptedModel([*([call("skill", **arguments)] for arguments in calls), "done"])
    async with app(project, model, **options) as retinue:
        report = await retinue.run(agent, "go")
        events = await retinue.store.events(report.run_id)
    return [event for event in events if isinstance(event, ToolReturned)]


# -- found ---------------------------------------------------------------------


def test_skills_of_every_shape_are_found(project: Path, home: Path) -> None:
    catalogue = load_skills(project, home)
    assert set(catalogue.skills) == WORKING
    assert set(catalogue.broken) == {"silent", "no good", "away"}
    assert catalogue.skills["mine"].scope == "user"
    assert catalogue.skills["commits"].scope == "project"
    release = catalogue.skills["release"]
    assert (release.license, release.compatibility) == ("MIT", "needs git")
    assert release.metadata == {"author": "ada", "version": "1.0"}
    assert release.allowed_tools == ("Bash(git log:*)", "Read")
    assert catalogue.skills["forms"].files() == (
        ["assets/blank.pdf", "references/fields.md", "scripts/fill.sh"],
        True,
    )


def test_a_broken_skill_says_what_is_wrong_and_a_wrong_name_what_is_meant(project: Path, home: Path) -> None:
    catalogue = load_skills(project, home)
    with pytest.raises(ConfigError, match="'description' is missing"):
        catalogue.get("silent")
    with pytest.raises(ConfigError, match="leads out of the project by a link"):
        catalogue.get("away")
    with pytest.raises(ConfigError, match="did you mean 'release'"):
        catalogue.get("relaese")


def test_the_nearest_skill_wins_and_folders_above_the_repository_give_none(
    tmp_path: Path, home: Path
) -> None:
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    put(tmp_path / ".agents/skills/above", said("above"))
    put(repo / ".agents/skills/one", said("one"), "far")
    put(repo / "sub/.retinue/skills/one", said("one"), "near")
    catalogue = load_skills(repo / "sub", home)
    assert set(catalogue.skills) == {"one"}
    assert catalogue.skills["one"].body() == "near"


def test_a_body_that_is_a_link_to_another_file_is_not_read(tmp_path: Path, home: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".env").write_text("---\nname: env\ndescription: x\n---\nKEY=1")
    folder = tmp_path / ".agents/skills/env"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to("../../../.env")
    catalogue = load_skills(tmp_path, home)
    assert not catalogue.skills
    assert "usually holds secrets" in catalogue.broken["env"].message
    (folder / "SKILL.md").unlink()
    (tmp_path / ".env").rename(tmp_path / "plan.md")
    (folder / "SKILL.md").symlink_to("../../../plan.md")
    assert "may be one only to a SKILL.md" in load_skills(tmp_path, home).broken["env"].message


# -- checked -------------------------------------------------------------------


def test_check_says_what_grants_nothing_what_is_not_run_and_what_leads_out(project: Path) -> None:
    found = [str(each) for each in check_skills([project])]

    def about(name: str) -> str:
        return "\n".join(line for line in found if f"/{name}/SKILL.md" in line)

    assert "'allowed-tools' grants nothing" in about("release")
    assert "'allowed-tools' grants nothing" in about("power")
    assert "warning: 'hooks' is not obeyed" in about("power")
    assert "commands in the text (!`…`) are not run" in about("power")
    assert "'notes.md' leads out of its folder by a link, and is not read" in about("power")
    assert "unknown field 'permissions'" in about("power")
    assert "the instructions are long" in about("style")
    assert "error: 'description' is missing" in about("silent")
    assert "error: leads out of the project" in about("away")
    assert "not valid YAML" in about("loose")
    assert "the folder is called 'folder-name'" in about("folder-name")
    assert not about("commits")
    assert not about("forms")


def test_check_finds_links_to_files_that_are_not_there_and_files_with_secrets(tmp_path: Path) -> None:
    folder = put(tmp_path / "one", said("one"), "See [this](references/gone.md).", _dot_env="KEY=1")
    (folder / "my.pem").write_text("x")
    text = "\n".join(str(each) for each in check_skills([folder]))
    assert "links to 'references/gone.md', which is not there" in text
    assert "'my.pem' usually holds secrets" in text


# -- used ----------------------------------------------------------------------


async def test_only_names_and_descriptions_are_in_the_prompt(project: Path) -> None:
    model = ScriptedModel(["done"])
    async with app(project, model) as retinue:
        report = await retinue.run("general", "go")
        began = (await retinue.store.events(report.run_id))[0]
    request = model.requests[0]
    assert offered(request) == sorted(WORKING - {"manual"})
    for name in WORKING - {"manual", "loose"}:
        assert f"- {name}: Use when the task is about" in request.system
    assert "WORD-" not in request.system
    assert "manual" not in request.system
    assert isinstance(began, RunStarted)
    assert began.parts[-1].title == "skills"


async def test_every_skill_can_be_used(project: Path) -> None:
    names = sorted(WORKING - {"manual"})
    got = await results(project, *({"name": name} for name in names))
    for name, result in zip(names, got, strict=True):
        assert not result.is_error, result.text
        assert f"WORD-{name}" in result.text
    long = got[names.index("style")]
    assert "all of it is in /home/agent/skill.txt" in long.text
    forms = got[names.index("forms")]
    assert "- references/fields.md" in forms.text
    assert 'folder=".agents/skills/forms"' in forms.text


async def test_files_of_a_skill_are_read_and_nothing_beside_them(project: Path, home: Path) -> None:
    (home / "beside.md").write_text("beside")
    own = str(home / ".agents/skills/mine/references/far.md")
    got = await results(
        project,
        {"name": "forms", "file": "references/fields.md"},
        {"name": "mine", "file": "references/far.md"},
        {"name": "mine", "file": "../../../beside.md"},
        {"name": "mine", "file": str(home / "beside.md")},
        {"name": "power", "file": "notes.md"},
        {"name": "forms", "file": "assets/blank.pdf"},
        {"name": "forms", "file": "references/feilds.md"},
        {"name": "from"},
    )
    texts = [result.text for result in got]
    assert "The field of the name is F7." in texts[0]
    assert got[0].sources[0].path == ".agents/skills/forms/references/fields.md"
    assert "far-away" in texts[1]
    assert [result.is_error for result in got] == [False, False, *([True] * 6)]
    assert all("beside" not in text.removeprefix("../../../beside.md") for text in texts[2:3])
    assert " of its folder" in texts[2]
    assert " of its folder" in texts[3]
    assert "secret of the project" not in texts[4]
    assert "a PDF document" in texts[5]
    assert "Did you mean references/fields.md?" in texts[6]
    assert "Did you mean forms?" in texts[7]
    assert own not in "".join(texts)


async def test_a_skill_that_wants_more_authority_gets_nothing(project: Path) -> None:
    """What it allows itself is refused unattended, its text cannot leave its frame, its commands do not run."""
    script = [
        [call("skill", name="power")],
        [call("bash", command="touch proof")],
        [call("write", path="proof", content="x")],
        "done",
    ]
    model = ScriptedModel(script)
    async with app(project, model) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
    first, *rest = [event for event in events if isinstance(event, ToolReturned)]
    assert first.text.count("</skill>") == 1
    assert first.text.rstrip().endswith("- notes.md")
    assert [event.not_run for event in rest] == ["unattended", "unattended"]
    assert not (project / "proof").exists()
    assert {tool.name for tool in model.requests[0].tools} == {tool.name for tool in model.requests[1].tools}


async def test_a_script_runs_through_bash_and_its_approval(project: Path) -> None:
    asked: list[str] = []

    async def approve(question: Any) -> Answer:
        asked.append(question.tool)
        return Answer(decision="approve")

    script = [
        [call("skill", name="forms")],
        [call("bash", command="sh .agents/skills/forms/scripts/fill.sh")],
    ]
    async with app(project, ScriptedModel([*script, "done"]), approve=approve) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
    assert asked == ["bash"]
    assert "filled-by-script" in [event for event in events if isinstance(event, ToolReturned)][-1].text


@pytest.mark.parametrize(
    ("deny", "left"),
    [
        ("skill", set[str]()),
        ("read", set[str]()),
        ("skill(forms)", WORKING - {"manual", "forms"}),
        ("skill(forms/**)", WORKING - {"manual", "forms"}),
        ("read(.agents/**)", {"loose", "mine"}),
        ("read(.agents/skills/forms/**)", WORKING - {"manual", "forms"}),
    ],
)
async def test_a_skill_that_a_rule_denies_is_not_offered(project: Path, deny: str, left: set[str]) -> None:
    model = ScriptedModel(["done"])
    async with app(project, model, settings={"approvals": {"deny": [deny]}}) as retinue:
        await retinue.run("general", "go")
    assert set(offered(model.requests[0])) == left
    assert ("PDF forms" in model.requests[0].system) == ("forms" in left)


@pytest.mark.parametrize("rule", ["read(**/fields.md)", "skill(forms/references/*)"])
@pytest.mark.parametrize("kind", ["deny", "ask"])
async def test_a_rule_about_a_file_holds_for_the_files_of_skills(project: Path, rule: str, kind: str) -> None:
    calls = {"name": "forms"}, {"name": "forms", "file": "references/fields.md"}
    got = await results(project, *calls, settings={"approvals": {kind: [rule]}})
    assert [result.is_error for result in got] == [False, True]
    assert got[1].not_run == "denied"
    assert "F7" not in got[1].text


async def test_a_file_that_is_another_one_of_the_project_is_not_read(project: Path) -> None:
    (project / ".agents/skills/forms/more.md").hardlink_to(project / "secret.md")
    (got,) = await results(project, {"name": "forms", "file": "more.md"})
    assert got.is_error
    assert "the same file as 'secret.md'" in got.text
    assert "secret of the project" not in got.text


async def test_a_file_that_is_not_read_is_refused_for_the_reason_that_it_has(project: Path) -> None:
    skill = project / ".agents/skills/forms"
    (skill / "by.md").symlink_to("../../../secret.md")
    (skill / "gone.md").symlink_to("nothing.md")
    names = ["by.md", "../../../secret.md", str(project / "secret.md"), "gone.md"]
    got = await results(project, *({"name": "forms", "file": name} for name in names))
    assert all(result.is_error for result in got)
    assert "by.md of the skill forms leads out of its folder by a link" in got[0].text
    assert all("secret.md of the skill forms is outside of its folder" in each.text for each in got[1:3])
    assert "gone.md of the skill forms is a link to nothing" in got[3].text


async def test_a_file_that_has_another_name_outside_the_project_is_not_read(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "plan.md"
    elsewhere.write_text("of somebody else")
    skill = project / ".agents/skills/forms"
    (skill / "more.md").hardlink_to(elsewhere)
    (skill / "twin.md").write_text("of the skill itself")
    (skill / "second.md").hardlink_to(skill / "twin.md")
    out, own = await results(
        project, {"name": "forms", "file": "more.md"}, {"name": "forms", "file": "second.md"}
    )
    assert out.is_error
    assert "outside the project" in out.text
    assert "somebody else" not in out.text
    assert "of the skill itself" in own.text


def test_check_says_of_each_file_that_is_not_read_what_is_true(project: Path) -> None:
    skill = project / ".agents/skills/forms"
    (skill / "my.env").write_text("KEY=1")
    (skill / "inner").symlink_to("my.env")
    (skill / "nowhere").symlink_to("gone.md")
    (skill / "twin.md").hardlink_to(project / "secret.md")
    os.mkfifo(skill / "pipe")
    found = "\n".join(str(each) for each in check_skills([skill]))
    assert "'inner' is a link to 'my.env', which usually holds secrets, and is not read" in found
    assert "'twin.md' is the same file as 'secret.md', outside the skill, and is not read" in found
    assert "'pipe' is not a regular file" in found
    assert "'nowhere' cannot be read: No such file" in found
    assert "leads out" not in found


async def test_a_skill_is_no_way_into_other_folders_of_a_project(project: Path, home: Path) -> None:
    """A link to a folder that is no folder of skills would show it to agents that may not read it."""
    put(project / "src", said("src"))
    put(project, said("everything"))
    (project / ".agents/skills/src").symlink_to("../../src")
    (project / ".agents/skills/everything").symlink_to("../..")
    catalogue = load_skills(project, home)
    assert {"src", "everything"} <= set(catalogue.broken)
    assert "a folder called 'skills'" in catalogue.broken["src"].message


async def test_a_file_with_secrets_in_a_skill_is_not_shown(project: Path) -> None:
    (project / ".agents/skills/forms/my.pem").write_text("PRIVATE")
    (got,) = await results(project, {"name": "forms", "file": "my.pem"})
    assert got.is_error
    assert "PRIVATE" not in got.text


# -- who is offered what -------------------------------------------------------


def put_agent(project: Path, name: str, more: str) -> None:
    folder = project / ".retinue/agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(
        f"---\nname: {name}\ndescription: An agent to try.\n{more}\n---\nWork.\n"
    )


async def seen_by(project: Path, agent: str, *, child: bool) -> list[str]:
    seen: dict[str, list[str]] = {}

    def play(request: ModelRequest) -> Any:
        is_child = "Work." in request.system
        seen["child" if is_child else "root"] = offered(request)
        if child and not is_child and len(request.messages) == 1:
            return [call(agent, prompt="go")]
        return "done"

    async with app(project, ScriptedModel(play)) as retinue:
        await retinue.run("general" if child else agent, "go")
    return seen["child"]


@pytest.mark.parametrize(
    ("more", "as_root", "as_child"),
    [
        ("", sorted(WORKING - {"manual"}), []),
        ("tools: [read]", [], []),
        ("skills: []", [], []),
        ("skills: [forms, manual]", ["forms", "manual"], ["forms", "manual"]),
        ("tools: [read]\nskills: forms, mine", ["forms", "mine"], ["forms", "mine"]),
        ("skills: ['*']", sorted(WORKING - {"manual"}), sorted(WORKING - {"manual"})),
        ("skills: [../../kept/skills/handmade]", ["handmade"], ["handmade"]),
        ("skills: [forms]\ndisallowed_tools: [skill]", [], []),
        ("skills: [forms]\nfiles: workspace", ["forms"], ["forms"]),
        ("files: workspace", [], []),
    ],
)
async def test_an_agent_is_offered_what_it_names(
    project: Path, more: str, as_root: list[str], as_child: list[str]
) -> None:
    put(project / "kept/skills/handmade", said("handmade"))
    put_agent(project, "tester", more)
    assert await seen_by(project, "tester", child=False) == as_root
    assert await seen_by(project, "tester", child=True) == as_child


async def test_an_agent_that_names_a_skill_that_is_missing_does_not_begin(project: Path, home: Path) -> None:
    put_agent(project, "tester", "skills: [fromms]")
    put_agent(project, "reacher", f"skills: [{home}/.agents/skills/mine]")
    async with app(project, ScriptedModel(["done"])) as retinue:
        with pytest.raises(ConfigError, match=r"no skill 'fromms'.*did you mean 'forms'"):
            await retinue.run("tester", "go")
        with pytest.raises(ConfigError, match="leads out of the project"):
            await retinue.run("reacher", "go")
        assert not await retinue.runs()


async def test_a_child_whose_skill_is_missing_is_an_error_of_the_call(project: Path) -> None:
    put_agent(project, "tester", "skills: [fromms]")
    model = ScriptedModel([[call("tester", prompt="go")], "done"])
    async with app(project, model) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
    (got,) = [event for event in events if isinstance(event, ToolReturned)]
    assert got.is_error
    assert "no skill 'fromms'" in got.text


async def test_a_programs_agent_has_the_skills_that_it_names_and_no_others(project: Path, home: Path) -> None:
    model = ScriptedModel(["done", "done"])
    fields: dict[str, Any] = {"description": "d", "prompt": "p"}
    async with app(project, model) as retinue:
        await retinue.run(AgentSpec(name="bare", **fields), "go")
        folder = str(home / ".agents/skills/mine")
        await retinue.run(AgentSpec(name="able", skills=("forms", folder), **fields), "go")
    assert [offered(request) for request in model.requests] == [[], ["forms", "mine"]]


async def test_the_prompt_stays_within_its_budget(project: Path) -> None:
    for n in range(120):
        put(project / f".agents/skills/many-{n}", said(f"many-{n}", "x" * 900))
    model = ScriptedModel(["done", "done"])
    async with app(project, model, settings={"context": {"skill_tokens": 500}}) as retinue:
        await retinue.run("general", "go")
        await retinue.run("general", "go", settings={"context.skill_tokens": 0})
    system = model.requests[0].system
    part = system[system.index("<skills>") :]
    assert len(part) < 500 * 4 * 2 + 400
    assert "many-99" in part or "many-99" in offered(model.requests[0])
    assert offered(model.requests[1]) == []
    assert "<skills>" not in model.requests[1].system


# -- kept ----------------------------------------------------------------------


async def test_what_was_read_of_a_skill_is_in_the_log_for_resume_and_replay(project: Path) -> None:
    import shutil

    store = MemoryStore()
    model = ScriptedModel([[call("skill", name="commits")], "done", "once more"])
    async with app(project, model, db=store) as retinue:
        report = await retinue.run("general", "go")
    shutil.rmtree(project / ".agents")
    shutil.rmtree(project / ".claude")
    async with app(project, model, db=store) as retinue:
        await retinue.wait(await retinue.resume(report.run_id, message="and now?"))
        told = [message.text for message in model.requests[-1].messages]
        assert any("WORD-commits" in text for text in told)
        replayed = await retinue.replay(report.run_id)
    assert replayed.same, replayed.diff


async def test_whoever_calls_a_skill_like_a_tool_is_told_how_to_read_it(project: Path) -> None:
    model = ScriptedModel([call("forms"), "done"])
    async with app(project, model) as retinue:
        await retinue.run("general", "go")
    assert "skill(name='forms')" in model.requests[1].messages[-1].text


async def test_skills_of_odd_but_usual_shapes_are_found_checked_and_used(project: Path) -> None:
    places = project / ".agents/skills"
    put(places / "größe", said("größe"), "WORD-groesse")
    put(
        places / "日本語",
        "name: 日本語\ndescription: 日本語の文書を書くときに使う。いつでも、どこでも。",
        "WORD-nihongo",
    )
    put(places / "e\u0301te\u0301", said("\u00e9t\u00e9"), "WORD-ete")
    put(places / "huge", f"name: huge\ndescription: Use {'very ' * 3000}", "WORD-huge")
    put(places / "one/two/nested", said("nested"), "WORD-nested")
    (places / "crlf").mkdir()
    text = f"\ufeff---\n{said('crlf')}\n---\n\nfirst\nWORD-crlf\n"
    (places / "crlf/SKILL.md").write_bytes(text.replace("\n", "\r\n").encode())
    odd = {
        "größe": "groesse",
        "日本語": "nihongo",
        "été": "ete",
        "huge": "huge",
        "nested": "nested",
        "crlf": "crlf",
    }
    findings = check_skills(
        [places / "größe", places / "日本語", places / "e\u0301te\u0301", places / "crlf"]
    )
    assert not [finding.message for finding in findings]
    read = await results(project, *({"name": name} for name in odd))
    assert [f"WORD-{word}" in each.text for each, word in zip(read, odd.values(), strict=True)] == [True] * 6
    assert "\r" not in read[-1].text
    model = ScriptedModel(["done"])
    async with app(project, model) as retinue:
        await retinue.run("general", "go")
    assert len(model.requests[0].system) < 40_000, "a huge description is shortened"
