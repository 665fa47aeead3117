"""The chat starts no program of the folder that agents work in, and none of its programs outlives its use."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from talking import Talking

from retinue import Retinue
from retinue.cli.chat import pictures
from retinue.cli.chat.completion import ChatCompleter
from retinue.cli.chat.pictures import clipboard_picture
from retinue.cli.own_program import edited, own_editor, run_program
from retinue.testing import Script, ScriptedModel, call

if TYPE_CHECKING:
    from chatting import Chat


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


async def test_no_program_of_the_project_is_an_editor_or_a_pager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, own = tmp_path / "project", tmp_path / "own"
    for name in ("editor", "myed", "less"):
        _program(project / ".bin" / name, f"touch {tmp_path}/started")
    _program(own / "myed", 'echo changed > "$1"')
    monkeypatch.setenv("PATH", f"{project / '.bin'}:{own}:/usr/bin:/bin")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "myed")
    assert await edited(own_editor(project) or "", "text", "message.md", project) == "changed\n"
    monkeypatch.setenv("PATH", str(project / ".bin"))
    monkeypatch.delenv("EDITOR")
    assert own_editor(project) is None
    with pytest.raises(FileNotFoundError):
        await run_program("less -R", tmp_path / "x", project)
    assert not (tmp_path / "started").exists()


async def test_programs_are_looked_for_outside_of_the_folder_that_was_named(chat: Chat) -> None:
    """The process itself is somewhere else."""
    project, bin = chat.cli.home / "other", chat.cli.home / "other" / "node_modules" / ".bin"
    for name in ("wl-paste", "xclip", "pngpaste", "my-pager", "my-editor"):
        _program(bin / name, f"touch {chat.cli.home}/started")
    chat.cli.env["PATH"] = f"{bin}:{chat.cli.env['PATH']}"
    chat.cli.env |= {"PAGER": "my-pager", "EDITOR": "my-editor"}
    chat.provider.add(Script(calls=(call("write", path="a.txt", content="x"),)), Script(text="no then"))
    await chat.open("--cwd", str(project))
    await chat.press("C-v")
    await chat.until("no picture in the clipboard")
    await chat.press("C-x", "C-e")
    await chat.until("✗ my-editor: [Errno 2] No such file")
    await chat.say("write it")
    await chat.until("━━ approval ")
    while "cannot start the pager" not in await chat.text() and not (chat.cli.home / "started").exists():
        await chat.press("v")
        await asyncio.sleep(0.1)
    assert not (chat.cli.home / "started").exists()


async def test_the_program_of_the_clipboard_ends_with_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "bin" / "wl-paste", f"sleep 300 & echo $! > {tmp_path}/pid; wait")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    reading = asyncio.create_task(clipboard_picture(tmp_path / "project", tmp_path))
    async with asyncio.timeout(30):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait([reading])
        pid = int((tmp_path / "pid").read_text())
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_no_more_of_the_clipboard_is_read_than_a_picture_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MOST_BYTES", 1_000_000)
    text = "trap '' PIPE; i=0; while head -c 1000000 /dev/zero; do i=$((i+1)); echo $i > {}/wrote; done"
    _program(tmp_path / "bin" / "wl-paste", text.format(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    async with asyncio.timeout(4):  # sooner than a program that never ends is given up
        assert await clipboard_picture(tmp_path / "project", tmp_path) is None
    assert int((tmp_path / "wrote").read_text()) < 10


async def test_attach_offers_the_files_of_the_folder_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        folder.mkdir()
        (folder / f"of-{folder.name}.txt").touch()
    monkeypatch.chdir(elsewhere)
    async with Retinue(model=ScriptedModel({"": []}), db="memory:", cwd=project) as retinue:
        completer = ChatCompleter()
        completer.talk = Talking(retinue).talk
        offered = completer.get_completions(Document("/attach "), CompleteEvent(completion_requested=True))
        assert [each.display_text for each in offered] == ["of-project.txt"]
    assert os.getcwd() == str(elsewhere)
