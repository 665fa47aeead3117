"""A program of code mode that asks many children: as many calls as the policy has children, resumed as logged."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.errors import ModelError
from retinue.events import ApprovalRequested, ChildStarted, Decision, ModelReplied, RunStarted
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from retinue.types import ModelRequest
from retinue.web.framing import unframed
from trees import Cast, agent, results, told, turn

pytest.importorskip("pydantic_monty")

CHILDREN = 100
PROGRAM = f"""
import asyncio
answers = await asyncio.gather(*[c(prompt=f"question {{n}}") for n in range({CHILDREN})])
sum(1 for answer in answers if "even" in answer)
"""


def root(request: ModelRequest) -> Any:
    return [("run_code", {"code": PROGRAM})] if turn(request) == 0 else results(request)[0].text


def child(request: ModelRequest) -> str:
    return "odd" if int(told(request)[0].split()[1]) % 2 else "even"


def app(store: MemoryStore, most: int = CHILDREN) -> Retinue:
    return Retinue(
        model=Cast({"root": root, "c": child}),
        db=store,
        agents=[agent("root", mode="code", tools=("c", "run_code")), agent("c")],
        environ={},
        settings={"delegation.agent_calls": most},
    )


async def test_a_program_that_asks_a_hundred_children_goes_on_from_its_log() -> None:
    """Cut anywhere, it comes to the same, and every child is asked and paid for once."""
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run("root", "go")
    assert report.text == "value: 50"
    log = await store.events(report.run_id)
    inside = {n for n, event in enumerate(log) if isinstance(event, RunStarted) and event.depth}
    places = [n for n in range(3, len(log)) if n not in inside]
    for place in random.Random(1).sample(places, 3):
        cut = MemoryStore()
        await cut.append(log[:place])
        async with app(cut) as retinue:
            await retinue.resume(report.run_id, take_over=True)
            assert (await retinue.wait(report.run_id)).text == "value: 50", place
        events = await cut.events(report.run_id)
        started = [e.child_id for e in events if isinstance(e, ChildStarted)]
        assert len(started) == len(set(started)) == CHILDREN
        paid = [e.run_id for e in events if isinstance(e, ModelReplied) and e.depth]
        assert len(paid) == len(set(paid)) == CHILDREN


async def test_a_program_asks_no_more_children_than_the_policy_has() -> None:
    store = MemoryStore()
    async with app(store, most=60) as retinue:
        report = await retinue.run("root", "go")
    assert "60 of 60 agents already called for this message" in report.text
    assert sum(isinstance(e, ChildStarted) for e in await store.events(report.run_id)) == 60


BATCH = """
r = await parallel_tasks(tasks=[{{"agent_id": "c", "prompt": "question 1"}}, {{"agent_id": "{other}", "prompt": "question 2"}}])
print([r.success, r.is_error, r.status, r.error is None, r.data["success"]])
"""


@pytest.mark.parametrize("engine", ["monty", "cpython"])
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("nobody", [False, True, "error", False, False]),
        ("fails", [False, True, "error", False, False]),
        ("c", [True, False, "completed", True, True]),
    ],
)
async def test_the_success_of_a_batch_in_code_is_that_of_all_its_tasks(
    other: str, said: list[object], engine: str
) -> None:
    def play(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("run_code", {"code": BATCH.format(other=other)})]
        return results(request)[0].text

    async with Retinue(
        model=Cast({"root": play, "c": child, "fails": lambda request: ModelError("no", kind="invalid")}),
        db=MemoryStore(),
        agents=[
            agent("root", mode="code", tools=("c", "fails", "parallel_tasks", "run_code")),
            agent("c"),
            agent("fails"),
        ],
        environ={},
        settings={"code.engine": engine},
    ) as retinue:
        report = await retinue.run("root", "go")
    assert str(said) in report.text


ASKING = """
import asyncio
ends = await asyncio.gather(mark(what="mine"), asks(prompt="of a child"), return_exceptions=True)
print([end.success for end in ends], ends[0].text)
"""


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_code_waits_for_a_person_and_is_answered_after_it_was_taken_up_again(
    decision: Decision,
) -> None:
    """Asked for a tool that code calls, and by a child that code called: both questions outlive the process."""
    marks: list[str] = []

    @tool(effect="write")
    async def mark(what: str) -> str:
        """Leave a mark.

        Args:
            what: which
        """
        marks.append(what)
        return f"marked {what}"

    def play(request: ModelRequest) -> Any:
        return [("run_code", {"code": ASKING})] if turn(request) == 0 else results(request)[0].text

    def asks(request: ModelRequest) -> Any:
        return [("mark", {"what": "theirs"})] if turn(request) == 0 else "done"

    def app(store: MemoryStore) -> Retinue:
        return Retinue(
            model=Cast({"root": play, "asks": asks}),
            db=store,
            tools=[mark],
            agents=[
                agent("root", mode="code", tools=("asks", "mark", "run_code")),
                agent("asks", tools=("mark",)),
            ],
            environ={},
            answering="ask",
        )

    async def questions(store: MemoryStore, run_id: str) -> list[ApprovalRequested]:
        while len(found := await store.waiting(run_id)) < 2:
            await asyncio.sleep(0.001)
        return found

    store = MemoryStore()
    async with app(store) as retinue:
        run_id = await retinue.start("root", "go")
        first = await questions(store, run_id)
    assert marks == []
    again = MemoryStore()
    await again.append([replace(event, pos=0) for event in await store.events(run_id)])
    async with app(again) as retinue:
        await retinue.resume(run_id, take_over=True)
        waiting = await questions(again, run_id)
        assert {asked.approval_id for asked in waiting} == {asked.approval_id for asked in first}
        for asked in waiting:
            await retinue.answer(asked.approval_id, decision)
        report = await retinue.wait(run_id)
    said = unframed(report.text).strip()  # a child's words came into the program
    if decision == "approve":
        assert said == "[True, True] marked mine"
        assert sorted(marks) == ["mine", "theirs"], "each once"
    else:
        assert said.startswith("[False, True] ")
        assert marks == []


BEYOND = """
import asyncio
ends = await asyncio.gather(*[c(prompt=f"question {n}") for n in range(40)], return_exceptions=True)
len(ends)
"""
REST = "import asyncio\nlen(await asyncio.gather(*[c(prompt=f'question {n}') for n in range(%d)]))"


async def ended(*snippets: str, engine: str = "monty") -> tuple[str, int]:
    """How a run ends whose model runs these snippets."""

    def play(request: ModelRequest) -> Any:
        step = turn(request)
        return [("run_code", {"code": snippets[step]})] if step < len(snippets) else "done"

    retinue = Retinue(
        model=Cast({"root": play, "c": child}),
        db=MemoryStore(),
        agents=[agent("root", mode="code", tools=("c", "run_code")), agent("c")],
        environ={},
        settings={"code.calls": 1, "code.engine": engine, "delegation.agent_calls": 9},
    )
    async with retinue:
        report = await retinue.run("root", "go")
    return report.outcome, report.shortfall.not_started


async def test_children_that_the_limit_of_calls_from_code_keeps_from_starting_count() -> None:
    """Of forty, nine may start; the policy refuses some of the others, the limit of calls the rest."""
    assert await ended(BEYOND) == ("incomplete", 31)


async def test_children_that_a_later_snippet_asks_are_not_missing() -> None:
    assert await ended(REST % 1, "import asyncio\nawait c(promt='x')") == ("incomplete", 1)
    assert await ended("await c(promt='x')", REST % 1) == ("completed", 0)


@pytest.mark.parametrize("engine", ["monty", "cpython"])
async def test_a_mistyped_agent_in_code_counts_as_one_that_was_not_started(engine: str) -> None:
    """As it does outside of code; any other name that is none is a mistake in the code."""
    mistyped = "await code_serch(prompt='question 1')"
    right = "await code_search(prompt='question 1')"
    assert await searching(engine, mistyped) == ("incomplete", 1)
    assert await searching(engine, mistyped, right) == ("completed", 0)
    assert await searching(engine, "await frobnicate(1)") == ("completed", 0)
    assert await searching(engine, "await code_search('question 1', 2, 3, 4, 5, 6)") == ("incomplete", 1)


async def searching(engine: str, *snippets: str) -> tuple[str, int]:
    def play(request: ModelRequest) -> Any:
        step = turn(request)
        return [("run_code", {"code": snippets[step]})] if step < len(snippets) else "done"

    retinue = Retinue(
        model=Cast({"root": play, "code-search": child}),
        db=MemoryStore(),
        agents=[agent("root", mode="code", tools=("code-search", "run_code")), agent("code-search")],
        environ={},
        settings={"code.engine": engine},
    )
    async with retinue:
        report = await retinue.run("root", "go")
    return report.outcome, report.shortfall.not_started
