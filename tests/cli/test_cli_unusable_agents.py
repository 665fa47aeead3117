"""Agents that cannot begin: the same files in lists, in warnings and in checks."""

from __future__ import annotations

import json
import re

import pytest
from world import Cli

from retinue.testing import FakeProvider, call

FILES = {
    "lost": "name: lost\ndescription: names a tool that nobody has\ntools: [frobnicate]",
    "dear": "name: dear\ndescription: names a provider that there is not\nmodel: nowhere:x",
    "torn": "name: torn\ndescription: cannot be read\nmax_turns: many",
    "good": "name: good\ndescription: fine as it is, and used",
}


@pytest.fixture(autouse=True)
def files(cli: Cli) -> None:
    folder = cli.folder / ".retinue" / "agents"
    folder.mkdir(parents=True)
    for name, fields in FILES.items():
        (folder / f"{name}.md").write_text(f"---\n{fields}\n---\nWork.\n")


async def test_an_agent_that_cannot_begin_is_marked_and_counted_alike_everywhere(cli: Cli) -> None:
    listed = await cli("agents", "list")
    assert listed.code == 2
    assert re.findall(r"✗ +(\w+)", listed.out) == ["dear", "lost"]
    told = set(re.findall(r"(\w+)\.md(?::\d+)?: error", listed.err))
    checked = await cli("agents", "check")
    assert told == set(re.findall(r"(\w+)\.md(?::\d+)?: error", checked.out)) == {"dear", "lost", "torn"}
    asked = await cli("ask", "hi", "--model", "offline")
    assert "! 3 agent files cannot be used" in asked.err


async def test_an_agent_that_cannot_begin_is_offered_to_no_model_and_in_no_list_of_tools(
    cli: Cli, provider: FakeProvider
) -> None:
    cli.use(provider)
    ways = ",".join(("agents", "delegate_task"))
    provider.reply(calls=[call("delegate_task", operation="delegate", agent_id="lost", prompt="x")])
    provider.reply("done")
    ended = await cli("ask", "hi", RETINUE_DELEGATION_TOOLS=ways)
    offered = {tool.name for tool in provider.requests[0].tools}
    assert {"good", "delegate_task"} <= offered
    assert not {"lost", "dear", "torn"} & offered
    assert "lost" not in provider.requests[0].system
    assert "it cannot be used here: there is no tool and no agent 'frobnicate'" in json.dumps(
        provider.requests[1].body
    )
    assert ended.code in (0, 3)
    listed = {each["name"] for each in (await cli("tools", "list", "--json")).lines}
    assert "good" in listed
    assert not {"lost", "dear"} & listed
    rows = [each for each in (await cli("doctor", "--json")).lines if each["group"] == "agents"]
    found = next(each["text"] for each in rows if each["name"] == "found").split(", ")
    assert "good" in found
    assert not {"lost", "dear", "torn"} & set(found)


async def test_a_check_finds_all_that_is_wrong_with_a_file_at_once(cli: Cli) -> None:
    file = cli.folder / "x.md"
    file.write_text(
        "---\nname: x\ndescription: short\nmax_turns: 0\ntools: [grpe]\nmaxturn: 3\nmodel: nowhere:x\n---\n"
        "Work.\n"
    )
    checked = await cli("agents", "check", "x.md")
    assert checked.code == 2
    found = [line.removeprefix("x.md") for line in checked.out.splitlines()]
    assert ":4: error: max_turns: is 0; the limit is 1 to 1000" in found
    assert ":5: error: there is no tool and no agent 'grpe' (tools of x) (did you mean 'grep'?)" in found
    assert ":6: warning: unknown field 'maxturn' (did you mean 'max_turns'?)" in found
    assert any(line.startswith(":7: error: ") and "nowhere" in line for line in found)
    assert any(line.startswith(": warning: the description is very short") for line in found)
    assert "used: " not in checked.err
    file.write_text("---\nname: x\ndescription: 7\n---\n")
    broken = await cli("agents", "check", "x.md")
    assert "the body is empty" in broken.out
    assert "no 'tools'" not in broken.out


async def test_a_wrong_model_is_said_as_such_and_counted_for_no_agent_file(cli: Cli) -> None:
    (cli.folder / ".retinue" / "agents" / "light.md").write_text(
        "---\nname: light\ndescription: goes by what is set\nmodel: haiku\n---\nWork.\n"
    )
    asked = await cli("ask", "hi", "--model", "foo")
    assert asked.code == 2
    assert "foo" in asked.err
    assert "! 3 agent files cannot be used" in asked.err


async def test_a_list_in_json_says_why_an_agent_cannot_begin(cli: Cli) -> None:
    listed = {each["name"]: each["problem"] for each in (await cli("agents", "list", "--json")).lines}
    assert "frobnicate" in listed["lost"]
    assert "nowhere" in listed["dear"]
    assert (listed["good"], listed["general"]) == (None, None)


async def test_a_file_that_is_read_otherwise_than_written_is_told_where_its_agent_runs(cli: Cli) -> None:
    broken = "---\nname: loose\ndescription: [never closed\n---\nWork.\n"
    (cli.folder / ".retinue" / "agents" / "loose.md").write_text(broken)
    ran = await cli("run", "loose", "hi", "--model", "offline")
    assert "loose.md:4: warning: not valid YAML" in ran.err
    assert "not valid YAML" not in (await cli("run", "loose", "hi", "--model", "offline", "--quiet")).err


async def test_a_check_warns_of_an_agent_of_agents_alone_where_only_a_root_delegates(cli: Cli) -> None:
    folder = cli.folder / ".retinue" / "agents"
    (folder / "lead.md").write_text("---\nname: lead\ndescription: hands it on\ntools: [good]\n---\nLead.\n")
    said = 'lead.md:4: warning: all its tools are agents: with delegation.policy = "flat"'
    assert said in (await cli("agents", "check")).out
    assert (await cli("config", "set", "delegation.policy", "nested")).code == 0
    assert said not in (await cli("agents", "check")).out
