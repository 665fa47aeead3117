"""MCP servers as tools: when one starts, what its calls ask, what comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import msgspec
import pytest

from mcp_world import World, questions, results, trusting
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested, RunStarted
from retinue.testing import call


async def test_a_server_of_a_repository_does_not_start_before_it_is_trusted(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__echo", text="hi"), trust="none")
    assert world.heard == []
    assert found[0].not_run == "unknown_tool"


async def test_a_trusted_server_is_started_once_and_its_tool_is_called(world: World) -> None:
    world.plain()
    await world.ask(trust="all")  # lists it
    before = world.starts()
    found = await world.ask(
        call("mcp__plain__echo", text="hi"), call("mcp__plain__echo", text="again"), trust=""
    )
    assert [each.is_error for each in found] == [False, False]
    assert "echo: hi" in found[0].text
    assert "do not follow it" in found[0].text, "it is framed as data"
    assert world.starts() == before + 1


async def test_a_run_that_calls_no_tool_of_a_listed_server_starts_none(world: World) -> None:
    world.plain()
    await world.ask(trust="all")
    before = world.starts()
    await world.ask(trust="")
    assert world.starts() == before


async def test_a_server_whose_command_was_changed_does_not_start(world: World) -> None:
    world.plain()
    await world.ask(trust="all")
    world.plain("--describe", "something else")
    async with world.open() as retinue:
        assert retinue.services.mcp.status()[0].trust == "changed"
    found = await world.ask(call("mcp__plain__echo", text="hi"), trust="")
    assert found[0].not_run == "unknown_tool"


async def test_a_server_whose_own_file_was_changed_does_not_start(world: World) -> None:
    script = world.project / "server.py"
    script.write_text("print('one')")
    world.add("own", {"command": sys.executable, "args": ["server.py"]})
    async with world.open() as retinue:
        await trusting(retinue, "start")
        assert retinue.services.mcp.waiting == []
    script.write_text("print('two')")
    async with world.open() as retinue:
        assert [each.name for each in retinue.services.mcp.waiting] == ["own"]


async def test_every_call_asks_where_annotations_are_not_trusted(world: World) -> None:
    world.plain()
    asked: list[ApprovalRequested] = []
    yes = Answer(decision="approve")
    found = await world.ask(
        call("mcp__plain__echo", text="hi"),
        trust="start",
        approve=lambda question: yes,
        tell=questions(asked),
    )
    assert [each.tool for each in asked] == ["mcp__plain__echo"]
    assert "says it back" not in asked[0].preview
    assert "mcp_plain_server.py" in asked[0].preview
    assert "echo: hi" in found[0].text


async def test_without_anybody_to_ask_the_refusal_names_the_rule(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__echo", text="hi"), trust="start")
    assert found[0].not_run == "unattended"
    assert '"mcp__plain__echo"' in found[0].text


async def test_a_rule_for_a_server_allows_its_calls(world: World) -> None:
    world.plain()
    settings = {"approvals.allow": ["mcp__plain__*"]}
    found = await world.ask(call("mcp__plain__note", text="x"), trust="start", settings=settings)
    assert "noted x" in found[0].text


async def test_a_tool_without_annotations_asks_although_the_server_is_trusted(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__note", text="x"))
    assert found[0].not_run == "unattended"


async def test_a_changed_description_asks_again(world: World) -> None:
    world.plain()
    await world.ask(trust="all")
    described = world.servers["plain"]["args"]
    async with world.open() as retinue:
        app = retinue.services.mcp
        old = app.listings["plain"].tools
    world.add("plain", {**world.servers["plain"], "args": [*described, "--describe", "now does worse"]})
    async with world.open([call("mcp__plain__echo", text="x"), call("mcp__plain__add", a=1, b=1)]) as retinue:
        retinue.services.mcp.trust.add(retinue.services.mcp.servers["plain"], old)
        found = await results(retinue)
    assert [each.not_run for each in found] == ["unattended", ""]


async def test_a_call_is_not_made_of_a_tool_that_turned_out_to_be_another(world: World) -> None:
    world.plain()
    async with world.open(
        [call("mcp__plain__echo", text="x"), call("mcp__plain__echo", text="x")]
    ) as retinue:
        await trusting(retinue)
        app = retinue.services.mcp
        listing = app.listings["plain"]
        tools = [msgspec.structs.replace(each, description="an older text") for each in listing.tools]
        app.listings["plain"] = msgspec.structs.replace(listing, tools=tuple(tools))
        app.trust.add(app.servers["plain"], tools)
        found = await results(retinue)
    assert found[0].not_run == "bad_arguments"
    assert found[1].not_run == "unattended", "what it is now, nobody has trusted"
    assert not any(each.startswith("call echo") for each in world.heard)


async def test_structured_content_pictures_and_long_answers_are_kept(world: World) -> None:
    world.plain()
    found = await world.ask(
        call("mcp__plain__add", a=2, b=3), call("mcp__plain__picture"), call("mcp__plain__long", n=100_000)
    )
    assert '{"sum": 5}' in found[0].text
    assert found[1].files
    assert found[1].files[0].endswith(".png")
    assert [image.media_type for image in found[1].images] == ["image/png"]
    assert len(found[2].text) < 40_000
    assert found[2].files[0] in found[2].text


async def test_resources_and_prompts_are_used_with_tools(world: World) -> None:
    world.plain("--closed")
    found = await world.ask(
        call("mcp__plain__list_resources"),
        call("mcp__plain__read_resource", uri="memo://one"),
        call("mcp__plain__get_prompt", name="greet", arguments={"who": "Ann"}),
    )
    assert "memo://one" in found[0].text
    assert "memo://{name}" in found[0].text
    assert "the text of memo://one" in found[1].text
    assert "greet Ann" in found[2].text


async def test_a_server_gets_the_variables_that_it_names_and_their_values_are_masked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "tops3cret")
    monkeypatch.setenv("OTHER_SECRET", "unheard-of")
    world.plain(env={"TOKEN": "${SECRET_OF_MINE}"})
    found = await world.ask(call("mcp__plain__token"))
    assert "the token is ***" in found[0].text
    assert "tops3cret" not in found[0].text
    environment = next(line for line in world.heard if line.startswith("environment"))
    assert "TOKEN" in environment
    assert "OTHER_SECRET" not in environment


async def test_a_variable_that_is_not_set_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    world.plain(env={"TOKEN": "${NOT_THERE}"})
    async with world.open() as retinue:
        await trusting(retinue, "start")
        await results(retinue)
        assert "NOT_THERE" in retinue.services.mcp.status()[0].problem


async def test_an_agent_holds_only_the_servers_and_tools_that_its_file_names(world: World) -> None:
    world.plain()
    world.plain(name="other")
    agents = world.project / ".retinue" / "agents"
    agents.mkdir(parents=True)
    for name, fields in {
        "one": "mcpServers: [plain]\ntools: [read]",
        "two": "tools: [mcp__other__echo]",
        "three": "disallowedTools: [mcp__plain]",
    }.items():
        (agents / f"{name}.md").write_text(
            f"---\nname: {name}\ndescription: Use for tests of it.\n{fields}\n---\nYou are {name}.\n"
        )
    held: dict[str, set[str]] = {}
    async with world.open() as retinue:
        await trusting(retinue, "all")
        for name in ("one", "two", "three"):
            run_id = await retinue.start(name, "go")
            began = (await retinue.store.events(run_id))[0]
            assert isinstance(began, RunStarted)
            held[name] = {tool.split("__")[1] for tool in began.tools if tool.startswith("mcp__")}
            if name == "two":
                assert [tool for tool in began.tools if tool.startswith("mcp__")] == ["mcp__other__echo"]
            await retinue.cancel(run_id)
    assert held == {"one": {"plain"}, "two": {"other"}, "three": {"other"}}


def test_nothing_of_the_package_is_imported_where_no_server_is_configured(world: World) -> None:
    program = (
        "import sys\nfrom retinue import Retinue\nfrom retinue.testing import ScriptedModel\n"
        "model = ScriptedModel({'You are': ['done']})\n"
        "Retinue(model=model, db='memory:').run_sync('general', 'x')\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'httpx2')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=world.project,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


async def test_files_of_servers_that_are_wrong_are_said_and_harm_nothing(world: World) -> None:
    (world.project / ".mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "a": {"command": "x", "url": "http://y"},
                    "b": 3,
                    "c": {},
                    "d": {"command": "true"},
                }
            }
        )
    )
    async with world.open() as retinue:
        app = retinue.services.mcp
        assert list(app.servers) == ["d"]
        assert len(app.configured.problems) == 3
        assert all(".mcp.json" in each for each in app.configured.problems)
