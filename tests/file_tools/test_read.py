"""`read`: lines, pictures, and files that are not text."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from working import Agent

from retinue.errors import ToolError
from retinue.tools import paging
from retinue.types import Source


async def test_read_numbers_the_lines_and_names_its_source(agent: Agent, project: Path) -> None:
    result = await agent.result("read", path="src/a.py")
    assert result.text == "   1\tone\n   2\tneedle = 1\n   3\tthree\n   4\tfour\n   5\tneedle = 2"
    digest = hashlib.sha256((project / "src" / "a.py").read_bytes()).hexdigest()
    assert result.sources == (Source(path="src/a.py", lines=(1, 5), sha256=digest),)


async def test_read_shows_a_range_and_how_to_go_on(agent: Agent) -> None:
    result = await agent.result("read", path="src/a.py", offset=2, limit=2)
    assert result.text == "   2\tneedle = 1\n   3\tthree\n[lines 2 to 3 of 5; go on with offset=4]"
    assert result.sources[0].lines == (2, 3)


async def test_read_speaks_of_absolute_paths_relatively(agent: Agent, project: Path) -> None:
    result = await agent.result("read", path=str(project / "lib" / "b.py"))
    assert result.sources[0].path == "lib/b.py"


async def test_read_says_what_cannot_be_shown(agent: Agent, project: Path) -> None:
    (project / "none").write_bytes(b"")
    (project / "pic").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (project / "data").write_bytes(b"text\n" * 10 + b"\0\1\2")
    (project / "wide").write_bytes("wide\n".encode("utf-16"))
    os.mkfifo(project / "pipe")
    assert await agent("read", path="none") == "none is empty"
    for path, words in [
        ("pic", r"pic is not text but a PNG image \(10 B\)"),
        ("data", "data is not text but a binary file"),
        ("wide", "wide is not text but UTF-16 text"),
        ("src", "src is a folder; ls shows"),
        ("pipe", "pipe is refused: it is not a regular file"),
        ("src/a.py", "src/a.py has 5 lines; offset 9 is past its end"),
    ]:
        with pytest.raises(ToolError, match=words):
            await agent("read", path=path, offset=9)


async def test_read_suggests_what_may_have_been_meant(agent: Agent) -> None:
    for path, meant in [
        ("src/A.PY", "src/a.py"),
        ("readme.md", "README.md"),
        ("wrong/folder/b.py", "src/deep/b.py"),
    ]:
        with pytest.raises(ToolError) as caught:
            await agent("read", path=path)
        assert str(caught.value) == f"there is no file or folder {path}. Did you mean {meant}?"


async def test_long_lines_are_cut_and_can_be_paged_through(agent: Agent, project: Path) -> None:
    line = "".join(f"{n:06}é" for n in range(20_000))
    (project / "long").write_text(f"short\n{line}\nend\n")
    text = await agent("read", path="long")
    _, second, third = text.split("\n")
    assert second.endswith("… [line 2 has 160,000 bytes; go on with offset=2, limit=1, column=2001]")
    assert third == "   3\tend"
    shown, column = "", 1
    while True:
        text = await agent("read", path="long", offset=2, limit=1, column=column)
        text = text.partition("\n[lines")[0].removeprefix("   2\t")
        piece, cut, notice = text.partition("… [line 2 has")
        shown += piece
        if not cut:
            break
        column = int(notice.rpartition("column=")[2].rstrip("]"))
    assert shown == line


async def test_a_page_is_bounded_however_long_the_file_is(agent: Agent, project: Path) -> None:
    (project / "big").write_text("".join(f"line {n} {'x' * 100}\n" for n in range(1, 100_001)))
    text = await agent("read", path="big", limit=100_000)
    assert len(text) < 50_000
    assert "of 100000; go on with offset=" in text
    text = await agent("read", path="big", offset=99_999)
    assert text == f"99999\tline 99999 {'x' * 100}\n100000\tline 100000 {'x' * 100}"


async def test_files_too_large_to_read_are_refused(agent: Agent, project: Path) -> None:
    with open(project / "huge", "wb") as file:
        file.truncate(300 * 1024 * 1024)
    with pytest.raises(ToolError, match=r"huge has 300\.0 MB; at most 256\.0 MB can be read"):
        await agent("read", path="huge")


async def test_line_endings_marks_and_broken_bytes_do_not_disturb(agent: Agent, project: Path) -> None:
    (project / "odd").write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff\r\n\r\nlast")
    assert await agent("read", path="odd") == "   1\tone\n   2\ttwo \ufffd\n   3\t\n   4\tlast"


@settings(max_examples=200, deadline=None)
@given(
    data=st.lists(
        st.text(st.characters(exclude_characters="\n\r\0\x85\ufeff", exclude_categories=["Cs"]), max_size=40)
    ),
    offset=st.integers(1, 12),
    limit=st.integers(1, 12),
    block=st.integers(1, 60),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_a_page_is_exactly_the_lines_asked_for(
    tmp_path_factory: pytest.TempPathFactory,
    data: list[str],
    offset: int,
    limit: int,
    block: int,
    ending: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"page-{os.getpid()}"
    path.write_text("".join(f"x{line}{ending}" for line in data), newline="")
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "BLOCK", block)
        page = paging.page_of(file, offset=offset, limit=limit, column=1)
    lines = [f"x{line}" for line in data]
    expected = [f"{n:4}\t{line}" for n, line in enumerate(lines, 1)][offset - 1 : offset - 1 + limit]
    assert list(page.lines) == expected
    assert page.total == len(data)


async def test_reading_a_large_file_does_not_hold_up_the_loop(agent: Agent, project: Path) -> None:
    (project / "big").write_bytes(b"some text of a line\n" * 4_000_000)
    reading = asyncio.create_task(agent("read", path="big", offset=3_999_999))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert (await reading).endswith("4000000\tsome text of a line")
    assert turns > 10
