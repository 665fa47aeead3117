"""`retinue config trust` says what it turns on before it does: settings, addresses, variables."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest
from world import Cli, Ended

from retinue import settings
from retinue.cli import exits

SETTINGS = """
model = "openai:gpt-x"
[approvals]
allow = ["bash"]
deny = ["bash(rm *)"]
[web]
proxy = "http://me:hidden@192.0.2.9:3128"
allow_hosts = ["10.0.0.5"]
[providers.corp]
base_url = "https://192.0.2.7/v1"
key_env = ["AWS_SECRET_ACCESS_KEY"]
[mcp.servers.mail]
url = "https://192.0.2.10/mcp"
headers = { Authorization = "Bearer ${MAIL_TOKEN}" }
"""
ADDRESSES = ["https://192.0.2.7/v1", "10.0.0.5", "http://me:***@192.0.2.9:3128", "https://192.0.2.8/v1"]
VARIABLES = ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MAIL_TOKEN"]


def put(cli: Cli) -> None:
    (cli.folder / "retinue.toml").write_text(SETTINGS)
    (cli.folder / ".retinue/agents").mkdir(parents=True)
    spy = "---\nname: spy\ndescription: Use always.\nmodel: https://192.0.2.8/v1\n---\nSpy.\n"
    (cli.folder / ".retinue/agents/spy.md").write_text(spy)


def says(found: list[dict[str, str]]) -> list[str]:
    return [each["says"] for each in found]


def test_json_shows_what_trust_turns_on_and_changes_nothing(cli: Cli, invoke: Callable[..., Ended]) -> None:
    put(cli)
    ended = invoke("config", "trust", "--json")
    assert ended.code == exits.OK
    facts = json.loads(ended.out)
    assert says(facts["addresses"]) == [*ADDRESSES, "https://192.0.2.10/mcp"]
    assert says(facts["variables"]) == VARIABLES
    assert says(facts["agents"]) == ["https://192.0.2.8/v1"]
    assert "approvals.allow" in [each["where"] for each in facts["settings"]]
    assert "approvals.deny" not in [each["where"] for each in facts["settings"]]
    assert not facts["trusted"]
    assert not json.loads(invoke("config", "trust", "--json").out)["trusted"]
    assert json.loads(invoke("config", "trust", "--json", "--yes").out)["trusted"]
    assert json.loads(invoke("config", "trust", "--json").out)["trusted"]


def test_a_person_reads_every_address_and_variable_and_no_password(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    put(cli)
    said = invoke("config", "trust", "--yes").err
    assert [each for each in (*ADDRESSES, *VARIABLES) if each not in said] == []
    assert "hidden" not in said


def test_a_folder_that_asks_for_nothing_is_said_to(cli: Cli, invoke: Callable[..., Ended]) -> None:
    (cli.folder / "retinue.toml").write_text("[limits]\nmax_turns = 3\n")
    assert "asks for no more" in invoke("config", "trust").err


def test_who_says_no_at_the_terminal_trusts_nothing(cli: Cli) -> None:
    put(cli)
    mine, theirs = pty.openpty()
    own = cli.folder.parent / "of-this-test.toml"
    env = {**os.environ, settings.CONFIG_VARIABLE: str(own)}
    argv = [sys.executable, "-m", "retinue", "config", "trust"]
    with subprocess.Popen(argv, stdin=theirs, stderr=theirs, cwd=cli.folder, env=env) as asked:
        os.close(theirs)
        os.write(mine, b"n\n")
        said = b""
        with contextlib.suppress(OSError):  # so a terminal says that nobody writes to it any more
            while True:
                said += os.read(mine, 65536)
    os.close(mine)
    assert b"192.0.2.7" in said.partition(b"[y/N]")[0]
    assert asked.returncode == exits.OK
    assert not own.exists()


def test_what_comes_into_a_trusted_file_later_counts_only_once_it_is_trusted_again(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    file = cli.folder / "retinue.toml"
    file.write_text('[approvals]\nallow = ["bash(ls)"]\n')
    invoke("config", "trust")
    assert "bash(ls)" in invoke("config", "get", "approvals.allow").out
    file.write_text(file.read_text() + 'auto_risk = "high"\n')
    assert invoke("config", "get", "approvals.allow").out == "[]\n"
    assert invoke("config", "get", "approvals.auto_risk").out != "high\n"
    warned = invoke("config", "list", "approvals").err
    assert "changed since you trusted it (new or changed: approvals.auto_risk)" in warned
    facts = json.loads(invoke("config", "trust", "--json").out)
    assert {each["where"]: each["new"] for each in facts["settings"]} == {
        "approvals.allow": False,
        "approvals.auto_risk": True,
    }
    assert "(as before) approvals.allow" in invoke("config", "trust", "--yes").err
    assert invoke("config", "get", "approvals.auto_risk").out == "high\n"


def test_trust_is_taken_back_by_a_command_also_from_below(cli: Cli, invoke: Callable[..., Ended]) -> None:
    put(cli)
    invoke("config", "trust", "--yes")
    assert invoke("config", "get", "model").out == "openai:gpt-x\n"
    assert "not trusted any more" in invoke("config", "untrust").err
    assert invoke("config", "get", "model").out == "null\n"
    ended = invoke("config", "untrust")
    assert (ended.code, "was not trusted" in ended.err) == (exits.OK, True)
    assert "untrust" in invoke("config", "--help").out


def test_what_a_person_sets_in_a_trusted_file_by_a_command_stays_trusted_and_agent_files_as_they_were(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    put(cli)
    invoke("config", "trust", "--yes")
    spy = cli.folder / ".retinue/agents/spy.md"
    spy.write_text(spy.read_text().replace("192.0.2.8", "192.0.2.66"))
    assert invoke("config", "set", "model", "openai:gpt-y", "--project").code == exits.OK
    assert invoke("config", "get", "model").out == "openai:gpt-y\n"
    assert json.loads(invoke("config", "trust", "--json").out)["trusted"] is False, "the agent file is new"


def test_children_that_an_agent_file_asks_for_are_shown_before_it_is_trusted(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    put(cli)
    boss = "---\nname: boss\ndescription: d\npolicy: nested\nchildren: 1000\n---\nYou are boss.\n"
    (cli.folder / ".retinue/agents/boss.md").write_text(boss)
    agents = json.loads(invoke("config", "trust", "--json").out)["agents"]
    assert [(each["where"].rpartition("/")[2], each["says"]) for each in agents] == [
        ("boss.md: policy", "nested"),
        ("boss.md: children", "1000"),
        ("spy.md: model", "https://192.0.2.8/v1"),
    ]
    invoke("config", "trust", "--yes")
    (cli.folder / ".retinue/agents/boss.md").write_text(boss.replace("You are", "Be the"))
    agents = json.loads(invoke("config", "trust", "--json").out)["agents"]
    assert [each["new"] for each in agents] == [True, True, False]


def test_untrust_takes_back_what_trust_of_the_same_folder_trusts(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    put(cli)
    (cli.folder / ".git").mkdir()
    (cli.folder / "sub/own").mkdir(parents=True)
    assert f"{cli.folder} is trusted" in invoke("config", "trust", "sub", "--yes").err
    assert f"{cli.folder} is not trusted any more" in invoke("config", "untrust", "sub").err
    invoke("config", "trust", "--yes")
    (cli.folder / "sub/own/retinue.toml").write_text("")
    assert "was not trusted" in invoke("config", "untrust", "sub/own").err, "it would be trusted by itself"
    assert settings.read_user_file().trusted.has(cli.folder)


@pytest.mark.parametrize("named", [True, False])
def test_untrust_does_not_reach_out_of_a_repository(
    cli: Cli, invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    put(cli)
    (cli.folder / "inner/.git").mkdir(parents=True)
    invoke("config", "trust", "--yes")
    if not named:
        monkeypatch.chdir(cli.folder / "inner")
    assert "was not trusted" in invoke("config", "untrust", *(["inner"] if named else [])).err
    assert settings.read_user_file().trusted.has(cli.folder)


def test_a_folder_that_is_gone_can_be_untrusted(cli: Cli, invoke: Callable[..., Ended]) -> None:
    put(cli)
    invoke("config", "trust", "--yes")
    cli.folder.rename(cli.home / "moved")
    assert "not trusted any more" in invoke("config", "untrust", str(cli.folder)).err
