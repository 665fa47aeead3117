"""The command line on a real pseudo-terminal: the live tree, approvals, Ctrl-C, narrow and plain terminals."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

from world import Cli

from mcp_world import PLAIN
from retinue.testing import FakeProvider, Script, SeenRequest, call

CTRL_S, CTRL_Q = "\x13", "\x11"
FRAME = "\x1b[?2026h"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


def shows_echo(terminal: Any) -> bool:
    return bool(termios.tcgetattr(terminal.slave)[3] & termios.ECHO)


async def test_the_tree_shows_who_does_what_and_the_answer_is_rendered(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    held = asyncio.Event()

    def answer(seen: SeenRequest) -> Script:
        if "find the thing" in seen.asked:
            return Script(text="It is in thing.py", gate=held)
        if seen.turn == 0:
            return Script(calls=(call("code-search", query="find the thing"),))
        return Script(text="# Found\n\nIt is **here**.")

    provider.handler = answer
    screen = await terminal("ask", "where is the thing?")
    await screen.until(
        lambda: any("code-search  find" in s and "step 1" in s for s in screen.text.splitlines())
    )
    lines = screen.text.splitlines()
    child = next(line for line in lines if "code-search" in line)
    assert child.startswith("╰─")
    assert any("general" in line and "step 1" in line for line in lines)
    assert not screen.screen.cursor_shown
    held.set()
    assert await screen.wait() == 3, "code-search has read nothing"
    assert "**here**" not in screen.text
    assert "It is here." in screen.text
    assert re.search(r"! general \(openai:fake-model\) · 2 turns · 1 tool call", screen.text)
    assert "cost unknown" in screen.text
    assert len([line for line in screen.text.splitlines() if "code-search" in line]) == 1
    assert screen.screen.cursor_shown
    assert screen.screen.wrapping
    assert shows_echo(screen)


async def test_the_answer_is_seen_while_it_arrives(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.add(Script(text="The answer begins here and never ends", hang_after=4))
    screen = await terminal("ask", "hello")
    await screen.until("  The answer")
    screen.send("\x03")
    assert await screen.wait() == 130
    assert "cancelled: stopped with Ctrl-C" in screen.text
    assert "The answer" in screen.text
    assert shows_echo(screen)
    assert screen.screen.cursor_shown


async def test_the_screen_is_drawn_at_most_ten_times_a_second(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.add(Script(text="word " * 150, pieces=150, delay=0.01))
    began = time.monotonic()
    screen = await terminal("ask", "hello")
    assert await screen.wait() == 0
    assert FRAME in screen.raw
    assert screen.raw.count(FRAME) <= (time.monotonic() - began) * 10 + 3


async def test_a_terminal_that_is_held_holds_nobody_up(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.reply(calls=[call("bash", command=f"echo {number}; sleep 0.3") for number in range(8)])
    provider.add(Script(text="word " * 1000, pieces=100, delay=0.01))
    screen = await terminal("ask", "hello", "--yes")
    await screen.until("▸ bash")
    screen.send(CTRL_S)
    async with asyncio.timeout(60):
        while not (provider.served == 2 and provider.at_once == 0):
            await asyncio.sleep(0.02)
    screen.send(CTRL_Q)
    assert await screen.wait() == 0


async def test_two_interrupts_leave_a_usable_terminal(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.reply(calls=[call("bash", command="trap '' TERM INT; echo ready; sleep 100")])
    screen = await terminal("ask", "hello", "--yes")
    await screen.until("▸ bash")
    screen.send("\x03\x03")
    assert await screen.wait() == 130
    assert shows_echo(screen)
    assert screen.screen.cursor_shown


async def test_two_interrupts_kill_even_when_the_terminal_is_held(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.add(Script(text="word " * 1000, pieces=1000, delay=0.05))
    screen = await terminal("ask", "hello")
    await screen.until("writing")
    screen.send(CTRL_S)
    assert screen.process is not None
    screen.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        while not provider.left:  # it has let go of the model, and cannot say so
            await asyncio.sleep(0.02)
    screen.process.send_signal(signal.SIGINT)
    assert await screen.wait() == 130
    assert shows_echo(screen)


async def test_a_command_is_asked_about_and_runs_once_approved(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.reply(calls=[call("bash", command="echo hi > made.txt")])
    provider.reply("made it")
    screen = await terminal("ask", "make a file")
    await screen.until("[y] approve")
    assert "general wants to use bash" in screen.text
    assert "$ echo hi > made.txt" in screen.text
    assert "risk: high" in screen.text
    assert not (cli.folder / "made.txt").exists()
    await screen.press("y", "✓ approved: bash")
    assert await screen.wait() == 0
    assert (cli.folder / "made.txt").read_text() == "hi\n"


async def test_a_change_to_a_file_is_asked_as_a_diff_and_a_rejection_reaches_the_model(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    (cli.folder / "a.txt").write_text("old line\n")
    provider.reply(calls=[call("write", path="a.txt", content="new line\n")])
    provider.reply("as you wish")
    screen = await terminal("ask", "change it")
    await screen.until("[n] reject")
    assert "-old line" in screen.text
    assert "+new line" in screen.text
    await screen.press("n", "why (Enter for no reason):")
    screen.send("keep the old one\n")
    await screen.until("✗ rejected: write")
    assert await screen.wait() == 4  # it answered, and it did not do what it was asked
    assert (cli.folder / "a.txt").read_text() == "old line\n"
    assert "keep the old one" in provider.requests[1].messages[-1].text


async def test_several_questions_come_one_after_the_other_and_all_of_a_tool_can_be_approved(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.reply(calls=[call("bash", command=f"touch made{number}") for number in range(3)])
    provider.reply("done")
    screen = await terminal("ask", "make three files")
    await screen.until("approval 1 of 3")
    await screen.until("[a] for the rest of this run: bash(touch made0)")
    await screen.press("t", "✓ approved too: 2 waiting calls of bash")
    assert await screen.wait() == 0
    assert sorted(path.name for path in cli.folder.glob("made*")) == ["made0", "made1", "made2"]


async def test_edited_arguments_are_what_runs(cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]):
    cli.use(provider)
    editor = cli.home / "editor"
    editor.write_text("#!/bin/sh\nsed -i s/dangerous/harmless/ $1\n")
    editor.chmod(0o755)
    provider.reply(calls=[call("bash", command="touch dangerous")])
    provider.reply("done")
    screen = await terminal("ask", "make it", EDITOR=str(editor))
    await screen.until("[e] edit")
    await screen.press("e", "✓ approved: bash  touch harmless")
    assert await screen.wait() == 0
    assert (cli.folder / "harmless").exists()
    assert not (cli.folder / "dangerous").exists()


async def test_a_question_answered_elsewhere_is_taken_away(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.reply(calls=[call("bash", command="touch made")])
    provider.reply("done")
    screen = await terminal("ask", "make it")
    await screen.until("[y] approve")
    listed = await cli("approvals", "list", "--json")
    approval = listed.lines[0]["approval_id"]
    assert (await cli("approvals", "answer", approval, "approve")).code == 0
    await screen.until("answered elsewhere meanwhile: approved")
    assert await screen.wait() == 0
    assert (cli.folder / "made").exists()
    late = await cli("approvals", "answer", approval, "reject")
    assert late.code == 4
    assert "answered before" in late.err


async def test_what_a_tool_wrote_cannot_control_the_terminal(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.reply(calls=[call("bash", command="echo a \x1b[2J\x1b[31m\u202e b")])
    provider.reply("\x1b[31mred\x1b[0m\x07")
    screen = await terminal("ask", "x", NO_COLOR="1")
    await screen.until("[y] approve")
    assert "⟨U+202E⟩" in screen.text
    await screen.press("y", "✓ approved")
    assert await screen.wait() == 0
    assert not COLOUR.findall(screen.raw)
    assert "\x07" not in screen.raw
    assert "\x1b[2J" not in screen.raw


async def test_without_colour_there_is_none(cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]):
    cli.use(provider)
    provider.reply("# Title\n\n**bold** and `code`\n\n```py\nx = 1\n```\n")
    screen = await terminal("ask", "hello", NO_COLOR="1")
    assert await screen.wait() == 0
    coloured = [code for code in COLOUR.findall(screen.raw) if re.search(r"3\d|4\d|9\d", code)]
    assert coloured == []


async def test_a_dumb_terminal_gets_plain_lines(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.reply(calls=[call("ls", path=".")])
    provider.reply("**done**")
    screen = await terminal("ask", "hello", TERM="dumb")
    assert await screen.wait() == 0
    assert "\x1b" not in screen.raw
    assert "general: ls" in screen.text
    assert "**done**" in screen.text


async def test_forty_columns_are_enough(cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]):
    cli.use(provider)
    provider.reply(calls=[call("bash", command="echo " + "long " * 30)])
    provider.reply("done")
    screen = await terminal("ask", "hello", columns=40)
    await screen.until("[y] approve")
    assert max(len(line) for line in screen.text.splitlines()) <= 40
    assert screen.text.count("long") == 30
    await screen.press("y", "✓ approved")
    assert await screen.wait() == 0
    assert all(len(line) <= 40 for line in screen.text.splitlines())


async def test_a_long_value_does_not_push_the_others_off_the_screen(cli: Cli, terminal: Callable[..., Any]):
    hosts = ",".join(f'"wiki-{number}.intranet.example:8080"' for number in range(9))
    cli.env["RETINUE_WEB_ALLOW_HOSTS"] = f"[{hosts}]"
    screen = await terminal("config", "list")
    assert await screen.wait() == 0
    heads = next(line for line in screen.text.splitlines() if line.startswith("SETTING"))
    assert "FROM" in heads.split()


async def test_deleting_asks_first_on_a_terminal(cli: Cli, terminal: Callable[..., Any]):
    assert (await cli("run", "math-expert", "1+1", "--quiet")).code == 0
    screen = await terminal("runs", "delete", "last")
    await screen.until("for good?")
    screen.send("n\r")
    assert await screen.wait() == 0
    assert len((await cli("runs", "list", "--json")).lines) == 1
    screen = await terminal("runs", "delete", "last")
    await screen.until("for good?")
    screen.send("y\r")
    assert await screen.wait() == 0
    assert (await cli("runs", "list", "--json")).lines == []


async def test_a_limit_of_the_provider_is_asked_about_and_left_for_later(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.fail(429, "slow down", retry_after=90)
    screen = await terminal("ask", "a question", columns=120)
    await screen.until("l: leave it")
    screen.send("l")
    assert await screen.wait() == 5
    assert "It can be asked again at" in screen.text


async def test_a_limit_that_is_waited_for_is_asked_about_once_and_shown_with_its_time(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    provider.fail(429, "slow down", retry_after=90)
    screen = await terminal("ask", "a question", columns=120)
    await screen.until("w: wait")
    screen.send("w")
    await screen.until("  waiting\n")
    assert "waits for the provider's limit to reset until" in screen.text
    assert screen.text.count("l: leave it") == 1
    row = (await cli("runs", "list", "--json")).lines[0]
    assert (row["status"], len(provider.requests)) == ("waiting", 1)
    screen.send("\x03")
    assert await screen.wait() == 130


async def test_what_an_mcp_server_asks_is_a_form_line_by_line(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
):
    cli.use(provider)
    form = {
        "type": "object",
        "properties": {
            "colour": {"type": "string"},
            "count": {"type": "integer", "default": 2},
            "size": {"type": "string", "enum": ["small", "large"]},
            "urgent": {"type": "boolean"},
        },
        "required": ["colour", "size"],
    }
    args = ["-I", "-S", str(PLAIN), "--form", json.dumps(form)]
    config = cli.home / "config/retinue/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"[mcp.servers.plain]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\n"
        '[approvals]\nallow = ["mcp__plain__*"]\n'
    )
    provider.handler = lambda seen: (
        Script(text=f"It came to {seen.messages[-1].text}")
        if seen.turn
        else Script(calls=(call("mcp__plain__ask", about="the wall"),))
    )
    screen = await terminal("ask", "paint it")
    await screen.until("Which colour for the wall?")
    await screen.press("y", "\n  colour:")
    screen.send("\r")
    await screen.until("this has to be given")
    screen.send("green\r")
    await screen.until("count (a whole number) [2]:")
    screen.send("many\r")
    await screen.until("a number")
    screen.send("\r")
    await screen.until("1: small, 2: large")
    screen.send("2\r")
    await screen.until("urgent (y or n)")
    screen.send("\r")
    await screen.wait()
    assert '"colour": "green", "count": 2, "size": "large"' in " ".join(screen.text.split())
