"""A workflow that workers have, as it is seen by whoever handed it over: its log, its questions, its report."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue.engine import followed as following
from retinue.engine.followed import followed
from retinue.errors import RunError, StoreError, Withdrawn
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    LiveEvent,
    RunFinished,
    RunStarted,
    StepStarted,
)
from retinue.store.memory import MemoryStore
from retinue.types import Report
from trees import agent

PLACE: dict[str, Any] = {"run_id": "r", "root_id": "r", "parent_id": None, "depth": 0}
REPORT = Report(run_id="r", status="completed", text="done", agent="a")


def event(kind: Any, seq: int, **fields: Any) -> Any:
    return kind(**PLACE, seq=seq, at=float(seq), **fields)


def asked(seq: int, name: str) -> ApprovalRequested:
    what: Any = {"tool": "t", "arguments": "{}", "effect": "write", "risk": "medium"}
    return event(ApprovalRequested, seq, approval_id=f"r:{name}", call_id=name, **what)


def answered(seq: int, name: str) -> ApprovalAnswered:
    return event(ApprovalAnswered, seq, approval_id=f"r:{name}", call_id=name, decision="approve")


BEGAN = event(RunStarted, 1, spec=agent("a"), prompt="go")
END = event(RunFinished, 9, report=REPORT)


def numbered(*events: AnyEvent) -> list[AnyEvent]:
    """A log of its own: a store gives the events that it takes their places."""
    return [event(type(each), seq, **_own(each)) for seq, each in enumerate(events, 1)]


def _own(each: AnyEvent) -> dict[str, Any]:
    envelope = {*PLACE, "seq", "at", "pos", "v"}
    return {name: getattr(each, name) for name in each.__struct_fields__ if name not in envelope}


class Unsteady(MemoryStore):
    """One that cannot be read for a while."""

    def __init__(self, *fails: StoreError | None) -> None:
        super().__init__()
        self.fails = list(fails)

    async def events(
        self, root_id: str, *, after: int = 0, run_id: str | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        error = self.fails.pop(0) if self.fails else None
        if error is not None:
            raise error
        return await super().events(root_id, after=after, run_id=run_id, limit=limit)


class Follower:
    """Hears what is published, and is put the questions."""

    def __init__(self, store: MemoryStore, after: int = 0) -> None:
        self.heard: list[LiveEvent] = []
        self.put: list[str] = []
        self.withdrawn: list[str] = []
        self.news = asyncio.Event()
        self.task = asyncio.create_task(
            followed(store, "r", after, publish=self._hear, ask=self._ask), name="following"
        )

    def _hear(self, event: LiveEvent) -> None:
        self.heard.append(event)
        self.news.set()

    def _ask(self, question: ApprovalRequested) -> Any:
        self.put.append(question.call_id)
        return lambda: self.withdrawn.append(question.call_id)

    async def has_heard(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.heard) < count:
                self.news.clear()
                await self.news.wait()

    @property
    def kinds(self) -> list[str]:
        return [type(each).__name__ for each in self.heard]


async def test_what_is_heard_is_the_log_from_a_place_on_and_then_there_is_the_report() -> None:
    store = MemoryStore()
    log = numbered(BEGAN, event(StepStarted, 2, step=1, model="m"), END)
    await store.append(log[:2])
    follower = Follower(store, after=1)
    await follower.has_heard(1)
    await store.append(log[2:])
    async with asyncio.timeout(30):
        assert (await follower.task).text == "done"
    assert follower.kinds == ["StepStarted", "RunFinished"]


async def test_a_question_is_put_once_and_withdrawn_when_it_is_answered_or_followed_no_more() -> None:
    store = MemoryStore()
    log = numbered(BEGAN, asked(2, "old"), asked(3, "x"), asked(4, "y"), answered(5, "old"), answered(6, "x"))
    await store.append(log)
    follower = Follower(store, after=2)
    await follower.has_heard(4)
    assert (follower.put, follower.withdrawn) == (["x", "y"], ["x"])
    follower.task.cancel()
    with pytest.raises(Withdrawn, match="it goes on at its workers"):
        await follower.task
    assert follower.withdrawn == ["x", "y"]


async def test_a_log_that_cannot_be_read_for_a_while_is_followed_from_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps: list[float] = []
    sleep = asyncio.sleep

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        await sleep(0)

    monkeypatch.setattr(following.asyncio, "sleep", nap)
    away = StoreError("away", passing=True)
    log = numbered(BEGAN, event(StepStarted, 2, step=1, model="m"), END)
    store = Unsteady(*[away] * 7, None, away, away)
    await store.append(log[:1])
    follower = Follower(store)
    await follower.has_heard(1)
    await store.append(log[1:])
    async with asyncio.timeout(30):
        await follower.task
    assert follower.kinds == ["RunStarted", "StepStarted", "RunFinished"]
    assert naps == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.2, 0.4]


async def test_a_log_that_can_never_be_read_again_is_an_error() -> None:
    follower = Follower(Unsteady(StoreError("broken")))
    with pytest.raises(StoreError, match="broken"):
        await follower.task


async def test_of_what_is_deleted_there_is_no_report() -> None:
    store = MemoryStore()
    await store.append(numbered(BEGAN, END))
    await store.delete("r")
    follower = Follower(store)
    with pytest.raises(RunError, match="it was deleted"):
        await follower.task
