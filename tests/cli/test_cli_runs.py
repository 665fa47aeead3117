"""`retinue runs`, `stats` and `approvals` over stored logs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logs import ROOT, Log, family, store, waiting
from world import Cli, Ended

from retinue.engine import shown
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    ChildEnded,
    ModelReplied,
    RunFinished,
    ToolReturned,
)
from retinue.store.memory import MemoryStore
from retinue.types import Shortfall

Invoke = Callable[..., Ended]
CHILD = "c1111111111111111"


@pytest.fixture
def db(cli: Cli) -> str:
    return store(cli.home / "runs.db", family(), waiting())


def test_list_shows_what_people_started_with_what_the_whole_tree_used(invoke: Invoke, db: str):
    ended = invoke("runs", "list", "--db", db)
    lines = ended.out.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "AGENT", "STARTED", "TIME", "TOKENS", "COST", "TASK"]
    assert len(lines) == 3
    assert "waiting" in lines[1]
    assert ROOT in lines[2]
    assert "3.3k" in lines[2]  # three steps of 1,100 tokens, one of them the child's
    assert "$0.030" in lines[2]


def test_list_as_json_has_every_column_of_a_record(invoke: Invoke, db: str):
    rows = invoke("runs", "list", "--db", db, "--json", "--all").lines
    assert len(rows) == 3
    child = next(row for row in rows if row["run_id"] == CHILD)
    assert child["parent_id"] == child["root_id"] == ROOT
    assert child["agent"] == "helper"
    assert child["status"] == "completed"
    assert {"task", "turns", "tool_calls", "input_tokens", "output_tokens", "cost", "created_at"} <= set(
        child
    )


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--status", "waiting"), {"r1m7h1111abcdefgh"}),
        (("--agent", "helper"), {CHILD}),
        (("--text", "CLEAN"), {"r1m7h1111abcdefgh"}),
        (("--since", "2h"), set()),
        (("--since", "2026-01-01"), {"r1m7h1111abcdefgh", ROOT}),
        (("--min-cost", "0.015"), {ROOT}),
        (("--limit", "1"), {"r1m7h1111abcdefgh"}),
    ],
)
def test_list_filters(invoke: Invoke, db: str, filters: tuple[str, ...], found: set[str]):
    rows = invoke("runs", "list", "--db", db, "--json", *filters).lines
    assert {row["run_id"] for row in rows} == found


def test_a_run_may_be_named_by_the_beginning_of_its_id(invoke: Invoke, db: str):
    assert invoke("runs", "show", "c11", "--db", db, "--json").code == 0
    assert "several runs" in invoke("runs", "show", "r1m7h", "--db", db).err
    last = json.loads(invoke("runs", "show", "last", "--db", db, "--json").out)
    assert last["run"]["run_id"] == "r1m7h1111abcdefgh"


def test_show_is_a_transcript_with_the_answer_once(invoke: Invoke, db: str):
    ended = invoke("runs", "show", ROOT, "--db", db)
    assert "» find the bug" in ended.out
    assert "▸ grep  bug in src" in ended.out
    assert "… 32 more lines (--full)" in ended.out
    assert f"→ starts helper  {CHILD}" in ended.out
    assert ended.out.count("All **fixed**") == 1
    assert "\x1b" not in ended.out
    assert "✗ https://x.org  not verified" in ended.err
    assert "src/a.py:39" in invoke("runs", "show", ROOT, "--db", db, "--full").out


def test_tree_draws_children_below_their_parent(invoke: Invoke, db: str):
    root, child = invoke("runs", "tree", ROOT, "--db", db).out.splitlines()
    assert root.startswith("✓ general")
    assert child.startswith("╰─✓ helper")
    assert "$0.030" in root
    assert "$0.010" in child
    assert "━" in child


def test_tree_says_the_effort_where_one_was_taken(invoke: Invoke, cli: Cli):
    log = [
        msgspec.structs.replace(event, effort="high")
        if isinstance(event, ModelReplied) and event.run_id == CHILD
        else event
        for event in family()
    ]
    db = store(cli.home / "effort.db", log)
    root, child = invoke("runs", "tree", ROOT, "--db", db).out.splitlines()
    assert "· high effort ·" in child
    assert "effort" not in root
    rows = invoke("runs", "tree", ROOT, "--db", db, "--json").lines
    assert {row["run_id"]: row["effort"] for row in rows} == {ROOT: "", CHILD: "high"}


def test_events_are_one_line_each_or_json(invoke: Invoke, db: str):
    lines = invoke("runs", "events", ROOT, "--db", db).out.splitlines()
    assert len(lines) == len(family())
    assert "run started  find the bug" in lines[0]
    kinds = [event["type"] for event in invoke("runs", "events", CHILD, "--db", db, "--json").lines]
    assert kinds == ["run_started", "step_started", "model_replied", "run_finished"]


def test_export_gives_back_every_event(invoke: Invoke, db: str):
    events = invoke("runs", "export", ROOT, "--db", db).lines
    assert [event["seq"] for event in events if event["run_id"] == CHILD] == [1, 2, 3, 4]
    assert len(events) == len(family())


def test_the_exported_page_runs_nothing_and_loads_nothing(invoke: Invoke, db: str, tmp_path: Path):
    target = tmp_path / "run.html"
    assert invoke("runs", "export", ROOT, "--html", "-o", str(target), "--db", db).code == 0
    text = target.read_text()
    tags: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, dict(attrs)))

    Reader().feed(text)
    assert not {tag for tag, _ in tags} & {"script", "img", "iframe", "link", "object", "a"}
    assert "default-src 'none'" in text
    assert "&lt;script&gt;" in text
    assert [tag for tag, _ in tags].count("details") >= 4
    assert "<strong>fixed</strong>" in text


def test_deleting_needs_the_root_and_its_end(invoke: Invoke, db: str):
    assert f"part of {ROOT}" in invoke("runs", "delete", CHILD, "--db", db).err
    assert "not ended" in invoke("runs", "delete", "last", "--db", db).err
    assert invoke("runs", "delete", ROOT, "--db", db).code == 0
    assert len(invoke("runs", "list", "--db", db, "--json", "--all").lines) == 1


def test_pruning_keeps_what_waits_and_a_dry_run_removes_nothing(invoke: Invoke, db: str):
    dry = invoke("runs", "prune", "--older-than", "1h", "--dry-run", "--db", db)
    assert dry.out.split() == [ROOT]
    assert "would be removed" in dry.err
    assert len(invoke("runs", "list", "--db", db, "--json").lines) == 2
    assert invoke("runs", "prune", "--older-than", "1h", "--db", db).out.split() == [ROOT]
    left = invoke("runs", "list", "--db", db, "--json").lines
    assert [row["status"] for row in left] == ["waiting"]


def test_pruning_what_is_older_than_nothing_is_pruning_all_that_ended(invoke: Invoke, db: str):
    assert invoke("runs", "prune", "--older-than", "0s", "--dry-run", "--db", db).out.split() == [ROOT]
    since = invoke("runs", "list", "--since", "0h", "--db", db)
    assert since.code == 2
    assert "--since '0h' is no time (give more than 0, like 2h, 7d or 2026-11-30)" in since.err


def test_stats_sum_up_by_agent_model_and_day(invoke: Invoke, db: str):
    by_agent = {row["key"]: row for row in invoke("stats", "--db", db, "--json").lines}
    assert by_agent["general"]["runs"] == 2
    assert by_agent["helper"]["input_tokens"] == 1000
    day = invoke("stats", "--by", "day", "--db", db, "--json").lines
    assert day[0]["key"] == time.strftime("%Y-%m-%d", time.localtime(1_790_000_000))
    shown = invoke("stats", "--by", "model", "--db", db).out
    assert "openai:gpt-x" in shown
    assert "MODEL" in shown


def test_an_unknown_price_is_never_shown_as_nothing(invoke: Invoke, cli: Cli):
    log = Log()
    events = [log.started(), *log.step("hm", cost=None), log.finished()]
    db = store(cli.home / "unpriced.db", events)
    assert invoke("runs", "list", "--db", db).out.splitlines()[1].split()[-4] == "?"
    stats = invoke("stats", "--db", db)
    assert "$0" not in stats.out
    assert "cost of 1 run is not known" in stats.err


def test_a_waiting_question_is_listed_answered_once_and_then_too_late(invoke: Invoke, db: str, cli: Cli):
    listed = invoke("approvals", "list", "--db", db)
    assert "general › helper wants to use bash  risk high" in listed.out
    assert "$ rm -rf build" in listed.out
    (asked,) = invoke("approvals", "list", "--db", db, "--json").lines
    wrong = invoke("approvals", "answer", "r1m7h1", "approve", "--arguments", '{"command": 3}', "--db", db)
    assert (wrong.code, "invalid arguments for bash" in wrong.err) == (2, True), wrong.err
    assert invoke("approvals", "list", "--db", db, "--json").lines == [asked], "it is still open"
    first = invoke("approvals", "answer", "r1m7h1", "approve", "--arguments", '{"command": "ls"}', "--db", db)
    assert first.code == 0, first.err
    assert "runs resume" in first.err
    late = invoke("approvals", "answer", asked["approval_id"], "reject", "--db", db)
    assert late.code == 4
    (question,) = (event for event in waiting() if isinstance(event, ApprovalRequested))
    place = {name: getattr(question, name) for name in ("run_id", "root_id", "parent_id", "depth", "call_id")}
    seq = 1 + max(event.seq for event in waiting() if event.run_id == question.run_id)
    taken = ApprovalAnswered(
        **place, seq=seq, at=time.time(), approval_id=question.approval_id, decision="approve"
    )
    store(cli.home / "runs.db", [taken])
    short = invoke("approvals", "answer", "r1m7h1", "reject", "--db", db)
    assert (short.code, "was answered before" in short.err) == (4, True), short.err


def test_a_message_to_a_run_that_has_ended_says_how_to_go_on(invoke: Invoke, db: str):
    ended = invoke("runs", "message", ROOT, "hello", "--db", db)
    assert ended.code == 2
    assert "--message" in ended.err
    assert invoke("runs", "message", "last", "hello", "there", "--db", db).code == 0


def test_cancelling_what_has_ended_changes_nothing(invoke: Invoke, db: str):
    ended = invoke("runs", "cancel", ROOT, "--db", db)
    assert ended.code == 0
    assert "had ended before" in ended.err


def test_an_empty_database_is_no_error(invoke: Invoke):
    assert invoke("runs", "list").code == 0
    assert "nothing waits" in invoke("approvals", "list").err
    assert invoke("stats").code == 0


def test_runs_of_several_folders_are_listed_with_theirs(invoke: Invoke, cli: Cli):
    other = cli.folder / "elsewhere"
    other.mkdir()
    invoke("ask", "hello")
    assert "FOLDER" not in invoke("runs", "list").out
    invoke("ask", "hello", "--cwd", str(other))
    listed = invoke("runs", "list").out
    assert "FOLDER" in listed
    assert "elsewhere" in listed


def lacking(name: str, *events: Callable[[Log], AnyEvent], **report: Any) -> list[AnyEvent]:
    """A completed run in which this happened before its end."""
    root = Log(f"r1m7h{name}", at=1_790_000_900.0)
    return [root.started(prompt=name), *(event(root) for event in events), root.finished(**report)]


def reject(root: Log) -> AnyEvent:
    return root.add(ApprovalAnswered, approval_id=f"{root.run_id}:callx", call_id="callx", decision="reject")


def refuse(root: Log) -> AnyEvent:
    return root.add(
        ToolReturned, call_id="callx", name="write", text="no", is_error=True, not_run="unattended"
    )


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (lacking("rejected", lambda root: root.asked("rm x"), reject), "✗ rejected"),
        (lacking("refused", refuse), "! refused"),
        (lacking("incomplete", incomplete="nothing was read"), "! incomplete"),
        (lacking("done"), "✓ completed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_what_has_all_its_parts_has_a_tick(invoke: Invoke, cli: Cli, log: list[AnyEvent], shown: str):
    db = store(cli.home / "runs.db", log)
    mark = shown[0]
    listed = invoke("runs", "list", "--db", db).out.splitlines()[1]
    assert shown in listed
    tree = invoke("runs", "tree", "last", "--db", db).out
    assert tree.startswith(f"{mark} general")
    assert f"\n{mark} general" in "\n" + invoke("runs", "show", "last", "--db", db).err
    page = invoke("runs", "export", "last", "--html", "--db", db).out
    assert f'<span class="mark {shown[2:]}">{mark}</span>' in page
    if mark != "✓":
        assert "✓" not in listed + tree + page


def test_what_has_ended_is_named_by_its_outcome_whoever_says_so(invoke: Invoke, cli: Cli):
    db = store(cli.home / "runs.db", lacking("incomplete", incomplete="nothing was read"))
    for command in (
        ("cancel", "last"),
        ("message", "last", "hello"),
        ("resume", "last", "--model", "offline"),
    ):
        said = invoke("runs", *command, "--db", db).err
        assert "incomplete" in said
        assert "completed" not in said


def test_a_rejection_below_takes_the_tick_from_those_above(invoke: Invoke, cli: Cli):
    log = family()
    child = next(event for event in log if event.run_id == CHILD and isinstance(event, RunFinished))
    answer = ApprovalAnswered(
        run_id=CHILD,
        root_id=ROOT,
        parent_id=ROOT,
        depth=1,
        seq=child.seq,
        at=child.at,
        approval_id=f"{CHILD}:callx",
        call_id="callx",
        decision="reject",
    )
    log[log.index(child) : log.index(child) + 1] = [
        answer,
        msgspec.structs.replace(child, seq=child.seq + 1),
    ]
    ended = next(event for event in log if isinstance(event, ChildEnded))
    log[log.index(ended)] = msgspec.structs.replace(ended, shortfall=Shortfall(rejected=1))
    root, below = invoke("runs", "tree", ROOT, "--db", store(cli.home / "runs.db", log)).out.splitlines()
    assert root.startswith("✗ general rejected")
    assert below.startswith("╰─✗ helper rejected")
    assert "← ✗ helper rejected" in invoke("runs", "show", ROOT, "--db", f"sqlite://{cli.home}/runs.db").out


def dead() -> int:
    """The id of a process that was here and is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("asks", [False, True])
def test_a_run_whose_process_is_gone_is_interrupted_and_its_clock_stands(
    invoke: Invoke, cli: Cli, asks: bool
):
    root = Log("r1m7hdead", at=1_790_000_000.0)
    log = [root.started(host=socket.gethostname(), pid=dead()), *root.step("Hm.")]
    db = store(cli.home / "runs.db", [*log, root.asked("rm x")] if asks else log)
    resume = "retinue runs resume r1m7hdead"
    worked = "2.0 s" if asks else "1.0 s"
    listed = invoke("runs", "list", "--db", db)
    assert "‖ interrupted" in listed.out
    assert worked in listed.out
    tree = invoke("runs", "tree", "last", "--db", db)
    assert tree.out.startswith("‖ general interrupted")
    assert worked in tree.out
    for ended in (listed, tree, invoke("runs", "show", "last", "--db", db)):
        assert resume in ended.err
        assert ("a question of it waits" in ended.err) is asks


def test_a_question_that_was_answered_while_its_process_is_gone_is_listed_as_answered(
    invoke: Invoke, cli: Cli
):
    root = Log("r1m7hdead", at=1_790_000_000.0)
    log = [root.started(host=socket.gethostname(), pid=dead()), *root.step("Hm."), root.asked("rm x")]
    db = store(cli.home / "runs.db", log)
    told = "answered; it counts when the run is resumed: retinue runs resume r1m7hdead"
    assert told not in invoke("approvals", "list", "--db", db).err
    assert invoke("approvals", "answer", "r1m7hdead", "approve", "--db", db).code == 0
    assert told in invoke("approvals", "list", "--db", db).err
    for view in (("list",), ("tree", "last"), ("show", "last")):
        said = invoke("runs", *view, "--db", db).err
        assert "its question is answered: go on with: retinue runs resume r1m7hdead" in said
        assert "a question of it waits" not in said


def test_the_time_a_question_waits_is_nobodys_work(invoke: Invoke, cli: Cli):
    root = Log("r1m7hwait", at=1_790_000_000.0)
    began = root.started(host="elsewhere", pid=1)
    first = root.step("", ("bash", {"command": "rm x"}))
    call = first[1].message.calls[0]
    log = [began, *first, root.asked("rm x", call.id)]
    db = store(cli.home / "waiting.db", log)
    assert " 2.0 s " in invoke("runs", "list", "--db", db).out, "it waits, since a long time"
    assert " 2.0 s " in invoke("runs", "tree", "last", "--db", db).out
    answered = root.add(
        ApprovalAnswered, 60.0, approval_id=f"{root.run_id}:{call.id}", call_id=call.id, decision="reject"
    )
    back = root.add(ToolReturned, call_id=call.id, name="bash", text="no", duration_ms=60_500, is_error=True)
    db = store(cli.home / "answered.db", [*log, answered, back, root.finished()])
    assert "failed after 0.5 s" in invoke("runs", "show", "last", "--db", db).out


class Watched(MemoryStore):
    """Remembers of which runs events were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str | None] = []

    async def events(self, root_id: str, **which: Any) -> list[AnyEvent]:
        self.read.append(which.get("run_id"))
        return await super().events(root_id, **which)


@pytest.mark.parametrize("large", [False, True])
async def test_of_a_very_large_workflow_only_the_runs_own_log_is_read(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "MOST_READ", len(family()) - large)
    kept = Watched()
    await kept.append(family())
    row = await kept.run(CHILD)
    assert row is not None
    story, log = await shown.told_with_log(kept, row)
    assert {event.run_id for event in log} == {CHILD}
    assert kept.read == [CHILD if large else None]
    assert set(story.nodes) == ({CHILD} if large else {ROOT, CHILD})


def test_runs_are_listed_by_the_outcome_that_is_shown(invoke: Invoke, cli: Cli):
    logs = [lacking("rejected", lambda root: root.asked("rm x"), reject), lacking("done"), waiting()]
    db = store(cli.home / "runs.db", *logs)
    for outcome, count in (("rejected", 1), ("completed", 1), ("waiting", 1), ("error", 0)):
        lines = invoke("runs", "list", "--outcome", outcome, "--db", db).out.splitlines()
        assert len(lines[1:]) == count
        assert all(f" {outcome} " in line for line in lines[1:])
    wrong = invoke("runs", "list", "--outcome", "rejcted", "--db", db)
    assert wrong.code == 2
    assert "did you mean 'rejected'?" in wrong.err
    sums = invoke("stats", "--by", "outcome", "--json", "--db", db).out
    assert {row["key"]: row["runs"] for row in map(json.loads, sums.splitlines())} == {
        "rejected": 1,
        "completed": 1,
        "waiting": 1,
    }
