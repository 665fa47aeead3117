"""A sealed command asks where what it may change is started outside of the sandbox."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from mcp_world import PLAIN, World, results, trusting
from retinue import Retinue
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested
from retinue.sandbox.commands.view import CommandPlace, Trials
from retinue.settings.trusted_folders import TrustedFolders
from retinue.testing import ScriptedModel, call
from retinue.tool_files import ToolFiles, find_tool_files, load_tools, trust_file
from retinue.tools.base import Tool
from retinue.workspace import Files

WHY_NOT = Trials().why_not(
    CommandPlace(project=Path(__file__).resolve().parent, workspace=None, writable=True, network=False), {}
)
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"no command can be sealed off here: {WHY_NOT}")
SEALED = {"approvals.sandbox": "project", "approvals.auto": "sandboxed"}
ECHO = call("bash", command="echo hello")


async def asked(retinue: Retinue, trust: str = "start") -> list[str]:
    """What a person is asked when a command is to run; they say no."""
    await trusting(retinue, trust)
    reasons: list[str] = []

    async def person(question: ApprovalRequested) -> Answer:
        reasons.append(question.reason)
        return Answer(decision="reject")

    retinue.approve, retinue.answering = person, "ask"
    (result,) = await results(retinue)
    assert ("hello" in result.text) is (reasons == [])
    return reasons


def opened(world: World, **options: Any) -> Retinue:
    return world.open([ECHO], settings=SEALED, **options)


async def test_a_command_asks_where_a_server_of_the_project_is_trusted_and_names_it(world: World) -> None:
    world.plain()
    async with opened(world) as retinue:
        (reason,) = await asked(retinue)
    assert "the MCP server plain" in reason
    assert "outside of the sandbox" in reason


async def test_a_command_runs_unasked_where_no_server_of_the_project_was_ever_trusted(world: World) -> None:
    async with opened(world) as retinue:
        assert await asked(retinue) == []
    world.plain()
    async with opened(world) as retinue:
        assert await asked(retinue, "no") == []
    world.servers = {}
    world.add("web", {"type": "http", "url": "http://127.0.0.1:9/mcp"})
    async with opened(world) as retinue:
        assert await asked(retinue) == [], "an address starts nothing here"


async def test_a_server_that_changed_since_it_was_trusted_counts_for_it_can_be_changed_back(
    world: World,
) -> None:
    (world.project / "server.py").write_text(PLAIN.read_text())
    world.add("own", {"command": sys.executable, "args": ["-S", "server.py"]})
    async with opened(world) as retinue:
        await trusting(retinue, "start")
        (world.project / "server.py").write_text("changed")
        assert retinue.services.mcp.usable == {}
        assert len(await asked(retinue, "no")) == 1


async def test_a_server_that_another_process_has_trusted_since_counts(world: World) -> None:
    world.plain()
    async with opened(world) as retinue:
        async with world.open() as other:
            await trusting(other, "start")
        assert len(await asked(retinue, "no")) == 1


@pytest.mark.parametrize(
    ("definition", "asks"),
    [
        ({"command": "uvx", "args": ["time"]}, False),
        ({"command": "uvx", "args": ["time"], "cwd": "."}, True),
        ({"command": "python3", "args": ["PROJECT/srv/main.py"]}, True),
        ({"command": "sh", "args": ["-c", "cd PROJECT/srv && python3 main.py"]}, True),
        ({"command": "uv", "args": ["--directory=PROJECT", "run", "x"]}, True),
        ({"command": "python3", "args": ["-m", "x"], "env": {"PYTHONPATH": "/x:PROJECT"}}, True),
        ({"command": "python3", "args": ["LINK/main.py"]}, True),
    ],
)
async def test_a_server_of_ones_own_counts_where_it_starts_in_the_project_or_names_a_path_there(
    world: World, definition: dict[str, Any], asks: bool
) -> None:
    (world.folder / "link").symlink_to(world.project)
    text = repr(definition).replace("PROJECT", str(world.project)).replace("LINK", f"{world.folder}/link")
    own = ast.literal_eval(text)
    config = world.folder / "XDG_CONFIG_HOME/retinue/config.toml"
    config.parent.mkdir(parents=True)
    lines = [f"{key} = {_toml(value)}" for key, value in own.items()]
    config.write_text("\n".join(["[mcp.servers.mine]", *lines]))
    async with opened(world) as retinue:
        assert "mine" in retinue.services.mcp.servers
        assert bool(await asked(retinue, "no")) is asks


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'{key} = "{each}"' for key, each in value.items()) + "}"
    return repr(value)


async def test_a_server_of_the_repository_counts_for_a_project_that_is_a_folder_in_it(world: World) -> None:
    world.plain()
    (world.project / ".git").mkdir()
    (world.project / "inner").mkdir()
    model = ScriptedModel({"You are `general`": [ECHO, "done"]})
    async with Retinue(model=model, cwd=world.project / "inner", db="memory:", settings=SEALED) as retinue:
        reasons = retinue.services.mcp.started_from(world.project / "inner")
        assert reasons == []
        await trusting(retinue, "start")
        assert retinue.services.mcp.started_from(world.project / "inner") == ["plain"]
        assert retinue.services.mcp.started_from(world.folder / "elsewhere") == []


async def test_with_nobody_to_ask_the_refusal_does_not_name_the_setting_that_is_on(world: World) -> None:
    world.plain()
    async with opened(world) as retinue:
        await trusting(retinue, "start")
        (result,) = await results(retinue)
    assert result.not_run == "unattended"
    assert "approvals.auto" not in result.text
    assert "the MCP server plain" in result.text


async def test_what_a_rule_or_yes_allows_runs_unasked(world: World) -> None:
    world.plain()
    allowed = {**SEALED, "approvals.allow": ["bash(echo *)"]}
    async with world.open([ECHO], settings=allowed) as retinue:
        assert await asked(retinue) == []
    async with opened(world, yes=True) as retinue:
        assert await asked(retinue) == []


def of_file(world: World) -> ToolFiles:
    folder = world.project / ".retinue/tools"
    folder.mkdir(parents=True)
    (folder / "own.py").write_text('def seen() -> str:\n    """Tell."""\n    return "x"\n')
    trusted = TrustedFolders().adding(world.project)
    for file in find_tool_files(world.project, trusted):
        trust_file(file)
    return load_tools(world.project, trusted=trusted)


async def test_tools_of_the_project_count_since_they_may_import_what_a_command_changes(world: World) -> None:
    files = of_file(world)
    async with opened(world, tool_files=files) as retinue:
        (reason,) = await asked(retinue, "no")
    assert f"the tools of {world.project}" in reason


def test_a_named_module_counts_by_where_it_lies(world: World) -> None:
    (world.project / "named_module_of_a_test.py").write_text('def f() -> str:\n    """F."""\n    return ""\n')
    loaded = load_tools(world.project, ["named_module_of_a_test.py"], trusted=TrustedFolders())
    assert loaded.started_from(world.project) == [f"the tools of {world.project}"]
    assert loaded.started_from(world.folder / "elsewhere") == []


async def test_a_command_asks_where_git_would_run_something_of_the_project(world: World) -> None:
    subprocess.run(("git", "init", "-q"), cwd=world.project, check=True)
    async with opened(world) as retinue:
        assert await asked(retinue) == []
    subprocess.run(("git", "config", "filter.own.clean", "make clean"), cwd=world.project, check=True)
    async with opened(world) as retinue:
        (reason,) = await asked(retinue)
    assert "git's setting filter.own.clean" in reason


async def test_what_is_started_elsewhere_is_looked_for_once_a_call_and_not_by_the_loop(world: World) -> None:
    looked: list[bool] = []

    def ways_out(files: Files) -> list[str]:
        looked.append(threading.current_thread() is threading.main_thread())
        return []

    async with opened(world) as retinue:
        tools = cast("dict[str, Tool]", retinue.services.tools)
        tools["bash"] = replace(tools["bash"], ways_out=ways_out)
        assert await asked(retinue) == []
    assert looked == [False]
