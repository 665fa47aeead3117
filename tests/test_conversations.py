"""A program that stays: children outlive an answer there, and lists, forks, replays and restarts agree on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from retinue.app import Retinue
from retinue.errors import RunError
from retinue.events import ChildEnded, MessageReceived, RunFinished
from retinue.store.base import RunFilter, Signal
from retinue.store.memory import MemoryStore
from retinue.types import Report
from trees import Cast, agent, told, turn


class Booking(BaseModel):
    room: int


START = ("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})
ROOT = agent("root", tools=("w", "background"))


class Talk:
    """A conversation whose child ends when it is told to."""

    def __init__(self, **given: Any) -> None:
        self.store, self.go, self.begun = MemoryStore(), asyncio.Event(), asyncio.Event()
        self.model = Cast({"root": self._root, "w": self._worker})
        self.given: dict[str, Any] = {"conversations": True, **given}

    def open(self, **given: Any) -> Retinue:
        return Retinue(
            model=self.model,
            db=self.store,
            project=False,
            agents=[agent("w", tools=())],
            environ={},
            **{"settings": {"delegation.tools": ["background"]}, **self.given, **given},
        )

    def _root(self, request: Any) -> Any:
        if turn(request) == 0:
            return [START]
        return f"answer {turn(request)}: {told(request)[-1].splitlines()[0]}"

    async def _worker(self, request: Any) -> Any:
        self.begun.set()
        await self.go.wait()
        return "found"

    async def ends(self, run_id: str) -> list[RunFinished]:
        events = await self.store.events(run_id, run_id=run_id)
        return [e for e in events if isinstance(e, RunFinished)]


async def to_its_end(retinue: Retinue, run_id: str) -> None:
    async for _ in retinue.watch(run_id):
        pass


async def nth_answer(retinue: Retinue, run_id: str, n: int) -> Report:
    async with contextlib.aclosing(retinue.watch(run_id)) as events:
        async for event in events:
            n -= isinstance(event, RunFinished) and event.run_id == run_id
            if n == 0 and isinstance(event, RunFinished):
                return event.report
    raise AssertionError("it has not given so many answers")


async def test_a_program_that_stays_has_the_answer_first_and_lists_show_the_run_as_running() -> None:
    talk = Talk()
    async with asyncio.timeout(20), talk.open() as retinue:
        first = await retinue.run(ROOT, "go")
        await talk.begun.wait()
        assert (first.text, first.at_work) == ("answer 1: go", 1)
        assert await retinue.wait(first.run_id) == first, "whoever asks later has it as well"
        rows = {row.agent: row.outcome for row in await retinue.runs()}
        assert rows == {"root": "running", "w": "running"}
        totals = {each.key: each.runs for each in await retinue.shown.totals("outcome")}
        assert totals == {"running": 2}
        assert not await retinue.runs(RunFilter(outcome="completed"))
        talk.go.set()
        await to_its_end(retinue, first.run_id)
        last = await retinue.wait(first.run_id)
        assert last.text.startswith("answer 2: [The background agent w")
        assert {row.agent: row.outcome for row in await retinue.runs()} == dict.fromkeys(
            ("root", "w"), "completed"
        )


@pytest.mark.parametrize(
    "given",
    [
        {"conversations": None},
        {"conversations": False, "settings": {"delegation.parent_ends": "leave"}},
        {"conversations": True, "settings": {"delegation.parent_ends": "wait"}},
    ],
)
async def test_elsewhere_or_where_it_is_so_set_an_answer_waits_for_its_children(
    given: dict[str, Any],
) -> None:
    settings = {"delegation.tools": ["background"], **given.pop("settings", {})}
    talk = Talk(**given, settings=settings)
    async with asyncio.timeout(20), talk.open() as retinue:
        running = asyncio.ensure_future(retinue.run(ROOT, "go"))
        await talk.begun.wait()
        talk.go.set()
        report = await running
    assert report.at_work == 0
    assert "[The background agent w" in report.text
    assert len(await talk.ends(report.run_id)) == 1


async def test_a_stream_ends_with_the_answer_and_leaves_the_children_at_work() -> None:
    talk = Talk()
    async with asyncio.timeout(20), talk.open() as retinue:
        last: Any = None
        async for event in retinue.stream(ROOT, "go"):
            last = event
        assert isinstance(last, RunFinished)
        assert last.report.at_work == 1
        await talk.begun.wait()
        assert retinue.is_running(last.run_id)
        talk.go.set()
        await to_its_end(retinue, last.run_id)
    assert [e.report.status for e in await talk.ends(last.run_id)] == ["completed", "completed"]


@pytest.mark.parametrize("how", ["message", "resume"])
async def test_whoever_speaks_while_a_child_works_is_answered_in_a_turn_of_its_own(how: str) -> None:
    talk = Talk()
    async with asyncio.timeout(20), talk.open() as retinue:
        first = await retinue.run(ROOT, "go")
        await talk.begun.wait()
        if how == "message":
            assert await retinue.message(first.run_id, "and now?")
        else:
            assert await retinue.resume(first.run_id, message="and now?") == first.run_id
        second = await nth_answer(retinue, first.run_id, 2)
        assert (second.text, second.at_work) == ("answer 2: and now?", 1)
        with pytest.raises(RunError, match=r"children of it are at work.*or after cancel\(run_id\)"):
            await retinue.resume(first.run_id, message="with another", model="offline")
        talk.go.set()
        await to_its_end(retinue, first.run_id)
    said = [e for e in await talk.store.events(first.run_id) if isinstance(e, MessageReceived)]
    assert [e.next_turn for e in said] == [True]
    assert [e.report.at_work for e in await talk.ends(first.run_id)] == [1, 1, 0]


class EndsMeanwhile(MemoryStore):
    """A store in which a workflow comes to its end while somebody's word to it is being written."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def send(self, signal: Signal) -> bool:
        if self.meanwhile is not None:
            await self.meanwhile()
        return await super().send(signal)


async def test_what_is_said_to_a_workflow_that_ends_just_then_is_answered() -> None:
    talk = Talk()
    talk.store = store = EndsMeanwhile()
    async with asyncio.timeout(20), talk.open() as retinue:
        first = await retinue.run(ROOT, "go")
        await talk.begun.wait()

        async def ends() -> None:
            store.meanwhile = None
            talk.go.set()
            await to_its_end(retinue, first.run_id)

        store.meanwhile = ends
        await retinue.resume(first.run_id, message="and now?")
        assert (await retinue.wait(first.run_id)).text == "answer 3: and now?"
    said = [e.text for e in await store.events(first.run_id) if isinstance(e, MessageReceived)]
    assert said == ["and now?"], "once"


async def test_another_process_does_not_take_up_what_has_answered_and_is_at_work() -> None:
    talk = Talk()
    async with asyncio.timeout(20), talk.open() as retinue:
        first = await retinue.run(ROOT, "go")
        await talk.begun.wait()
        async with talk.open() as other:
            with pytest.raises(RunError, match="still running in process"):
                await other.resume(first.run_id, message="mine")
            assert await other.wait(first.run_id) == first
        talk.go.set()
        await to_its_end(retinue, first.run_id)


async def test_who_leaves_the_program_stops_the_children_it_left_at_work() -> None:
    talk = Talk()
    async with asyncio.timeout(20), talk.open() as retinue:
        first = await retinue.run(ROOT, "go")
        await talk.begun.wait()
    ends = await talk.ends(first.run_id)
    assert [e.report.status for e in ends] == ["completed", "cancelled"]
    assert ends[1].report.text.startswith("answer 1: go"), "the answer is kept"
    assert {row.status for row in await talk.store.tree(first.run_id)} == {"cancelled"}


async def test_what_a_process_left_is_taken_up_with_its_next_turn_and_nothing_is_paid_twice() -> None:
    talk = Talk()
    async with asyncio.timeout(20):
        async with talk.open() as retinue:
            first = await retinue.run(ROOT, "go")
            await talk.begun.wait()
            await retinue.leave()
        asked = len(talk.model.of("root"))
        talk.go.set()
        async with talk.open() as retinue:
            assert {row.outcome for row in await retinue.runs()} == {"interrupted"}
            assert await retinue.resume_abandoned() == [first.run_id]
            await to_its_end(retinue, first.run_id)
            last = await retinue.wait(first.run_id)
    assert last.text.startswith("answer 2: [The background agent w")
    assert len(talk.model.of("root")) == asked + 1
    assert [e.report.at_work for e in await talk.ends(first.run_id)] == [1, 0]


async def test_a_cancel_while_nobody_works_on_it_ends_the_children_that_were_left() -> None:
    talk = Talk()
    async with asyncio.timeout(20):
        async with talk.open() as retinue:
            first = await retinue.run(ROOT, "go")
            await talk.begun.wait()
            await retinue.leave()
        async with talk.open() as retinue:
            assert await retinue.cancel(first.run_id, "enough")
            assert {row.outcome for row in await retinue.runs()} == {"cancelled"}
            report = await retinue.wait(first.run_id)
    assert report.text.startswith("answer 1: go")


@pytest.mark.parametrize("speaks", [False, True])
async def test_a_conversation_whose_children_opened_turns_replays_the_same(speaks: bool) -> None:
    talk = Talk()
    async with asyncio.timeout(20), talk.open() as retinue:
        first = await retinue.run(ROOT, "go")
        await talk.begun.wait()
        if speaks:
            await retinue.message(first.run_id, "and now?")
            await nth_answer(retinue, first.run_id, 2)
        talk.go.set()
        await to_its_end(retinue, first.run_id)
    async with asyncio.timeout(20), talk.open(conversations=None) as elsewhere:
        replayed = await elsewhere.replay(first.run_id)
    assert replayed.diff == ""
    assert len([e for e in replayed.events if isinstance(e, RunFinished) and e.depth == 0]) == 2 + speaks


async def test_a_fork_of_a_conversation_with_a_child_at_work_has_the_child_go_on_in_it() -> None:
    talk = Talk()
    async with asyncio.timeout(20), talk.open() as retinue:
        first = await retinue.run(ROOT, "go")
        await talk.begun.wait()
        place = (await talk.ends(first.run_id))[0].pos
        talk.go.set()
        await to_its_end(retinue, first.run_id)
        before = len(talk.model.of("root"))
        same = await retinue.fork(first.run_id, at=place)
        await to_its_end(retinue, same)
        assert (await retinue.wait(same)).text.startswith("answer 2: [The background agent w")
        spoken = await retinue.fork(first.run_id, at=place, message="and now?")
        await to_its_end(retinue, spoken)
        assert len(talk.model.of("root")) <= before + 3
    copied = await talk.ends(spoken)
    assert [e.report.at_work for e in copied][:1] == [1]
    said = [e for e in await talk.store.events(spoken) if isinstance(e, MessageReceived)]
    assert [e.next_turn for e in said] == [True]
    told_of = [e for e in await talk.store.events(spoken) if isinstance(e, ChildEnded)]
    assert len(told_of) == 1
    assert (await talk.store.run(spoken)).outcome == "completed"  # pyright: ignore[reportOptionalMemberAccess]


async def test_a_send_while_a_child_works_has_the_answer_of_its_own_turn() -> None:
    talk = Talk()
    async with talk.open() as retinue:
        chat = retinue.conversation(ROOT)
        first = await chat.send("go")
        assert first.at_work == 1
        second = await chat.send("and what else?")
        assert (second.text, second.at_work) == ("answer 2: and what else?", 1)
        streamed = [event async for event in chat.stream("still?")]
        assert isinstance(streamed[-1], RunFinished)
        assert streamed[-1].report.text == "answer 3: still?"
        talk.go.set()


async def test_what_an_answer_has_to_be_does_not_hold_for_the_turn_that_a_child_opens() -> None:
    talk = Talk()

    def root(request: Any) -> Any:
        return [[START], '{"room": 7}', "w has ended: all is well."][turn(request)]

    talk.model = Cast({"root": root, "w": talk._worker})
    async with asyncio.timeout(20), talk.open() as retinue:
        chat = retinue.conversation(ROOT)
        first = await chat.send("go", output=Booking)
        talk.go.set()
        await to_its_end(retinue, chat.run_id)
    assert first.data == {"room": 7}
    last = (await talk.ends(chat.run_id))[-1].report
    assert (last.text, last.outcome) == ("w has ended: all is well.", "completed")
    assert len(talk.model.of("root")) == 3


async def test_a_turn_with_the_model_that_is_at_work_already_is_told_to_it() -> None:
    talk = Talk()
    async with talk.open() as retinue:
        chat = retinue.conversation(ROOT, model=talk.model)
        assert (await chat.send("go")).at_work == 1
        assert (await chat.send("and?")).text == "answer 2: and?"
        talk.go.set()
