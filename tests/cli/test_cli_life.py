"""Runs that outlive a command: cancelled, answered, steered, followed and resumed from other processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import Cli, end_of

from retinue.cli import exits
from retinue.testing import FakeProvider, Script, call

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def heeds_hang_ups() -> Iterator[None]:
    """What is started hears of a terminal that is closed, also where the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


async def read_until(process: asyncio.subprocess.Process, kind: str) -> list[dict[str, Any]]:
    """The events a process prints, up to the first of a kind."""
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    while not (events and events[-1]["type"] == kind):
        line = await process.stdout.readline()
        assert line, f"ended before {kind}: {[event['type'] for event in events]}"
        events.append(json.loads(line))
    return events


async def test_a_run_is_cancelled_from_another_process(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.add(Script(text="half an answer", hang_after=3))
    process = await cli.start("ask", "hello", "--events")
    await read_until(process, "streamed")
    ended = await cli("runs", "cancel", "last", "--reason", "wrong question")
    assert ended.code == 0, ended.err
    events = await read_until(process, "run_finished")
    assert events[-1]["report"]["incomplete"] == "wrong question"
    assert await end_of(process) == 130


async def test_a_killed_run_goes_on_where_it_was_and_pays_nothing_twice(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.reply(calls=[call("ls", path=".")])
    provider.add(Script(text="never", hang_after=1))
    process = await cli.start("ask", "look around", "--events")
    await read_until(process, "tool_returned")
    while provider.served < 2:
        await asyncio.sleep(0.01)
    process.kill()
    await end_of(process)
    provider.reply("all seen")
    ended = await cli("runs", "resume", "last", "--json")
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert report["text"] == "all seen"
    assert report["turns"] == 2
    assert [request.turn for request in provider.requests] == [0, 1, 1]


async def test_a_finished_conversation_goes_on_with_a_message(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.reply("It is in a.py.")
    assert (await cli("ask", "where is it?")).code == 0
    provider.reply("In b.py, too.")
    ended = await cli("runs", "resume", "last", "--message", "and where else?", "--quiet")
    assert (ended.code, ended.out) == (0, "In b.py, too.\n")
    said = [message.text for message in provider.requests[1].messages]
    assert said == ["where is it?", "It is in a.py.", "and where else?"]


async def test_without_a_terminal_a_question_can_wait_for_an_answer_from_elsewhere(
    cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    provider.reply(calls=[call("bash", command="touch wrong")])
    provider.reply("done")
    process = await cli.start("ask", "make it", "--events", "--wait-approvals")
    asked = (await read_until(process, "approval_requested"))[-1]
    answered = await cli(
        "approvals", "answer", asked["approval_id"], "approve", "--arguments", '{"command": "touch right"}'
    )
    assert answered.code == 0, answered.err
    assert "approve: bash. The run goes on." in answered.err
    await read_until(process, "run_finished")
    assert await end_of(process) == 0
    assert (cli.folder / "right").exists()
    assert not (cli.folder / "wrong").exists()


async def test_a_run_is_followed_and_steered_from_another_process(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    gate = asyncio.Event()
    provider.add(Script(calls=(call("ls", path="."),), gate=gate), Script(text="as you said"))
    process = await cli.start("ask", "look around", "--events")
    await read_until(process, "step_started")
    follower = await cli.start("runs", "events", "last", "--follow", "--json")
    await read_until(follower, "step_started")
    assert (await cli("runs", "message", "last", "only Python files")).code == 0
    gate.set()
    followed = await read_until(follower, "run_finished")
    assert await end_of(follower) == 0
    assert await end_of(process) == 0
    assert "message_received" in [event["type"] for event in followed]
    assert any("only Python files" in message.text for message in provider.requests[1].messages)


async def test_a_request_to_terminate_ends_as_cleanly_as_ctrl_c(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.add(Script(text="half an answer", hang_after=3))
    process = await cli.start("ask", "hello", "--events")
    await read_until(process, "streamed")
    process.send_signal(signal.SIGTERM)
    events = await read_until(process, "run_finished")
    assert events[-1]["report"]["status"] == "cancelled"
    assert await end_of(process) == 143


@pytest.mark.usefixtures("heeds_hang_ups")
async def test_requests_to_end_that_come_together_are_one(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.add(Script(text="half an answer", hang_after=3))
    process = await cli.start("ask", "hello", "--events")
    await read_until(process, "streamed")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGHUP)
    events = await read_until(process, "run_finished")
    assert events[-1]["report"]["status"] == "cancelled"
    assert await end_of(process) in (exits.TERMINATED, exits.HUNG_UP)


@pytest.mark.usefixtures("heeds_hang_ups")
async def test_a_terminal_that_is_closed_leaves_no_command_and_no_run_behind(
    cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    command = "echo $$ > pid; sleep 1000"
    provider.add(Script(calls=(call("bash", command=command),)), Script(text="never"))
    process = await cli.start("ask", "sleep", "--events", "--yes")
    await read_until(process, "tool_called")
    async with asyncio.timeout(60):
        while not (cli.folder / "pid").exists() or not (cli.folder / "pid").read_text().strip():
            await asyncio.sleep(0.01)
    shell = int((cli.folder / "pid").read_text())
    process.send_signal(signal.SIGHUP)
    events = await read_until(process, "run_finished")
    assert events[-1]["report"]["status"] == "cancelled"
    assert await end_of(process) == 129
    with pytest.raises(ProcessLookupError):
        os.kill(shell, 0)


async def test_a_process_that_is_killed_leaves_no_command_behind(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    command = (
        "setsid sleep 1000 & echo $! > away; sleep 1000 & echo $! > below; "
        "set -m; env -i sleep 1000 & echo $! > apart; echo $$ > pid; wait"
    )
    provider.add(Script(calls=(call("bash", command=command),)))
    process = await cli.start("ask", "sleep", "--events", "--yes")
    files = [cli.folder / name for name in ("away", "below", "apart", "pid")]
    async with asyncio.timeout(20):
        while not all(file.exists() and file.read_text().strip() for file in files):
            await asyncio.sleep(0.01)
    process.kill()
    await end_of(process)
    async with asyncio.timeout(10):
        while any(is_running(int(file.read_text())) for file in files):
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it until somebody looks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return False


async def test_a_run_whose_process_was_killed_can_be_cancelled_and_then_deleted(
    cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    provider.add(Script(calls=(call("bash", command="ls"),)))
    process = await cli.start("ask", "list", "--events", "--wait-approvals")
    await read_until(process, "approval_requested")
    process.kill()
    await end_of(process)
    ended = await cli("runs", "cancel", "last", "--reason", "not any more")
    assert ended.code == 0, ended.err
    assert "cancelled" in ended.err
    listed = (await cli("runs", "list", "--json")).lines
    assert [row["status"] for row in listed] == ["cancelled"]
    assert not (await cli("approvals", "list", "--json")).lines
    assert (await cli("runs", "delete", "last")).code == 0


async def test_who_resumes_a_run_says_whether_everything_is_approved(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.add(Script(text="never", hang_after=1))
    process = await cli.start("ask", "write it down", "--events", "--yes")
    await read_until(process, "step_started")
    while provider.served < 1:
        await asyncio.sleep(0.01)
    process.kill()
    await end_of(process)
    write = call("bash", command="echo ran > ran.txt")
    provider.add(Script(calls=(write,)), Script(text="was refused"))
    assert (await cli("runs", "resume", "last")).code in (0, 4)
    assert not (cli.folder / "ran.txt").exists()
    provider.add(Script(calls=(write,)), Script(text="done"))
    ended = await cli("runs", "resume", "last", "--message", "once more", "--yes")
    assert ended.code == 0, ended.err
    assert (cli.folder / "ran.txt").exists()


@pytest.mark.usefixtures("nothing_left")
async def test_a_server_that_never_answers_ends_with_the_time_that_was_given_and_is_asked_once(
    cli: Cli, provider: FakeProvider
) -> None:
    cli.use(provider)
    provider.add(*(Script(text="never", gate=asyncio.Event()) for _ in range(5)))
    ended = await asyncio.wait_for(cli("ask", "hello", "--timeout", "1s", "--json"), 60)
    report = json.loads(ended.out)
    assert (ended.code, report["ended_by"]) == (exits.FAILED, "timeout")
    assert len(provider.requests) == 1
