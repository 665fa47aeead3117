"""What every store promises about the rows of runs: they agree with the log, and can be found."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runlog import EVERY_CHECK, Log

from retinue.errors import Fenced
from retinue.events import Event, RunOptions, RunStarted
from retinue.fold import fold
from retinue.store.base import RunFilter, RunRow, Store
from retinue.types import Usage


async def row(store: Store, run_id: str = "r") -> RunRow:
    found = await store.run(run_id)
    assert found is not None
    return found


async def test_a_run_has_a_row_as_soon_as_it_starts(store: Store) -> None:
    child = Log("c", root_id="r", parent_id="r", at=100.5)
    await store.append(
        [child.start("count them", agent="planner", label="count", cwd="/src", model="m:x", owner="me")]
    )
    assert await row(store, "c") == RunRow(
        run_id="c",
        root_id="r",
        parent_id="r",
        depth=1,
        agent="planner",
        label="count",
        task="count them",
        model="m:x",
        status="pending",
        turns=0,
        tool_calls=0,
        input_tokens=0,
        output_tokens=0,
        cost=0.0,
        duration_ms=None,
        summary=None,
        error=None,
        cwd="/src",
        created_at=100.5,
        completed_at=None,
        outcome="pending",
        waiting=0,
        rejected=0,
        refused=0,
        not_started=0,
        failed=0,
        incomplete=0,
        tree_runs=1,
        tree_turns=0,
        tree_tool_calls=0,
        tree_input_tokens=0,
        tree_output_tokens=0,
        tree_cost=0.0,
        began_at=None,
        idle=0.0,
        waited=0.0,
        held_since=None,
        owner="me",
        denied=0,
        parked_until=None,
        metadata_json="{}",
        effort="",
        copy_left=0,
        unmerged=0,
    )
    assert await store.run("nobody") is None


async def test_a_row_has_the_effort_with_which_its_model_was_last_asked(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), msgspec.structs.replace(log.reply(), effort="high")])
    assert (await row(store)).effort == "high"
    await store.append([msgspec.structs.replace(log.reply(), effort="low"), log.call()])
    assert (await row(store)).effort == "low"


async def test_turns_calls_tokens_and_cost_add_up(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), log.reply(), log.call(), log.result()])
    await store.append([log.reply(cost=0.5, tokens=(7, 3)), log.call("c2"), log.call("c3")])
    paid = Usage(input_tokens=1, output_tokens=2, cost=0.25)
    await store.append([log.result(usage=paid)])
    found = await row(store)
    assert (found.turns, found.tool_calls) == (2, 3)
    assert (found.input_tokens, found.output_tokens, found.cost) == (108, 15, 1.0)


async def test_a_cost_that_is_unknown_once_stays_unknown(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), log.reply(cost=0.5)])
    await store.append([log.reply(cost=None)])
    assert (await row(store)).cost is None
    await store.append([log.reply(cost=0.5)])
    assert (await row(store)).cost is None


async def test_a_run_waits_until_its_last_question_is_answered(store: Store) -> None:
    log = Log("r")
    first, second = log.start(), log.ask("a1")
    await store.append([first, second])
    await store.append([log.ask("a2")])
    assert (await row(store)).status == "waiting"
    await store.append([log.answer("a1")])
    assert (await row(store)).status == "waiting"
    await store.append([log.answer("a2")])
    assert (await row(store)).status == "running"


async def test_open_questions_are_found_across_runs(store: Store) -> None:
    one, child, two = Log("one"), Log("c", root_id="one", parent_id="one"), Log("two")
    await store.append([one.start(), child.start(), two.start()])
    await store.append([child.ask("a1"), two.ask("a2"), child.ask("a3"), two.ask("a4")])
    await store.append([two.answer("a2")])
    assert [event.approval_id for event in await store.waiting()] == ["a1", "a3", "a4"]
    assert [event.approval_id for event in await store.waiting("one")] == ["a1", "a3"]
    assert (await store.waiting("two"))[0].pos == 3
    await store.append([child.finish(status="cancelled")])
    assert [event.approval_id for event in await store.waiting()] == ["a4"]


async def test_an_ended_run_has_its_summary_time_and_error(store: Store) -> None:
    log = Log("r")
    end = log.finish("x" * 900, status="error", error="the model is gone")
    await store.append([log.start(), end])
    found = await row(store)
    assert (found.status, found.error, found.duration_ms) == ("error", "the model is gone", 1500)
    assert found.completed_at == end.at
    assert found.summary == "x" * 500


async def test_a_message_to_an_ended_run_makes_it_run_again(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), log.finish("first answer")])
    await store.append([log.message()])
    found = await row(store)
    assert (found.status, found.completed_at, found.duration_ms) == ("running", None, None)
    assert found.summary == "first answer"
    await store.append([log.reply(), log.finish("second answer")])
    assert (await row(store)).summary == "second answer"


async def test_a_message_to_a_running_run_changes_nothing(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), log.ask()])
    await store.append([log.message()])
    assert (await row(store)).status == "waiting"


async def test_a_resumed_run_goes_on_waiting_for_its_question(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), log.ask()])
    await store.append([log.resume()])
    assert (await row(store)).status == "waiting"
    assert len(await store.waiting()) == 1
    await store.append([log.answer(), log.finish(), log.resume()])
    assert (await row(store)).status == "running"


async def test_a_long_prompt_is_cut_in_the_row_and_whole_in_the_log(store: Store) -> None:
    log = Log("r")
    await store.append([log.start("why\0 " + "x" * 10_000)])
    assert len((await row(store)).task) <= 2000
    (started,) = await store.events("r")
    assert isinstance(started, RunStarted)
    assert len(started.prompt) == 10_005


async def test_a_fenced_append_leaves_the_row_alone(store: Store) -> None:
    log = Log("r")
    await store.append([log.start(), log.reply()])
    log.seq = 1
    with pytest.raises(Fenced):
        await store.append([log.reply(), log.finish()])
    found = await row(store)
    assert (found.turns, found.status) == (1, "running")


MOVES = st.sampled_from(
    [
        "step",
        "reply",
        "call",
        "result",
        "ask a1",
        "ask a2",
        "answer a1",
        "answer a2",
        "message",
        "resume",
        "finish",
    ]
)


async def test_any_row_agrees_with_its_folded_log(store: Store) -> None:
    loop = asyncio.get_running_loop()
    rounds = 0

    async def check(plan: list[str], size: int) -> None:
        nonlocal rounds
        rounds += 1
        log = Log(f"r{rounds}")
        written: list[Event] = [log.start()]
        for move in plan:
            name, *arguments = move.split()
            written.append(getattr(log, name)(*arguments))
        for at in range(0, len(written), size):
            await store.append(written[at : at + size])
        state, found = fold(written), await row(store, log.run_id)
        assert found.status == state.status
        assert (found.turns, found.tool_calls) == (state.turns, state.tool_calls)
        assert (found.input_tokens, found.output_tokens) == (
            state.usage.input_tokens,
            state.usage.output_tokens,
        )
        assert found.cost == pytest.approx(state.usage.cost)
        open_ = await store.waiting(log.run_id)
        assert {event.approval_id for event in open_} == (
            set(state.waiting) if state.status == "waiting" else set()
        )

    @settings(max_examples=40, deadline=None, suppress_health_check=EVERY_CHECK, database=None)
    @given(st.lists(MOVES, max_size=15), st.integers(1, 5))
    def examples(plan: list[str], size: int) -> None:
        asyncio.run_coroutine_threadsafe(check(plan, size), loop).result(30)

    await asyncio.to_thread(examples)
    assert rounds >= 20


async def ids(store: Store, **which: Any) -> list[str]:
    return [found.run_id for found in await store.runs(RunFilter(**which))]


async def shelf(store: Store) -> None:
    """Five runs: a root with two children, an older root, and one that waits."""
    old, root, waits = Log("old", at=10), Log("root", at=20), Log("waits", at=50)
    one, two = (
        Log("one", root_id="root", parent_id="root", at=30),
        Log("two", root_id="root", parent_id="root", at=40),
    )
    await store.append([old.start("fix 100% of_the bugs"), old.reply(cost=2.0), old.finish("all done")])
    await store.append([root.start("Write a plan"), one.start("plan", agent="planner"), two.start("look")])
    await store.append([one.reply(cost=None), one.finish("Ten steps"), two.finish("", status="error")])
    await store.append([waits.start("delete it\\now"), waits.ask(), root.reply(cost=0.5)])


async def test_runs_are_listed_newest_first_and_filtered(store: Store) -> None:
    await shelf(store)
    assert await ids(store) == ["waits", "two", "one", "root", "old"]
    assert await ids(store, limit=2) == ["waits", "two"]
    assert await ids(store, roots_only=True) == ["waits", "root", "old"]
    assert await ids(store, status="completed") == ["one", "old"]
    assert await ids(store, status="waiting") == ["waits"]
    assert await ids(store, agent="planner") == ["one"]
    assert await ids(store, root_id="root") == ["two", "one", "root"]
    assert await ids(store, parent_id="root") == ["two", "one"]
    assert await ids(store, id_prefix="o") == ["one", "old"]
    assert await ids(store, id_prefix="o_") == []
    assert await ids(store, id_prefix="root") == ["root"]
    assert await ids(store, among=("root", "two", "nobody")) == ["two", "root"]
    assert await ids(store, among=(), limit=5) == []
    assert await ids(store, since=30) == ["waits", "two", "one"]
    assert await ids(store, before=30) == ["root", "old"]
    assert await ids(store, since=20, before=50, roots_only=True) == ["root"]
    assert await ids(store, min_cost=0.4) == ["root", "old"]
    assert await ids(store, min_cost=1, status="completed", agent="general") == ["old"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAN", ["one", "root"]),
        ("steps", ["one"]),
        ("100%", ["old"]),
        ("0% of_", ["old"]),
        ("of%the", []),
        ("f_the", ["old"]),
        ("b_gs", []),
        ("it\\now", ["waits"]),
        ("'; DROP TABLE runs", []),
    ],
)
async def test_a_text_is_found_as_it_is_written(store: Store, text: str, expected: list[str]) -> None:
    await shelf(store)
    assert await ids(store, text=text) == expected


async def test_a_text_beyond_ascii_is_found(store: Store) -> None:
    await store.append([Log("r").start("Wie heißt die Straße in Ärmel 東京?")])
    assert await ids(store, text="Straße in Ärmel") == ["r"]
    assert await ids(store, text="東京") == ["r"]


async def test_paging_shows_every_run_once_even_of_one_moment(store: Store) -> None:
    await store.append([Log(f"r{n:02}", at=5 + n // 10).start() for n in range(30)])
    seen: list[str] = []
    last: RunRow | None = None
    while True:
        page = await store.runs(
            RunFilter(limit=7, before=last and last.created_at, before_id=last and last.run_id)
        )
        if not page:
            break
        seen += [found.run_id for found in page]
        last = page[-1]
    assert seen == [f"r{n:02}" for n in reversed(range(30))]


async def test_a_tree_lists_parents_before_their_children(store: Store) -> None:
    await shelf(store)
    assert [found.run_id for found in await store.tree("root")] == ["root", "one", "two"]
    assert await store.tree("nobody") == []


async def test_totals_are_summed_by_agent_model_and_day(store: Store) -> None:
    await shelf(store)
    general, planner = await store.totals("agent")
    assert (general.key, general.runs, general.turns, general.cost) == ("general", 4, 2, 2.5)
    assert (general.input_tokens, general.output_tokens, general.duration_ms) == (200, 20, 3000)
    assert (general.unpriced, planner.key, planner.unpriced, planner.cost) == (0, "planner", 1, 0.0)
    (model,) = await store.totals("model", since=30)
    assert (model.key, model.runs) == ("openai:m", 3)
    assert await store.totals("agent", since=1000) == []


async def test_a_day_begins_at_midnight_of_the_given_clock(store: Store) -> None:
    midnight = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    await store.append([Log(f"r{n}", at=midnight + n).start() for n in (-0.25, 0, 3600)])
    found = [(total.key, total.runs) for total in await store.totals("day")]
    assert found == [("2026-02-28", 1), ("2026-03-01", 2)]
    found = [(total.key, total.runs) for total in await store.totals("day", utc_offset=-1800)]
    assert found == [("2026-02-28", 2), ("2026-03-01", 1)]


async def test_lists_are_of_what_was_started_with_this_metadata(store: Store) -> None:
    for name, metadata in (
        ("a", {"tenant": "x", "n": "1"}),
        ("b", {"tenant": "X"}),
        ("c", {}),
        ("d", {"tenant": '"%_'}),
    ):
        await store.append([Log(name).start(options=RunOptions(metadata=metadata))])

    async def found(**wanted: str) -> set[str]:
        return {each.run_id for each in await store.runs(RunFilter(metadata=wanted))}

    assert await found(tenant="x") == {"a"}
    assert await found(tenant="x", n="1") == {"a"}
    assert await found(tenant="x", n="2") == set()
    assert await found(tenant='"%_') == {"d"}
    assert await found() == {"a", "b", "c", "d"}
