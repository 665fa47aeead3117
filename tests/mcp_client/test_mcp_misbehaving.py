"""MCP servers that crash, hang, flood, change or send too much: a clear tool error each, and the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_world import PLAIN, World, trusting
from retinue.events import RunFinished
from retinue.testing import call

SETTINGS = {"limits.tool_timeout": 2, "mcp.message_mb": 2, "mcp.start_timeout": 10}


async def test_a_server_that_crashes_is_told_with_its_last_words_and_started_again(world: World) -> None:
    world.plain()
    found = await world.ask(
        call("mcp__plain__crash"), call("mcp__plain__echo", text="back"), settings=SETTINGS
    )
    assert found[0].is_error
    assert "ended while it was used" in found[0].text
    assert "out of cheese" in found[0].text
    assert "echo: back" in found[1].text


async def test_a_server_that_ends_again_and_again_is_given_up(world: World) -> None:
    world.plain()
    calls = [call("mcp__plain__note", text=str(n)) for n in range(8)]
    world.servers["plain"]["args"].append("--die-on-note")
    world.add("plain", world.servers["plain"])
    found = await world.ask(*calls, trust="start", settings=SETTINGS, yes=True)
    assert "not started again" in found[-1].text
    assert world.starts() <= 7


async def test_a_server_that_hangs_is_a_timeout(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__hang"), call("mcp__plain__echo", text="on"), settings=SETTINGS)
    assert "did not finish within 2 s" in found[0].text
    assert "echo: on" in found[1].text


async def test_a_server_that_floods_is_ended(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__flood"), settings={**SETTINGS, "limits.tool_timeout": 30})
    assert "messages that nobody asked for" in found[0].text


async def test_an_answer_of_fifty_megabytes_is_refused_with_its_limit(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__huge"), settings={**SETTINGS, "limits.tool_timeout": 30})
    assert "more than 2 MB in one message" in found[0].text


@pytest.mark.parametrize(
    "shape",
    [
        '{"jsonrpc": "2.0", "id": ID, "result": DEEP}',
        '{"jsonrpc": "2.0", "result": {"content": [], "structuredContent": DEEP}, "id": ID}',
        '{"jsonrpc": "2.0", "id": ID, "error": {"code": 1, "message": "no", "data": DEEP}}',
        '{"jsonrpc": "2.0", "id": ID, "result": 7}',
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": [',
    ],
)
async def test_an_answer_that_cannot_be_read_is_told_at_once(world: World, shape: str) -> None:
    world.plain()
    found = await world.ask(
        call("mcp__plain__raw", shape=shape), call("mcp__plain__echo", text="on"), settings=SETTINGS
    )
    assert found[0].is_error
    assert "what plain answered to raw cannot be read" in found[0].text
    assert "echo: on" in found[1].text
    assert world.starts() == 2, "once to be listed, and once for the run"


async def test_lines_that_are_no_messages_cost_no_call(world: World) -> None:
    world.plain()
    ask = '{"jsonrpc": "2.0", "id": ID, "method": "elicitation/create", "params": DEEP}'
    told = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "here"}]}}'
    shape = f'a word of its own\n{ask}\n{{"result": {{"id": ID}}, "n": DEEP}}\n{told}'
    found = await world.ask(call("mcp__plain__raw", shape=shape), settings=SETTINGS)
    assert "here" in found[0].text
    assert not found[0].is_error


async def test_tools_that_come_and_go_while_a_run_works_are_seen_in_it(world: World) -> None:
    world.plain()
    found = await world.ask(
        call("mcp__plain__grow"),
        call("mcp__plain__echo", text="meanwhile"),
        call("mcp__plain__long", n=3),
        call("mcp__plain__late", text="x"),
        settings={**SETTINGS, "approvals.allow": ["mcp__plain__late"]},
    )
    assert found[2].not_run == "unknown_tool"
    assert "late: x" in found[3].text


async def test_a_server_that_never_answers_keeps_a_run_waiting_only_once(world: World) -> None:
    world.plain("--mute")
    settings = {**SETTINGS, "mcp.start_timeout": 1}
    async with world.open(settings=settings) as retinue:
        await trusting(retinue, "start")
        await retinue.run("general", "go")
        assert "did not answer within 1 s" in retinue.services.mcp.status()[0].problem
    async with world.open(settings=settings) as retinue:
        assert retinue.services.mcp.listings["plain"].failed, "known, and not tried again at once"


async def test_a_program_that_is_not_there_is_named(world: World) -> None:
    world.add("gone", {"command": "no-such-program-here"})
    async with world.open() as retinue:
        await trusting(retinue, "start")
        await retinue.run("general", "go")
        assert "no-such-program-here" in retinue.services.mcp.status()[0].problem


async def test_servers_end_with_the_run(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__pid"))
    pid = int(found[0].text.split("pid ")[1].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


KILLED = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from mcp_world import World, trusting
from retinue.events import ToolReturned
from retinue.testing import call

async def main():
    world = World(Path({folder!r}))
    world.plain()
    async with world.open([call("mcp__plain__pid"), call("mcp__plain__hang")]) as retinue:
        await trusting(retinue)
        async for event in retinue.stream("general", "go"):
            if isinstance(event, ToolReturned):
                print(event.text.split("pid ")[1].split()[0], flush=True)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="where the kernel tells a supervisor")
def test_servers_end_when_this_process_is_killed(world: World) -> None:
    program = KILLED.format(tests=str(Path(__file__).parents[1]), folder=str(world.folder))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    watched = os.pidfd_open(pid)
    try:
        process.send_signal(signal.SIGKILL)
        process.wait()
        import select

        ready, _, _ = select.select([watched], [], [], 20)
        assert ready, "the server is still there"
    finally:
        os.close(watched)
        process.stdout.close()


async def test_what_is_shared_is_one_process_and_what_is_private_one_for_each_run(world: World) -> None:
    world.plain()
    world.plain(name="own", share="run")
    agents = world.project / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "clerk.md").write_text(
        "---\nname: clerk\ndescription: Use for tests of servers.\ntools: ['mcp__*']\n---\nYou are the clerk.\n"
    )
    from retinue import Retinue
    from retinue.events import ToolReturned
    from retinue.testing import ScriptedModel

    both = [call("mcp__plain__pid"), call("mcp__own__pid")]
    model = ScriptedModel(
        {
            "You are `general`": [both, call("clerk", prompt="look"), "done"],
            "You are the clerk": [both, "done"],
        }
    )
    seen: dict[str, set[str]] = {"mcp__plain__pid": set(), "mcp__own__pid": set()}
    async with Retinue(model=model, cwd=world.project, db="memory:") as retinue:
        await trusting(retinue)
        async for event in retinue.stream("general", "go"):
            if isinstance(event, ToolReturned) and event.name in seen:
                seen[event.name].add(event.text.split("pid ")[1].split()[0])
            if isinstance(event, RunFinished) and event.depth == 0:
                assert event.report.status == "completed"
    assert len(seen["mcp__plain__pid"]) == 1
    assert len(seen["mcp__own__pid"]) == 2
    assert PLAIN.exists()
