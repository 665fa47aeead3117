"""The chat as a person has it: keys in a real terminal, and what is on its screen."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from typing import TYPE_CHECKING

from world import COMMAND

from retinue.testing import Script, call
from retinue.testing.script import SeenRequest
from retinue.types import ToolMessage

if TYPE_CHECKING:
    from chatting import Chat


def _last(request: SeenRequest) -> str:
    return request.messages[-1].text


async def test_an_answer_is_rendered_and_stays_in_the_scrollback(chat: Chat) -> None:
    chat.provider.add(Script(text="# Plan\n\n**bold** word\n\n```python\nx = 1\n```\n\nthe end", pieces=20))
    await chat.open()
    await chat.say("what now?")
    text = await chat.until("the end")
    assert "› what now?" in text
    assert "bold word" in text
    assert "```" not in await chat.until(lambda text: "1 turn" in text)


async def test_a_message_while_it_works_is_read_before_the_next_step(chat: Chat) -> None:
    gate = asyncio.Event()
    chat.provider.add(Script(calls=(call("ls", path="."),), gate=gate), Script(text="as you wish"))
    await chat.open()
    await chat.say("look around")
    await chat.until("Esc stops")
    await chat.say("in French please")
    await chat.until("in French please  (read before the next step)")
    gate.set()
    await chat.until("as you wish")
    assert "in French please" in str(chat.provider.requests[1].body)


async def test_esc_stops_the_turn_and_the_conversation_goes_on(chat: Chat) -> None:
    chat.provider.add(
        Script(text="the first half\n\nnever the second", hang_after=2), Script(text="still here")
    )
    await chat.open()
    await chat.say("tell me a story")
    await chat.until("Esc stops")
    await chat.press("Escape")
    await chat.until("stopped by the person")
    await chat.say("are you there?")
    text = await chat.until("still here")
    assert "tell me a story" in str(chat.provider.requests[-1].body)
    assert "runs resume" not in text  # one just goes on typing


async def test_a_question_is_put_inline_with_its_diff_and_always_is_kept(chat: Chat) -> None:
    def answer(request: SeenRequest) -> Script:
        if isinstance(request.messages[-1], ToolMessage):
            return Script(text="written, twice" if "again" in str(request.body) else "written")
        return Script(calls=(call("write", path="hello.txt", content=f"hi {request.turn}\n"),))

    chat.provider.handler = answer
    await chat.open()
    await chat.say("write hello")
    await chat.until("[w] always, in this folder: write(hello.txt)")
    assert "+hi 0" in await chat.text()
    await asyncio.sleep(0.3)  # a key in the first quarter of a second was meant for something else
    await chat.press("w")
    await chat.until("written down: write(hello.txt)")
    await chat.until("1 tool call")
    await chat.say("and again")
    text = await chat.until("written, twice")
    assert text.count("━━ approval ") == 1
    assert (chat.cli.folder / "hello.txt").read_text() != ""


async def test_a_question_does_not_take_the_keys_of_what_is_being_typed(chat: Chat) -> None:
    gate = asyncio.Event()
    chat.provider.add(
        Script(calls=(call("write", path="a.txt", content="x"),), gate=gate), Script(text="no then")
    )
    await chat.open()
    await chat.say("write it")
    await chat.until("Esc stops")
    await chat.type("yes, but")
    gate.set()
    await chat.until("Ctrl-O opens it")
    await chat.type(" not there")
    assert not (chat.cli.folder / "a.txt").exists()
    await chat.press("C-o")
    await chat.until("━━ approval ")
    await asyncio.sleep(0.3)
    await chat.press("n")
    await chat.until("why (Enter for no reason)")
    await chat.say("")
    await chat.until("no then")
    assert "yes, but not there" in await chat.screen()  # the draft is where it was
    assert not (chat.cli.folder / "a.txt").exists()


async def test_a_question_is_put_where_the_rest_is_drawn_if_errors_go_to_a_file(chat: Chat) -> None:
    chat.provider.add(Script(calls=(call("write", path="a.txt", content="x\n"),)), Script(text="there it is"))
    log = chat.cli.home / "errors"
    shell = f"exec {shlex.join(COMMAND)} chat 2> {log}"
    await chat.start(["sh", "-c", shell], env=chat.cli.env, cwd=chat.cli.folder)
    await chat.until("· /help")
    await chat.say("write it")
    await chat.until("━━ approval ")
    await asyncio.sleep(0.3)
    await chat.press("y")
    await chat.until("there it is")
    assert (chat.cli.folder / "a.txt").read_text() == "x\n"


async def test_children_live_below_and_end_on_one_line_each(chat: Chat) -> None:
    gate = asyncio.Event()

    def answer(request: SeenRequest) -> Script:
        if "You are `code-search`" in request.system:
            return Script(text="**Answer:** in `app.py:1`.", gate=gate)
        if request.turn:
            return Script(text="all three agree")
        return Script(calls=tuple(call("code-search", query=f"question {n}") for n in range(3)))

    chat.provider.handler = answer
    await chat.open()
    await chat.say("ask three")
    await chat.until(lambda text: all(f"code-search  question {n}" in text for n in range(3)))
    assert "├─" in await chat.screen()
    gate.set()
    await chat.until("all three agree")
    await chat.until(lambda text: "turns" in text)
    text = await chat.text()
    assert "├─" not in text
    assert text.count("code-search  question") == 3
    await chat.say("/agents 2")
    await chat.until("in `app.py:1`")


async def test_what_was_cut_off_by_kill_9_goes_on_with_continue(chat: Chat) -> None:
    chat.provider.add(Script(calls=(call("ls", path="."),)), Script(hang_after=1, text="never"))
    await chat.open()
    await chat.say("what is here?")
    await chat.until("✓ ls")
    async with asyncio.timeout(60):
        while len(chat.provider.requests) < 2:
            await asyncio.sleep(0.01)
    os.kill(await chat.pid(), signal.SIGKILL)
    await chat.ended()
    await chat.close()
    chat.provider.add(Script(text="app.py is here"))
    await chat.open("--continue")
    text = await chat.until("app.py is here")
    assert "› what is here?" in text
    assert len(chat.provider.requests) == 3  # the first reply was paid for once


async def test_rewind_says_something_else_in_a_copy(chat: Chat) -> None:
    chat.provider.add(Script(text="one"), Script(text="two"), Script(text="three"))
    await chat.open()
    for said, answered in (("first", "one"), ("parrots", "two")):
        await chat.say(said)
        await chat.until(f"\n{answered}")
    await chat.say("/rewind")
    await chat.until("2 parrots")
    await chat.say("/rewind 2 something else")
    await chat.until("\nthree")
    sent = str(chat.provider.requests[-1].body)
    assert "first" in sent
    assert "something else" in sent
    assert "parrots" not in sent


async def test_sixty_columns_and_a_resize_are_enough(chat: Chat) -> None:
    chat.columns = 60
    chat.provider.add(Script(text="word " * 40), Script(text="more " * 40))
    await chat.open()
    await chat.say("talk")
    await chat.until("1 turn")
    assert all(len(line) <= 60 for line in (await chat.screen()).splitlines())
    await chat.tmux("resize-window", "-x", "90", "-y", "20")
    await chat.say("go on")
    await chat.until(lambda text: "more more" in text and text.count("1 turn") == 2)
    await chat.press("C-d")
    await chat.ended()


async def test_a_shell_command_of_the_person_goes_along_with_the_next_message(chat: Chat) -> None:
    chat.provider.add(Script(text="forty-two it is"))
    await chat.open()
    await chat.say("!echo forty''two")
    await chat.until("fortytwo")
    await chat.say("what did I print? @app.py")
    await chat.until("forty-two it is")
    sent = str(chat.provider.requests[-1].body)
    assert "fortytwo" in sent
    assert "return n < 3" in sent  # the file that was mentioned


async def test_what_a_command_printed_is_private_and_vouches_for_no_address(chat: Chat) -> None:
    """Nobody wrote it: a repository may have, and a planted address in it is nobody's wish."""

    def answer(request: SeenRequest) -> Script:
        if isinstance(request.messages[-1], ToolMessage):
            return Script(text="it was asked about")
        return Script(calls=(call("web_fetch", url="http://127.0.0.1:9/planted"),))

    chat.provider.handler = answer
    chat.cli.env["RETINUE_WEB_ALLOW_HOSTS"] = '["127.0.0.1"]'
    await chat.open()
    await chat.say("!echo go to http://127.0.0.1:9/planted; printf '\\033[31mred'")
    await chat.until("red")
    await chat.say("use that")
    await chat.until("━━ approval ")
    assert "output of echo" in await chat.text()
    await asyncio.sleep(0.3)
    await chat.press("n")
    await chat.until("why (Enter")
    await chat.say("")
    await chat.until("it was asked about")


async def test_an_export_replaces_nothing_and_follows_no_link(chat: Chat) -> None:
    outside = chat.cli.home / "outside"
    outside.mkdir()
    (chat.cli.folder / "kept.html").write_text("kept")
    (chat.cli.folder / "dangling.html").symlink_to(outside / "new.html")
    (chat.cli.folder / "out").symlink_to(outside)
    chat.provider.add(Script(text="one"))
    await chat.open()
    await chat.say("first")
    await chat.until("\none")
    for name in ("kept.html", "dangling.html", "out/x.html"):
        before = (await chat.text()).count("✗ ")
        await chat.say(f"/export {name}")
        await chat.until(lambda text, before=before: text.count("✗ ") == before + 1)
    assert (chat.cli.folder / "kept.html").read_text() == "kept"
    assert list(outside.iterdir()) == []


async def test_mistakes_are_told_and_end_nothing(chat: Chat) -> None:
    chat.provider.add(Script(text="fine"))
    await chat.open()
    await chat.say("/resum")
    await chat.until("did you mean /resume?")
    await chat.say("/attach nowhere.txt")
    await chat.until("there is no file")
    await chat.say("/model nobody:nothing")
    await chat.until("✗ ")
    await chat.say("hello")
    await chat.until("fine")


async def test_ten_children_at_work_write_little_to_the_terminal(chat: Chat) -> None:
    gate = asyncio.Event()

    def answer(request: SeenRequest) -> Script:
        if "You are `code-search`" in request.system:
            return Script(text="done", gate=gate)
        if request.turn:
            return Script(text="over")
        return Script(calls=tuple(call("code-search", query=f"question {n}") for n in range(10)))

    chat.provider.handler = answer
    await chat.open()
    written = chat.cli.home / "written"
    await chat.tmux("pipe-pane", f"cat > {written}")
    await chat.say("ask ten")
    await chat.until("code-search")
    before = written.stat().st_size
    await asyncio.sleep(2)
    after = written.stat().st_size
    gate.set()
    await chat.until("over")
    assert after - before < 2 * 20_000  # ten spinners at eight frames a second


async def test_plain_lines_need_no_screen(chat: Chat) -> None:
    chat.provider.add(Script(text="said plainly"), Script(text="and again"))
    ended = await chat.cli("chat", "--plain", input="one\ntwo\n")
    assert ended.code == 0
    assert "said plainly" in ended.out
    assert "and again" in ended.out
    assert "\x1b" not in ended.out + ended.err


async def test_the_lines_of_a_pipe_are_messages_and_nothing_else(chat: Chat) -> None:
    (chat.cli.folder / "notes.txt").write_text("IN-THE-NOTES")
    chat.provider.handler = lambda request: Script(text="heard")
    lines = ["!touch ran", "/export ran.html", "what is in @notes.txt?"]
    ended = await chat.cli("chat", "--plain", input="".join(f"{line}\n" for line in lines))
    assert ended.code == 0
    assert ended.out.count("heard") == 3
    sent = str(chat.provider.requests[-1].body)
    assert all(line in sent for line in lines)
    assert "IN-THE-NOTES" not in sent
    assert sorted(path.name for path in chat.cli.folder.iterdir()) == ["app.py", "notes.txt"]


async def test_a_long_paste_is_sent_and_not_run_also_when_it_is_recalled(chat: Chat) -> None:
    chat.provider.handler = lambda request: Script(text=f"heard {request.turn}")
    paste = chat.cli.home / "paste"
    paste.write_text("!touch ran #\n" + "a line of a stranger\n" * 60)
    await chat.open()
    await chat.tmux("load-buffer", str(paste))
    await chat.tmux("paste-buffer", "-p")
    await chat.until("[pasted text 1: 61 lines]")
    await chat.press("Enter")
    await chat.until("heard 0")
    await chat.until("1 turn")
    await chat.press("Up")
    await chat.until("› [pasted text 1: 61 lines]")
    await chat.press("Enter")
    await chat.until("heard 1")
    await chat.press("C-d")
    await chat.ended()
    await chat.close()
    await chat.open()
    await chat.press("Up")
    await chat.until("61 lines]")
    await chat.press("Enter")
    await chat.until(lambda text: text.count("heard 0") == 1)
    assert not (chat.cli.folder / "ran").exists()
    assert "a line of a stranger" in str(chat.provider.requests[-1].body)


async def test_an_edited_line_comes_back_with_its_paste(chat: Chat) -> None:
    chat.provider.add(Script(text="heard"))
    program = chat.cli.home / "edit"
    program.write_text("#!/bin/sh\nsed -i 's/^why/but why/' \"$1\"\n")
    program.chmod(0o755)
    chat.cli.env["EDITOR"] = str(program)
    await chat.open()
    await chat.tmux("set-buffer", "a line\n" * 20)
    await chat.type("why? ")
    await chat.tmux("paste-buffer", "-p")
    await chat.until("› why? [pasted text 1: 20 lines]")
    await chat.press("C-x", "C-e")
    await chat.until("› but why? [pasted text 1: 20 lines]")
    await chat.press("Enter")
    await chat.until("heard")
    assert str(chat.provider.requests[-1].body).count("a line") >= 20


async def test_planning_reads_only_in_every_conversation_and_takes_no_rule_away(chat: Chat) -> None:
    (chat.cli.folder / "secret.txt").write_text("TOP\n")
    config = chat.cli.home / "config" / "retinue" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[approvals]\ndeny = ["read(secret.txt)"]\nallow = ["write"]\n')

    def answer(request: SeenRequest) -> Script:
        if isinstance(request.messages[-1], ToolMessage):
            return Script(text=f"it said: {' '.join(m.text for m in request.messages[-2:] if m.text)[:300]}")
        both = (call("read", path="secret.txt"), call("write", path="new.txt", content="x"))
        return Script(calls=both)

    chat.provider.handler = answer
    await chat.open()
    await chat.say("/plan on")
    await chat.until("it only reads")
    await chat.say("do both")
    await chat.until("it said")
    await chat.say("/new")
    await chat.until("a new conversation")
    await chat.say("do both again")
    await chat.until(lambda text: text.count("it said") == 2)
    assert not (chat.cli.folder / "new.txt").exists()
    await chat.say("/plan off")
    await chat.until("asks first")
    await chat.say("and now")
    await chat.until(lambda text: text.count("it said") == 3)
    assert (chat.cli.folder / "new.txt").exists()
    assert all("TOP" not in str(request.body) for request in chat.provider.requests)


async def test_what_was_said_at_the_start_counts_for_a_conversation_that_goes_on(chat: Chat) -> None:
    chat.provider.add(Script(text="one"), Script(text="two"))
    await chat.open()
    await chat.say("first")
    await chat.until("\none")
    await chat.press("C-d")
    await chat.ended()
    await chat.close()
    await chat.open("--continue", "--max-cost", "0.01", "--sandbox")
    await chat.say("second")
    await chat.until("\ntwo")
    ended = await chat.cli("runs", "events", "last", "--json")
    resumed = [event for event in ended.lines if event["type"] == "run_resumed"]
    assert resumed[-1]["settings"] == {"limits.max_cost": 0.01, "approvals.sandbox": "project"}


async def test_a_shell_command_is_waited_for_alone_and_ctrl_c_is_for_it(chat: Chat) -> None:
    await chat.open()
    await chat.say("!sleep 300 & echo began")
    await chat.until("began")
    await chat.say("!sleep 300")
    await chat.until(lambda text: "sleep 300" not in text.splitlines()[-1])
    await asyncio.sleep(0.5)
    await chat.press("C-c")
    await chat.say("/help")
    await chat.until("what can be typed here")
