"""What guards are shown at the front door: all that a model reads of a question, and lists show nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Guarded, Mend, Retinue, Stop
from retinue.errors import RetinueError
from retinue.events import LiveEvent, encode
from retinue.testing import ScriptedModel
from retinue.types import AssistantMessage, Image, UserMessage

SECRET = "4111-1111"
TALKER = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())


async def mends(given: Guarded[Any]) -> Mend | None:
    return Mend(given.text.replace(SECRET, "[card]"), hide=True) if SECRET in given.text else None


async def stops(given: Guarded[Any]) -> Stop | None:
    return Stop("a card", hide=True) if SECRET in given.text else None


def here(tmp_path: Path, model: Any, **more: Any) -> Retinue[None]:
    return Retinue(model=model, db=f"sqlite:///{tmp_path}/g.db", cwd=tmp_path, agents=[TALKER], **more)


async def everything(retinue: Retinue[None], run_id: str) -> str:
    log = await retinue.store.events(run_id)
    return b"".join(map(encode, log)).decode() + repr(await retinue.store.run(run_id))


@pytest.mark.parametrize("turn", ["first", "second"])
@pytest.mark.parametrize("guard", [mends, stops])
async def test_an_attachment_is_shown_to_guards(tmp_path: Path, guard: Any, turn: str) -> None:
    (tmp_path / "bill.txt").write_text(f"card {SECRET}")
    model = ScriptedModel(lambda request: "ok")
    async with here(tmp_path, model, input_guards=[guard]) as retinue:
        chat = retinue.conversation("talker")
        if turn == "second":
            await chat.send("Hello")
        report = await chat.send("What is in it?", attachments=["bill.txt"])
        assert report.ended_by == ("answer" if guard is mends else "guard")
        assert SECRET not in await everything(retinue, chat.run_id)
    read = [message.text for request in model.requests for message in request.messages]
    assert not [text for text in read if SECRET in text]
    assert bool([text for text in read if "card [card]" in text]) is (guard is mends)


@pytest.mark.parametrize("guard", [mends, stops])
async def test_what_was_said_before_elsewhere_is_shown_to_guards(tmp_path: Path, guard: Any) -> None:
    model = ScriptedModel(lambda request: "ok")
    before = (UserMessage(text=f"card {SECRET}"), AssistantMessage(text=f"so {SECRET}"))
    async with here(tmp_path, model, input_guards=[guard]) as retinue:
        chat = retinue.conversation("talker", history=before)
        report = await chat.send("Hi")
        assert report.ended_by == ("answer" if guard is mends else "guard")
        assert SECRET not in await everything(retinue, chat.run_id)
        assert not (await retinue.replay(chat.run_id)).diff
    if guard is mends:
        assert [message.text for message in model.requests[0].messages] == ["card [card]", "so [card]", "Hi"]
    else:
        assert model.requests == []


async def test_an_input_of_a_batch_that_a_guard_hides_is_no_label(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel(lambda request: "ok"), input_guards=[mends]) as retinue:
        async for item in retinue.map("talker", [f"card {SECRET}"]):
            assert item.ok
            assert SECRET not in await everything(retinue, item.run_id)


async def test_an_observer_that_returns_a_coroutine_or_cancels_itself_goes_on_hearing(tmp_path: Path) -> None:
    heard: dict[str, list[str]] = {"returns": [], "cancels": []}

    async def note(name: str, event: LiveEvent) -> None:
        heard[name].append(type(event).__name__)
        if len(heard["cancels"]) == 1 and name == "cancels":
            raise asyncio.CancelledError

    observers: Any = [lambda event: note("returns", event), lambda event: note("cancels", event)]
    async with here(tmp_path, ScriptedModel(["Hi."]), observers=observers) as retinue:
        await retinue.run("talker", "Hello")
    assert heard["returns"] == heard["cancels"]
    assert heard["cancels"][-1] == "RunFinished"


async def test_a_picture_of_a_history_that_no_model_could_be_shown_is_refused_at_once(tmp_path: Path) -> None:
    broken = Image(media_type="image/bmp", data="!!")
    before = (UserMessage(text="look", images=(broken,)), AssistantMessage(text="yes"))
    async with here(tmp_path, ScriptedModel([])) as retinue:
        with pytest.raises((TypeError, ValueError, RetinueError)):
            retinue.conversation("talker", history=before)
