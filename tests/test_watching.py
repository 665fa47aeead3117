"""Waiting for runs and watching them: up to the last word of a conversation, from wherever one looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.engine.listeners import Listeners
from retinue.errors import RunError, StoreError
from retinue.events import AnyEvent, LiveEvent, RunFinished
from retinue.store.base import RunFilter, RunRow, RunRows, Taken, Totals, TotalsBy
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, Step, call
from test_running import BOSS, FillingDisk
from trees import agent


def opened(model: ScriptedModel, folder: Path, **options: Any) -> Retinue:
    options.setdefault("db", str(folder / "runs.db"))
    return Retinue(model=model, cwd=folder, environ={}, **options)


async def _answers(retinue: Retinue, run_id: str, after: int = 0) -> list[str]:
    async with asyncio.timeout(30):
        return [e.report.text async for e in retinue.watch(run_id, after=after) if isinstance(e, RunFinished)]


async def test_a_conversation_is_watched_to_its_last_answer_and_not_to_its_first(tmp_path: Path) -> None:
    model = ScriptedModel(["first", "second", "third"])
    async with opened(model, tmp_path) as retinue:
        root = (await retinue.run(BOSS, "one")).run_id
        for message, answer in (("two", "second"), ("three", "third")):
            await retinue.resume(root, message=message)
            assert (await retinue.wait(root)).text == answer
        assert await _answers(retinue, root) == ["first", "second", "third"]
    async with opened(model, tmp_path) as another:
        assert (await another.wait(root)).text == "third"
        assert await _answers(another, root) == ["first", "second", "third"]


async def test_who_waits_elsewhere_while_the_next_turn_goes_on_gets_its_answer(tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(["first", Step(text="second", gate=gate)])
    async with opened(model, tmp_path) as here, opened(model, tmp_path) as there:
        root = (await here.run(BOSS, "one")).run_id
        await here.resume(root, message="two")
        heard: list[LiveEvent] = []

        async def watch() -> None:
            async for event in there.watch(root):
                heard.append(event)
                if isinstance(event, RunFinished):
                    gate.set()  # it has been past the first end, and is still there

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            waiting = group.create_task(there.wait(root))
            group.create_task(watch())
        assert waiting.result().text == "second"
        assert [e.report.text for e in heard if isinstance(e, RunFinished)] == ["first", "second"]


async def test_what_another_process_answered_since_is_what_who_waits_gets(tmp_path: Path) -> None:
    model = ScriptedModel(["first", "second"])
    async with opened(model, tmp_path) as here, opened(model, tmp_path) as there:
        root = (await here.run(BOSS, "one")).run_id
        await there.resume(root, message="two")
        await there.wait(root)
        assert (await asyncio.wait_for(here.wait(root), 60)).text == "second"


async def test_who_has_seen_a_run_to_its_end_has_nothing_to_wait_for(tmp_path: Path) -> None:
    async with opened(ScriptedModel(["first"]), tmp_path) as retinue:
        root = (await retinue.run(BOSS, "one")).run_id
        assert await _answers(retinue, root, after=await retinue.store.count(root)) == []


async def test_a_run_that_is_taken_up_here_is_watched_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with opened(ScriptedModel([Step(text="never", gate=gate)]), tmp_path) as first:
        root = await first.start(BOSS, "one")
        await first.leave()
        async with opened(ScriptedModel(["done"]), tmp_path) as second:
            watching = asyncio.create_task(_answers(second, root))
            await asyncio.sleep(0)
            await second.resume(root)
            assert await watching == ["done"]


async def test_who_comes_to_a_run_that_died_without_an_end_is_told_what_there_is(tmp_path: Path) -> None:
    store = FillingDisk()

    def fill(request: object) -> str:
        store.full = True
        return "lost"

    async with opened(ScriptedModel(fill), tmp_path, db=store) as retinue:
        root = await retinue.start(BOSS, "one")
        with pytest.raises(StoreError, match="the disk is full"):
            await retinue.wait(root)
        assert await _answers(retinue, root) == []
        with pytest.raises((RunError, StoreError)):
            await asyncio.wait_for(retinue.wait(root), 60)


async def test_a_child_that_is_waited_for_by_itself_gives_its_own_report(tmp_path: Path) -> None:
    model = ScriptedModel({"PLAY boss": [call("clerk", prompt="p"), "all done"], "PLAY clerk": ["filed"]})
    async with opened(model, tmp_path, agents=[agent("clerk")]) as retinue:
        root = (await retinue.run(BOSS, "one")).run_id
        [child] = [row.run_id for row in await retinue.store.tree(root) if row.parent_id]
        assert (await asyncio.wait_for(retinue.wait(child), 60)).text == "filed"


# -- what nobody works on, and what only looks so


class Meanwhile(FillingDisk):
    """A store in which something happens in the middle of a look: after one question, or before its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.then: dict[str, Callable[[], Awaitable[object]]] = {}

    async def _happen(self, what: str) -> None:
        if (then := self.then.pop(what, None)) is not None:
            await then()

    async def runs(self, which: RunFilter) -> list[RunRow]:
        await self._happen("before runs")
        found = await super().runs(which)
        await self._happen("runs")
        return found

    async def run(self, run_id: str) -> RunRow | None:
        found = await super().run(run_id)
        await self._happen("run")
        return found

    async def totals(self, by: TotalsBy, **which: Any) -> list[Totals]:
        await self._happen("before totals")
        return await super().totals(by, **which)

    async def taken(self, root_id: str) -> Taken | None:
        found = await super().taken(root_id)
        await self._happen("taken")
        return found

    async def events(self, root_id: str, **which: Any) -> list[AnyEvent]:
        await self._happen("events")
        return await super().events(root_id, **which)


async def test_a_run_that_is_being_started_or_taken_up_is_not_listed_as_interrupted(tmp_path: Path) -> None:
    async with opened(ScriptedModel(lambda _: "done"), tmp_path, db=MemoryStore()) as retinue:
        looks: list[asyncio.Task[RunRows]] = []

        def look(event: LiveEvent) -> None:
            looks.append(asyncio.create_task(retinue.runs()))

        retinue.hear(look)
        root = (await retinue.run(BOSS, "one")).run_id
        await retinue.resume(root, message="two")
        await retinue.wait(root)
        seen = {row.outcome for rows in await asyncio.gather(*looks) for row in rows}
        assert seen == {"running", "completed"}


async def test_a_run_that_ends_while_it_is_looked_at_is_not_interrupted(tmp_path: Path) -> None:
    store, gate = Meanwhile(), asyncio.Event()
    async with opened(ScriptedModel([Step(text="done", gate=gate)]), tmp_path, db=store) as retinue:
        root = await retinue.start(BOSS, "one")

        async def end() -> None:
            gate.set()
            await retinue.wait(root)

        store.then["runs"] = end
        assert [row.outcome for row in await retinue.runs()] == ["running"], "as it was when it was read"
        assert [row.outcome for row in await retinue.runs()] == ["completed"]


async def test_a_run_that_begins_while_one_looks_for_interrupted_ones_is_none_of_them(tmp_path: Path) -> None:
    store = Meanwhile()
    gates = [asyncio.Event() for _ in range(3)]
    model = ScriptedModel([Step(text="done", gate=gate) for gate in gates])
    async with opened(model, tmp_path, db=store) as retinue:

        async def begin() -> None:
            await retinue.start(BOSS, "one")

        await begin()
        store.then["before runs"] = begin
        assert await retinue.runs(RunFilter(outcome="interrupted")) == []
        store.then["before totals"] = begin
        totals = {each.key: each.runs for each in await retinue.shown.totals("outcome")}
        assert totals == {"running": 3}


async def _dropped(retinue: Retinue, store: FillingDisk) -> str:
    root = await retinue.start(BOSS, "one")
    with pytest.raises(StoreError, match="the disk is full"):
        await retinue.wait(root)
    store.full = False
    assert await retinue.abandoned(root)
    return root


def _filling(store: FillingDisk) -> Callable[[object], Step]:
    """The first answer is lost, and the next never comes."""
    asked: list[object] = []

    def answer(request: object) -> Step:
        asked.append(request)
        store.full = len(asked) == 1
        return Step(text="lost", gate=asyncio.Event() if len(asked) > 1 else None)

    return answer


async def test_a_cancel_does_not_end_what_is_being_taken_up_here(tmp_path: Path) -> None:
    store = Meanwhile()
    async with opened(ScriptedModel(_filling(store)), tmp_path, db=store) as retinue:
        root = await _dropped(retinue, store)

        async def cancel() -> None:
            assert not await retinue.abandoned(root)
            assert await retinue.cancel(root, "enough")

        store.then["events"] = cancel  # in the middle of being taken up, before its log says so
        await retinue.resume(root)
        report = await asyncio.wait_for(retinue.wait(root), 30)
        assert (report.status, report.error) == ("cancelled", "enough")
        ends = [event for event in await store.events(root) if isinstance(event, RunFinished)]
        assert len(ends) == 1


async def test_what_is_being_ended_is_not_taken_up_meanwhile(tmp_path: Path) -> None:
    store = Meanwhile()
    async with opened(ScriptedModel(_filling(store)), tmp_path, db=store) as retinue:
        root = await _dropped(retinue, store)
        refused: list[str] = []

        async def take_up() -> None:
            try:
                await retinue.resume(root)
            except RunError as error:
                refused.append(str(error))

        store.then["taken"] = take_up
        assert await retinue.cancel(root, "enough")
        assert refused == [
            f"{root} is already running here: message(run_id, …) tells it something, cancel(run_id) stops it"
        ]
        assert (await asyncio.wait_for(retinue.wait(root), 30)).status == "cancelled"


async def test_a_cancel_does_not_end_what_another_process_has_just_taken_up(tmp_path: Path) -> None:
    store = Meanwhile()
    model = ScriptedModel(_filling(store))
    async with opened(model, tmp_path, db=store) as here, opened(model, tmp_path, db=store) as there:
        root = await _dropped(here, store)

        async def take_up() -> None:
            await there.resume(root, take_over=True)

        store.then["taken"] = take_up
        assert await here.cancel(root, "enough")
        report = await asyncio.wait_for(there.wait(root), 30)
        assert (report.status, report.error) == ("cancelled", "enough")


def test_nothing_is_kept_of_a_workflow_that_nobody_listens_to_any_more() -> None:
    listeners = Listeners()
    first, second = listeners.listen("r1"), listeners.listen("r1")
    listeners.leave("r1", first)
    assert listeners.followed == {"r1"}
    listeners.leave("r1", second)
    assert listeners.followed == set()
