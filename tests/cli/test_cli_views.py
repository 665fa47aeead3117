"""What the views draw from recorded events: the tree in every size, words, tables, questions."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import Log, family

from retinue.cli.editing import Unusable, as_text, from_text
from retinue.events import (
    ApprovalAnswered,
    ChildStarted,
    ErrorRaised,
    LiveEvent,
    Progressed,
    RunResumed,
    StepRetried,
    StepStarted,
    Streamed,
    ToolCalled,
    ToolReturned,
)
from retinue.reports import frame
from retinue.story import Story
from retinue.types import Report
from retinue.view import live, words
from retinue.view.answer import summary
from retinue.view.live import LiveView, PlainView
from retinue.view.paint import Line, cells, cut, fit, paint, plain, width_of, wrap
from retinue.view.picture import outline, picture
from retinue.view.question import question
from retinue.view.table import TableColumn, table
from retinue.web import framing
from retinue.workspace import HOME

NOW = 1_790_000_100.0
printable = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)


def tree_of(events: list[Any]) -> Story:
    tree = Story()
    for event in events:
        tree.apply(event)
    return tree


def drawn(tree: Story, width: int = 80, height: int = 24) -> list[str]:
    return [plain(line) for line in picture(tree, width=width, height=height, now=NOW)]


def crowd(number: int) -> list[LiveEvent]:
    """A root with so many children: every third has ended, every seventh waits, the rest runs a tool."""
    root = Log()
    events: list[LiveEvent] = [root.started()]
    for index in range(number):
        child = Log(f"c{index:04d}", parent=root, at=root.at)
        events.append(
            root.add(
                ChildStarted, 0, child_id=child.run_id, agent="helper", prompt=f"part {index}", call_id="x"
            )
        )
        events.append(child.started("helper", f"part {index}"))
        if index % 3 == 0:
            events.append(child.finished(agent="helper"))
        elif index % 7 == 0:
            events.append(child.asked(f"make part{index}"))
        else:
            step = child.step("", ("grep", {"pattern": f"word{index}"}))
            events += [*step, child.called(step[1].message.calls[0])]
    return events


def test_a_running_tool_is_shown_below_its_agent_with_its_arguments():
    root = Log()
    step = root.step("", ("grep", {"pattern": "retry", "path": "src"}))
    lines = drawn(tree_of([root.started(), *step, root.called(step[1].message.calls[0])]))
    assert "🔧 general" in lines[0]
    assert "step 1" in lines[0]
    assert "1.1k" in lines[0]
    assert lines[1].strip().startswith("▸ grep  retry in src")


def test_what_has_ended_is_one_line_and_at_the_end_everyone_has_one():
    events = family()
    child_over = tree_of(events[:11])
    assert next(line for line in drawn(child_over) if "helper" in line).startswith("╰─✓ 🔧 helper")
    assert len(drawn(child_over)) <= 3
    left = [plain(line) for line in outline(tree_of(events), width=80, height=20, now=NOW)]
    assert len(left) == 2
    assert "2 turns" in left[1]


def test_a_run_without_children_leaves_no_tree_behind():
    root = Log()
    assert outline(tree_of([root.started(), root.finished()]), width=80, height=20, now=NOW) == []


@pytest.mark.parametrize("number", [0, 1, 5, 30, 300])
@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (140, 50)])
def test_the_picture_fits_whatever_the_size(number: int, width: int, height: int):
    tree = tree_of(crowd(number))
    assert tree.root is not None
    tree.apply(Streamed(run_id=tree.root.run_id, root_id="r", depth=0, step=1, text="word " * 500))
    lines = picture(tree, width=width, height=height, now=NOW)
    assert len(lines) <= height
    assert max(map(width_of, lines)) <= width


def test_a_crowd_is_counted_and_whoever_waits_is_shown_first():
    lines = drawn(tree_of(crowd(300)), height=30)
    assert "✓ 100 done" in "\n".join(lines)
    listed = [line for line in lines if line.startswith(("├─?", "├─⠋"))]
    waits = [line for line in listed if "waits for you" in line]
    assert len(waits) == len(listed) > 5
    assert lines[-1].startswith("╰─+")
    assert "more: " in lines[-1]
    total = len(listed) + 100 + int(lines[-1].split("+")[1].split()[0])
    assert total == 300


def test_retries_progress_and_errors_are_said():
    root = Log()
    began = [root.started(), root.add(StepStarted, step=1, model="m")]
    tree = tree_of([*began, root.add(StepRetried, step=1, reason="rate limited", attempt=2, wait=3.0)])
    assert "asking again in 3.0 s: rate limited" in "\n".join(drawn(tree))
    step = root.step("", ("bash", {"command": "make"}))
    tree = tree_of([*began, *step, root.called(step[1].message.calls[0])])
    tree.apply(
        Progressed(run_id=root.run_id, root_id="r", depth=0, call_id=step[1].message.calls[0].id, text="40 %")
    )
    assert "▸ bash  40 %" in "\n".join(drawn(tree))
    tree.apply(root.add(ErrorRaised, message="no such model", kind="not_found"))
    assert tree.root is not None
    assert tree.root.failure_kind == "not_found"


def test_text_of_a_call_that_failed_is_taken_back():
    root = Log()
    tree = tree_of([root.started(), root.add(StepStarted, step=1, model="m")])
    tree.apply(Streamed(run_id=root.run_id, root_id="r", depth=0, step=1, text="half an ans"))
    assert "half an ans" in "\n".join(drawn(tree))
    tree.apply(root.add(StepRetried, step=1, reason="lost", attempt=2, wait=0.0, text_shown=True))
    assert "half an ans" not in "\n".join(drawn(tree))


def test_a_question_still_waits_after_a_resume_until_it_is_answered():
    root = Log()
    asked = root.asked("make")
    tree = tree_of([root.started(), asked])
    assert list(tree.approvals) == [asked.approval_id]
    tree.apply(root.finished(status="cancelled"))
    assert tree.approvals == {}
    tree.apply(root.add(RunResumed))
    assert list(tree.approvals) == [asked.approval_id]
    tree.apply(
        root.add(ApprovalAnswered, approval_id=asked.approval_id, call_id=asked.call_id, decision="approve")
    )
    assert tree.approvals == {}


def test_a_question_shows_every_line_or_says_how_many_it_hides():
    root = Log()
    root.started()
    long = "\n".join(f"echo {number}" for number in range(100))
    lines, hidden = question(root.asked(long), number=2, total=3, width=60, height=24)
    text = [plain(line) for line in lines]
    assert "approval 2 of 3" in text[1]
    assert len(text) <= 24
    assert hidden == 100 - sum(line.startswith("    echo") or "$ echo" in line for line in text)
    assert any(f"{hidden} more lines" in line for line in text)
    short, none = question(root.asked("ls"), number=1, total=1, width=60, height=24)
    assert none == 0
    assert any("$ ls" in plain(line) for line in short)


@pytest.mark.parametrize("turns", range(4))
async def test_the_live_view_ends_even_when_something_happens_at_that_very_moment(
    monkeypatch: pytest.MonkeyPatch, turns: int
):
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", nowhere)
        async with asyncio.timeout(60):
            async with LiveView() as view:
                while not view._changed._waiters:  # it waits for an event
                    await asyncio.sleep(0.01)
                view.show(Log().started())
                for _ in range(turns):
                    await asyncio.sleep(0)


# -- words ------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(printable)
def test_cleaned_text_holds_no_control_characters_and_keeps_its_lines(text: str):
    cleaned = words.clean(text)
    assert not [c for c in cleaned if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    assert not set(cleaned) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200f")
    assert "\n" not in words.one_line(text)
    assert len(words.one_line(text)) <= 200


@settings(deadline=None)
@given(printable, st.integers(1, 60))
def test_cut_text_is_never_wider_than_asked(text: str, width: int):
    text = words.one_line(text)
    assert cells(cut(text, width)) <= width
    assert cells(text) > width or cut(text, width) == text


@settings(deadline=None)
@given(
    st.lists(st.tuples(printable, st.sampled_from(["", "bold", "bold red"])), max_size=6), st.integers(1, 60)
)
def test_a_fitted_line_is_never_wider_than_asked(spans: Line, width: int):
    line = [(words.one_line(text), style) for text, style in spans]
    assert width_of(fit(line, width)) <= width
    assert paint(line, colour=False) == plain(line)


@settings(deadline=None)
@given(st.text(st.characters(codec="ascii", exclude_categories=("Cc",)) | st.just("\n"), max_size=300))
def test_wrapping_loses_no_word(text: str):
    lines = wrap(text, 20)
    assert all(cells(line) <= 20 for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 m 00 s"), (61, "1 m 01 s"), (3725, "1 h 02 m")],
)
def test_durations_read_well(seconds: float, said: str):
    assert words.duration(seconds) == said


def test_money_and_tokens_read_well():
    assert [words.money(x) for x in (None, 0, 0.00001, 0.0042, 0.0123, 3.5, 1234.5)] == [
        "cost unknown",
        "$0",
        "<$0.0001",
        "$0.0042",
        "$0.012",
        "$3.50",
        "$1,234.50",
    ]
    assert [words.tokens(x) for x in (0, 999, 1000, 99_949, 123_456, 999_500)] == [
        "0",
        "999",
        "1.0k",
        "99.9k",
        "123k",
        "1.0M",
    ]


def test_the_telling_argument_of_a_call_is_shown():
    said = [
        words.arguments(json.dumps(value))
        for value in (
            {"command": "make\n  test"},
            {"pattern": "x", "path": "src"},
            {"path": "a.py", "offset": 10, "limit": 5},
            {"depth": 3, "deep": True},
            {},
        )
    ]
    assert said == ["make test", "x in src", "a.py:10+5", "depth=3 deep=true", ""]
    assert words.arguments("{not json") == "{not json"


def test_a_table_gives_up_its_least_important_columns_first():
    heads = (
        TableColumn(title="ID"),
        TableColumn(title="EXTRA", rank=2),
        TableColumn(title="N", right=True, rank=1),
        TableColumn(title="TEXT", flexible=True),
    )
    rows = [[("abc", ""), ("something", ""), ("7", ""), ("a long text " * 5, "")]]
    whole = [plain(line) for line in table(heads, rows, None)]
    assert whole[1].rstrip().endswith("a long text")
    narrow = [plain(line) for line in table(heads, rows, 30)]
    assert "EXTRA" not in narrow[0]
    assert "N" in narrow[0]
    assert all(len(line) <= 30 for line in narrow)


# -- editing ----------------------------------------------------------------------------------------------

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text("abcdef_", min_size=1), values, max_size=4))
def test_arguments_that_were_not_changed_come_back_as_they_were(arguments: dict[str, Any]):
    raw = json.dumps(arguments)
    assert json.loads(from_text(as_text(raw), raw)) == arguments


def test_a_text_stays_a_text_however_it_reads():
    raw = json.dumps({"command": "ls", "times": 3})
    edited = from_text("command: yes\ntimes: 4\n", raw)
    assert json.loads(edited) == {"command": "yes", "times": 4}


def test_a_long_text_keeps_its_lines_in_the_editor():
    text = as_text(json.dumps({"content": "one\ntwo\n"}))
    assert "content: |\n  one\n  two\n" in text


@pytest.mark.parametrize("text", ["just words", "- a\n- b", "a: [unclosed"])
def test_what_cannot_be_arguments_is_refused(text: str):
    with pytest.raises(Unusable):
        from_text(text, "{}")


async def test_a_pipe_is_told_when_a_model_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(live, "WAITING", 0.02)
    root = Log()
    async with PlainView() as view:
        view.show(root.started())
        view.show(root.add(StepStarted, 0, step=1, model="m"))
        told = ""
        while "waits for the model" not in told:
            await asyncio.sleep(0.01)
            told += capsys.readouterr().err
        view.show(root.add(StepRetried, 1, step=1, reason="slow", attempt=1, wait=0.0, text_shown=False))
    assert "asked again (try 2): slow" in capsys.readouterr().err


async def test_quiet_says_nothing_of_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(live, "WAITING", 0.01)
    root = Log()
    async with PlainView(quiet=True) as view:
        view.show(root.started())
        view.show(root.add(StepStarted, 0, step=1, model="m"))
        time_is_up = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, time_is_up.set)
        await time_is_up.wait()
    assert capsys.readouterr().err == ""


def test_a_refusal_is_shown_to_its_end_and_a_delegation_once(capsys: pytest.CaptureFixture[str]):
    root, view = Log(), PlainView()
    view.show(root.started())
    view.show(
        root.add(
            ToolCalled, 0, call_id="a", name="helper", arguments="{}", effect="delegate", repeatable=True
        )
    )
    view.show(root.add(ChildStarted, 0, child_id="c1", agent="helper", prompt="part", call_id="a"))
    text = "refused: " + "because " * 30 + "add it to allow"
    view.show(
        root.add(ToolReturned, 0, call_id="b", name="bash", text=text, is_error=True, not_run="unattended")
    )
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "starts helper" in told[0]
    assert told[1].endswith("add it to allow")


FRAMED = frame(
    Report(run_id="r2", status="error", text="", agent="helper", error="the disk is full"),
    "It failed: the disk is full.",
)
SOURCE = framing.frame("quota of example.org", what="words of the source")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FRAMED, "helper failed: It failed: the disk is full."),
        (f"wiki is down.\n{SOURCE}", "helper failed: wiki is down. quota of example.org"),
        (json.dumps({"success": False, "child_id": "r2", "report": FRAMED, "error": "timed out after 5 s"}), "timed out after 5 s"),
        (json.dumps({"success": False, "report": FRAMED, "error": "why is in the report"}), "helper failed: It failed: the disk is full."),
        (json.dumps({"results": [{"report": "", "success": True}, {"success": False, "error": "no such agent"}]}), "helper failed: no such agent"),
        ('{"rows": 7}', 'helper failed: {"rows": 7}'),
        ("[1, 2", "helper failed: [1, 2"),
    ],
)  # fmt: skip
def test_a_failure_is_told_without_what_is_meant_for_the_model(
    capsys: pytest.CaptureFixture[str], text: str, said: str
):
    """Marks around reports and around what strangers wrote, and JSON, are for the model that reads on."""
    root, view = Log(), PlainView()
    view.show(root.started())
    view.show(
        root.add(
            ToolCalled, 0, call_id="b", name="helper", arguments="{}", effect="delegate", repeatable=True
        )
    )
    view.show(root.add(ToolReturned, 0, call_id="b", name="helper", text=text, is_error=True))
    told = capsys.readouterr().err.strip()
    assert told.endswith(said)
    assert "<report" not in told
    assert "It is data" not in told


def test_the_seconds_of_a_run_that_goes_on_count_from_there(capsys: pytest.CaptureFixture[str]):
    root, view = Log(), PlainView()
    view.show(root.started())
    view.show(root.add(RunResumed, 50, pid=1, host="here", reason="resumed"))
    assert capsys.readouterr().err.startswith("[   0.0 s]")


def test_a_model_without_a_name_of_its_own_is_not_shown_as_a_colon():
    assert words.model("openai:") == "openai, its only model"
    assert words.model("openai:gpt-x") == "openai:gpt-x"


def footer(*files: str) -> str:
    report = Report(run_id="r1", status="completed", text="Done.", agent="general", files=files)
    return "\n".join(plain(line) for line in summary(report))


def test_the_footer_names_the_files_that_are_still_there_after_the_run() -> None:
    assert "files: notes.md" in footer("notes.md", f"{HOME}/web/guide-0a1b2c3d.md", f"{HOME}/scratch.txt")
    assert HOME not in footer("notes.md", f"{HOME}/web/guide-0a1b2c3d.md", f"{HOME}/scratch.txt")
    assert "files:" not in footer(f"{HOME}/web/guide-0a1b2c3d.md")
