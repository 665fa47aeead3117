"""Servers that others wrote, used by an agent: time and git in Python, everything and filesystem in Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcp_world import World, questions, results, trusting
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested, LiveEvent, Progressed
from retinue.testing import call

SERVERS = Path(__file__).parents[2] / "build" / "mcp-servers"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SERVERS / ".ready").exists(), reason="scripts/mcp_servers.sh installs them"),
]


def python(name: str, *args: str) -> dict[str, Any]:
    return {"command": str(SERVERS / "venv" / "bin" / name), "args": list(args)}


def node(package: str, *args: str) -> dict[str, Any]:
    script = SERVERS / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js"
    return {"command": NODE or "node", "args": [str(script), *args]}


async def test_time_and_git_are_used_by_an_agent(world: World) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(world.project)], check=True)
    (world.project / "new.txt").write_text("x")
    world.add("time", python("mcp-server-time"))
    world.add("git", python("mcp-server-git"))
    settings = {"approvals.allow": ["mcp__time__*", "mcp__git__git_status"]}
    found = await world.ask(
        call(
            "mcp__time__convert_time",
            source_timezone="Europe/Paris",
            time="12:00",
            target_timezone="Asia/Tokyo",
        ),
        call("mcp__git__git_status", repo_path=str(world.project)),
        call("mcp__git__git_log", repo_path=str(world.project / "no-such-folder")),
        settings=settings,
        yes=True,
    )
    assert "Asia/Tokyo" in found[0].text
    assert "new.txt" in found[1].text
    assert "trunk" in found[1].text
    assert found[2].is_error


@pytest.mark.skipif(NODE is None, reason="there is no node here")
async def test_everything_and_filesystem_are_used_by_an_agent(world: World) -> None:
    (world.project / "notes.txt").write_text("read me")
    world.add("all", node("server-everything"))
    world.add("files", node("server-filesystem", str(world.project)))
    shown: list[str] = []
    asked: list[ApprovalRequested] = []

    def tell(event: LiveEvent) -> None:
        questions(asked)(event)
        if isinstance(event, Progressed):
            shown.append(event.text)

    calls = [
        call("mcp__all__echo", message="hello"),
        call("mcp__all__get-structured-content", location="New York"),
        call("mcp__all__get-tiny-image"),
        call("mcp__all__trigger-long-running-operation", duration=0.2, steps=2),
        call("mcp__all__list_resources"),
        call("mcp__files__read_text_file", path=str(world.project / "notes.txt")),
        call("mcp__files__read_text_file", path="/etc/hostname"),
        call("mcp__files__write_file", path=str(world.project / "made.txt"), content="made"),
    ]
    yes = Answer(decision="approve")
    async with world.open(calls, approve=lambda question: yes) as retinue:
        await trusting(retinue)
        found = await results(retinue, tell)
    by_call = [(each.name, each.is_error, each.text) for each in found]
    assert "hello" in by_call[0][2], by_call
    assert "temperature" in by_call[1][2], by_call
    assert found[2].files[0].endswith(".png")
    assert shown, "progress is shown"
    assert "resource" in by_call[4][2]
    assert "read me" in by_call[5][2]
    assert found[6].is_error, "it lets nobody out of its folder"
    assert (world.project / "made.txt").read_text() == "made"
    assert "mcp__files__write_file" in {each.tool for each in asked}
    assert "mcp__files__read_text_file" not in {each.tool for each in asked}, "it is trusted, and reads"
