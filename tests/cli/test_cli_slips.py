"""Slips at the command line: what is not there is said, with the way to mend it, and nothing is made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from world import Cli, Ended

from retinue.testing import FakeProvider

Invoke = Callable[..., Ended]
READING = (
    ("runs", "list"),
    ("runs", "show", "last"),
    ("runs", "events", "last"),
    ("runs", "tree", "last"),
    ("approvals", "list"),
    ("stats",),
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_database_that_is_not_there_is_not_made_by_reading(
    invoke: Invoke, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "nowhere" / "log.db"
    ended = invoke(*words, "--db", str(path))
    assert ended.code == 6
    assert f"there is no database {path}" in ended.err
    assert not path.parent.exists()


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_database_that_a_variable_names_is_not_made_by_reading_either(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    path = tmp_path / "nowhere" / "log.db"
    monkeypatch.setenv("RETINUE_DB", str(path))
    ended = invoke(*words)
    assert ended.code == 6
    assert f"there is no database {path}: look at RETINUE_DB" in ended.err
    assert not path.parent.exists()


def test_a_folder_that_is_given_as_the_database_is_said_to_be_one(invoke: Invoke, tmp_path: Path) -> None:
    ended = invoke("runs", "list", "--db", str(tmp_path))
    assert ended.code == 6
    assert f"{tmp_path} is a folder" in ended.err
    assert f"{tmp_path / 'retinue.db'}" in ended.err


def test_settings_that_a_variable_names_and_are_not_there_are_an_error(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slip in the name would take away every rule, and nobody would know."""
    path = tmp_path / "confg.toml"
    monkeypatch.setenv("RETINUE_CONFIG", str(path))
    for words in (("ask", "where is x?", "--yes"), ("config", "list"), ("runs", "list")):
        ended = invoke(*words)
        assert ended.code == 2
        assert f"RETINUE_CONFIG names {path}, which is not there" in ended.err
    assert invoke("config", "set", "limits.max_turns", "3").code == 0
    assert invoke("config", "get", "limits.max_turns").out == "3\n"


def test_the_first_question_makes_the_database(invoke: Invoke, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.db"
    assert invoke("ask", "where is x?", "--db", str(path)).code in (0, 3)
    assert invoke("runs", "list", "--db", str(path)).code == 0


def test_an_address_without_a_scheme_is_told_and_not_tried(invoke: Invoke, cli: Cli) -> None:
    cli.env |= {"OPENAI_BASE_URL": "localhost:1/v1", "OPENAI_API_KEY": "k"}
    ended = invoke("ask", "hi", "--model", "openai:x")
    assert ended.code == 2
    assert "http://localhost:1/v1" in ended.err
    assert "OPENAI_BASE_URL" in ended.err


def test_an_address_without_v1_is_told_where_nothing_answers_there(
    invoke: Invoke, cli: Cli, served: FakeProvider
) -> None:
    cli.use(served)
    cli.env["OPENAI_BASE_URL"] = served.openai_url.removesuffix("/v1")
    ended = invoke("ask", "hi", "--model", "openai:fake-model")
    assert ended.code == 5
    assert f"{served.openai_url}" in ended.err


def test_a_key_that_is_refused_is_named_by_its_variable(
    invoke: Invoke, cli: Cli, served: FakeProvider
) -> None:
    cli.use(served)
    served.fail(401, "bad key")
    ended = invoke("ask", "hi")
    assert ended.code == 5
    assert "OPENAI_API_KEY" in ended.err


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("htp://localhost:8080/v1", "http://localhost:8080/v1"),
        ("htps://models.example/v1", "https://models.example/v1"),
        ("http:/localhost:8080/v1", "http://localhost:8080/v1"),
        ("https:localhost", "https://localhost"),
        ("ftp://models.example", "http://models.example"),
        ("localhost:8080/v1", "http://localhost:8080/v1"),
        ("//localhost/v1", "http://localhost/v1"),
    ],
)
def test_a_misspelt_scheme_is_told_with_the_right_address(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, written: str, meant: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", written)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    ended = invoke("ask", "hi", "--model", "openai:m")
    assert ended.code == 2
    assert f"(write {meant} in OPENAI_BASE_URL" in ended.err


def test_a_rule_for_a_misspelt_tool_is_set_with_a_warning(invoke: Invoke) -> None:
    ended = invoke("config", "set", "approvals.deny", '["bahs(git *)"]')
    assert ended.code == 0
    assert "no built-in tool is called 'bahs'; did you mean 'bash'?" in ended.err


def test_a_provider_that_resembles_none_is_not_taken_for_one(invoke: Invoke) -> None:
    ended = invoke("ask", "hi", "--model", "nope:x")
    assert "unknown provider 'nope'" in ended.err
    assert "did you mean" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ask", "hi", "--model", "opnai:gpt"), "did you mean 'openai'"),
        (("ask", "hi", "--modl", "x"), "--model"),
        (("runs", "lst"), "Did you mean 'list'"),
        (("config", "get", "limits.max_trns"), "limits.max_turns"),
        (("tools", "show", "spawn_agnet"), "did you mean 'spawn_agent'"),
        (("config", "set", "knowledge.agent", "web-knowlege"), "did you mean 'web-knowledge'"),
        (("config", "set", "knowledge.base_urls", '{wikipedia = "en.wikipedia.org"}'), "http"),
        (("config", "set", "knowledge.base_urls", '{wikipeda = "https://example.org"}'), "wikipeda"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else None,
)
def test_what_was_probably_meant_is_said(invoke: Invoke, arguments: tuple[str, ...], said: str) -> None:
    ended = invoke(*arguments)
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("spawn_agent", "delegation.tools"),
        ("background", "delegation.tools"),
        ("todo", "names it"),
        ("run_code", "mode: code"),
        ("sheet_read", "attached"),
        ("code-search", "agents"),
    ],
)
def test_every_tool_there_is_is_shown_with_what_offers_it(invoke: Invoke, name: str, offered: str) -> None:
    ended = invoke("tools", "show", name)
    assert ended.code == 0, ended.err
    assert offered in ended.out
    assert f"\n{name} " in invoke("tools", "list").out


def test_every_built_in_tool_is_listed(invoke: Invoke) -> None:
    from retinue.builtin_tools import BUILT_IN

    listed = {line.split()[0] for line in invoke("tools", "list").out.splitlines()}
    assert listed >= BUILT_IN.keys()


def test_events_are_shown_with_the_places_that_a_fork_takes(invoke: Invoke, cli: Cli) -> None:
    invoke("ask", "where is x?")
    lines = invoke("runs", "events", "last").out.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert invoke("runs", "fork", "last", "--at", lines[1].split()[0]).code in (0, 3)


def test_config_set_names_the_line_of_a_broken_file(invoke: Invoke, cli: Cli) -> None:
    file = cli.home / "config" / "retinue" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('model = "offline"\n\n[limits]\nmax_turns == 3\n')
    ended = invoke("config", "set", "limits.max_cost", "2")
    assert ended.code == 2
    assert f"{file}:4" in ended.err


def test_an_agent_whose_name_has_a_dot_loads(invoke: Invoke, cli: Cli) -> None:
    folder = cli.folder / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "powershell-5.1-expert.md").write_text(
        "---\nname: powershell-5.1-expert\ndescription: Use for PowerShell of the old kind.\n---\nYou help.\n"
    )
    assert "powershell-5-1-expert" in invoke("agents", "list").out
    for name in ("powershell-5.1-expert", "powershell-5-1-expert"):
        assert invoke("agents", "show", name).code == 0
    ended = invoke("agents", "check")
    assert ended.code == 0, ended.out
    assert "powershell-5-1-expert" in ended.out


def test_the_offline_model_counts_no_tokens_and_says_what_it_did_not_read(invoke: Invoke) -> None:
    ended = invoke("ask", "where is x? " + "and so on " * 600)
    assert "the rules read the first 4,000" in ended.out
    assert "0 tokens" in ended.err
    assert "the rules read" not in invoke("ask", "where is x?").out


def test_a_home_that_cannot_be_written_is_a_problem_for_doctor(invoke: Invoke, cli: Cli) -> None:
    (cli.home / "data").write_text("a file, where a folder should be")
    ended = invoke("doctor")
    assert ended.code == 1
    assert "cannot be made" in ended.out


def test_doctor_ticks_no_settings_where_a_file_of_them_is_broken(invoke: Invoke, cli: Cli) -> None:
    (cli.folder / "retinue.toml").write_text("[limits\nmax_turns = 3\n")
    ended = invoke("doctor", "--json")
    assert ended.code == 1
    assert {check["state"] for check in ended.lines if check["group"] == "settings"} == {"problem"}


@pytest.mark.parametrize("more", [(), ("--html",)])
def test_a_dash_is_standard_output_for_an_export(invoke: Invoke, cli: Cli, more: tuple[str, ...]) -> None:
    invoke("ask", "where is x?")
    plain, dashed = (invoke("runs", "export", "last", *more, *to) for to in ((), ("-o", "-")))
    assert dashed.code == 0
    assert plain.out == dashed.out != ""
    assert not (cli.folder / "-").exists()


def test_one_letter_of_an_id_is_said_to_be_too_little(invoke: Invoke) -> None:
    invoke("ask", "where is x?")
    ended = invoke("runs", "show", "r")
    assert ended.code == 2
    assert "'r' is too short for the beginning of a run's id" in ended.err
    assert "'last'" in ended.err


def test_only_a_name_that_is_near_is_suggested(invoke: Invoke):
    for asked, hint in (
        ("limits.nope", "config list"),
        ("limits.max_trns", "did you mean 'limits.max_turns'?"),
        ("limit", "did you mean 'limits'?"),
        ("max_turns", "did you mean 'limits.max_turns'?"),
        ("nonsense", "config list"),
    ):
        ended = invoke("config", "get", asked)
        assert (ended.code, hint in ended.err) == (2, True), (asked, ended.err)
    far = invoke("config", "list", RETINUE_HOME="/x").err
    assert "RETINUE_HOME in the environment is no setting" in far
    assert "did you mean" not in far
    near = invoke("config", "list", RETINUE_MODLE="x").err
    assert "did you mean 'RETINUE_MODEL'?" in near


def test_a_list_of_a_misspelt_agent_names_the_one_that_was_meant(invoke: Invoke):
    slip = invoke("runs", "list", "--agent", "code-serch")
    assert (slip.code, "did you mean 'code-search'?" in slip.err) == (2, True), slip.err
    other = invoke("runs", "list", "--agent", "code-search")
    assert (other.code, "no runs match" in other.err) == (0, True), other.err


def test_a_question_names_the_command_that_says_what_is_wrong_with_agent_files(invoke: Invoke, cli: Cli):
    folder = cli.folder / ".retinue" / "agents"
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        (folder / f"{name}.md").write_text("---\nname: [\n---\nx\n")
    said = invoke("run", "code-search", "where is parse defined?", "--model", "offline").err
    assert "2 agent files cannot be used: 'retinue agents check' says why" in said


def test_the_address_of_a_server_as_a_model_says_what_is_missing(
    cli: Cli, invoke: Invoke, served: FakeProvider
) -> None:
    bare = served.openai_url.removesuffix("/v1")
    ended = invoke("ask", "hi", "--model", bare)
    assert ended.code == 5
    assert served.openai_url in "".join(ended.err.split())  # the fix, over lines
    ended = invoke("ask", "hi", "--model", served.openai_url.removeprefix("http://"))
    assert ended.code == 2
    assert f"for a server write {served.openai_url};" in ended.err


WHOLE, MORE = "it has to be a whole number", "it has to be 1 or more"
NUMBERS = [
    (("run", "general", "hi"), "--max-turns", "0", MORE),
    (("run", "general", "hi"), "--max-turns", "-3", MORE),
    (("run", "general", "hi"), "--max-turns", "many", WHOLE),
    (("ask", "hi"), "--max-turns", "1.5", WHOLE),
    (("ask", "hi"), "--max-cost", "0", "it has to be greater than 0"),
    (("ask", "hi"), "--max-cost", "inf", "it has to be greater than 0, and finite"),
    (("ask", "hi"), "--max-cost", "much", "it has to be a number"),
    (("runs", "resume", "last"), "--max-turns", "0", MORE),
    (("runs", "list"), "--limit", "0", MORE),
    (("runs", "fork", "last"), "--at", "0", MORE),
    (("map", "general", "-"), "--concurrency", "0", MORE),
    (("serve",), "--port", "70000", "it has to be 65535 or less"),
    (("ask", "hi"), "--timeout", "0", "is no time"),
    (("ask", "hi"), "--timeout", "-5", "cannot be understood"),
]


@pytest.mark.parametrize(("words", "option", "value", "said"), NUMBERS)
def test_a_number_that_an_option_does_not_take_is_named_with_what_it_has_to_be(
    invoke: Invoke, words: tuple[str, ...], option: str, value: str, said: str
) -> None:
    ended = invoke(*words, option, value)
    assert ended.code == 2
    assert option in ended.err
    assert value in ended.err
    assert said in ended.err
