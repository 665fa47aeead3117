"""The chat calls a person who has turned away, and takes the pictures that they paste."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retinue.cli.chat.pictures import pasted_picture
from retinue.testing import Script, call
from retinue.view.bell import Bell, sign

if TYPE_CHECKING:
    from chatting import Chat

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
QUESTION = Script(calls=(call("write", path="a.txt", content="x"),))


async def _written(chat: Chat, **env: str) -> Path:
    """Every byte that the terminal is sent from now on."""
    chat.cli.env |= env
    await chat.open()
    raw = chat.cli.home / "raw"
    await chat.tmux("pipe-pane", f"cat > {raw}")
    return raw


async def test_a_question_rings_where_no_key_came_for_a_while(chat: Chat) -> None:
    gate = asyncio.Event()
    chat.provider.add(Script(calls=QUESTION.calls, gate=gate), Script(text="fine"))
    raw = await _written(chat, RETINUE_TERMINAL_NOTIFY_AFTER="0.2", RETINUE_TERMINAL_NOTIFY="desktop")
    await chat.say("write it")
    gate.set()
    await chat.until("━━ approval ")
    async with asyncio.timeout(30):
        while b"\x1b]9;Retinue: write waits for your answer\x07" not in raw.read_bytes().replace(
            b"\x1b\x1b", b"\x1b"
        ):
            await asyncio.sleep(0.05)


async def test_off_is_silent(chat: Chat) -> None:
    chat.provider.add(QUESTION, Script(text="no then"))
    raw = await _written(chat, RETINUE_TERMINAL_NOTIFY_AFTER="0.01", RETINUE_TERMINAL_NOTIFY="off")
    await chat.say("write it")
    await chat.until("━━ approval ")
    await asyncio.sleep(0.5)
    await chat.press("n")
    await chat.until("why (Enter for no reason)")
    await chat.say("")
    await chat.until("no then")
    assert b"\a" not in raw.read_bytes()


async def test_a_picture_of_the_clipboard_and_one_by_its_path_go_along(chat: Chat) -> None:
    chat.provider.add(Script(text="two pictures"))
    programs = chat.cli.home / "programs"
    programs.mkdir()
    picture = chat.cli.home / "my shot.png"
    picture.write_bytes(PICTURE)
    program = programs / "wl-paste"
    program.write_text(f'#!/bin/sh\ncat "{picture}"\n')
    program.chmod(0o755)
    chat.cli.env["PATH"] = f"{programs}:{chat.cli.env['PATH']}"
    await chat.open()
    await chat.press("C-v")
    await chat.until("clipboard-1.png goes along with your next message")
    await chat.tmux("set-buffer", f"'{picture}'")
    await chat.tmux("paste-buffer", "-p")
    await chat.until("my shot.png goes along with your next message")
    await chat.say("what is on them?")
    await chat.until("two pictures")
    assert str(chat.provider.requests[0].body).count(base64.b64encode(PICTURE).decode()) == 2


async def test_a_person_at_the_keyboard_is_not_called() -> None:
    rung: list[str] = []
    bell = Bell("bell", 1000, rung.append)
    bell.needed("one")
    bell.ended("two")
    bell.settled()
    await asyncio.sleep(0)
    assert rung == []
    quick = Bell("bell", 0, rung.append)
    quick.ended("three")
    quick.needed("four")
    quick.needed("five")  # rings once for what waits together
    while len(rung) < 2:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rung == ["\a", "\a"]


def test_what_a_notification_says_cannot_steer_the_terminal() -> None:
    said = sign("desktop", "x\x07\x1b]0;title\x07\n" + "y" * 500)
    assert said.count("\x1b") == 1
    assert said.count("\a") == 2
    assert len(said) < 200
    assert sign("desktop", "x", tmux="/tmp/s").startswith("\x1bPtmux;\x1b\x1b]9;")


@pytest.mark.parametrize("form", ["{}", '"{}"', "'{}'", "file://{}", " {}\n"])
def test_a_pasted_path_of_a_picture_is_known_in_every_form(tmp_path: Path, form: str) -> None:
    picture = tmp_path / "shot.PNG"
    picture.write_bytes(PICTURE)
    assert pasted_picture(form.format(picture)) == picture


def test_other_pastes_stay_text(tmp_path: Path) -> None:
    picture = tmp_path / "a b.png"
    picture.write_bytes(PICTURE)
    assert pasted_picture(str(picture).replace(" ", "\\ ")) == picture
    assert pasted_picture("look at shot.png") is None
    assert pasted_picture(str(tmp_path / "none.png")) is None
    assert pasted_picture("'an open quotation.png") is None
    assert pasted_picture("") is None


async def test_a_conversation_that_is_renamed_is_listed_by_its_name(chat: Chat) -> None:
    chat.provider.add(Script(text="one"), Script(text="two"))
    await chat.open()
    await chat.say("/rename too early")
    await chat.until("there is nothing to name yet")
    await chat.say("first question")
    await chat.until("1 turn")
    await chat.say("/rename about parrots")
    await chat.until("in lists it is now: about parrots")
    await chat.say("second question")
    await chat.until("\ntwo")
    assert "about parrots" in (await chat.cli("runs", "list")).out
    assert (await chat.cli("runs", "rename", "last", "of", "ducks")).code == 0
    assert "of ducks" in (await chat.cli("runs", "list")).out


async def test_a_command_that_takes_long_is_told_in_the_status_line(chat: Chat) -> None:
    chat.provider.add(Script(text="one"))
    await chat.open()
    await chat.say("first question")
    await chat.until("1 turn")
    [database] = chat.cli.home.rglob("*.db")
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("begin immediate")  # nobody else can write
        await chat.say("/rename later")
        await chat.until("/rename 1 s")
        other.execute("rollback")
    await chat.until("later")
    await chat.until(lambda text: "/rename 1 s" not in text.splitlines()[-1])
