"""What goes with a message is what stood there when it was sent; what is typed after it is for the next one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from talking import Talking, read_by

from retinue import AgentSpec, Retinue, tool
from retinue.cli.chat.session import ChatGiven
from retinue.events import MessageReceived, RunResumed, RunStarted
from retinue.testing import ScriptedModel, call
from retinue.testing.scripted import Answer
from retinue.types import ModelRequest, ToolMessage

WRITE = call("write", path="a.txt", content="x")


def _writes(request: ModelRequest) -> Answer:
    """A model that writes a file with every turn, and then says so."""
    return "tried" if isinstance(request.messages[-1], ToolMessage) else WRITE


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "1000")
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def _opened(project: Path, model: ScriptedModel, agents: Sequence[AgentSpec] = ()) -> Retinue:
    return Retinue(model=model, db=str(project.parent / "x.db"), cwd=project, yes=True, agents=agents)


@contextlib.asynccontextmanager
async def _on_its_way(chat: Talking, text: str) -> AsyncIterator[None]:
    """While the message is being taken up: nothing can be written to the log meanwhile."""
    async with asyncio.timeout(60):
        with contextlib.closing(
            sqlite3.connect(str(chat.retinue.settings.db), isolation_level=None)
        ) as other:
            other.execute("begin immediate")
            sent = asyncio.create_task(chat.talk.typed(text))
            while not any(line.startswith(f"› {text}") for line in chat.stage.out):
                await asyncio.sleep(0.01)
            try:
                yield
            finally:
                other.execute("rollback")
        await sent
        await chat.over()


async def _typed(chat: Talking, text: str) -> asyncio.Task[None]:
    """As the screen has it: a task of its own, which has begun."""
    task = asyncio.create_task(chat.talk.typed(text))
    for _ in range(20):
        await asyncio.sleep(0)
    return task


async def test_plan_while_a_message_is_taken_up_holds_or_is_refused(project: Path) -> None:
    async with _opened(project, ScriptedModel({"": ["hello", "more", WRITE, "tried"]})) as retinue:
        chat = Talking(retinue)
        await chat.type("hi")
        async with _on_its_way(chat, "tell me more"):
            planning = await _typed(chat, "/plan on")
        await planning
        if "it is still at work" in chat.stage.since(0):
            await chat.type("/plan on")
        assert "plan: reads only" in chat.status
        await chat.type("now make the file")
        assert not (project / "a.txt").exists()


async def test_what_is_attached_while_a_message_is_taken_up_goes_with_the_next(project: Path) -> None:
    (project / "f.txt").write_text("IN-THE-FILE")
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type("hi")
        async with _on_its_way(chat, "tell me more"):
            await chat.talk.typed("/attach f.txt")
            await chat.talk.typed("!echo PRINTED")
        assert "IN-THE-FILE" not in read_by(model)
        await chat.type("what is in the file?")
        assert "IN-THE-FILE" in model.requests[-1].messages[-1].text
        assert "PRINTED" in model.requests[-1].messages[-1].text


async def test_a_model_chosen_while_a_message_is_taken_up_answers_the_next(project: Path) -> None:
    async with _opened(project, ScriptedModel({"": lambda request: "answered"})) as retinue:
        chat = Talking(retinue)
        await chat.type("hi")
        async with _on_its_way(chat, "tell me more"):
            await chat.talk.typed("/model offline")
        await chat.type("third message")
        events = await retinue.store.events(chat.session.run_id)
        assert [event.model for event in events if isinstance(event, RunResumed)] == ["", "offline"]


@pytest.mark.parametrize("command", ["/new", "/agent planner", "/resume 1", "/rewind 1 other"])
async def test_no_answer_is_lost_to_a_command_that_moves_the_conversation(
    project: Path, command: str
) -> None:
    model = ScriptedModel({"": ["earlier", "hello", "THE ANSWER", "more", "more"]})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type("in an earlier conversation")
        await chat.type("/new")
        await chat.type("hi")
        async with _on_its_way(chat, "tell me more"):
            moved = await _typed(chat, command)
        await moved
        await chat.over()
        assert "THE ANSWER" in chat.stage.since(0)


async def test_two_messages_and_what_is_between_them_keep_their_order(project: Path) -> None:
    for name in ("one", "two"):
        (project / f"{name}.txt").write_text(f"IN {name}")
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type("/attach one.txt")
        first = await _typed(chat, "first")
        await chat.talk.typed("/attach two.txt")
        second = await _typed(chat, "second")
        await asyncio.gather(first, second)
        await chat.over()
        events = await retinue.store.events(chat.session.run_id)
        said = [e.rendered for e in events if isinstance(e, RunStarted | MessageReceived)]
        assert [("IN one" in text, "IN two" in text) for text in said] == [(True, False), (False, True)]


async def test_esc_stops_what_is_on_its_way(project: Path) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Waits."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    spec = AgentSpec(name="one", description="x", prompt="You are one.", tools=[wait])
    model = ScriptedModel({"": ["hello", call("wait"), "never"]})
    async with _opened(project, model, agents=[spec]) as retinue:
        chat = Talking(retinue, ChatGiven(agent="one"))
        await chat.type("hi")
        async with _on_its_way(chat, "wait for it"):
            stopped = asyncio.create_task(chat.talk.stop())
        assert await stopped
        assert "stopped by the person" in chat.stage.since(0)


# -- plan ----------------------------------------------------------------------------------------------------


async def test_plan_stays_on_in_a_conversation_that_is_taken_up(project: Path) -> None:
    async with _opened(project, ScriptedModel({"": _writes})) as retinue:
        chat = Talking(retinue)
        await chat.type("go")
        (project / "a.txt").unlink()
        await chat.type("/new")
        await chat.type("/plan on")
        await chat.type("/resume 1")
        assert "plan: reads only" in chat.status
        await chat.type("go again")
        assert not (project / "a.txt").exists()


async def test_plan_holds_for_a_conversation_that_was_cut_off(project: Path) -> None:
    async with _opened(project, ScriptedModel({"": ["hello"]})) as retinue:
        chat = Talking(retinue)
        await chat.type("go")
        [first, *_] = events = await retinue.store.events(chat.session.run_id)
        assert isinstance(first, RunStarted)
    cut = str(project.parent / "x.db")
    with contextlib.closing(sqlite3.connect(cut)) as database:
        # as a process leaves it that is killed before its first step has an answer
        database.execute("delete from events where pos > ?", (first.pos,))
        database.execute("update runs set status='running', outcome='running', completed_at=null")
        database.commit()
    assert len(events) > 1
    async with _opened(project, ScriptedModel({"": _writes})) as retinue:
        chat = Talking(retinue)
        await chat.type("/plan on")
        await chat.type("/resume 1")
        assert "tried" in chat.stage.since(0)
        assert not (project / "a.txt").exists()


async def test_plan_holds_for_a_child_that_is_asked_again(project: Path) -> None:
    helper = AgentSpec(
        name="helper", description="helps", prompt="You are the helper.", tools=["read", "write"]
    )
    boss = AgentSpec(name="boss", description="asks", prompt="You are the boss.", tools=["read", helper])
    model = ScriptedModel(
        {
            "You are the boss": [call("helper", prompt="look"), "it looked", "noted", "noted"],
            "You are the helper": ["looked", WRITE, "tried", WRITE, "done"],
        }
    )
    async with _opened(project, model, agents=[boss, helper]) as retinue:
        chat = Talking(retinue, ChatGiven(agent="boss"))
        await chat.type("have it looked at")
        await chat.type("/plan on")
        assert "helper is asked again" in await chat.type("/agents 1 now write the file")
        assert not (project / "a.txt").exists()
        await chat.type("/plan off")
        await chat.type("/agents 1 and now")
        assert (project / "a.txt").exists()


async def test_plan_holds_for_what_is_said_in_the_place_of_a_message(project: Path) -> None:
    async with _opened(project, ScriptedModel({"": _writes})) as retinue:
        chat = Talking(retinue)
        await chat.type("one")
        await chat.type("two")
        (project / "a.txt").unlink()
        await chat.type("/plan on")
        for number in (2, 1):
            assert "tried" in await chat.type(f"/rewind {number} in other words")
            assert not (project / "a.txt").exists()
            await chat.type("two again")
        assert not (project / "a.txt").exists()
        await chat.type("/plan off")
        await chat.type("/rewind 2 and now")
        assert (project / "a.txt").exists()


# -- rewind --------------------------------------------------------------------------------------------------


async def test_the_list_of_rewind_is_of_its_own_conversation(project: Path) -> None:

    def answer(request: ModelRequest) -> Answer:
        last = request.messages[-1]
        return WRITE if last.text.startswith("A") else "fine"  # so that the two logs differ in length

    model = ScriptedModel({"": answer})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        for text in ("A1", "A2", "A3"):
            await chat.type(text)
        await chat.type("/rewind")
        await chat.type("/new")
        for text in ("B1", "B2", "B3", "B4"):
            await chat.type(text)
        await chat.type("/rewind 3 B3 otherwise")
        events = await retinue.store.events(chat.session.run_id)
        said = [
            e.prompt if isinstance(e, RunStarted) else e.text
            for e in events
            if isinstance(e, RunStarted | MessageReceived)
        ]
        assert said == ["B1", "B2", "B3 otherwise"]


async def test_the_model_and_the_attachments_count_for_rewind_and_its_line_counts_one_turn(
    project: Path,
) -> None:
    (project / "f.txt").write_text("IN-THE-FILE")
    (project / "g.txt").write_text("IN-THE-OTHER")
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type("A1")
        await chat.type("A2")
        await chat.type("/attach f.txt")
        shown = await chat.type("/rewind 2 A2 otherwise, with @g.txt")
        assert "[f.txt, g.txt]  (in place of message 2)" in shown
        assert "IN-THE-FILE" in model.requests[-1].messages[-1].text
        assert "IN-THE-OTHER" in model.requests[-1].messages[-1].text
        assert "answered" in shown
        assert re.search(r"\b1 turn\b", shown)
        await chat.type("/model offline")
        before = len(model.requests)
        await chat.type("/rewind 2 and once more")
        assert len(model.requests) == before
        root = chat.session.root
        assert root is not None
        assert root.model == "offline"
        assert "offline" in chat.status


async def test_what_stands_in_the_place_of_a_message_and_fails_leaves_the_conversation(project: Path) -> None:
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type("A1")
        await chat.type("A2")
        here = chat.session.run_id
        chat.session.model = "nobody:nothing"
        for number in (1, 2):
            assert "✗" in await chat.type(f"/rewind {number} otherwise")
            assert chat.session.run_id == here
        chat.session.model = ""
        assert "answered" in await chat.type("A3")
        assert chat.session.run_id == here


# -- attachments ---------------------------------------------------------------------------------------------


async def test_a_file_goes_with_the_message_that_is_typed_right_after_it(project: Path) -> None:
    (project / "f.txt").write_text("IN-THE-FILE")
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await asyncio.gather(chat.talk.typed("/attach f.txt"), chat.talk.typed("what is in it?"))
        await chat.over()
        assert "IN-THE-FILE" in read_by(model)


async def test_what_cannot_be_read_is_refused_when_it_is_attached(project: Path) -> None:
    (project / "data.bin").write_bytes(bytes(range(256)) * 400)
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        assert "✗" in await chat.type("/attach data.bin")
        assert "✗" in await chat.type("/attach nowhere.txt")
        assert "answered" in await chat.type("hello")


async def test_what_can_be_read_no_longer_is_let_go_with_a_word(project: Path) -> None:
    for name in ("gone.txt", "kept.txt"):
        (project / name).write_text(f"IN {name}")
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type("/attach gone.txt")
        await chat.type("/attach kept.txt")
        (project / "gone.txt").unlink()
        assert "it is no longer attached, and your message was not sent" in await chat.type("hello")
        assert model.requests == []
        assert "answered" in await chat.type("hello")
        assert "IN kept.txt" in read_by(model)


async def test_a_command_that_prints_no_text_does_not_stand_in_the_way(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type(r"!printf 'a\000\001\377b'")
        assert "answered" in await chat.type("hello")


async def test_attachments_are_listed_and_taken_back(project: Path) -> None:
    for name in ("one.txt", "two.txt", "three.txt"):
        (project / name).write_text(f"IN {name}")
    model = ScriptedModel({"": lambda request: "answered"})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        for name in ("one.txt", "two.txt", "three.txt"):
            await chat.type(f"/attach {name}")
        assert re.search(r"2 .*two\.txt", await chat.type("/attach"))
        assert "two.txt is no longer attached" in await chat.type("/attach drop 2")
        assert "there is no attachment '7'" in await chat.type("/attach drop 7")
        assert "2 attached" in chat.status
        await chat.type("hello")
        assert "IN one.txt" in read_by(model)
        assert "IN two.txt" not in read_by(model)
        await chat.type("/attach one.txt")
        await chat.type("/attach drop")
        assert "attached" not in chat.status


# -- the person's own commands -------------------------------------------------------------------------------


async def test_what_a_command_leaves_in_the_background_goes_on(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    os.mkfifo(project / "go")
    async with _opened(project, ScriptedModel({"": []})) as retinue:
        chat = Talking(retinue)
        await chat.talk.typed("!(read x < go; echo one; echo two; touch done) & echo started")
        (project / "go").write_text("now\n")
        async with asyncio.timeout(30):
            while not (project / "done").exists():
                await asyncio.sleep(0.01)
        assert chat.talk.carrying.names() == [
            "output of (read x < go; echo one; echo two; touch done) & e….txt"
        ]


async def test_a_long_export_holds_nobody_up(project: Path) -> None:
    words = " ".join(f"word{number} key={number:x}" for number in range(4000))
    model = ScriptedModel({"": lambda request: words})
    async with _opened(project, model) as retinue:
        chat = Talking(retinue)
        await chat.type("hi")
        exporting = asyncio.create_task(chat.talk.typed("/export x.html"))
        turns = 0
        while not exporting.done():
            turns += 1
            await asyncio.sleep(0)
        assert (project / "x.html").exists()
        assert turns > 50
