"""`retinue init` writes examples that load as they are, and overwrites nothing."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from world import Cli, Ended

from retinue import settings
from retinue.cli.init import FILES
from retinue.testing import FakeProvider, Script, call

Invoke = Callable[..., Ended]


def test_what_it_writes_loads_without_a_word(invoke: Invoke, cli: Cli) -> None:
    ended = invoke("init")
    assert ended.code == 0
    assert all(path in ended.out for path in FILES)
    assert invoke("config", "trust", "--yes").code == 0
    assert "days_until" in invoke("tools", "trust").err
    assert invoke("skills", "check").code == 0
    checked = invoke("agents", "check")
    assert checked.code == 0
    assert "warning" not in checked.out + checked.err
    assert "not used" not in checked.err
    assert "days_until" in invoke("tools", "list").out


def test_every_setting_that_is_commented_out_can_be_set(invoke: Invoke, cli: Cli) -> None:
    invoke("init")
    text = (cli.folder / "retinue.toml").read_text()
    assert tomllib.loads(text) == {}
    found = settings.flatten(tomllib.loads(re.sub(r"^#(?! |$)", "", text, flags=re.M)))
    assert len(found) > 5
    settings.build(found, dict.fromkeys(found, "retinue.toml"))


def test_nothing_that_is_there_is_overwritten_and_no_link_leads_out(invoke: Invoke, cli: Cli) -> None:
    (cli.folder / "retinue.toml").write_text("# mine\n")
    invoke("init")
    assert (cli.folder / "retinue.toml").read_text() == "# mine\n"
    other, elsewhere = cli.home / "other", cli.home / "elsewhere"
    other.mkdir()
    elsewhere.mkdir()
    os.symlink(elsewhere, other / ".retinue")
    assert invoke("init", str(other)).code == 2
    assert not any(Path(elsewhere).iterdir())
    assert invoke("init", str(cli.home / "nowhere")).code == 2


async def test_the_agent_uses_its_tool(cli: Cli) -> None:
    async with FakeProvider() as provider:
        cli.use(provider)
        provider.add(Script(calls=(call("days_until", day="2020-01-01"),)), Script(text="long ago"))
        for words in (("init",), ("config", "trust", "--yes"), ("tools", "trust")):
            assert (await cli(*words)).code == 0
        ended = await cli("run", "timekeeper", "how long since the first of January 2020?")
        assert ended.code == 0, ended.err
        assert "days from today" in str(provider.requests[1].body)
        assert "plain-dates" in str(provider.requests[0].body)
