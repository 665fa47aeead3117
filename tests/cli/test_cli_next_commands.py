"""Commands that a person is told to type next work as they are written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from world import Cli

from retinue.cli.root import build
from retinue.testing import FakeProvider, call
from retinue.view.commands import command, complete, given_cwd, given_db, takes


def commands(of: Any, words: tuple[str, ...] = ()) -> list[tuple[str, set[str]]]:
    below = getattr(of, "commands", None)
    if below is None:
        return [(" ".join(words), {each.name for each in of.params} & {"db", "cwd"})]
    return [found for name, each in below.items() for found in commands(each, (*words, name))]


@pytest.mark.parametrize(("words", "options"), commands(build([])))
def test_what_a_command_takes_is_known_where_it_is_named(words: str, options: set[str]) -> None:
    assert takes(words) == options


def test_a_named_command_has_the_database_and_the_folder_that_were_given() -> None:
    given_db("sqlite:///tmp/a b.db")
    given_cwd("/srv/shop")
    try:
        assert command("runs show r1") == "retinue runs show r1 --db 'sqlite:///tmp/a b.db'"
        assert (
            complete("'retinue agents check' says why") == "'retinue agents check --cwd /srv/shop' says why"
        )
        given_db("postgresql://me:secret@host/db")
        assert "secret" not in command("runs list")
    finally:
        given_db(None)
        given_cwd(None)
    assert command("runs show r1") == "retinue runs show r1"


@pytest.fixture
def with_blanks() -> Iterator[None]:
    """A database and a folder whose names the shell wants quoted."""
    given_db("/tmp/my runs/a.db")
    given_cwd("/tmp/ada's project")
    yield
    given_db(None)
    given_cwd(None)


@pytest.mark.usefixtures("with_blanks")
def test_a_named_command_that_holds_quotes_can_be_copied() -> None:
    text = complete("see 'retinue runs show last' or 'retinue agents check', and 'retinue ask \"hello\"'.")
    named = re.findall("`([^`]+)`", text)
    assert re.sub("`[^`]+`", "X", text) == "see X or X, and X."
    db, cwd = ["--db", "/tmp/my runs/a.db"], ["--cwd", "/tmp/ada's project"]
    assert [shlex.split(each) for each in named] == [
        ["retinue", "runs", "show", "last", *db],
        ["retinue", "agents", "check", *cwd],
        ["retinue", "ask", "hello", *db, *cwd],
    ]
    assert complete(text) == text


@pytest.mark.usefixtures("with_blanks")
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ('runs resume ID --message "don\'t"', ["runs", "resume", "ID", "--message", "don't"]),
        ("runs resume ID --message 'do not'", ["runs", "resume", "ID", "--message", "do not"]),
        (f"runs show {shlex.quote('it is `mine`')}", ["runs", "show", "it is `mine`"]),
    ],
)
def test_a_named_command_is_never_cut_at_an_apostrophe(words: str, meant: list[str]) -> None:
    typed = complete(f"type 'retinue {words}'").removeprefix("type ").strip("`")
    assert shlex.split(typed) == ["retinue", *meant, "--db", "/tmp/my runs/a.db"]


async def test_the_folder_to_be_trusted_is_named_as_it_can_be_typed(cli: Cli) -> None:
    folder = cli.folder / "ada's project; rm x"
    folder.mkdir()
    (folder / "retinue.toml").write_text('[approvals]\nallow = ["bash"]\n')
    said = " ".join((await cli("config", "list", "--cwd", str(folder))).err.split())
    (named,) = re.findall("`(retinue config trust [^`]+)`", said)
    assert shlex.split(named) == ["retinue", "config", "trust", str(folder)]


def test_a_text_whose_command_does_not_end_is_left_as_it_is() -> None:
    given_db("/tmp/a.db")
    try:
        for text in ("'retinue runs show", "'retinue ask \"x'", "'retinue ask don't", "'retinue ask '"):
            assert complete(text) == text
    finally:
        given_db(None)


async def test_the_commands_that_a_run_ends_with_find_it(cli: Cli, provider: FakeProvider) -> None:
    """Started with a database of its own: what is named finds the run there, typed as it is."""
    db = "sqlite:///other.db"
    cli.use(provider)
    provider.reply(calls=[call("code-search", promt="x")])
    provider.reply("done")
    ended = await cli("ask", "hi", "--db", db)
    assert ended.code == 3
    [named] = re.findall(r"why says: retinue (.*? --db \S+)", " ".join(ended.err.split()))
    shown = await cli(*shlex.split(named))
    assert (shown.code, "there is no" in shown.err) == (0, False)
    lost = await cli("runs", "show", "r000000", "--db", db)
    assert f"'retinue runs list --db {db}' shows them" in lost.err
