"""The marks that hand a workflow to workers: on each of its runs, and what the queue goes by on its root."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from retinue.engine.hand_over import Parked, ToWorkers, marks, queue_name, unended
from retinue.events import Event, RunFinished, RunStarted
from retinue.fold import fold
from retinue.run_state import RunState
from retinue.types import Report
from trees import agent

TO = ToWorkers(queue="here@", priority=3, answering="ask", yes=True)


def state(run_id: str, parent_id: str | None = None, status: Any = "") -> RunState:
    place: dict[str, Any] = {
        "run_id": run_id,
        "root_id": "root",
        "parent_id": parent_id,
        "depth": int(parent_id is not None),
    }
    log: list[Event] = [RunStarted(**place, seq=1, at=1.0, spec=agent(run_id), prompt="go")]
    if status:
        report = Report(run_id=run_id, status=status, text="", agent=run_id)
        log.append(RunFinished(**place, seq=2, at=2.0, report=report))
    return fold(log)


def test_every_run_is_marked_next_in_its_log_and_only_the_root_says_to_whom() -> None:
    root, child = marks([state("root"), RunState(), state("child", "root")], TO, "started", signals=4)
    assert (root.run_id, root.seq, root.parent_id, root.depth) == ("root", 2, None, 0)
    assert (child.run_id, child.seq, child.parent_id, child.depth) == ("child", 2, "root", 1)
    assert {root.root_id, child.root_id} == {"root"}
    assert {root.why, child.why} == {"started"}
    assert ToWorkers.of(root) == TO
    assert ToWorkers.of(child) == ToWorkers(queue="")
    assert (root.signals, child.signals) == (4, 0)
    assert [(one.parked, one.until) for one in (root, child)] == [(False, None)] * 2
    assert {(one.host, one.pid) for one in (root, child)} == {(socket.gethostname(), os.getpid())}


@pytest.mark.parametrize("until", [None, 77.0])
def test_what_is_parked_says_until_when_and_after_which_signal(until: float | None) -> None:
    states = [state("root"), state("child", "root")]
    root, child = marks(states, TO, "parked", parked=Parked(signals=7, until=until), signals=4)
    assert (root.parked, root.until, root.signals) == (True, until, 7)
    assert (child.parked, child.until, child.signals) == (False, None, 0)


def test_a_mark_comes_after_what_is_in_line_for_a_log() -> None:
    states = [state("root"), state("child", "root")]
    assert [mark.seq for mark in marks(states, TO, "handed_over", seqs={"child": 8})] == [2, 9]


def test_a_mark_says_no_more_than_was_said_to_whom() -> None:
    (mark,) = marks([state("root")], ToWorkers(queue="q"), "resumed")
    assert (mark.priority, mark.answering, mark.yes, mark.signals) == (0, "", False, 0)


def test_handed_over_is_what_has_begun_and_not_ended() -> None:
    working = state("working")
    over = [state(status, status=status) for status in ("completed", "error", "cancelled")]
    assert unended([RunState(), *over, working]) == [working]


def test_a_queue_is_of_those_who_have_the_folder_and_without_one_of_all() -> None:
    assert queue_name("mine", "") == "mine@"
    there = queue_name("mine", "/a")
    assert there.startswith("mine@")
    assert there == queue_name("mine", "/a")
    assert len({there, queue_name("mine", "/b"), queue_name("other", "/a"), "mine@"}) == 4
