"""A fork does not inherit what a person allowed in the run that it was made from."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.app import Retinue
from retinue.engine.answers import Answer
from retinue.events import ApprovalAnswered, ApprovalRequested, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from trees import Cast, agent, results, told, turn

DONE: list[str] = []


@tool(effect="execute")
async def act(what: str) -> str:
    """Act.

    Args:
        what: on what
    """
    DONE.append(what)
    return f"did {what}"


def play(request: Any) -> Any:
    if turn(request) < 2:
        return [("act", {"what": f"{told(request)[-1]} {turn(request)}"})]
    if told(request)[-1] == "more" and len(results(request)) < 3:
        return [("act", {"what": "more"})]
    return "done"


class Person:
    """Answers every question in one way, and remembers what was asked."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision
        self.asked: list[str] = []

    async def __call__(self, request: ApprovalRequested) -> Answer:
        self.asked.append(request.arguments)
        return Answer(decision=self.decision)


def app(store: MemoryStore, person: Person) -> Retinue:
    return Retinue(model=Cast({"root": play}), db=store, tools=[act], environ={}, approve=person, settings={})


async def test_a_grant_for_the_rest_of_a_run_ends_where_the_fork_begins() -> None:
    store = MemoryStore()
    first = Person("approve_run")
    async with app(store, first) as retinue:
        report = await retinue.run(agent("root", tools=("act",)), "go")
        assert len(first.asked) == 1, "granted for the rest of the run"
        again = await retinue.fork(report.run_id, message="more")
        await retinue.wait(again)
        assert len(first.asked) == 2, "the fork asks anew"
    events = await store.events(again)
    copied = next(e for e in events if isinstance(e, ApprovalAnswered))
    assert copied.decision == "approve"
    assert [e.text for e in events if isinstance(e, ToolReturned)][-1] == "did more"


@pytest.mark.parametrize("decision", ["approve", "approve_run", "reject"])
async def test_an_answer_to_a_call_that_had_not_begun_is_asked_for_again(decision: str) -> None:
    store = MemoryStore()
    async with app(store, Person(decision)) as retinue:
        report = await retinue.run(agent("root", tools=("act",)), f"for {decision}")
        before = await store.events(report.run_id)
        answer = next(e for e in before if isinstance(e, ApprovalAnswered))
    DONE.clear()
    other = Person("reject")
    async with app(store, other) as retinue:
        fork = await retinue.fork(report.run_id, at=answer.pos)
        await retinue.wait(fork)
    assert len(other.asked) >= 1, "the one who forks is asked, not the one who was asked before"
    assert DONE == []
    events = await store.events(fork)
    assert [e.seq for e in events] == list(range(1, len(events) + 1)), "nothing is missing in between"
    assert await store.events(report.run_id) == before
