"""`retinue mcp add | list | test | remove`: what is written where, and with which codes."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable

import pytest
from world import Cli, Ended

from mcp_world import PLAIN
from retinue.cli import exits

SERVER = (sys.executable, "-I", "-S", str(PLAIN))
Invoke = Callable[..., Ended]


def own_settings(cli: Cli) -> dict[str, object]:
    return tomllib.loads((cli.home / "config/retinue/config.toml").read_text())


def test_a_server_is_added_listed_tried_and_removed(cli: Cli, invoke: Invoke) -> None:
    assert "no MCP servers here" in invoke("mcp", "list").err
    added = invoke("mcp", "add", "plain", "--env", "TOKEN", "--env", "MODE=quick", "--", *SERVER)
    assert added.code == exits.OK, added.err
    assert own_settings(cli)["mcp"] == {
        "servers": {
            "plain": {
                "command": SERVER[0],
                "args": list(SERVER[1:]),
                "env": {"TOKEN": "${TOKEN}", "MODE": "quick"},
            }
        }
    }
    (row,) = invoke("mcp", "list", "--json").lines
    assert (row["name"], row["trust"], row["state"], row["variables"]) == (
        "plain",
        "yours",
        "not listed yet",
        ["TOKEN"],
    )
    missing = invoke("mcp", "test", "plain")
    assert missing.code != exits.OK
    assert "needs TOKEN" in missing.err
    tried = invoke("mcp", "test", "plain", TOKEN="tops3cret")
    assert tried.code == exits.OK, tried.err
    assert "echo (reads): says it back" in tried.out
    assert "prompt greet(who)" in tried.out
    assert "echo" in invoke("mcp", "list", "--json").lines[0]["tools"]
    assert json.loads(invoke("mcp", "test", "plain", "--json", TOKEN="tops3cret").out)["tools"]
    removed = invoke("mcp", "remove", "plain")
    assert removed.code == exits.OK
    assert "no MCP servers here" in invoke("mcp", "list").err


def test_a_server_of_the_project_starts_only_when_it_is_trusted_and_not_after_it_changed(
    cli: Cli, invoke: Invoke
) -> None:
    invoke("mcp", "add", "plain", "--project", "--", *SERVER)
    written = json.loads((cli.folder / ".mcp.json").read_text())
    assert written["mcpServers"]["plain"]["command"] == SERVER[0]
    assert "'retinue mcp trust plain'" in invoke("mcp", "list").err
    refused = invoke("mcp", "test", "plain")
    assert (refused.code, "would start" in refused.err) == (exits.USAGE, True)
    assert invoke("mcp", "trust", "plain").code == exits.OK
    assert invoke("mcp", "test", "plain").code == exits.OK
    invoke("mcp", "add", "plain", "--project", "--", *SERVER, "--many", "2")
    assert invoke("mcp", "list", "--json").lines[0]["trust"] == "changed"
    assert invoke("mcp", "remove", "plain", "--project").code == exits.OK
    assert json.loads((cli.folder / ".mcp.json").read_text()) == {"mcpServers": {}}


def test_what_is_called_without_asking_is_said_when_a_server_is_trusted(invoke: Invoke) -> None:
    invoke("mcp", "add", "open", "--", *SERVER)
    ended = invoke("mcp", "trust", "open")
    assert "without asking: list_resources, echo, add, " in ended.err
    assert "until private data was read: read_resource, get_prompt, look\n" in ended.err
    invoke("mcp", "add", "closed", "--", *SERVER, "--closed")
    ended = invoke("mcp", "trust", "closed")
    assert "without asking: list_resources, read_resource, get_prompt, echo, " in ended.err
    assert "until private data" not in ended.err
    assert "what it returns counts as private data; --public says that it is none" in ended.err
    assert "counts as no private data, as you said" in invoke("mcp", "trust", "closed", "--public").err
    assert invoke("mcp", "trust", "closed", "--public", "--start-only").code == exits.USAGE


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "x"), "give a command after '--', or --url"),
        (
            ("add", "x", "--url", "http://127.0.0.1:9/mcp", "--", "prog"),
            "give a command after '--', or --url",
        ),
        (("remove", "x"), "there is no MCP server 'x' there"),
        (("remove", "x", "--project"), "there is no MCP server 'x' there"),
        (("test", "x"), "there is no MCP server 'x'"),
        (("login", "x"), "there is no MCP server 'x'"),
    ],
)
def test_what_cannot_be_done_is_said(invoke: Invoke, arguments: tuple[str, ...], says: str) -> None:
    ended = invoke("mcp", *arguments)
    assert ended.code == exits.USAGE
    assert says in ended.err


def test_a_program_cannot_be_logged_in_at(invoke: Invoke) -> None:
    invoke("mcp", "add", "plain", "--", *SERVER)
    ended = invoke("mcp", "login", "plain")
    assert ended.code == exits.USAGE
    assert "plain is a program" in ended.err


def test_a_server_that_does_not_start_is_a_failure_with_its_last_words(invoke: Invoke) -> None:
    invoke("mcp", "add", "bad", "--", sys.executable, "-c", "raise SystemExit('out of cheese')")
    ended = invoke("mcp", "test", "bad")
    assert ended.code == exits.FAILED
    assert "out of cheese" in ended.err
