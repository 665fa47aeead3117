"""What a replay says that does not come out as it was recorded: each difference once, where it is, and how."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from retinue.engine.compare import difference
from retinue.events import (
    ChildEnded,
    ChildStarted,
    Event,
    LimitPassed,
    LimitReached,
    ModelReplied,
    RunFinished,
    RunQueued,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.types import AssistantMessage, Report, Source, ToolCall, Usage
from trees import agent


def event(kind: Any, seq: int, run_id: str = "r", **fields: Any) -> Any:
    place = {"run_id": run_id, "root_id": "r", "parent_id": None, "depth": 0}
    return kind(**place, seq=seq, at=float(seq), **fields)


CALL = ToolCall(id="c1", name="look", arguments='{"a": 1, "b": 2}')
BEGAN = event(RunStarted, 1, spec=agent("bee"), prompt="go", tools=("a", "b"))
REPLIED = event(
    ModelReplied,
    3,
    step=4,
    message=AssistantMessage(text="", calls=(CALL,)),
    usage=Usage(),
    stop="tool_calls",
    model="m",
)
CALLED = event(
    ToolCalled, 4, call_id="c1", name="look", arguments=CALL.arguments, effect="read", repeatable=True
)
RETURNED = event(ToolReturned, 5, call_id="c1", name="look", text="one\ntwo\nthree\nfour")
LOG: list[Event] = [BEGAN, event(StepStarted, 2, step=4, model="m"), REPLIED, CALLED, RETURNED]


def differs(old: Event, *new: Event) -> list[str]:
    found = difference(LOG, [each for one in LOG for each in (new if one is old else (one,))])
    head, lines = found.splitlines()[:2], found.splitlines()[2:]
    assert head == (["--- recorded", "+++ replayed"] if found else [])
    return lines


def test_of_two_that_are_the_same_but_for_clocks_and_order_nothing_is_said() -> None:
    later = [replace(each, at=each.at + 100, seq=each.seq + 7) for each in LOG]
    later[0] = replace(BEGAN, at=3.0, tools=("b", "a"))
    assert difference(LOG, later) == ""


def test_how_a_run_got_there_is_no_difference() -> None:
    waits = [
        event(LimitReached, 6, step=4, model="m", reason="busy", until=9.0),
        event(LimitPassed, 7, step=4),
        event(RunQueued, 8, why="parked"),
    ]
    assert difference(LOG, [*LOG, *waits]) == ""


def test_a_text_that_differs_is_shown_by_its_lines_with_the_run_the_step_and_the_call() -> None:
    assert differs(RETURNED, replace(RETURNED, text="one\ntwo\n3\nfour")) == [
        "@@ bee r, step 4, call c1 of look: tool returned, text @@",
        " two",
        "-three",
        "+3",
        " four",
    ]


def test_arguments_are_shown_part_by_part() -> None:
    assert differs(CALLED, replace(CALLED, arguments='{"a": 1, "b": 3}')) == [
        "@@ bee r, step 4, call c1 of look: tool called, arguments @@",
        '  "a": 1,',
        '- "b": 2',
        '+ "b": 3',
        " }",
    ]


@pytest.mark.parametrize(
    ("was", "now", "shown"),
    [
        (("a", "b"), ("b", "c"), ["-a", "+c"]),
        (("a",), ("a", "b"), ["+b"]),
        ((), ("a",), ["+a"]),
        (("a", "b"), ("b", "a"), [" [", '- "a",', '- "b"', '+ "b",', '+ "a"', " ]"]),
        (("a", "a"), ("a",), [" [", '- "a",', '  "a"']),
    ],
)
def test_of_a_list_it_is_said_what_was_added_and_removed_or_how_it_is_ordered(
    was: tuple[str, ...], now: tuple[str, ...], shown: list[str]
) -> None:
    old, new = replace(RETURNED, private=was), replace(RETURNED, private=now)
    assert difference([*LOG[:4], old], [*LOG[:4], new]).splitlines()[3:] == shown


def test_in_a_list_of_parts_the_field_is_named_that_differs() -> None:
    old = replace(RETURNED, sources=(Source(path="x"), Source(path="a")))
    new = replace(RETURNED, sources=(Source(path="x"), Source(path="b")))
    assert difference([*LOG[:4], old], [*LOG[:4], new]).splitlines()[2:] == [
        "@@ bee r, step 4, call c1 of look: tool returned, sources[1].path @@",
        "-a",
        "+b",
    ]


def test_what_is_in_one_of_them_alone_is_told_with_all_it_says() -> None:
    assert differs(CALLED) == [
        "@@ bee r, step 4, call c1 of look: tool called, only in the record @@",
        "-call_id: c1",
        "-name: look",
        '-arguments: {"a": 1, "b": 2}',
        "-effect: read",
        "-repeatable: true",
    ]
    nested = event(
        ToolReturned, 6, call_id="c2", name="look", text="", sources=(Source(path="x", lines=(1, 2)),)
    )
    assert differs(RETURNED, RETURNED, nested) == [
        "@@ bee r, call c2 of look: tool returned, only in the replay @@",
        "+call_id: c2",
        "+name: look",
        "+sources[0].path: x",
        "+sources[0].lines[0]: 1",
        "+sources[0].lines[1]: 2",
        "+sources[0].verified: true",
    ]


def test_of_a_child_the_agent_is_named() -> None:
    began = event(ChildStarted, 6, child_id="kid", agent="ant", call_id="c1", prompt="do")
    (head, *_) = differs(RETURNED, RETURNED, began)
    assert head == "@@ bee r, step 4, call c1, child ant kid: child started, only in the replay @@"


@pytest.mark.parametrize(("others", "said"), [(1, "once"), (2, "2 times")])
def test_what_differs_in_the_same_way_elsewhere_is_said_once(others: int, said: str) -> None:
    more = [event(ToolReturned, 6 + n, call_id=f"d{n}", name="look", text="x") for n in range(others + 1)]
    changed = [replace(each, text="y") for each in more]
    assert difference(more, changed).splitlines()[2:] == [
        f"@@ run r, call d0 of look: tool returned, text (and {said} more in the same way) @@",
        "-x",
        "+y",
    ]


@pytest.mark.parametrize(("count", "more"), [(30, []), (31, ["@@ and 1 more differences @@"])])
def test_thirty_differences_are_written_out(count: int, more: list[str]) -> None:
    old = [event(ToolReturned, n, call_id=f"d{n}", name="look", text=f"x{n}") for n in range(count)]
    lines = difference(old, [replace(each, text=f"y{n}") for n, each in enumerate(old)]).splitlines()
    assert sum(line.startswith("@@ run") for line in lines) == 30
    assert lines[2 + 3 * 30 :] == more


@pytest.mark.parametrize(("count", "more"), [(14, []), (15, [" … and 1 more lines"])])
def test_fourteen_lines_of_a_difference_are_shown_and_two_hundred_letters_of_each(
    count: int, more: list[str]
) -> None:
    new = replace(RETURNED, text="\n".join(["x" * 199, "y" * 200, *"z" * (count - 6)]))
    shown = differs(RETURNED, new)[1:]
    assert len(shown) == 14 + len(more)
    assert shown[14:] == more
    assert shown[4:6] == ["+" + "x" * 199, "+" + "y" * 198 + "…"]


def test_a_run_that_was_stopped_may_have_just_begun_to_ask() -> None:
    def ended(status: Any) -> Event:
        return event(RunFinished, 9, report=Report(run_id="r", status=status, text="", agent="bee"))

    asks = event(StepStarted, 6, step=5, model="m")
    assert difference([*LOG, ended("cancelled")], [*LOG, asks, ended("cancelled")]) == ""
    assert "step 5: step started" in difference([*LOG, ended("error")], [*LOG, asks, ended("error")])


def test_what_a_copy_was_told_before_it_was_made_may_be_worded_otherwise() -> None:
    copied = replace(BEGAN, forked_at=8.0)
    began = event(ChildStarted, 4, child_id="kid", agent="ant", call_id="c1", prompt="do")
    end = event(
        ChildEnded,
        5,
        child_id="kid",
        agent="ant",
        call_id="c1",
        status="completed",
        usage=Usage(),
        notice="old",
    )
    log = [copied, began, replace(RETURNED, at=7.5), replace(end, at=7.0)]
    other = [copied, began, replace(RETURNED, text="new"), replace(end, notice="new")]
    assert difference(log, other) == ""
    late = [copied, began, replace(RETURNED, at=8.0), replace(end, at=8.0)]
    assert "-old\n+new" in difference(late, other)
    assert "+new" in difference(late, [*other[:3], replace(end, at=8.0)])
