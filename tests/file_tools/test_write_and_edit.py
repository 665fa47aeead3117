"""`write` and `edit`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from working import TOOLS, Agent

from counting import assert_linear
from retinue.errors import ToolError
from retinue.tools.diff import diff
from retinue.workspace import Files
from retinue.workspace_folder import Workspace


async def test_write_creates_and_replaces(agent: Agent, project: Path) -> None:
    result = await agent.result("write", path="new/dir/x.txt", content="one\ntwo")
    assert (result.text, result.files) == ("created new/dir/x.txt: 2 lines, 7 bytes", ("new/dir/x.txt",))
    assert (
        await agent("write", path="./new//dir/x.txt", content="é\n")
        == "replaced new/dir/x.txt: 1 line, 3 bytes"
    )
    assert (project / "new" / "dir" / "x.txt").read_text() == "é\n"


async def test_write_refuses_what_is_no_file_or_no_text(agent: Agent) -> None:
    for path in ("src", "lib/b.py", "src/a.py/x"):
        with pytest.raises(ToolError):
            await agent("write", path=path, content="x")
    with pytest.raises(ToolError, match="not valid Unicode at character 1"):
        await TOOLS["write"].call({"path": "x", "content": "a\ud800"}, agent.ctx)


async def test_a_run_that_may_only_read_cannot_write_or_edit(project: Path, workspace: Workspace) -> None:
    agent = Agent(Files(project, workspace, writable=False))
    for name, more in (("write", {"content": "x"}), ("edit", {"old": "one", "new": "x"})):
        with pytest.raises(ToolError, match="may only read the project"):
            await agent(name, path="src/a.py", **more)
    assert (project / "src" / "a.py").read_text().startswith("one\n")


async def test_edit_replaces_one_place_and_keeps_the_mode(agent: Agent, project: Path) -> None:
    (project / "src" / "a.py").chmod(0o755)
    result = await agent.result("edit", path="src/a.py", old="needle = 1\nthree", new="pin = 1\n3")
    assert (result.text, result.files) == ("edited src/a.py: 1 place replaced", ("src/a.py",))
    assert (project / "src" / "a.py").read_text() == "one\npin = 1\n3\nfour\nneedle = 2\n"
    assert (project / "src" / "a.py").stat().st_mode & 0o777 == 0o755


async def test_edit_refuses_what_is_ambiguous_missing_or_nothing(agent: Agent, project: Path) -> None:
    before = (project / "src" / "a.py").read_text()
    for old, new, words in [
        ("needle", "x", r"old is in src/a\.py 2 times \(lines 2, 5\)\. Give more"),
        ("nothing", "x", r"old is not in src/a\.py\. Read the file"),
        ("  one\n  needle = 1", "x", "but with other blanks at line 1"),
        ("one", "one", "the same"),
        ("", "x", "old is empty"),
    ]:
        with pytest.raises(ToolError, match=words):
            await agent("edit", path="src/a.py", old=old, new=new)
    assert (project / "src" / "a.py").read_text() == before
    assert await agent("edit", path="src/a.py", old="needle", new="x", replace_all=True) == (
        "edited src/a.py: 2 places replaced"
    )


async def test_edit_keeps_line_endings_and_bytes_that_are_not_text(agent: Agent, project: Path) -> None:
    (project / "dos.txt").write_bytes(b"one\r\ntwo \xff\r\nthree\r\n")
    await agent("edit", path="dos.txt", old="three\n", new="3\nfour\n")
    await agent("edit", path="dos.txt", old="one\ntwo", new="1\n2")
    assert (project / "dos.txt").read_bytes() == b"1\r\n2 \xff\r\n3\r\nfour\r\n"
    (project / "mixed.txt").write_bytes(b"a\r\nb\nc\n")
    await agent("edit", path="mixed.txt", old="b\nc", new="x\ny")
    assert (project / "mixed.txt").read_bytes() == b"a\r\nx\ny\n"
    (project / "bin").write_bytes(b"a\0b")
    with pytest.raises(ToolError, match="bin is a binary file"):
        await agent("edit", path="bin", old="a", new="b")


async def test_edits_at_the_same_time_lose_nothing(agent: Agent, project: Path) -> None:
    pad = "padding of a line\n" * 30_000  # large enough to be edited in threads
    (project / "big.txt").write_text("".join(f"slot {n:02}\n" for n in range(4)) + pad)
    await asyncio.gather(
        *(agent("edit", path="big.txt", old=f"slot {n:02}", new=f"done {n:02}") for n in range(4))
    )
    text = (project / "big.txt").read_text()
    assert text == "".join(f"done {n:02}\n" for n in range(4)) + pad


async def test_the_quota_holds_for_the_tools(project: Path, tmp_path: Path) -> None:
    agent = Agent(Files(project, Workspace(root=tmp_path / "ws", quota=10)))
    with pytest.raises(ToolError, match="/home/agent is full"):
        await agent("write", path="/home/agent/x", content="x" * 11)


def test_previews_show_the_change_as_a_diff(agent: Agent) -> None:
    assert agent.preview("edit", path="src/a.py", old="needle = 2", new="pin") == (
        "--- src/a.py\n+++ src/a.py\n@@ -2,4 +2,4 @@\n needle = 1\n three\n four\n-needle = 2\n+pin"
    )
    assert agent.preview("write", path="new.txt", content="a\nb\n") == (
        "--- /dev/null\n+++ new.txt\n@@ -0,0 +1,2 @@\n+a\n+b"
    )
    assert agent.preview("write", path="src/notes.txt", content="needle\n") == "src/notes.txt: no change"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (
            "write",
            {"path": "/etc/passwd", "content": "x"},
            "forbidden request: /etc/passwd is outside the project",
        ),
        ("edit", {"path": "src/a.py", "old": "needle", "new": "x"}, "2 times"),
        ("edit", {"path": "missing", "old": "needle", "new": "x"}, "there is no file"),
    ],
)
def test_a_preview_of_what_cannot_be_done_says_so(
    agent: Agent, name: str, arguments: dict[str, Any], words: str
) -> None:
    assert words in agent.preview(name, **arguments)


def test_a_preview_is_bounded(agent: Agent) -> None:
    old = "".join(f"{n}\n" for n in range(100_000))
    assert diff("x", old, old.replace("50000\n", "changed\n")).split("\n")[2] == "@@ -49998,7 +49998,7 @@"
    assert diff("x", old, old[::-1]) == "x: 100,000 lines are replaced by 100,001 others"
    assert diff("x", "", old, created=True).endswith("[99,603 more lines of this change]")


def test_a_preview_is_no_more_work_than_its_length() -> None:
    def lines(count: int) -> str:
        return "".join(f"{n}\n" for n in range(count))

    assert_linear(lambda size: diff("x", lines(size), lines(size).replace("500\n", "changed\n")), 100_000)
    assert_linear(lambda size: diff("x", lines(size), lines(size)[::-1]), 100_000)
    assert_linear(lambda size: diff("x", "", lines(size), created=True), 100_000)


@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(st.sampled_from("abcd"), max_size=30),
    after=st.lists(st.sampled_from("abcd"), max_size=30),
)
def test_a_diff_says_exactly_what_changes(before: list[str], after: list[str]) -> None:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    text = diff("x", old, new)
    if before == after:
        assert text == "x: no change"
        return
    changed: list[str] = []
    at = 0
    for line in text.split("\n")[2:]:
        if line.startswith("@@"):
            start = line.split()[1].removeprefix("-").split(",")
            count = int(start[1]) if len(start) > 1 else 1
            first = int(start[0]) - 1 if count else int(start[0])
            changed += before[at:first]
            at = first
        elif line[0] == "-":
            assert before[at] == line[1:]
            at += 1
        elif line[0] == "+":
            changed.append(line[1:])
        else:
            assert before[at] == line[1:]
            changed.append(before[at])
            at += 1
    assert changed + before[at:] == after
