"""Conversations at the front door: one run that is spoken to turn by turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from retinue import AgentSpec, ConfigError, Image, Retinue, RunError, ToolContext, tool
from retinue.engine.workbooks import kept_workbooks
from retinue.events import MessageReceived, RunFinished, Streamed
from retinue.models.pictures import pictures
from retinue.testing import ScriptedModel, call
from retinue.types import AssistantMessage, Report, ToolMessage, UserMessage

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
TALKER = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())


class Booking(BaseModel):
    room: int


def here(tmp_path: Path, model: Any, **more: Any) -> Retinue[None]:
    return Retinue(
        model=model,
        db=f"sqlite:///{tmp_path}/chat.db",
        cwd=tmp_path,
        agents=[TALKER, *more.pop("agents", ())],
        **more,
    )


async def test_each_turn_knows_what_was_said_before(tmp_path: Path) -> None:
    model = ScriptedModel(["Hello Ada.", "You are Ada."])
    async with here(tmp_path, model) as retinue:
        chat = retinue.conversation("talker")
        assert (await chat.send("I am Ada.")).text == "Hello Ada."
        report = await chat.send("Who am I?")
        assert (report.text, report.run_id) == ("You are Ada.", chat.run_id)
        assert await chat.messages() == (
            UserMessage(text="I am Ada."),
            AssistantMessage(text="Hello Ada."),
            UserMessage(text="Who am I?"),
            AssistantMessage(text="You are Ada."),
        )
    assert [m.text for m in model.requests[1].messages] == ["I am Ada.", "Hello Ada.", "Who am I?"]


async def test_it_goes_on_after_a_restart_by_its_id(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel(["one"])) as retinue:
        chat = retinue.conversation("talker", metadata={"tenant": "acme"})
        await chat.send("first")
    async with here(tmp_path, ScriptedModel(["two"])) as retinue:
        again = retinue.conversation(run_id=chat.run_id)
        assert (await again.send("second")).text == "two"
        assert [m.text for m in await again.messages()] == ["first", "one", "second", "two"]
        (row,) = await retinue.runs()
        assert row.run_id == chat.run_id


async def test_an_id_that_no_run_has_says_so(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel([])) as retinue:
        with pytest.raises(RunError, match="name an agent"):
            await retinue.conversation(run_id="r0nobody").send("hello")


async def test_a_type_is_asked_for_in_one_turn_and_not_in_the_next(tmp_path: Path) -> None:
    model = ScriptedModel(['{"room": 7}', "With a view.", "room eight", '{"room": 8}', "Bye."])
    async with here(tmp_path, model) as retinue:
        chat = retinue.conversation("talker")
        booked: Report[Booking] = await chat.send("Book one.", output=Booking)
        assert (booked.output.room, booked.format) == (7, "json")
        plain = await chat.send("Is it nice?")
        assert (plain.text, plain.data, plain.format) == ("With a view.", None, "markdown")
        assert (await chat.send("Another.", output=Booking)).output.room == 8
        assert (await chat.send("Thanks.")).text == "Bye."


async def test_a_type_that_was_asked_for_holds_after_a_restart_within_the_turn(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel(["one"])) as retinue:
        chat = retinue.conversation("talker")
        await chat.send("first")
    async with here(tmp_path, ScriptedModel(['{"room": "none"}', '{"room": 3}'])) as retinue:
        assert (await retinue.conversation(run_id=chat.run_id).send("Book.", output=Booking)).output.room == 3
        said = [e for e in await retinue.store.events(chat.run_id) if isinstance(e, MessageReceived)]
    assert said[0].output == Booking.model_json_schema()


@pytest.mark.parametrize("given", ["path", "bytes", "image", "url"])
async def test_a_picture_comes_with_a_later_turn(tmp_path: Path, given: str) -> None:
    (tmp_path / "bee.png").write_bytes(PNG)
    attached: dict[str, Any] = {
        "path": "bee.png",
        "bytes": PNG,
        "image": Image.from_bytes(PNG),
        "url": "https://pictures.example/bee.png",
    }
    model = ScriptedModel(["Hello.", "A bee.", "Still a bee."])
    async with here(tmp_path, model) as retinue:
        chat = retinue.conversation("talker")
        await chat.send("Hi.")
        await chat.send("What is it?", attachments=[attached[given]])
        await chat.send("Sure?")
    (seen,) = pictures(model.requests[2].messages)
    assert seen == (Image(url=attached["url"]) if given == "url" else Image.from_bytes(PNG))


@tool
async def camera(ctx: ToolContext) -> list[Image | str]:
    """Take a picture."""
    return ["the garden", Image.from_bytes(PNG)]


async def test_a_picture_that_a_program_s_tool_returns_reaches_the_model_and_the_messages(
    tmp_path: Path,
) -> None:
    gardener = AgentSpec(name="gardener", description="looks", prompt="You look.", tools=[camera])
    model = ScriptedModel([call("camera"), "Bees.", "As I said."])
    async with here(tmp_path, model, agents=[gardener]) as retinue:
        chat = retinue.conversation(gardener)
        await chat.send("What is out there?")
        await chat.send("And now?")
        result = (await chat.messages())[2]
    assert isinstance(result, ToolMessage)
    assert (result.text, result.images) == ("the garden\n\n[1 picture]", (Image.from_bytes(PNG),))
    assert pictures(model.requests[2].messages) == [Image.from_bytes(PNG)]


async def test_sends_at_once_are_turns_one_after_the_other(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: f"to {request.messages[-1].text}")
    async with here(tmp_path, model) as retinue:
        chat = retinue.conversation("talker")
        other = retinue.conversation(run_id=chat.run_id)
        sends = [chat.send("a"), other.send("b"), chat.send("c")]
        reports = await asyncio.gather(*sends)
        assert [report.text for report in reports] == ["to a", "to b", "to c"]
        assert [m.text for m in await chat.messages()] == ["a", "to a", "b", "to b", "c", "to c"]


async def test_a_second_process_is_refused_while_a_turn_is_under_way_and_its_sheet_is_not_kept(
    tmp_path: Path,
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Take a while."""
        asked.set()
        await go_on.wait()
        return "done"

    waiter = AgentSpec(name="waiter", description="waits", prompt="You wait.", tools=[slow])
    async with (
        here(tmp_path, ScriptedModel([call("slow"), "Done."]), agents=[waiter]) as one,
        here(tmp_path, ScriptedModel([])) as two,
    ):
        chat = one.conversation(waiter)
        sending = asyncio.ensure_future(chat.send("go"))
        await asked.wait()
        for attached in ([], [table(tmp_path, "late.csv", 9)]):
            with pytest.raises(RunError):
                await two.conversation(run_id=chat.run_id).send("me too", attachments=attached)
        go_on.set()
        assert (await sending).text == "Done."
        assert await kept_workbooks(one.store, chat.run_id) == []


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_cancelled_send_leaves_the_conversation_usable(tmp_path: Path, turn: int) -> None:
    asked = asyncio.Event()

    @tool
    async def hang() -> str:
        """Never ends, at first."""
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return "once more"  # what has no result is done again where that does no harm

    waiter = AgentSpec(name="waiter", description="waits", prompt="You wait.", tools=[hang])
    first = ["Hello."] if turn == 2 else []
    async with here(
        tmp_path, ScriptedModel([*first, call("hang"), "I am here."]), agents=[waiter]
    ) as retinue:
        chat = retinue.conversation(waiter)
        if turn == 2:
            await chat.send("Hi.")
        sending = asyncio.ensure_future(chat.send("hang on"))
        await asked.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        (row,) = await retinue.runs()
        assert row.status == "cancelled"
        report = await chat.send("Are you there?")
        assert (report.text, report.outcome) == ("I am here.", "completed")


async def test_a_send_that_is_cancelled_before_anything_is_logged_leaves_it_unbegun(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel(["Hello."])) as retinue:
        chat = retinue.conversation("talker")
        sending = asyncio.ensure_future(chat.send("Hi."))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await chat.send("Hi again.")).text == "Hello."


async def test_a_turn_is_streamed_to_its_end(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel(["one", "two"])) as retinue:
        chat = retinue.conversation("talker")
        for expected in ("one", "two"):
            events = [event async for event in chat.stream("go")]
            assert "".join(e.text for e in events if isinstance(e, Streamed)) == expected
            assert isinstance(events[-1], RunFinished)
            assert events[-1].report.text == expected


async def test_a_history_from_elsewhere_is_what_was_said_before(tmp_path: Path) -> None:
    before = [UserMessage(text="I am Ada."), AssistantMessage(text="Hello Ada.")]
    model = ScriptedModel(["You are Ada.", "Yes."])
    async with here(tmp_path, model) as retinue:
        chat = retinue.conversation("talker", history=before)
        await chat.send("Who am I?")
        await chat.send("Sure?")
        assert (await chat.messages())[:2] == tuple(before)
        replayed = await retinue.replay(chat.run_id)
        assert not replayed.diff
    assert [m.text for m in model.requests[0].messages] == ["I am Ada.", "Hello Ada.", "Who am I?"]
    assert len(model.requests[1].messages) == 5


async def test_a_conversation_with_pictures_and_types_replays_the_same(tmp_path: Path) -> None:
    model = ScriptedModel(["Hello.", '{"room": 1}'])
    async with here(tmp_path, model) as retinue:
        chat = retinue.conversation("talker")
        await chat.send("Hi.", attachments=[PNG])
        await chat.send("Book.", output=Booking, attachments=[PNG])
        replayed = await retinue.replay(chat.run_id)
    assert not replayed.diff


async def test_an_attachment_without_a_message_is_refused(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel(["Hello."])) as retinue:
        chat = retinue.conversation("talker")
        await chat.send("Hi.")
        with pytest.raises(ConfigError, match="go with a message"):
            await retinue.resume(chat.run_id, attachments=[PNG])


async def test_an_instance_is_opened_and_closed_by_hand_too(tmp_path: Path) -> None:
    retinue = here(tmp_path, ScriptedModel(["Hello.", "Again."]))
    assert await retinue.open() is retinue
    chat = retinue.conversation("talker")
    await chat.send("Hi.")
    await retinue.aclose()
    await retinue.aclose()
    async with retinue:
        assert (await chat.send("Once more.")).text == "Again."


SHEETS = AgentSpec(name="clerk", description="reads", prompt="You read.", tools=["sheet_read"])


def table(folder: Path, name: str, price: int) -> str:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(f"fruit,price\napple,{price}\n")
    return name


async def test_a_newer_sheet_of_the_same_name_is_the_one_that_is_read(tmp_path: Path) -> None:
    read = [call("sheet_read", cells="A1:B2"), call("sheet_read", cells="A1:B2", workbook="prices.csv")]
    model = ScriptedModel(["Thanks.", *read, "Done.", *read, "Done.", *read, "Done."])
    async with here(tmp_path, model, agents=[SHEETS]) as retinue:
        chat = retinue.conversation("clerk")
        await chat.send("Here.", attachments=[table(tmp_path, "old/prices.csv", 111)])
        first = len(await retinue.store.events(chat.run_id))
        await chat.send("A newer one.", attachments=[table(tmp_path, "new/prices.csv", 222)])
        await chat.send("Again?")  # from the store
        found = [each.text for each in await chat.messages() if isinstance(each, ToolMessage)]
        assert ["222" in text and "111" not in text for text in found] == [True] * 4
        last = (await retinue.store.events(chat.run_id))[first - 1].seq
        fork = await retinue.fork(chat.run_id, at=last, message="What was in it at first?")
        await retinue.wait(fork)
        before = retinue.conversation(run_id=fork)
        found = [each.text for each in await before.messages() if isinstance(each, ToolMessage)]
        assert ["111" in text and "222" not in text for text in found] == [True] * 2
