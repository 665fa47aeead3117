"""What every store keeps of how runs stand: the same that the story of their log says, at every level of a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runlog import EVERY_CHECK, Log

from retinue.events import ChildEnded, Event, StepStarted, ToolReturned
from retinue.standing import shown
from retinue.store.base import Left, RunFilter, RunRow, Store
from retinue.story import Story
from retinue.story_nodes import Node
from retinue.types import Report, Shortfall, Usage

LATER = 1_800_000_000.0
PARENTS = {"root": None, "a": "root", "b": "root", "aa": "a", "aaa": "aa", "aab": "aa"}


class Family:
    """The runs of a tree that is four levels deep."""

    def __init__(self, root_id: str) -> None:
        self.logs: dict[str, Log] = {}
        for name, parent in PARENTS.items():
            above = self.logs[parent] if parent else None
            self.logs[name] = Log(
                root_id if above is None else f"{root_id}.{name}",
                root_id=root_id,
                parent_id=above.run_id if above else None,
                depth=above.depth + 1 if above else 0,
            )
        self.last_at = 0.0

    def started(self) -> list[Event]:
        return [log.start(owner="me") for log in self.logs.values()]

    def make(self, name: str, what: str) -> Event:
        log = self.logs[name]
        match what.split():
            case ["step"]:
                event: Event = log.make(StepStarted, step=1, model="openai:m")
            case ["unattended"]:
                event = log.result(not_run="unattended")
            case ["denied"]:
                event = log.result(not_run="denied")
            case ["not_started"]:
                event = log.result(not_started=3)
            case ["reject", asked]:
                event = log.answer(asked, decision="reject")
            case ["resume"]:
                return log.resume(owner="you", stopped_at=self.last_at)
            case ["child"]:
                lacks, telling = Shortfall(failed=1, refused=2, denied=3), Usage(input_tokens=5, cost=0.5)
                about = {"child_id": "x", "agent": "x", "status": "error", "usage": telling}
                event = log.make(ChildEnded, **about, shortfall=lacks, telling=telling)
            case [kind, *arguments]:
                event = getattr(log, kind)(*arguments)
            case _:
                raise AssertionError(what)
        self.last_at = event.at
        return event


MOVES = [
    *("step", "reply", "call", "result", "unattended", "denied", "not_started", "child"),
    *("ask a1", "ask a2", "answer a1", "answer a2", "reject a1", "message", "resume", "finish"),
]


def told(events: Sequence[Event]) -> Story:
    story = Story()
    for event in events:
        story.apply(event)  # pyright: ignore[reportArgumentType] # every event class is in the union
    return story


def compare(row: RunRow, node: Node) -> None:
    assert (row.status, shown(row.outcome, row.waiting, left=False)) == (node.status, node.outcome)
    assert row.waiting == node.standing.waiting
    assert row.shortfall == node.shortfall
    assert row.seconds(LATER) == pytest.approx(node.seconds(LATER), abs=1e-6)
    below = list(node.walk())
    used = sum((each.own for each in below), Usage())
    assert (row.tree_runs, row.tree_tool_calls) == (len(below), sum(each.tool_calls for each in below))
    assert (row.tree_input_tokens, row.tree_output_tokens) == (used.input_tokens, used.output_tokens)
    assert row.tree_cost == pytest.approx(used.cost)


async def test_any_row_of_a_tree_agrees_with_the_story_of_its_log(store: Store) -> None:
    loop = asyncio.get_running_loop()
    rounds = 0

    async def check(plan: list[tuple[str, str]], size: int) -> None:
        nonlocal rounds
        rounds += 1
        family = Family(f"r{rounds}")
        written = [*family.started(), *(family.make(*step) for step in plan)]
        for at in range(0, len(written), size):
            await store.append(written[at : at + size])
        story = told(written)
        rows = await store.tree(f"r{rounds}")
        assert {row.run_id for row in rows} == set(story.nodes)
        for row in rows:
            compare(row, story.nodes[row.run_id])
        for outcome in ("pending", "running", "waiting", "completed", "incomplete", "rejected", "refused"):
            found = await store.runs(RunFilter(outcome=outcome, root_id=f"r{rounds}"))
            assert {row.run_id for row in found} == {
                node.run_id for node in story.nodes.values() if node.outcome == outcome
            }

    steps = st.lists(st.tuples(st.sampled_from(sorted(PARENTS)), st.sampled_from(MOVES)), max_size=25)

    @settings(max_examples=60, deadline=None, suppress_health_check=EVERY_CHECK, database=None)
    @given(steps, st.integers(1, 7))
    def examples(plan: list[tuple[str, str]], size: int) -> None:
        asyncio.run_coroutine_threadsafe(check(plan, size), loop).result(60)

    await asyncio.to_thread(examples)
    assert rounds >= 30


async def test_who_is_above_a_run_is_looked_up_by_a_process_that_did_not_start_it(
    disk_url: str, disk_store: Store
) -> None:
    from retinue.store.connect import connect

    family = Family("r")
    await disk_store.append(family.started())
    other = connect(disk_url)
    await other.open()
    try:
        await other.append([family.make("aaa", "step"), family.make("aaa", "reply")])
        await other.append([family.make("aaa", "ask a1")])
    finally:
        await other.close()
    rows = {row.run_id: row for row in await disk_store.tree("r")}
    turns = {run_id: (row.tree_turns, row.waiting) for run_id, row in rows.items()}
    none = dict.fromkeys(("r.b", "r.aab"), (0, 0))
    assert turns == {**dict.fromkeys(("r", "r.a", "r.aa", "r.aaa"), (1, 1)), **none}


async def open_runs(store: Store) -> None:
    """Three that go on: one works, one waits, one has a child that waits for its turn. And one that ended."""
    works, waits, parent, done = (
        Log(name, at=at) for at, name in enumerate(("works", "waits", "top", "done"))
    )
    child = Log("turn", root_id="top", parent_id="top", at=9)
    await store.append([works.start(owner="alive"), waits.start(owner="gone"), waits.ask()])
    await store.append([parent.start(owner="mine"), child.start(owner="mine"), done.start(owner="gone")])
    await store.append([done.finish()])


@pytest.mark.parametrize(
    ("left", "shown"),
    [
        (Left(), {"running": {"works", "top"}, "waiting": {"waits"}, "pending": {"turn"}}),
        (
            Left(owners=("gone",)),
            {"running": {"works", "top"}, "pending": {"turn"}, "interrupted": {"waits"}},
        ),
        (
            Left(owners=("gone", "alive", "mine"), working=("top",)),
            {"running": {"top"}, "pending": {"turn"}, "interrupted": {"waits", "works"}},
        ),
        (
            Left(owners=("mine",)),
            {"running": {"works"}, "waiting": {"waits"}, "interrupted": {"top", "turn"}},
        ),
    ],
)
async def test_what_nobody_works_on_is_interrupted_in_filters_and_sums(
    store: Store, left: Left, shown: dict[str, set[str]]
) -> None:
    await open_runs(store)
    expected = {**shown, "completed": {"done"}}
    words: Any = ("pending", "running", "waiting", "interrupted", "completed", "incomplete", "error")
    for outcome in words:
        found = await store.runs(RunFilter(outcome=outcome, left=left))
        assert {row.run_id for row in found} == expected.get(outcome, set())
    sums = {total.key: total.runs for total in await store.totals("outcome", left=left)}
    assert sums == {outcome: len(runs) for outcome, runs in expected.items()}


async def test_owners_of_what_goes_on_and_the_last_moment_of_a_workflow_are_one_question_each(
    store: Store,
) -> None:
    await open_runs(store)
    assert sorted(await store.open_owners()) == ["alive", "gone", "mine"]
    assert await store.last_at(["top", "works", "nobody"]) == {"top": 9, "works": 0}


async def test_a_report_that_does_not_count_is_counted_by_its_log(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), log.ask(), log.answer(decision="reject")])
    report = Report(run_id="r", status="completed", text="", agent="general")
    await store.append([log.finish()])
    assert report.outcome == "completed"
    found = await store.run("r")
    assert found is not None
    assert (found.outcome, found.rejected) == ("rejected", 1)


def test_most_events_move_no_row() -> None:
    from retinue.standing import moves

    log = Log("c", root_id="r", parent_id="r")
    quiet = [log.reply(), log.call(), log.result(), log.step(), log.make(ToolReturned, **RESULT)]
    assert not any(moves(event) for event in quiet)


RESULT: dict[str, Any] = {"call_id": "c", "name": "read", "text": "", "not_run": "forbidden"}
