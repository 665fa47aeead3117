"""`retinue config`, `agents`, `tools` and `doctor`."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from logs import family, store
from world import Cli, Ended

from retinue.cli import checks
from retinue.settings import load
from retinue.testing import FakeProvider

Invoke = Callable[..., Ended]


@pytest.fixture
def mine(cli: Cli) -> Path:
    """The user's own settings file."""
    return cli.home / "config" / "retinue" / "config.toml"


def test_a_setting_that_was_set_counts_from_then_on_and_comments_stay(invoke: Invoke, mine: Path):
    mine.parent.mkdir(parents=True)
    mine.write_text('# my settings\nmodel = "offline"   # for now\n\n[limits]\n# patience\ntimeout = 90\n')
    assert invoke("config", "set", "limits.max_turns", "7").code == 0
    assert invoke("config", "set", "model", "openai:gpt-x").code == 0
    text = mine.read_text()
    assert "# my settings" in text
    assert "# for now" in text
    assert "# patience" in text
    assert tomllib.loads(text) == {"model": "openai:gpt-x", "limits": {"timeout": 90, "max_turns": 7}}
    assert invoke("config", "get", "limits.max_turns").out == "7\n"


def test_a_value_that_is_not_allowed_is_not_written(invoke: Invoke, mine: Path):
    mine.parent.mkdir(parents=True)
    mine.write_text("[limits]\ntimeout = 90\n")
    assert invoke("config", "set", "delegation.policy", "wild").code == 2
    assert mine.read_text() == "[limits]\ntimeout = 90\n"


def test_lists_are_written_with_commas_and_unset_takes_them_out_again(invoke: Invoke, mine: Path):
    assert invoke("config", "set", "approvals.allow", "bash(git status*),bash(ls)").code == 0
    assert tomllib.loads(mine.read_text())["approvals"]["allow"] == ["bash(git status*)", "bash(ls)"]
    assert invoke("config", "unset", "approvals.allow").code == 0
    assert invoke("config", "get", "approvals.allow").out == "[]\n"


def test_a_projects_file_is_believed_in_full_only_once_it_is_trusted(invoke: Invoke, cli: Cli):
    (cli.folder / "retinue.toml").write_text('model = "openai:gpt-x"\n')
    assert invoke("config", "get", "model").out == "null\n"
    refused = invoke("config", "set", "model", "openai:gpt-y", "--project")
    assert (refused.code, "a repository may not set it" in refused.err) == (2, True)
    assert invoke("config", "trust").code == 0
    assert invoke("config", "get", "model").out == "openai:gpt-x\n"
    assert invoke("config", "set", "model", "openai:gpt-y", "--project").code == 0
    assert invoke("config", "get", "model").out == "openai:gpt-y\n"


def test_trust_is_written_with_what_the_folder_is_and_other_settings_can_still_be_set(
    invoke: Invoke, cli: Cli, mine: Path
):
    mine.parent.mkdir(parents=True)
    mine.write_text('# mine\ntrust = ["/somewhere/else"]\n[limits]\ntimeout = 90\n')
    (cli.folder / "retinue.toml").write_text('model = "openai:gpt-x"\n')
    assert invoke("config", "trust").code == 0
    written = tomllib.loads(mine.read_text())
    assert written["trust"][0] == "/somewhere/else"
    assert written["trust"][1]["folder"] == str(cli.folder)
    assert written["limits"] == {"timeout": 90}
    assert "trusted already" in invoke("config", "trust").err
    assert invoke("config", "set", "limits.timeout", "80").code == 0
    assert invoke("config", "get", "model").out == "openai:gpt-x\n"


def test_a_folder_with_agents_alone_can_be_trusted_and_the_nearest_is_meant(
    invoke: Invoke, cli: Cli, mine: Path
):
    (cli.folder / ".git").mkdir()
    (cli.folder / "retinue.toml").write_text("")
    agents = cli.folder / "part" / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "a.md").write_text("---\nname: a\ndescription: Use for a.\n---\nA.\n")
    assert invoke("config", "trust", str(agents.parent)).code == 0
    assert [one["folder"] for one in tomllib.loads(mine.read_text())["trust"]] == [str(cli.folder / "part")]
    assert invoke("config", "trust", str(cli.folder / "nothing")).code == 2


def test_nothing_outside_the_project_is_written_through_its_links(invoke: Invoke, cli: Cli):
    outside = cli.home / "outside"
    outside.mkdir()
    (outside / "agents").mkdir()
    (cli.folder / ".retinue").symlink_to(outside)
    (cli.folder / "retinue.toml").symlink_to(outside / "retinue.toml")
    refused = invoke("agents", "new", "helper")
    assert (refused.code, "a link is in the way" in refused.err) == (2, True)
    assert invoke("config", "set", "limits.max_turns", "10", "--project").code == 2
    assert [path.name for path in outside.rglob("*")] == ["agents"]


def test_doctor_does_not_wait_for_a_database_that_is_a_pipe(invoke: Invoke, cli: Cli):
    os.mkfifo(cli.home / "pipe")
    looked = invoke("doctor", "--db", str(cli.home / "pipe"))
    assert (looked.code, "not a regular file" in looked.out) == (1, True)


def test_a_projects_file_that_is_not_trusted_takes_lower_limits_and_no_higher_ones(invoke: Invoke, cli: Cli):
    refused = invoke("config", "set", "limits.max_turns", "1000", "--project")
    assert (refused.code, "or only to allow less" in refused.err) == (2, True)
    assert not (cli.folder / "retinue.toml").exists()
    assert invoke("config", "set", "limits.max_turns", "10", "--project").code == 0
    assert invoke("config", "set", "approvals.deny", "bash", "--project").code == 0
    assert invoke("config", "get", "limits.max_turns").out == "10\n"


def test_a_list_grows_by_add_and_a_list_that_is_replaced_is_told(invoke: Invoke, mine: Path):
    invoke("config", "set", "approvals.allow", "bash(a)")
    assert invoke("config", "set", "approvals.allow", "bash(b)", "--add").code == 0
    assert tomllib.loads(mine.read_text())["approvals"]["allow"] == ["bash(a)", "bash(b)"]
    replaced = invoke("config", "set", "approvals.allow", "bsh(c)")
    assert '! before it was ["bash(a)", "bash(b)"]' in replaced.err
    assert "! no built-in tool is called 'bsh'" in replaced.err


def test_a_section_is_listed_with_what_each_setting_may_be(invoke: Invoke):
    listed = invoke("config", "list", "delegation").out
    assert "flat or nested" in listed
    assert "whole number ≥ 1" in listed
    assert "limits." not in listed
    assert "delegation.policy = flat" in invoke("config", "get", "delegation").out


def test_a_broken_file_can_be_mended_by_set(invoke: Invoke, mine: Path):
    mine.parent.mkdir(parents=True)
    mine.write_text('[limits]\nmax_turns = "many"\n')
    assert invoke("config", "set", "limits.max_turns", "7").code == 0
    assert invoke("config", "get", "limits.max_turns").out == "7\n"


def test_list_says_where_each_value_came_from(invoke: Invoke, mine: Path):
    invoke("config", "set", "limits.max_turns", "7")
    rows = invoke("config", "list", "--json", RETINUE_DEFAULT_AGENT="planner").lines
    by_name = {row["name"]: row for row in rows}
    assert by_name["limits.max_turns"]["origin"] == str(mine)
    assert by_name["default_agent"] == {
        "name": "default_agent",
        "value": "planner",
        "origin": "environment",
        "allowed": "text",
        "about": by_name["default_agent"]["about"],
    }
    assert by_name["model"]["origin"] == "default"
    changed = invoke("config", "list", "--changed").out
    assert "limits.max_turns" in changed
    assert "default_agent" not in changed


def test_a_value_hidden_by_the_environment_is_said_to_be(invoke: Invoke):
    ended = invoke("config", "set", "model", "openai:gpt-x", RETINUE_MODEL="offline")
    assert "from environment" in ended.err


def test_path_prints_both_files(invoke: Invoke, cli: Cli, mine: Path):
    (cli.folder / "retinue.toml").write_text("")
    assert invoke("config", "path").out.split() == [str(mine), str(cli.folder / "retinue.toml")]


def test_a_new_agent_passes_the_check_is_listed_and_is_not_overwritten(invoke: Invoke, cli: Cli):
    made = invoke("agents", "new", "proof-reader")
    path = Path(made.out.strip())
    assert path == cli.folder / ".retinue" / "agents" / "proof-reader.md"
    assert invoke("agents", "check").code == 0
    names = [row["name"] for row in invoke("agents", "list", "--json").lines]
    assert "proof-reader" in names
    assert "code-search" in names
    assert invoke("agents", "new", "proof-reader").code == 2
    shown = invoke("agents", "show", "proof-reader")
    assert shown.out.startswith("---\nname: proof-reader")
    assert str(path) in shown.err


def test_a_new_agent_that_hides_another_says_so(invoke: Invoke):
    ended = invoke("agents", "new", "code-review", "--from", "code-review")
    assert ended.code == 0
    assert "from now on it replaces the builtin agent 'code-review' here" in ended.err
    assert invoke("agents", "check").code == 0


def test_check_finds_what_is_wrong_and_what_means_nothing_here(invoke: Invoke, cli: Cli):
    folder = cli.folder / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "one.md").write_text(
        "---\nname: one\ndescription: does one thing well\ntools: Read, Frobnicate\ncolor: red\n---\nDo it.\n"
    )
    (folder / "two.md").write_text("no fields at all\n")
    ended = invoke("agents", "check")
    assert ended.code == 2
    assert "two.md" in ended.out
    assert "frobnicate" in ended.out.lower()
    assert "color" in ended.out
    one = folder / "one.md"
    assert invoke("agents", "check", str(one)).code == 2
    one.write_text(one.read_text().replace(", Frobnicate", ""))
    assert invoke("agents", "check", str(one)).code == 0


def test_tools_are_listed_and_shown_as_models_see_them(invoke: Invoke):
    names = {row["name"]: row for row in invoke("tools", "list", "--json").lines}
    assert names["bash"]["effect"] == "execute"
    assert {"read", "grep", "glob", "ls", "write", "edit"} <= set(names)
    shown = invoke("tools", "show", "Grep").out
    assert shown.startswith("grep  read, risk low")
    assert "pattern (string)" in shown


def test_doctor_finds_nothing_wrong_on_a_fresh_machine(invoke: Invoke):
    ended = invoke("doctor", "--model", "offline", OPENROUTER_API_KEY="sk-very-secret")
    assert ended.code == 0, ended.out
    assert "✓ keys  openrouter" in ended.out
    assert "sk-very-secret" not in ended.out + ended.err


def test_a_standing_yes_to_every_risk_is_warned_of_where_it_is_set_and_by_doctor(invoke: Invoke):
    assert checks.ALWAYS_YES not in invoke("doctor", "--model", "offline").out
    assert checks.ALWAYS_YES not in invoke("config", "set", "approvals.auto_risk", "medium").err
    assert f"! {checks.ALWAYS_YES}" in invoke("config", "set", "approvals.auto_risk", "high").err
    ended = invoke("doctor", "--model", "offline")
    assert (ended.code, f"• approvals.auto_risk  {checks.ALWAYS_YES}" in ended.out) == (0, True), ended.out


def test_doctor_looks_at_the_rest_where_a_settings_file_is_broken(invoke: Invoke, cli: Cli):
    (cli.folder / "retinue.toml").write_text("[limits\n")
    ended = invoke("doctor", "--model", "offline")
    assert ended.code == 1
    assert "not valid TOML" in ended.out
    assert "SQLite" in ended.out or "database" in ended.out


def test_doctor_looks_at_the_rest_where_the_own_settings_are_broken(invoke: Invoke, cli: Cli):
    """Agents, plugins and servers stand there too: what needs the file is named, what does not is looked at."""
    own = Path(invoke("config", "path").out.splitlines()[0])
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("model = [broken\n")
    ended = invoke("doctor", "--model", "offline")
    assert (ended.code, ended.err) == (1, "")
    assert "✗ broken" in ended.out
    assert "not valid TOML" in ended.out
    groups = [line for line in ended.out.splitlines() if line and not line.startswith(" ")]
    assert {"settings", "program", "models", "database", "agents", "tools", "extras"} <= set(groups)


def test_doctor_says_how_to_get_a_model(invoke: Invoke):
    by_name = {row["name"]: row for row in invoke("doctor", "--json").lines}
    assert by_name["model"]["state"] == "note"
    assert "OPENAI_API_KEY" in by_name["model"]["fix"]


def test_doctor_reports_damage_and_saves_what_can_be_saved(invoke: Invoke, cli: Cli):
    path = cli.home / "runs.db"
    db = store(path, family())
    data = bytearray(path.read_bytes())
    data[0:16] = b"broken database!"
    path.write_bytes(data)
    ended = invoke("doctor", "--db", db)
    assert ended.code == 1
    assert "✗ damaged" in ended.out
    assert f"→ retinue doctor --db {db} --salvage-to {cli.home}/runs.saved.db" in ended.out
    assert bytes(data) == path.read_bytes()


def test_doctor_salvages_into_a_new_file(invoke: Invoke, cli: Cli):
    db = store(cli.home / "runs.db", family())
    target = cli.home / "saved.db"
    ended = invoke("doctor", "--db", db, "--salvage-to", str(target))
    assert ended.code == 0, ended.err
    assert f"saved 2 runs with {len(family())} events" in ended.err
    assert len(invoke("runs", "list", "--all", "--json", "--db", str(target)).lines) == 2


def test_doctor_names_a_broken_agent_file_and_an_ignored_setting(invoke: Invoke, cli: Cli):
    (cli.folder / ".retinue" / "agents").mkdir(parents=True)
    (cli.folder / ".retinue" / "agents" / "odd.md").write_text("---\nname: odd\n---\n")
    (cli.folder / "retinue.toml").write_text('model = "openai:gpt-x"\n')
    rows = invoke("doctor", "--json").lines
    problems = {row["name"]: row["text"] for row in rows if row["state"] == "problem"}
    assert "odd.md" in problems["broken"]
    assert "model ignored" in problems["warning"]


async def test_doctor_asks_the_provider_for_its_models(tmp_path: Path):
    async with FakeProvider(models=["fake-model"]) as provider:
        environ = {"OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": "k"}
        settings = load(cwd=tmp_path, environ={"RETINUE_MODEL": "openai:fake-model"}).settings
        reachable = (await checks.models(settings, environ))[1]
        assert (reachable.state, reachable.name) == ("ok", "reachable")
        other = load(cwd=tmp_path, environ={"RETINUE_MODEL": "openai:unheard-of"}).settings
        assert "does not list unheard-of" in (await checks.models(other, environ))[1].text
    gone = (await checks.models(settings, environ))[1]
    assert gone.state == "problem"
    assert "cannot be reached" in gone.text


async def test_doctor_names_the_address_that_was_probably_meant(tmp_path: Path):
    settings = load(cwd=tmp_path, environ={"RETINUE_MODEL": "openai:fake-model"}).settings
    async with FakeProvider(models=["fake-model"]) as provider:
        bare = provider.openai_url.removesuffix("/v1")
        found = (await checks.models(settings, {"OPENAI_BASE_URL": bare, "OPENAI_API_KEY": "k"}))[1]
        assert (found.state, found.fix[-len(provider.openai_url) :]) == ("problem", provider.openai_url)
        without = provider.openai_url.removeprefix("http://")
        found = (await checks.models(settings, {"OPENAI_BASE_URL": without, "OPENAI_API_KEY": "k"}))[1]
        assert found.state == "problem"
        assert f"write {provider.openai_url} in OPENAI_BASE_URL" in found.fix


def test_a_password_in_the_address_of_the_database_is_not_shown(cli: Cli):
    loaded = load(cwd=cli.folder, environ={"RETINUE_DB": "postgresql://me:hunter2@host/db"})
    shown = json.dumps([check.text for check in checks.configuration(loaded)])
    assert "hunter2" not in shown
    assert "postgresql://me:***@host/db" in shown


@pytest.mark.parametrize("name", ["model", "small_model"])
def test_a_model_of_an_unknown_provider_is_not_written_and_doctor_finds_one(
    invoke: Invoke, mine: Path, name: str
):
    ended = invoke("config", "set", name, "opnai:gpt-6")
    assert ended.code == 2
    assert "unknown provider 'opnai'" in ended.err
    assert "did you mean 'openai'?" in ended.err
    assert not mine.exists()
    found = invoke("doctor", RETINUE_MODEL="opnai:gpt-6")
    assert found.code == 1
    assert "✗ model  unknown provider 'opnai' in model 'opnai:gpt-6'" in found.out


def test_doctor_writes_out_a_model_that_is_named_by_its_provider_alone(invoke: Invoke):
    assert "✓ model  openai:gpt-" in invoke("doctor", RETINUE_MODEL="openai:").out


def test_seconds_may_be_written_with_their_unit(invoke: Invoke, mine: Path):
    for written, seconds in (("10m", "600"), ("1.5h", "5400"), ("90s", "90"), ("45", "45")):
        assert invoke("config", "set", "limits.timeout", written).code == 0
        assert invoke("config", "get", "limits.timeout").out.strip().removesuffix(".0") == seconds
    mine.write_text('[limits]\ntimeout = "2m"\nmodel_timeout = "30s"\n')
    assert invoke("config", "get", "limits.timeout").out.strip().removesuffix(".0") == "120"
    assert invoke("config", "get", "limits.model_timeout").out.strip().removesuffix(".0") == "30"
    wrong = invoke("config", "set", "limits.timeout", "10 fortnights")
    assert wrong.code == 2
    assert "must be number > 0, or like 30s, 10m or 2h" in wrong.err
    money = invoke("config", "set", "limits.max_cost", "10m")
    assert money.code == 2
    assert "10m" not in money.err.replace("'10m'", "")


def test_what_came_with_a_repository_sets_no_longer_time_in_other_words(invoke: Invoke, cli: Cli):
    (cli.folder / "retinue.toml").write_text('[limits]\ntimeout = "2h"\ntool_timeout = "30s"\n')
    listed = invoke("config", "list").out
    lines = {line.split()[0]: line.split()[1] for line in listed.splitlines() if line.startswith("limits.t")}
    assert (lines["limits.timeout"], lines["limits.tool_timeout"].removesuffix(".0")) == ("600", "30")


def test_approving_what_is_sandboxed_without_a_sandbox_is_said_to_do_nothing(invoke: Invoke, mine: Path):
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text('[approvals]\nauto = "sandboxed"\n')
    says = 'approvals.auto = "sandboxed" does nothing while approvals.sandbox is "off"'
    found = invoke("doctor")
    assert (found.code, says in found.out) == (1, True)
    assert says in invoke("ask", "hello").err
    mine.write_text('[approvals]\nauto = "sandboxed"\nsandbox = "project"\n')
    assert says not in invoke("doctor").out


@pytest.mark.parametrize(
    ("field", "line", "said"),
    [
        ("skills: [missing]", "error", "there is no skill 'missing'"),
        ("model: foo:bar", "error", "unknown provider 'foo'"),
        ("mcp_servers: [nope]", "warning", "there is no MCP server 'nope'"),
    ],
)
def test_what_an_agent_names_and_is_not_here_is_found_before_it_is_run(
    invoke: Invoke, cli: Cli, field: str, line: str, said: str
):
    file = cli.folder / ".retinue" / "agents" / "odd.md"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"---\nname: odd\ndescription: An agent for odd jobs of all kinds\n{field}\n---\nBe odd.\n"
    )
    ended = invoke("agents", "check")
    assert ended.code == (2 if line == "error" else 0)
    assert f"odd.md:4: {line}: {said}" in ended.out
    checked = {row["text"] for row in invoke("doctor", "--json").lines if row["state"] == "problem"}
    assert any(said in text for text in checked) == (line == "error")
