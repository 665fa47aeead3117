"""Only what a person types on the line is read for `!`, `/` and `@`: a stranger may have written the rest."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from talking import Talking, read_by

from retinue import Retinue
from retinue.cli.chat.history import MOST_BYTES, MOST_ENTRY, ChatHistory, history_file
from retinue.cli.chat.pasting import MOST_KEPT, Entered, Pastes
from retinue.errors import ConfigError
from retinue.testing import ScriptedModel

LONG = "".join(f"line {number} of a log\n" for number in range(60))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "1000")
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel({"": lambda request: "answered"})


@pytest.fixture
async def chat(project: Path, model: ScriptedModel) -> AsyncIterator[Talking]:
    async with Retinue(model=model, db="memory:", cwd=project, yes=True) as retinue:
        yield Talking(retinue)


@pytest.mark.parametrize("text", [f"!touch ran\n{LONG}", f"/export ran\n{LONG}", "!touch ran\nand more\n"])
async def test_a_paste_that_reads_like_a_command_is_a_message(
    chat: Talking, project: Path, model: ScriptedModel, text: str
) -> None:
    pastes = Pastes()
    folded = pastes.folded(text)
    assert folded.startswith("[pasted text 1: ")
    await chat.type("first")
    await chat.talk.typed(pastes.unfolded(folded))
    await chat.over()
    assert text.strip() in model.requests[-1].messages[-1].text
    assert list(project.iterdir()) == []


async def test_a_folded_paste_is_no_part_of_a_shell_command(chat: Talking, project: Path) -> None:
    pastes = Pastes()
    line = f"!echo {pastes.folded(f'x > ran{LONG}')}"
    await chat.talk.typed(pastes.unfolded(line))
    assert "a folded paste is not run" in chat.stage.since(0)
    assert list(project.iterdir()) == []


def test_one_short_line_that_is_pasted_stands_on_the_line_as_if_typed() -> None:
    pastes = Pastes()
    assert pastes.folded("@src/app.py") == "@src/app.py"
    assert pastes.folded("!make test\n") == "!make test\n"
    assert pastes.folded("three\nshort\nlines") == "three\nshort\nlines"
    assert pastes.folded("see\n@src/app.py\nthere").startswith("[pasted text 1: 3 lines]")
    assert pastes.folded("!echo " + "x" * 200).startswith("[pasted text 2: 1 line]")


async def test_the_mentions_of_a_paste_are_words(chat: Talking, project: Path, model: ScriptedModel) -> None:
    (project / "notes.txt").write_text("IN-THE-NOTES")
    (project / "app.py").write_text("IN-THE-APP")
    pastes = Pastes()
    line = f"what is @app.py to this? {pastes.folded(f'{LONG}see @notes.txt')}"
    await chat.talk.typed(pastes.unfolded(line))
    await chat.over()
    assert "IN-THE-APP" in read_by(model)
    assert "see @notes.txt" in read_by(model)
    assert "IN-THE-NOTES" not in read_by(model)


@pytest.mark.parametrize("name", [".env", "../outside.txt", "{top}/outside.txt", "link.txt", "denied.txt"])
async def test_a_mention_is_of_a_file_of_the_project_that_may_be_shown(
    tmp_path: Path, project: Path, model: ScriptedModel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside.txt").write_text("PRIVATE")
    (project / ".env").write_text("KEY=PRIVATE")
    (project / "denied.txt").write_text("PRIVATE")
    (project / "link.txt").symlink_to(tmp_path / "outside.txt")
    monkeypatch.setenv("RETINUE_APPROVALS_DENY", '["read(denied.txt)"]')
    async with Retinue(model=model, db="memory:", cwd=project, yes=True) as retinue:
        chat = Talking(retinue)
        named = name.format(top=tmp_path)
        said = await chat.type(f"look at @{named} please")
        assert "your message was not sent" in said
        assert model.requests == []
        [told] = re.findall(r"/attach \S+", said)
        assert "goes along" in await chat.type(told)
        await chat.type("look at it")
        assert "PRIVATE" in read_by(model)


async def test_what_is_no_file_is_a_word(chat: Talking, model: ScriptedModel) -> None:
    await chat.type(f"the decorator @property, @{'x' * 5000} and @nobody")
    assert "@property" in read_by(model)


def test_a_line_is_recalled_as_it_stood_with_its_pastes(tmp_path: Path) -> None:
    """Else a paste would come back as something that was typed."""
    file, pastes = tmp_path / "history", Pastes()
    line = f"what does {pastes.folded(f'!touch x{LONG}')} want?"
    ChatHistory(file, pastes).append_string(line)
    later = Pastes()
    [recalled] = ChatHistory(file, later).load_history_strings()
    assert later.unfolded(recalled) == pastes.unfolded(line)
    assert later.unfolded(recalled).pasted
    assert "touch x" not in recalled


def test_a_paste_cannot_end_itself_in_the_history(tmp_path: Path) -> None:
    file, pastes, later = tmp_path / "history", Pastes(), Pastes()
    ChatHistory(file, pastes).append_string(pastes.folded(f"{LONG}\x03 @app.py \x02{LONG}"))
    [recalled] = ChatHistory(file, later).load_history_strings()
    assert "@app.py" not in later.unfolded(recalled).own


def test_history_and_pastes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file, pastes = history_file(), Pastes()
    assert file is not None
    history = ChatHistory(file, pastes)
    first = pastes.folded("y" * (MOST_KEPT // 2))
    history.append_string(pastes.folded("x" * (MOST_KEPT // 2 + 1)))
    assert file.stat().st_size == 0
    with pytest.raises(ConfigError, match=r"no longer kept \(paste it again\)"):
        pastes.unfolded(first)
    for number in range(MOST_BYTES // MOST_ENTRY + 20):
        history.append_string(f"{number:06}" + "z" * (MOST_ENTRY - 6))
    assert history_file() == file
    assert file.stat().st_size <= MOST_BYTES
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    newest = next(iter(ChatHistory(file, pastes).load_history_strings()))
    assert newest.startswith(f"{MOST_BYTES // MOST_ENTRY + 19:06}z")


def test_what_comes_back_from_the_editor_is_as_typed_as_it_was() -> None:
    pastes = Pastes()
    line = f"why? {pastes.folded(f'!touch x{LONG}')}"
    text = str(pastes.unfolded(line))
    same = pastes.unfolded(pastes.refolded(text.replace("why?", "but why?"), line))
    assert same == text.replace("why?", "but why?")
    assert same.own.startswith("but why?")
    changed = pastes.unfolded(
        pastes.refolded(text.removeprefix("why? ").replace("line 3", "line three"), line)
    )
    assert changed.startswith("!touch x")
    assert not changed.own.startswith("!")


def test_the_words_behind_a_command_keep_what_was_typed_of_them() -> None:
    entry = Entered("/rewind  2 see @a\nand @b", "/rewind  2 see @a\n\ufffc").after_word().after_word()
    assert entry == "see @a\nand @b"
    assert "@b" not in entry.own
    assert Entered("/new").after_word() == ""
