"""The log and what it means."""

from __future__ import annotations

import string
from dataclasses import fields
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue import events
from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ChildEnded,
    ChildStarted,
    Event,
    HistoryPruned,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
    decode,
    encode,
)
from retinue.fold import apply, fold
from retinue.run_state import RunState
from retinue.types import (
    AgentSpec,
    AssistantMessage,
    Report,
    Shortfall,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

SPEC = AgentSpec(name="a", description="d", prompt="p")


class Writer:
    """Stamps events the way a run does."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, kind: type[Event], /, **fields: Any) -> Event:
        event = kind(
            run_id="r1", root_id="r1", parent_id=None, depth=0, seq=len(self.events) + 1, at=1.0, **fields
        )
        self.events.append(event)
        return event


names = st.text(string.ascii_lowercase, min_size=1, max_size=5)
texts = st.text(max_size=30)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Logs as the loop would write them, with results in any order and messages in between."""
    write = Writer()
    write(RunStarted, spec=SPEC, prompt=draw(texts))
    for step in range(1, draw(st.integers(1, 5)) + 1):
        if draw(st.booleans()):
            write(MessageReceived, text=draw(texts), message_id=f"m{step}")
        write(StepStarted, step=step, model="m")
        calls = tuple(
            ToolCall(id=f"{step}.{n}", name=draw(names), arguments="{}")
            for n in range(draw(st.integers(0, 3)))
        )
        usage = Usage(
            input_tokens=draw(st.integers(0, 9)), output_tokens=1, cost=draw(st.sampled_from([0.5, None]))
        )
        write(
            ModelReplied,
            step=step,
            message=AssistantMessage(text=draw(texts), calls=calls),
            usage=usage,
            stop="tool_calls" if calls else "end",
            model="m",
        )
        for call in draw(st.permutations(calls)):
            if draw(st.booleans()):
                asked = f"r1:{call.id}"
                write(
                    ApprovalRequested,
                    approval_id=asked,
                    call_id=call.id,
                    tool=call.name,
                    arguments="{}",
                    effect="write",
                    risk="medium",
                )
                write(ApprovalAnswered, approval_id=asked, call_id=call.id, decision="approve")
            write(ToolCalled, call_id=call.id, name=call.name, arguments="{}", effect="read", repeatable=True)
            if draw(st.booleans()):
                write(ChildStarted, child_id=f"c{call.id}", agent="b", prompt="x", call_id=call.id)
                write(ChildEnded, child_id=f"c{call.id}", agent="b", status="completed", usage=Usage())
            write(
                ToolReturned, call_id=call.id, name=call.name, text=draw(texts), is_error=draw(st.booleans())
            )
    if draw(st.booleans()):
        write(RunFinished, report=Report(run_id="r1", status="completed", text=draw(texts), agent="a"))
        if draw(st.booleans()):
            write(RunResumed)
    return write.events


def facts(state: RunState) -> dict[str, object]:
    return {each.name: getattr(state, each.name) for each in fields(state) if each.name != "attempts"}


@given(logs())
@settings(max_examples=150, deadline=None)
def test_every_event_survives_being_written_and_read(log: list[Event]) -> None:
    assert [decode(encode(event)) for event in log] == log  # pyright: ignore[reportArgumentType]


@given(logs())
@settings(max_examples=150, deadline=None)
def test_any_beginning_of_a_log_folds_and_folding_is_deterministic(log: list[Event]) -> None:
    live = RunState()
    for length in range(len(log) + 1):
        folded = fold(log[:length])
        assert facts(folded) == facts(fold(log[:length]))
        if length:
            apply(live, log[length - 1])
            assert facts(live) == facts(folded)


@given(logs())
@settings(max_examples=150, deadline=None)
def test_in_any_beginning_of_a_log_a_call_and_its_result_are_never_parted(log: list[Event]) -> None:
    for length in range(len(log) + 1):
        state = fold(log[:length])
        owed: list[str] = []
        for index, message in enumerate(state.messages):
            if isinstance(message, ToolMessage):
                assert message.call_id == owed.pop(0)
                continue
            assert not owed, "something stands between a call and its result"
            if isinstance(message, AssistantMessage):
                owed = [call.id for call in message.calls]
                if index == len(state.messages) - 1:
                    owed = []  # the last reply may still wait for its results


def test_results_join_the_history_in_the_order_of_the_calls() -> None:
    write = Writer()
    write(RunStarted, spec=SPEC, prompt="go")
    calls = (ToolCall(id="1", name="a", arguments="{}"), ToolCall(id="2", name="b", arguments="{}"))
    write(
        ModelReplied,
        step=1,
        message=AssistantMessage(calls=calls),
        usage=Usage(),
        stop="tool_calls",
        model="m",
    )
    write(ToolReturned, call_id="2", name="b", text="second")
    assert [type(m) for m in fold(write.events).messages] == [UserMessage, AssistantMessage]
    write(MessageReceived, text="by the way")
    write(ToolReturned, call_id="1", name="a", text="first")
    texts_shown = [m.text for m in fold(write.events).messages]
    assert texts_shown == ["go", "", "first", "second", "by the way"]


@pytest.mark.parametrize(
    ("version", "effect", "private"),
    [(1, "read", ["what look returned"]), (1, "network", []), (2, "read", [])],
)
def test_what_a_tool_read_is_private_where_a_log_is_too_old_to_say_so(
    version: int, effect: Any, private: list[str]
) -> None:
    write = Writer()
    write(RunStarted, spec=SPEC, prompt="go")
    write(ToolCalled, call_id="1", name="look", arguments="{}", effect=effect, repeatable=True)
    write(ToolReturned, call_id="1", name="look", text="found", v=version)
    assert list(fold(write.events).private) == private


@pytest.mark.parametrize(("sender", "lacks"), [("parent", 1), ("person", 0)])
def test_what_a_child_lacked_counts_for_its_parents_next_piece_of_work_and_not_for_a_persons(
    sender: Any, lacks: int
) -> None:
    write = Writer()
    write(RunStarted, spec=SPEC, prompt="go")
    write(ChildStarted, child_id="c", agent="b", prompt="part")
    write(ChildEnded, child_id="c", agent="b", status="error", usage=Usage(), shortfall=Shortfall(failed=1))
    write(RunFinished, report=Report(run_id="r1", agent="a", status="completed", text="done"))
    assert fold(write.events).lacked_by("c").failed == 1
    write(MessageReceived, text="and now the rest", sender=sender, opens=True)
    assert fold(write.events).lacked_by("c").failed == lacks


def test_pruning_keeps_the_task_and_what_follows_the_dropped_messages() -> None:
    write = Writer()
    write(RunStarted, spec=SPEC, prompt="task")
    for step in (1, 2, 3):
        message = AssistantMessage(text=f"t{step}", calls=(ToolCall(id=str(step), name="a", arguments="{}"),))
        write(ModelReplied, step=step, message=message, usage=Usage(), stop="tool_calls", model="m")
        write(ToolReturned, call_id=str(step), name="a", text=f"r{step}")
    write(HistoryPruned, dropped=4, summary="[gone]")
    assert [m.text for m in fold(write.events).messages] == ["task", "[gone]", "t3", "r3"]


def test_an_unknown_price_makes_the_sum_unknown_and_never_zero() -> None:
    assert (Usage(cost=0.5) + Usage(cost=None)).cost is None
    assert (Usage(cost=0.5) + Usage(cost=0.25)).cost == 0.75


def test_an_event_of_a_newer_form_is_refused_not_misread() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(
            b'{"type":"teleported","run_id":"r1","root_id":"r1","parent_id":null,"depth":0,"seq":1,"at":1}'
        )


def test_the_json_form_is_stable() -> None:
    write = Writer()
    event = write(
        ToolCalled, call_id="1", name="grep", arguments='{"pattern":"x"}', effect="read", repeatable=True
    )
    assert encode(event) == (  # pyright: ignore[reportArgumentType]
        b'{"type":"tool_called","run_id":"r1","root_id":"r1","parent_id":null,"depth":0,"seq":1,"at":1.0,'
        b'"pos":0,"v":2,"call_id":"1","name":"grep","arguments":"{\\"pattern\\":\\"x\\"}","effect":"read",'
        b'"repeatable":true,"address":"","private":[]}'
    )


def test_every_kind_of_event_is_imported_from_the_package_of_events() -> None:
    kinds = {kind.__name__ for kind in get_args(events.AnyEvent)}
    assert len(kinds) > 20
    assert kinds <= set(events.__all__)
