"""kill -9 after every single event, resume, compare: the same report, no paid call made again, none lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import killing
import pytest

from retinue.events import (
    ApprovalRequested,
    ChildEnded,
    ChildStarted,
    LimitPassed,
    LimitReached,
    MessageReceived,
    ModelReplied,
    RunFinished,
    ToolReturned,
    now,
)
from retinue.store.base import RunFilter, Signal, Store
from retinue.store.connect import connect
from retinue.testing.provider import FakeProvider
from retinue.testing.script import SeenRequest
from retinue.toolcall import UNKNOWN
from retinue.types import AssistantMessage, UserMessage


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider(killing.answer) as running:
        yield running


def key(request: SeenRequest) -> tuple[str, str, int]:
    """One paid call: which agent, on which task, at which turn."""
    agent = request.system.split("\n", 1)[0]
    task = next(m.text for m in request.messages if isinstance(m, UserMessage))
    return agent, task, sum(isinstance(m, AssistantMessage) for m in request.messages)


async def answer_all(store: Store, root_id: str, stop: asyncio.Event) -> None:
    """A person who approves whatever waits."""
    while not stop.is_set():
        for asked in await store.waiting(root_id):
            signal = Signal(
                root_id=root_id,
                run_id=asked.run_id,
                kind="answer",
                key=asked.approval_id,
                body=json.dumps({"decision": "approve"}),
                at=now(),
            )
            await store.send(signal)
        await asyncio.sleep(0.005)


async def replied(store: Store, root_id: str) -> Counter[tuple[str, int]]:
    """Which replies are in the log: run and step."""
    return Counter((e.run_id, e.step) for e in await store.events(root_id) if isinstance(e, ModelReplied))


async def whole(db: str, folder: Path, provider: FakeProvider, scenario: str) -> int:
    """The scenario undisturbed: how many events it has."""
    store = connect(db)
    await store.open()
    stop = asyncio.Event()
    person = asyncio.create_task(answer_all(store, "r0whole", stop))
    assert await killing.in_process(db, str(folder), provider.openai_url, scenario, "r0whole", None) == 0
    stop.set()
    await person
    events = await store.events("r0whole")
    await store.close()
    assert isinstance(events[-1], RunFinished)
    assert (folder / "report").read_text() == f"{scenario} finished"
    return len(events)


async def killed_and_resumed(
    db: str, folder: Path, provider: FakeProvider, scenario: str, after: int
) -> bool:
    """Returns False once the workflow ends before so many events."""
    root_id = f"r0kill{after:03d}"
    folder.mkdir()
    store = connect(db)
    await store.open()
    stop = asyncio.Event()
    person = asyncio.create_task(answer_all(store, root_id, stop))
    try:
        first = len(provider.requests)
        code = await killing.in_process(db, str(folder), provider.openai_url, scenario, root_id, after)
        if code == 0:
            return False
        assert code == -9
        logged = await replied(store, root_id)
        code = await killing.in_process(db, str(folder), provider.openai_url, scenario, root_id, None)
        assert code == 0, f"killed after {after} events it does not resume"
        # By who asked, not by when: what the killed process had sent may be read after its end.
        mine = provider.requests[first:]
        paid = Counter(key(request) for request in mine if request.key == "first")
        again = Counter(key(request) for request in mine if request.key == "second")
        await check(store, root_id, folder, scenario, logged, paid, again)
    finally:
        stop.set()
        await person
        await store.close()
    return True


async def check(
    store: Store,
    root_id: str,
    folder: Path,
    scenario: str,
    logged: Counter[tuple[str, int]],
    paid: Counter[tuple[str, str, int]],
    again: Counter[tuple[str, str, int]],
) -> None:
    events = await store.events(root_id)
    assert (folder / "report").read_text() == f"{scenario} finished"
    assert [e.pos for e in events] == list(range(1, len(events) + 1))
    assert sum(isinstance(e, RunFinished) and e.run_id == root_id for e in events) == 1
    assert set((await replied(store, root_id)).values()) == {1}, "a reply is in the log twice"
    # What was answered and logged before the kill was not asked for again. A call that was under way at
    # that moment never reached the log, and is the only kind that may be made a second time.
    assert sum((paid & again).values()) <= sum(paid.values()) - sum(logged.values())
    assert all(count == 1 for count in again.values())
    if scenario in ("sequential", "code"):
        assert not paid & again, "nothing else was under way, so nothing may be paid twice"
    marks = (folder / "marks").read_text().split() if (folder / "marks").exists() else []
    assert len(marks) == len(set(marks)), "something that must not happen twice did"
    unknown = [e for e in events if isinstance(e, ToolReturned) and e.text == UNKNOWN]
    wanted = {"sequential": {"two"}, "code": {"two"}, "approvals": {"p", "q"}}.get(scenario, set())
    assert set(marks) <= wanted
    assert len(wanted - set(marks)) <= len(unknown), "a mark is missing and nobody was told"
    started = Counter(e.child_id for e in events if isinstance(e, ChildStarted))
    ended = Counter(e.child_id for e in events if isinstance(e, ChildEnded))
    assert started == ended, "every child was started once, and its parent was told of its end once"
    told = [e for e in events if isinstance(e, ChildEnded) and e.notice]
    assert len(told) == (scenario == "background")
    last = max(e.seq for e in events if isinstance(e, ModelReplied) and e.run_id == root_id)
    assert all("leaf bg: saw bg" in e.notice and e.seq < last for e in told), "the model never read of it"
    asked = Counter(e.approval_id for e in events if isinstance(e, ApprovalRequested))
    assert all(count == 1 for count in asked.values()), "a person was asked twice"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", killing.SCENARIOS)
async def test_a_workflow_killed_after_any_event_resumes_and_pays_nothing_twice(
    scenario: str, durable_url: str, tmp_path: Path, provider: FakeProvider
) -> None:
    (tmp_path / "whole").mkdir()
    count = await whole(durable_url, tmp_path / "whole", provider, scenario)
    kills = 0
    for after in range(1, count + 20):
        if not await killed_and_resumed(durable_url, tmp_path / str(after), provider, scenario, after):
            break
        kills += 1
    assert kills >= count - 1, "every event was a place to die at"
    print(f"\n{scenario}: killed after each of {kills} events, resumed {kills}")


async def test_a_child_killed_while_it_is_asked_again_goes_on_there(
    tmp_path: Path, provider: FakeProvider
) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    (tmp_path / "whole").mkdir()
    await whole(db, tmp_path / "whole", provider, "again")
    store = connect(db)
    await store.open()
    events = await store.events("r0whole")
    await store.close()
    opened = next(e.pos for e in events if isinstance(e, MessageReceived) and e.opens)
    ended = [e.pos for e in events if isinstance(e, ChildEnded)][-1]
    for after in range(opened, ended, 3):
        assert await killed_and_resumed(db, tmp_path / str(after), provider, "again", after)


@pytest.mark.parametrize("dies", [("LimitReached",), ("LimitReached", "ChildEnded")])
async def test_a_workflow_killed_while_it_waits_for_a_limit_waits_for_the_rest_and_pays_nothing_twice(
    durable_url: str, tmp_path: Path, provider: FakeProvider, dies: tuple[str, ...]
) -> None:
    """Killed the moment it is parked, or when nothing else is left to do; then once more while it waits on."""
    store = connect(durable_url)
    await store.open()
    where = (durable_url, str(tmp_path), provider.openai_url, "limited", "r0parked")
    assert await killing.in_process(*where, dies) == -9
    rows = [await store.run("r0parked"), *await store.runs(RunFilter(root_id="r0parked"))]
    assert rows[0] is not None
    assert rows[0].waiting == 1
    assert [row.parked_until > now() + 60 for row in rows if row and row.parked_until] == [True]
    assert await killing.in_process(*where, ("RunResumed",), 10.0) == -9, "it is too early: it waits again"
    assert [e for e in await store.events("r0parked") if isinstance(e, LimitPassed)] == []
    assert await killing.in_process(*where, None, 200.0) == 0
    assert (tmp_path / "report").read_text() == "limited finished"
    events = await store.events("r0parked")
    await store.close()
    assert [type(e) for e in events if isinstance(e, LimitReached | LimitPassed)] == [
        LimitReached,
        LimitPassed,
    ]
    replies = Counter((e.run_id, e.step) for e in events if isinstance(e, ModelReplied))
    assert set(replies.values()) == {1}
    asked = Counter(key(request) for request in provider.requests)
    held = asked.pop(("PLAY leaf", "held", 0))
    assert held == 2, "the one that was refused, and the one that was answered"
    allowed = 1 if dies == ("LimitReached",) else 0  # what was under way when it was killed
    assert sum(count - 1 for count in asked.values()) <= allowed
