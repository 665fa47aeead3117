"""Which later call stands in for one that a mistake kept from starting its child."""

from __future__ import annotations

from typing import Any

import pytest
from delegating import ALL
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.engine.compare import difference
from retinue.events import ChildStarted, Event, ToolReturned
from retinue.fold import apply, fold
from retinue.run_state import RunState
from retinue.store.memory import MemoryStore
from trees import Cast, Stage, agent

ENGINES = pytest.mark.parametrize("engine", ["monty", "cpython"])


async def played(*replies: Any) -> Stage:
    parts = {"root": [*replies, "done", "done"], "good": ["worked"] * 9, "other": ["worked"] * 9}
    stage = Stage(parts, agents=[agent("good"), agent("other")], delegation__tools=ALL, yes=True)
    await stage.run()
    return stage


async def missing(*replies: Any) -> int:
    stage = await played(*replies)
    report = stage.workflow.tree.run(stage.root_id).state.report
    assert report is not None
    assert report.outcome == ("incomplete" if report.shortfall.not_started else "completed")
    return report.shortfall.not_started


def asks(tool: str, name: str | None, prompt: str | None = "x") -> tuple[str, dict[str, Any]]:
    task = {"prompt": prompt} if name is None else {"agent_id": name, "prompt": prompt}
    return tool, {"tasks": [task]} if tool == "parallel_tasks" else task


@pytest.mark.parametrize("tool", ["delegate_task", "background", "parallel_tasks"])
@pytest.mark.parametrize("prompt", [None, " "])
async def test_another_agent_asked_by_the_same_tool_corrects_nothing(tool: str, prompt: str | None) -> None:
    wrong = asks(tool, "good", prompt)
    assert await missing([wrong], [asks(tool, "other")]) == 1
    assert await missing([wrong], [asks(tool, "good")]) == 0
    assert await missing([wrong], [("good", {"prompt": "x"})]) == 0


WAYS = pytest.mark.parametrize("tool", ["delegate_task", "background", "parallel_tasks"])


@WAYS
@pytest.mark.parametrize("name", [None, "nobody of that name"])
async def test_a_call_that_named_no_agent_is_corrected_by_the_next_start_of_any(
    tool: str, name: str | None
) -> None:
    wrong = asks(tool, name)
    assert await missing([wrong]) == 1
    for right in (asks("delegate_task", "other"), asks("parallel_tasks", "good"), ("other", {"prompt": "x"})):
        assert await missing([wrong], [right]) == 0, right


@WAYS
async def test_a_mistyped_agent_is_put_right_by_whichever_way_starts_the_agent_that_was_meant(
    tool: str,
) -> None:
    wrong = asks(tool, "goood")
    for right in (asks("delegate_task", "good"), asks("parallel_tasks", "good"), ("good", {"prompt": "x"})):
        assert await missing([wrong], [right]) == 0, right
    assert await missing([wrong], [("other", {"prompt": "x"})]) == 1
    assert await missing([wrong], [asks(tool, "other")]) == 1


async def test_one_start_corrects_one_mistake_and_first_one_that_named_its_agent() -> None:
    wrong = [asks("delegate_task", None), asks("delegate_task", "good", None)]
    assert await missing(wrong, [asks("delegate_task", "good")]) == 1
    assert await missing(wrong, [asks("delegate_task", "good"), asks("delegate_task", "other")]) == 0
    two = ("parallel_tasks", {"tasks": [{"agent_id": "good", "prompt": "x"}] * 2})
    assert await missing([wrong[1]], [two]) == 0, "and one mistake takes one start"


async def test_every_task_of_a_batch_that_cannot_be_read_is_missing() -> None:
    names = ("good", "good", "other")
    tasks = [{"agent_id": name, "prompt": None if name == "other" else "x"} for name in names]
    assert await missing([("parallel_tasks", {"tasks": tasks})]) == 3
    right = [("good", {"prompt": "x"}), ("other", {"prompt": "x"})]
    assert await missing([("parallel_tasks", {"tasks": tasks})], right) == 1
    assert await missing([("parallel_tasks", {"tasks": "good"})]) == 1


def batch(*names: str) -> tuple[str, dict[str, Any]]:
    return "parallel_tasks", {"tasks": [{"agent_id": name, "prompt": "x"} for name in names]}


async def test_a_smaller_batch_stands_in_for_as_many_of_one_that_was_too_large() -> None:
    large = batch("good", "good", "good", "other", "other")
    assert await missing([large]) == 5
    assert await missing([large], [batch("good", "good", "other")]) == 2
    assert await missing([large], [batch("good")], [batch("other", "good")]) == 2
    assert await missing([large], [("good", {"prompt": "x"})] * 3 + [("other", {"prompt": "x"})] * 2) == 0
    assert await missing([large, batch("good")]) == 5, "what is asked for beside it knew of no refusal"
    again = [batch(*["good"] * 4)]
    assert await missing([large], again, [batch("good")]) == 5, "four and two were wanted, and one came"


async def test_nothing_stands_in_for_a_batch_for_which_there_was_no_room_at_all() -> None:
    full, large = batch("good", "good", "good"), batch("good", "good")
    assert await missing([full], [large], [("good", {"prompt": "x"})]) == 2


async def in_code(engine: str, *snippets: str) -> tuple[str, int]:
    """How a run ends whose model runs these snippets."""
    names = ("good", "reviewer")
    retinue = Retinue(
        model=Cast(
            {
                "root": [*([("run_code", {"code": each})] for each in snippets), "done"],
                **{name: ["worked"] * 9 for name in names},
            }
        ),
        db=MemoryStore(),
        agents=[agent("root", mode="code", tools=(*names, "run_code")), *map(agent, names)],
        environ={},
        settings={"code.engine": engine},
    )
    async with retinue:
        report = await retinue.run("root", "go")
    return report.outcome, report.shortfall.not_started


TOGETHER = """
import asyncio
print(len(await asyncio.gather(*[good(prompt=p) for p in %s], return_exceptions=True)))
"""
IN_TURN = """
for p in %s:
    try:
        await good(prompt=p)
    except Exception:
        print("not", p)
"""


@ENGINES
@pytest.mark.parametrize("program", [TOGETHER, IN_TURN])
@pytest.mark.parametrize("prompts", [["x", None, "y"], [None, "x", "y"]])
async def test_calls_of_one_snippet_correct_nothing_of_each_other(
    engine: str, program: str, prompts: list[str | None]
) -> None:
    """The next call of a list is for its next part, and those of a gather have begun before."""
    pytest.importorskip("pydantic_monty")
    assert await in_code(engine, program % prompts) == ("incomplete", 1)
    assert await in_code(engine, program % prompts, "await good(prompt='z')") == ("completed", 0)
    assert await in_code(engine, program % prompts, "await reviewer(prompt='z')") == ("incomplete", 1)


@ENGINES
async def test_a_name_that_is_none_counts_only_where_it_is_called_as_an_agent_is(engine: str) -> None:
    pytest.importorskip("pydantic_monty")
    ran = "answer = await reviewer(prompt='check it')"
    for plain in ("print(len(review))", "print(review.text)", "review(1, 2)", "review()", "review(text='x')"):
        assert await in_code(engine, ran, plain) == ("completed", 0), plain
    mistyped = ("await review(prompt='x')", "await review('x')", "await review(**{'prompt': 'x'})")
    for called in mistyped:
        assert await in_code(engine, ran, called) == ("incomplete", 1), called
    again = [mistyped[0], mistyped[0], ran]
    assert await in_code(engine, *again) == ("completed", 0), "it is still the same child"


class Walked(dict[str, ChildStarted]):
    """Children that count how often all of them are looked through."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()


def walks(events: list[Event]) -> int:
    children = Walked()
    state = RunState()
    state.children = children
    for event in events:
        apply(state, event)
    return children.walks


async def test_reading_a_log_looks_through_the_children_only_for_a_call_that_corrects() -> None:
    right, wrong = [("good", {"prompt": "x"})], [("good", {"promt": "x"})]

    async def own(*replies: Any) -> list[Event]:
        stage = await played(*replies)
        return [e for e in await stage.log() if e.run_id == stage.root_id]

    assert walks(await own(right, right, right)) == 0
    assert walks(await own(right, wrong, right, right)) == 1


async def test_a_log_from_before_these_were_counted_replays_the_same() -> None:
    stage = await played([asks("delegate_task", "good", None)], [asks("delegate_task", "good")])
    log = await stage.log()
    none: dict[str, Any] = {"wrong": 0, "meant": (), "corrects": 0}
    old = [replace(e, **none) if isinstance(e, ToolReturned) else e for e in log]
    assert difference(old, log) == ""
    assert "corrects" in difference(log, old), "what a record has counts"
    assert fold(e for e in old if e.run_id == stage.root_id).mistakes == []
