"""Every mistake is one clear line on stderr and a documented exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from world import Cli, Ended

from retinue import builtin_tools
from retinue.agents import builtin_agents
from retinue.cli import exits, extras, help_text
from retinue.errors import ConfigError, ModelError, NoKey, RunError, StoreError

Invoke = Callable[..., Ended]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "code-review", "x", "--input", "focus=everything"), "focus"),
        (("run", "code-review", "x", "--input", "focus"), "KEY=VALUE"),
        (("run", "nobody", "x"), "there is no agent 'nobody'"),
        (("run", "general", "x", "--input", "depth=3"), "depth"),
        (("ask", "x", "--model", "nowhere:model"), "unknown provider 'nowhere'"),
        (("ask", "x", "--cwd", "/no/such/folder"), "/no/such/folder"),
        (("ask", "x", "--timeout", "soon"), "--timeout"),
        (("ask", "x", "--json", "--events"), "--events"),
        (("ask", "x", "--attach", "missing.png"), "missing.png"),
        (("ask", "x", "--policy", "wide"), "wide"),
        (("ask", "x", "--max-turns", "0"), "--max-turns"),
        (("ask", "x", "--max-cost", "0"), "greater than 0"),
        (("ask", "x", "--no-such-option"), "--no-such-option"),
        (("ask",), "prompt is empty"),
        (("aks", "x"), "Did you mean 'ask'"),
        (("ask", "x", "--db", "mysql://host/name"), "mysql"),
        (("runs", "show", "rzzzz"), "there is no run 'rzzzz'"),
        (("runs", "show", "last"), "no runs yet"),
        (("runs", "list", "--status", "done"), "one of pending, running"),
        (("runs", "list", "--since", "yesterday"), "--since"),
        (("runs", "prune"), "--older-than"),
        (("runs", "prune", "--max-size", "big"), "--max-size"),
        (("approvals", "answer", "r1:x", "approve"), "no question 'r1:x'"),
        (("approvals", "answer", "r1:x", "maybe"), "maybe"),
        (("approvals", "answer", "r1:x", "approve", "--arguments", "[1]"), "one JSON object"),
        (("approvals", "answer", "r1:x", "reject", "--arguments", "{}"), "--arguments"),
        (("agents", "show", "code-serch"), "did you mean 'code-search'?"),
        (("agents", "new", "Not A Name"), "'not-a-name'"),
        (("tools", "show", "gerp"), "did you mean 'grep'?"),
        (("config", "get", "max_turns"), "did you mean 'limits.max_turns'?"),
        (("config", "set", "openai_api_key", "sk-123"), "never written to a file"),
        (("config", "set", "limits.max_turns", "many"), "limits.max_turns = 'many'"),
        (("config", "trust"), "no retinue.toml"),
        (("config", "set", "model", "nope"), "names no provider"),
        (("config", "set", "model", "sk-proj-abcdefghijklmnopqrstuvwxyz"), "looks like a key"),
        (
            ("config", "set", "providers", '{x = {base_url = "http://h/?k=sk-abcdefghijklmnopqrst"}}'),
            "looks like a key",
        ),
        (("config", "set", "approvals.allow", "bsh(("), "cannot read the rule 'bsh(('"),
        (("config", "set", "approvals.allow", "bash(ls)", "--project"), "a repository may not set it"),
        (("config", "set", "limits.max_turns", "3", "--add"), "is no list"),
        (
            ("config", "set", "knowledge.extra", "pubmed,googlescholar"),
            "`crossref` or `semanticscholar` or `pubmed`",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_one_line_on_stderr_and_code_2(invoke: Invoke, arguments: tuple[str, ...], said: str):
    ended = invoke(*arguments)
    assert ended.code == exits.USAGE, ended.err
    complaints = [line for line in ended.err.splitlines() if line.startswith("retinue: ")]
    assert len(complaints) == 1
    assert said in complaints[0]
    assert "Traceback" not in ended.err
    assert ended.out == ""


def test_a_missing_key_is_one_line_and_the_code_of_a_model_that_cannot_be_asked(invoke: Invoke):
    ended = invoke("ask", "x", "--model", "anthropic:claude-sonnet-5-5")
    assert (ended.code, "ANTHROPIC_API_KEY" in ended.err) == (5, True), ended.err


def test_a_wrong_setting_names_where_it_came_from_and_debug_adds_the_traceback(invoke: Invoke):
    quiet = invoke("ask", "hello", RETINUE_LIMITS_MAX_TURNS="many")
    assert quiet.code == exits.USAGE
    assert "limits.max_turns = 'many'" in quiet.err
    assert "RETINUE_LIMITS_MAX_TURNS: " in quiet.err
    assert "Traceback" not in quiet.err
    loud = invoke("ask", "hello", "--debug", RETINUE_LIMITS_MAX_TURNS="many")
    assert "Traceback" in loud.err
    assert loud.code == exits.USAGE


def test_a_broken_agent_file_is_named_with_its_line(invoke: Invoke, cli: Cli):
    folder = cli.folder / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "odd.md").write_text(
        "---\nname: odd\ndescription: does odd things\nmax_turns: many\n---\nYou are odd.\n"
    )
    ended = invoke("run", "odd", "hello")
    assert ended.code == exits.USAGE
    assert re.search(r"odd\.md:\d+: ", ended.err)


def test_a_database_that_cannot_be_written_is_code_6(invoke: Invoke, tmp_path: Path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    ended = invoke("ask", "hello", "--db", f"sqlite://{blocked}/retinue.db")
    assert ended.code == exits.DATABASE
    assert len([line for line in ended.err.splitlines() if line.startswith("retinue: ")]) == 1


def test_a_file_that_is_no_database_is_code_6_and_left_alone(invoke: Invoke, tmp_path: Path):
    path = tmp_path / "notes.db"
    path.write_bytes(b"these are my notes, not a database" * 100)
    before = path.read_bytes()
    ended = invoke("runs", "list", "--db", str(path))
    assert ended.code == exits.DATABASE
    assert "notes.db is no SQLite database" in ended.err
    assert path.read_bytes() == before


def test_a_word_is_not_taken_for_a_database_of_that_name(invoke: Invoke, cli: Cli):
    ended = invoke("runs", "list", "--db", "foo")
    assert (ended.code, "'foo' is no address of a database" in ended.err) == (2, True)
    assert not (cli.folder / "foo").exists()


def test_every_kind_of_error_has_its_code():
    assert exits.code_of(ConfigError("x")) == exits.USAGE
    assert exits.code_of(NoKey("x")) == exits.MODEL
    assert exits.code_of(ModelError("x", kind="auth")) == exits.MODEL
    assert exits.code_of(StoreError("x")) == exits.DATABASE
    assert exits.code_of(RunError("x")) == exits.FAILED
    assert exits.code_of(KeyboardInterrupt()) == exits.CANCELLED
    assert exits.code_of(ValueError("x")) == exits.FAILED


def test_an_unforeseen_error_says_how_to_see_more():
    assert "--debug" in exits.line_of(KeyError("x"))
    assert exits.line_of(PermissionError(13, "Permission denied", "/etc/x")) == "/etc/x: Permission denied"


def test_help_and_the_module_list_the_same_exit_codes():
    codes = re.findall(r"(?m)^ *(\d+)  +(.+)$", exits.__doc__ or "")
    shown = re.findall(r"(?m)^  (\d+)  +(.+)$", help_text())
    assert len(codes) == 11
    assert shown == codes


async def test_a_command_whose_extra_is_not_installed_says_how_to_install_it(cli: Cli, tmp_path: Path):
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError('no fastapi here', name='fastapi')\n")
    ended = await cli("serve", "--port", "0", PYTHONPATH=str(tmp_path))
    assert ended.code == 2
    assert (
        "this needs the package fastapi, which is not installed (pip install 'retinue[server]')" in ended.err
    )


def test_tools_of_an_extra_that_is_not_installed_are_named(monkeypatch: pytest.MonkeyPatch):
    wanted = builtin_agents()["web-knowledge"].tools
    assert wanted
    assert extras.lacking([*wanted, "run_code", "read", "my_own"]) == {}, "all is installed here"
    there = builtin_tools.find_spec
    monkeypatch.setattr(
        builtin_tools,
        "find_spec",
        lambda name: None if name in ("protego", "pydantic_monty") else there(name),
    )
    missing = extras.lacking([*wanted, "run_code", "read", "my_own"])
    assert missing == {"web": list(wanted), "code": ["run_code"]}


def test_a_path_that_is_not_there_is_told_before_anybody_searches_for_it(invoke: Invoke, cli: Cli):
    assert f"! there is no src/x.py in {cli.folder}" in invoke("run", "code-review", "src/x.py").err
    (cli.folder / "src").mkdir()
    (cli.folder / "src" / "x.py").write_text("x = 1\n")
    assert "there is no" not in invoke("run", "code-review", "src/x.py").err


def test_nothing_is_said_of_answers_before_a_mistake(invoke: Invoke):
    ended = invoke("run", "nobody", "hello", "--model", "offline")
    assert ended.code == 2
    assert "offline:" not in ended.err


def test_every_mistake_in_a_file_is_named_with_its_line(invoke: Invoke, cli: Cli):
    file = cli.folder / "retinue.toml"
    file.write_text("[limits]\n\nmaxturns = 3\nmax_cost = 'x'\n")
    for command in (
        ("config", "list"),
        ("config", "set", "limits.max_turns", "7", "--project"),
    ):
        ended = invoke(*command)
        assert f"{file}:3: unknown setting 'limits.maxturns' (did you mean 'limits.max_turns'?)" in ended.err
        assert f"{file}:4: limits.max_cost = 'x'" in ended.err
        assert "present value" not in ended.err
        assert ended.code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("ask", "x", "--max-cost", "-1"),
            "--max-cost -1: it has to be greater than 0, and finite (for example 0.50)",
        ),
        (("run", "code-review", "x", "-i", "bogus=1"), "unknown: 'bogus'; known are target, focus"),
    ],
    ids=["cost", "input"],
)
def test_a_mistake_is_told_in_words_of_this_project(invoke: Invoke, arguments: tuple[str, ...], said: str):
    ended = invoke(*arguments)
    assert ended.code == exits.USAGE
    assert said in ended.err
    if arguments[0] == "ask":
        assert ended.err.count("\n") == 1, "nothing is said of answers before the mistake"
