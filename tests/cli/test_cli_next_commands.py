"""Commands that a person is told to type next work as they are written."""

from __future__ import annotations

import re
import shlex
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
