"""A tree that is taken up again: who goes on, who is told, what was used, and what a cancel means by then."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults import Lock
from retinue.app import Retinue
from retinue.engine.elapsed import seconds_used
from retinue.errors import ModelError, StoreError
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    ChildEnded,
    ChildStarted,
    Event,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
)
from retinue.store import outage
from retinue.store.base import Signal, Store
from retinue.store.connect import connect
from retinue.store.memory import MemoryStore
from retinue.store.outage import Outage, Outages
from retinue.store.sqlite import SqliteStore
from retinue.testing import ScriptedModel
from retinue.types import AssistantMessage, Limits, Report, Usage
from trees import Stage, agent, results, told, turn

START = [("background", {"operation": "start", "agent_id": "worker", "prompt": "p"})]
BACKGROUND: dict[str, Any] = {
    "delegation__tools": ["agents", "background"],
    "delegation__parent_ends": "wait",
}


@pytest.fixture
async def store(durable_url: str) -> AsyncIterator[Store]:
    opened = connect(durable_url)
    await opened.open()
    yield opened
    await opened.close()


async def killed(stage: Stage, store: Store, after: Callable[[AnyEvent], bool]) -> None:
    """What would be in the store if the process had died right after that event."""
    events = await stage.log()
    last = next(i for i, event in enumerate(events) if after(event))
    await store.append([msgspec.structs.replace(event, pos=0) for event in events[: last + 1]])


async def taken_up(stage: Stage, *, message: str | None = None) -> Report:
    return await asyncio.wait_for(await stage.resume(message), 60)


def end_of_the_child(event: AnyEvent) -> bool:
    return isinstance(event, RunFinished) and event.depth == 1


async def forever(request: object) -> str:
    await asyncio.Event().wait()
    return "never"


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.002)


async def test_the_end_of_a_background_child_is_told_though_the_process_died_before_it_could_be(
    store: Store,
) -> None:
    first = Stage(
        {"root": lambda r: START if turn(r) == 0 else "done", "worker": ["WHAT IT FOUND"]},
        agents=[agent("worker")],
        **BACKGROUND,
    )
    await first.run()
    await killed(first, store, end_of_the_child)
    again = Stage(
        {"root": lambda request: "done"},
        agents=[agent("worker")],
        store=store,
        root_id=first.root_id,
        **BACKGROUND,
    )
    report = await taken_up(again)
    assert any("WHAT IT FOUND" in text for text in told(again.model.of("root")[-1]))
    assert [e.status for e in await again.log() if isinstance(e, ChildEnded)] == ["completed"]
    assert report.usage.input_tokens == 10 * (report.turns + 1), "what the child cost is in the report"


async def test_a_background_child_that_was_stopped_with_its_parent_goes_on_with_it() -> None:
    begun = asyncio.Event()

    async def work(request: object) -> str:
        begun.set()
        return await forever(request)

    first = Stage(
        {"root": lambda r: START if turn(r) == 0 else forever(r), "worker": work},
        agents=[agent("worker")],
        **BACKGROUND,
    )
    task = await first.start()
    await asyncio.wait_for(begun.wait(), 60)
    first.workflow.cancel(first.root_id, "later")
    await task
    again = Stage(
        {"root": lambda request: "done", "worker": ["FOUND AFTER ALL"]},
        agents=[agent("worker")],
        store=first.store,
        root_id=first.root_id,
        **BACKGROUND,
    )
    report = await taken_up(again)
    assert report.status == "completed"
    assert any("FOUND AFTER ALL" in text for text in told(again.model.of("root")[-1]))
    assert [row.status for row in await first.store.tree(first.root_id)] == ["completed", "completed"]


async def test_a_summary_that_fails_does_not_keep_the_end_of_a_background_child_from_its_parent() -> None:
    class Broken:
        name = "broken"

        async def stream(self, request: object) -> AsyncIterator[Any]:
            raise ModelError("no money left", kind="rate_limit")
            yield

    stage = Stage(
        {"root": lambda r: START if turn(r) == 0 else "done", "worker": ["long " * 3000]},
        agents=[agent("worker")],
        delegation__summary="model",
        **BACKGROUND,
    )
    stage.config = replace(stage.config, small=lambda model: Broken())
    stage.workflow = type(stage.workflow)(stage.config, stage.root_id)
    report = await asyncio.wait_for(stage.run(), 60)
    assert report.status == "completed"
    assert [e.status for e in await stage.log() if isinstance(e, ChildEnded)] == ["completed"]
    assert any("long long" in text for text in told(stage.model.of("root")[-1]))


async def test_a_child_that_a_person_cancelled_stays_cancelled(store: Store) -> None:
    parts: dict[str, Any] = {"root": [[("worker", {"prompt": "p"})], "done"], "worker": forever}
    first = Stage(parts, agents=[agent("worker")])
    task = await first.start()
    await until(lambda: bool(first.model.of("worker")))
    child = next(run_id for run_id in first.workflow.tree.live if run_id != first.root_id)
    first.workflow.cancel(child, "the wrong folder")
    await asyncio.wait_for(task, 60)
    await killed(first, store, end_of_the_child)
    again = Stage(
        {"root": ["", "done"], "worker": ["I ran again"]},
        agents=[agent("worker")],
        store=store,
        root_id=first.root_id,
    )
    await taken_up(again)
    assert not again.model.of("worker")
    result = results(again.model.of("root")[0])[0]
    assert "the wrong folder" in result.text
    assert "I ran again" not in result.text


async def test_a_child_that_was_stopped_because_its_parents_time_was_up_goes_on_with_it() -> None:
    parts: dict[str, Any] = {"root": [[("worker", {"prompt": "p"})], "done"], "worker": forever}
    first = Stage(parts, agents=[agent("worker")])
    task = await first.start()
    await until(lambda: bool(first.model.of("worker")))
    first.workflow.tree.live[first.root_id].run.clock.expire()
    assert (await asyncio.wait_for(task, 60)).status == "error"
    again = Stage(
        {"root": ["", "done"], "worker": ["found in the end"]},
        agents=[agent("worker")],
        store=first.store,
        root_id=first.root_id,
    )
    assert (await taken_up(again)).text == "done"
    assert "found in the end" in results(again.model.of("root")[0])[0].text


async def test_a_childs_own_limits_count_what_it_used_before_the_restart() -> None:
    agents = [agent("mid", limits=Limits(children=1, turns=6, input_tokens=1000)), agent("leaf")]
    leaf = [("leaf", {"prompt": "p"})]
    first = Stage(
        {
            "root": [[("mid", {"prompt": "p"})], "done"],
            "mid": lambda r: leaf if turn(r) == 0 else forever(r),
            "leaf": ["one"],
        },
        agents=agents,
        delegation__policy="nested",
    )
    task = await first.start()
    await until(lambda: len(first.model.of("mid")) == 2)
    before = _budget(first, "mid")
    first.workflow.cancel(first.root_id, "later")
    await task
    begun, go = asyncio.Event(), asyncio.Event()

    async def mid(request: Any) -> Any:
        if turn(request) == 1:
            begun.set()
            await go.wait()
            return leaf
        return "mid is done"

    again = Stage(
        {"root": ["", "done"], "mid": mid, "leaf": ["two"]},
        agents=agents,
        store=first.store,
        root_id=first.root_id,
        delegation__policy="nested",
    )
    waiting = asyncio.create_task(taken_up(again))
    await asyncio.wait_for(begun.wait(), 60)
    assert _budget(again, "mid") == before, "the call that was never answered is made again, and nothing else"
    root = again.workflow.tree.live[again.root_id].run.budget
    assert root.used["children"] == 2
    assert root.used["turns"] == 4, "its own, two of mid and that of the leaf; the one asked again counts now"
    go.set()
    await waiting
    assert "1 of 1 children already started" in results(again.model.of("mid")[-1])[-1].text
    assert not again.model.of("leaf")


def _budget(stage: Stage, name: str) -> dict[str, float]:
    run = next(live.run for live in stage.workflow.tree.live.values() if live.run.spec.name == name)
    return {**run.budget.used}


async def test_a_cancel_that_comes_while_a_run_is_being_started_or_taken_up_is_obeyed() -> None:
    class Prompt(MemoryStore):
        """A cancel arrives the moment before the signals are read for the first time."""

        after = 0

        async def signals(self, root_id: str, *, after: int = 0) -> list[Signal]:
            self.after -= 1
            if self.after == -1:
                await self.send(
                    Signal(root_id=root_id, run_id=root_id, kind="cancel", key="c1", body="{}", at=0.0)
                )
            return await super().signals(root_id, after=after)

    stage = Stage({"root": ["ran all the same"]}, store=Prompt())
    report = await asyncio.wait_for(stage.run(), 60)
    assert report.status == "cancelled"
    assert not stage.model.requests
    # What it is resumed from is an old story, and does not stop it again.
    again = Stage({"root": ["went on"]}, store=stage.store, root_id=stage.root_id)
    assert (await taken_up(again)).text == "went on"
    # One that comes after the decision to resume is news.
    assert isinstance(stage.store, Prompt)
    stage.store.after = 1
    await stage.store.delete(stage.root_id)
    second = Stage({"root": [ModelError("no", kind="auth")]}, store=Prompt())
    assert isinstance(second.store, Prompt)
    second.store.after = 10
    await second.run()
    second.store.after = 1
    third = Stage({"root": ["ran all the same"]}, store=second.store, root_id=second.root_id)
    assert (await taken_up(third)).status == "cancelled"


async def test_a_signal_that_cannot_be_read_stops_nobody_from_reading_the_next() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def play(request: object) -> str:
        asked.set()
        await go.wait()
        return "done"

    stage = Stage({"root": play})
    task = await stage.start()
    await asked.wait()
    bodies = ["not JSON", "[]", '{"decision": 7}', "{}"]
    for n, (kind, body) in enumerate(zip(("answer", "message", "answer", "cancel"), bodies, strict=True)):
        signal = Signal(
            root_id=stage.root_id,
            run_id=stage.root_id,
            kind=kind,
            key=f"k{n}",
            body=body,
            at=0.0,
        )
        assert await stage.store.send(signal)
    assert (await asyncio.wait_for(task, 60)).status == "cancelled"


def stamped(kind: type[Any], at: float, run_id: str = "r", seq: int = 1, **fields: Any) -> Any:
    parent = None if run_id == "r" else "r"
    return kind(run_id=run_id, root_id="r", parent_id=parent, depth=0, seq=seq, at=at, **fields)


def question(kind: type[Any], at: float, run_id: str, **fields: Any) -> Any:
    return stamped(kind, at, run_id, approval_id=f"{run_id}:c", call_id="c", **fields)


def ask(at: float, run_id: str = "r") -> Any:
    return question(ApprovalRequested, at, run_id, tool="t", arguments="{}", effect="write", risk="high")


def reply_at(at: float, run_id: str = "r") -> Any:
    said = {"message": AssistantMessage(text="x"), "usage": Usage(), "stop": "end", "model": "m"}
    return stamped(ModelReplied, at, run_id, step=1, **said)


BEGIN: list[Event] = [
    stamped(RunStarted, 0.0, spec=agent("root"), prompt="go"),
    stamped(StepStarted, 10.0, step=1, model="m"),
]
LATER = stamped(StepStarted, 320.0, step=2, model="m", used=12.0)
END = stamped(RunFinished, 40.0, report=Report(run_id="r", status="error", text="", agent="root"))
STOPPED = stamped(RunFinished, 20.0, "c", report=Report(run_id="c", status="cancelled", text="", agent="c"))
CHILD = stamped(RunStarted, 12.0, "c", spec=agent("c"), prompt="go")


@pytest.mark.parametrize(
    ("logs", "used"),
    [
        ({"r": [*BEGIN, reply_at(25)]}, 15.0),
        # Down from 25 to 1000.
        ({"r": [*BEGIN, reply_at(25), stamped(RunResumed, 1000), reply_at(1005)]}, 20.0),
        # A person took 5 seconds to answer, and the process died while the next question waited.
        (
            {
                "r": [
                    *BEGIN,
                    ask(15),
                    question(ApprovalAnswered, 20, "r", decision="approve"),
                    reply_at(25),
                    ask(26),
                ]
            },
            11.0,
        ),
        # A child's question stops its parent's clock too; a child's work counts for its parent.
        (
            {
                "r": BEGIN,
                "c": [
                    CHILD,
                    reply_at(14, "c"),
                    ask(15, "c"),
                    question(ApprovalAnswered, 20, "c", decision="approve"),
                    reply_at(30, "c"),
                ],
            },
            15.0,
        ),
        # A child that was stopped while it waited for a person waits no longer.
        ({"r": [*BEGIN, reply_at(30)], "c": [CHILD, ask(15, "c"), STOPPED]}, 15.0),
        # It had ended, and a person has told it to go on: its time begins anew.
        ({"r": [*BEGIN, END, stamped(RunResumed, 100), reply_at(103)]}, 3.0),
        ({"r": [*BEGIN, END]}, 0.0),
        # The database was away from 20 to 318: the run's clock stood still, as its next step says.
        ({"r": [*BEGIN, reply_at(20), LATER, reply_at(325)]}, 17.0),
        ({"r": [*BEGIN, reply_at(20), LATER, stamped(RunResumed, 1000), reply_at(1005)]}, 17.0),
        (
            {"r": [*BEGIN, LATER, stamped(MessageReceived, 330, text="x", sender="person"), reply_at(334)]},
            4.0,
        ),
        ({"r": [*BEGIN, LATER, END, stamped(RunResumed, 400), reply_at(403)]}, 3.0),
    ],
)
def test_the_time_that_an_interrupted_run_has_used_is_in_its_log(
    logs: dict[str, Sequence[AnyEvent]], used: float
) -> None:
    assert seconds_used("r", logs) == used


async def test_a_run_that_was_interrupted_has_only_the_rest_of_its_time() -> None:
    first = Stage({"root": forever}, limits__timeout=3600)
    task = await first.start()
    await until(lambda: bool(first.model.requests))
    await first.workflow.leave()
    await asyncio.wait([task])
    store, root = MemoryStore(), first.root_id
    earlier = [
        msgspec.structs.replace(
            e, pos=0, at=e.at - 5000 if isinstance(e, RunStarted) else e.at - 3590 * e.seq
        )
        for e in await first.log()
    ]
    late = msgspec.structs.replace(earlier[-1], seq=3, at=earlier[-1].at + 3590, used=3590.0)
    await store.append([*earlier, late])
    again = Stage({"root": forever}, store=store, root_id=root, limits__timeout=3600)
    task = await again.resume()
    await until(lambda: bool(again.model.requests))
    clock = again.workflow.tree.live[root].run.clock
    assert clock.left is not None
    assert 0 < clock.left <= 10
    again.workflow.cancel(root, "enough")
    report = await asyncio.wait_for(task, 60)
    assert report.duration_ms >= 3590_000
    # It has ended. Whoever tells it to go on gives it its time anew; the report says what it took in all.
    last = Stage({"root": ["done"]}, store=store, root_id=root, limits__timeout=3600)
    report = await taken_up(last)
    assert report.status == "completed"
    assert report.duration_ms >= 3590_000


async def test_every_child_of_a_tree_that_is_taken_up_counts_at_once() -> None:
    first = Stage(
        {
            "root": [[("mid", {"prompt": "p"})], "done"],
            "mid": lambda r: [("leaf", {"prompt": "p"})] if turn(r) == 0 else forever(r),
            "leaf": ["one"],
        },
        agents=[agent("mid"), agent("leaf")],
        delegation__policy="nested",
    )
    task = await first.start()
    await until(lambda: len(first.model.of("mid")) == 2)
    await first.workflow.leave()
    await asyncio.wait([task])
    again = Stage(
        {"root": forever, "mid": forever, "leaf": forever},
        agents=[agent("mid"), agent("leaf")],
        store=first.store,
        root_id=first.root_id,
        delegation__policy="nested",
    )
    task = await again.resume()
    used = again.workflow.tree.live[again.root_id].run.budget.used
    assert used["children"] == 2, "the grandchild counts before its parent is asked for again"
    assert used["turns"] >= 3
    again.workflow.cancel(again.root_id, "enough")
    await task
    started = [e for e in await again.log() if isinstance(e, ChildStarted)]
    assert len(started) == 2


async def test_a_childs_own_concurrency_limit_holds_for_what_is_taken_up_below_it() -> None:
    running = most = 0
    go = asyncio.Event()

    async def worker(request: object) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await go.wait()
            for _ in range(20):  # whoever else may begin does so now
                await asyncio.sleep(0)
        finally:
            running -= 1
        return "ok"

    def stage(store: Store, root_id: str | None = None) -> Stage:
        return Stage(
            {
                "root": lambda r: [("narrow", {"prompt": "x"})] if turn(r) == 0 else "done",
                "narrow": lambda r: START * 4 if turn(r) == 0 else "done",
                "worker": worker,
            },
            agents=[agent("narrow", limits=Limits(concurrency=1)), agent("worker")],
            store=store,
            root_id=root_id,
            **BACKGROUND,
            delegation__policy="nested",
            delegation__concurrency=8,
        )

    store = MemoryStore()
    first = stage(store)
    await first.start()
    await until(lambda: len([e for e in first.live if isinstance(e, RunStarted)]) == 6 and running == 1)
    await first.workflow.leave()
    go.set()
    assert (await taken_up(stage(store, first.root_id))).text == "done"
    assert most == 1


async def test_the_time_that_a_database_is_away_counts_against_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply in hand is of no use to a run whose time is up when it can be written."""
    monkeypatch.setattr(outage, "_NOTICE_SECONDS", 0.05)
    go, away = asyncio.Event(), asyncio.Event()

    async def work(request: object) -> str:
        await go.wait()
        return "found"

    store = SqliteStore(tmp_path / "log.db", busy_seconds=0.1, hold=None)
    await store.open()
    parts: dict[str, Any] = {"root": [[("worker", {"prompt": "p"})], "done"], "worker": work}
    stage = Stage(parts, agents=[agent("worker", timeout=60)], store=store, limits__timeout=90)
    task = await stage.start()
    await until(lambda: bool(stage.model.of("worker")))
    clocks = [live.run.clock for live in stage.workflow.tree.live.values()]
    with Lock(tmp_path / "log.db"):
        store.on_outage(lambda now: away.set())
        go.set()
        await asyncio.wait_for(away.wait(), 60)
        left = [clock.left for clock in clocks]
        await asyncio.wait([task], timeout=0.2)
        assert len(left) == 2
        assert None not in left
        assert [clock.left for clock in clocks] == left, "they stand still"
    assert (await asyncio.wait_for(task, 60)).status == "completed"
    assert [row.status for row in await store.tree(stage.root_id)] == ["completed", "completed"]
    await store.close()


async def test_a_child_that_begins_while_the_database_is_away_has_all_its_time_afterwards() -> None:
    store = Away()
    parts: dict[str, Any] = {"root": [[("worker", {"prompt": "p"})], "done"], "worker": ["found"]}
    stage = Stage(parts, agents=[agent("worker", timeout=60)], store=store)
    store.gone_at = lambda event: isinstance(event, ChildStarted)
    task = await stage.start()
    await until(lambda: len(stage.workflow.tree.live) == 2)
    clocks = [live.run.clock for live in stage.workflow.tree.live.values()]
    left = [clock.left for clock in clocks]
    await asyncio.wait([task], timeout=0.2)
    assert [clock.left for clock in clocks] == left
    store.back()
    assert (await asyncio.wait_for(task, 60)).status == "completed"


class Away(MemoryStore):
    """Takes nothing more from a certain event on, until it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.gone_at: Callable[[Event], bool] = lambda event: False
        self._outages = Outages()
        self._held: list[tuple[Sequence[Event], asyncio.Future[None]]] = []

    def on_outage(self, hear: Callable[[Outage | None], None]) -> Callable[[], None]:
        return self._outages.hear(hear)

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        if self._outages.now is None and any(map(self.gone_at, events)):
            self._outages.tell(Outage(reason="gone", since=0.0))
        if self._outages.now is None:
            return super().append(events)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((events, future))
        return future

    def back(self) -> None:
        self._outages.tell(None)
        self.gone_at = lambda event: False
        for events, future in self._held:
            super().append(events)
            future.set_result(None)


@pytest.mark.parametrize("ends", ["wait", "leave"])
async def test_a_child_whose_agent_is_gone_ends_with_its_parent(ends: str) -> None:
    """And so does what was below it. Else they would be shown as interrupted for ever."""
    parts: dict[str, Any] = {
        "root": [[("worker", {"prompt": "p"})], "done"],
        "worker": [[("helper", {"prompt": "q"})], "worked"],
        "helper": ["helped"],
    }
    given: dict[str, Any] = {"delegation__parent_ends": ends, "delegation__policy": "nested"}
    before = Stage(parts, agents=[agent("worker"), agent("helper")], **given)
    await before.run()
    after = Stage(parts, root_id=before.root_id, **given)

    def helper_asks(event: AnyEvent) -> bool:
        return isinstance(event, StepStarted) and event.depth == 2

    await killed(before, after.store, helper_asks)
    report = await taken_up(after)
    assert (report.text, report.outcome) == ("done", "completed")
    rows = {row.agent: row.status for row in await after.store.tree(after.root_id)}
    assert rows == {"root": "completed", "worker": "cancelled", "helper": "cancelled"}
    log = await after.log()
    assert [e.agent for e in log if isinstance(e, ChildEnded)] == ["helper", "worker"]
    assert isinstance(log[-1], RunFinished)
    assert (log[-1].run_id, log[-1].report.usage.input_tokens) == (after.root_id, 30), "with what they used"


class CancelsWhoStarts(MemoryStore):
    """Whoever starts a run is cancelled just when its first event is being written."""

    starting: asyncio.Task[Any] | None = None

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        if self.starting is not None:
            asyncio.get_running_loop().call_soon(self.starting.cancel)
            self.starting = None
        return super().append(events)


async def test_a_run_whose_start_is_cancelled_is_taken_up_and_paid_for_by_nobody() -> None:
    store, model = CancelsWhoStarts(), ScriptedModel(["paid for"])
    async with Retinue(model=model, db=store, project=False, environ={}) as retinue:
        store.starting = asyncio.ensure_future(retinue.run(agent("root"), "go"))
        with pytest.raises(asyncio.CancelledError):
            await store.starting
        assert [row.outcome for row in await retinue.runs()] == ["cancelled"]
        assert await retinue.resume_abandoned() == []
    assert model.requests == []


class FailsAtFirst(MemoryStore):
    """Signals cannot be read, the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.subscribed, self.fails = 0, True

    def subscribe(
        self, root_id: str, wake: Callable[[], None], *, signals: bool = False
    ) -> Callable[[], None]:
        leave = super().subscribe(root_id, wake, signals=signals)
        self.subscribed += 1

        def left() -> None:
            self.subscribed -= 1
            leave()

        return left

    async def signals(self, root_id: str, *, after: int = 0) -> list[Signal]:
        if self.fails:
            raise StoreError("the database is away")
        return await super().signals(root_id, after=after)


async def test_an_inbox_that_could_not_be_opened_hears_nothing_any_more() -> None:
    store = FailsAtFirst()
    stage = Stage({"root": ["done"]}, store=store)
    with pytest.raises(StoreError):
        await stage.start()
    assert store.subscribed == 0


async def test_who_gives_up_waiting_for_an_answer_is_forgotten() -> None:
    stage = Stage({"root": ["done"]})
    given_up = stage.workflow.next_answer()
    gone = weakref.ref(given_up)
    given_up.cancel()
    del given_up
    waiting = stage.workflow.next_answer()
    assert gone() is None
    waiting.cancel()


class Slow(MemoryStore):
    """What is written from the second time on waits until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        self.left -= 1
        if self.left != 0:
            return super().append(events)
        self.waits.set()
        return asyncio.ensure_future(self._late(events))

    async def _late(self, events: Sequence[Event]) -> None:
        await self.go.wait()
        await super().append(events)


async def test_a_run_whose_taking_up_is_cancelled_is_worked_on_by_nobody() -> None:
    """Nobody would hold it, and it would be paid for beside whoever takes it up next."""
    store = Slow()
    parts: dict[str, Any] = {
        "root": lambda request: START if turn(request) == 0 else forever(request),
        "worker": forever,
    }
    before = Stage(parts, agents=[agent("worker")], store=store, **BACKGROUND)
    task = await before.start()
    await until(lambda: len(before.model.of("worker")) == 1 and len(before.model.of("root")) == 2)
    before.workflow.cancel(before.root_id, "not now")
    await task
    after = Stage(parts, agents=[agent("worker")], store=store, root_id=before.root_id, **BACKGROUND)
    store.left = 2  # the root is taken, and the worker about to be
    taking_up = asyncio.ensure_future(after.resume())
    await store.waits.wait()
    taking_up.cancel()
    await asyncio.sleep(0)
    store.go.set()
    with pytest.raises(asyncio.CancelledError):
        await taking_up
    assert after.model.requests == []
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("retinue ")]


@pytest.mark.parametrize("again", ["message", "plain"])
async def test_a_turn_whose_taking_up_is_cancelled_is_taken_up_and_paid_for_by_nobody(again: str) -> None:
    first = "first" if again == "message" else ModelError("no", kind="auth")
    store, model = CancelsWhoStarts(), ScriptedModel([first, "paid for"])
    async with Retinue(model=model, db=store, project=False, environ={}, agents=[agent("root")]) as retinue:
        chat = retinue.conversation("root")
        await chat.send("go")
        going_on: Any = chat.send("and now?") if again == "message" else retinue.resume(chat.run_id)
        asked = len(model.requests)
        going = store.starting = asyncio.ensure_future(going_on)
        with pytest.raises(asyncio.CancelledError):
            await going
        assert [row.outcome for row in await retinue.runs()] == ["cancelled"]
        assert await retinue.resume_abandoned() == []
    assert len(model.requests) == asked


async def test_an_interrupted_run_whose_taking_up_is_cancelled_is_left_to_the_next() -> None:
    store = CancelsWhoStarts()
    before = Stage({"root": forever}, store=store)
    await before.start()
    await until(lambda: len(before.model.of("root")) == 1)
    await before.workflow.leave()
    after = Stage({"root": ["done"]}, store=store, root_id=before.root_id)
    taking_up = store.starting = asyncio.ensure_future(after.resume())
    with pytest.raises(asyncio.CancelledError):
        await taking_up
    assert after.model.requests == []
    third = Stage({"root": ["done"]}, store=store, root_id=before.root_id)
    assert (await taken_up(third)).status == "completed"
