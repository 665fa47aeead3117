"""What a model gets from `read`, `ls`, `glob`, `grep`, `write` and `edit`, and what it does not get."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting import assert_linear, calls
from retinue.errors import ForbiddenPath, ToolError
from retinue.tools import paging, ripgrep
from retinue.tools.base import ToolContext, ToolResult
from retinue.tools.diff import diff
from retinue.tools.files import file_tools
from retinue.tools.search import matcher
from retinue.types import Source
from retinue.workspace import Files, Workspace
from swapping import swapping

TOOLS = {tool.name: tool for tool in file_tools()}


class Agent:
    """Calls tools as the loop does."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.ctx = ToolContext(
            run_id="r1",
            root_id="r1",
            depth=0,
            agent="general",
            call_id="c1",
            files=files,
            progress=lambda text: None,
            denied=lambda what, detail: None,
        )

    async def __call__(self, name: str, **arguments: Any) -> str:
        return (await self.result(name, **arguments)).text

    async def result(self, name: str, **arguments: Any) -> ToolResult:
        tool = TOOLS[name]
        result = await tool.call(tool.parse(json.dumps(arguments)), self.ctx)
        return result if isinstance(result, ToolResult) else ToolResult(text=result)

    def preview(self, name: str, **arguments: Any) -> str:
        tool = TOOLS[name]
        assert tool.preview is not None
        shown = tool.preview(tool.parse(json.dumps(arguments)), self.files)
        assert isinstance(shown, str)
        return shown


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    files = {
        ".gitignore": "build/\n*.log\n!keep.log\n",
        "README.md": "# The project\n\nneedle in the readme\n",
        "src/a.py": "one\nneedle = 1\nthree\nfour\nneedle = 2\n",
        "src/deep/b.py": "def b():\n    return 'Needle'\n",
        "src/deep/.gitignore": "local.py\n",
        "src/deep/local.py": "needle\n",
        "src/deep/build/out.py": "needle\n",
        "src/notes.txt": "needle\n",
        "build/made.py": "needle\n",
        "run.log": "needle\n",
        "keep.log": "needle\n",
        ".github/ci.yml": "needle: yes\n",
        ".git/config": "needle\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text("needle canary\n")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "out.py").symlink_to(tmp_path / "outside" / "secret.py")
    (folder / "lib").symlink_to("src/deep")
    (tmp_path / ".gitignore").write_text("*\n")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


@pytest.fixture
def agent(project: Path, workspace: Workspace) -> Agent:
    return Agent(Files(project, workspace))


@pytest.mark.parametrize("kind", ["pipe", "endless", "outside", "huge", "circle"])
@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".rgignore"])
async def test_an_ignore_file_that_is_a_trap_is_not_read_and_it_is_said(
    agent: Agent, project: Path, kind: str, name: str
) -> None:
    (project / name).unlink(missing_ok=True)
    trap(project / name, kind)
    for found in (
        await agent("grep", pattern="needle", path="src"),
        await agent("glob", pattern="*.py"),
        await agent("ls"),
    ):
        assert f"[{name} is not a regular file of this folder, or too large: nothing is ignored]" in found
        assert "canary" not in found
    assert "src/deep/local.py" in await agent("glob", pattern="local.py")


@pytest.mark.parametrize("kind", ["pipe", "endless"])
async def test_an_ignore_file_further_down_that_is_a_trap_ends_the_search_and_is_named(
    agent: Agent, project: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "SECONDS", 0.5 if kind == "pipe" else 60)
    monkeypatch.setattr(ripgrep, "MEMORY", 400 << 20)
    (project / "src" / ".gitignore").unlink(missing_ok=True)
    trap(project / "src" / ".gitignore", kind)
    for call in (agent("grep", pattern="needle"), agent("glob", pattern="*.py"), agent("ls")):
        with pytest.raises(ToolError, match=r"the ignore file src/\.gitignore is not a regular file"):
            await call


async def test_what_ripgrep_says_against_an_ignore_file_is_not_shown(agent: Agent, project: Path) -> None:
    (project / "src" / ".gitignore").write_text("[canary\n")
    assert "canary" not in await agent("grep", pattern="needle")
    with pytest.raises(ToolError) as raised:
        await agent("grep", pattern="(needle")
    assert "canary" not in str(raised.value)


def trap(path: Path, kind: str) -> None:
    """A file that a program should not simply open and read."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 30)
    else:
        path.symlink_to(
            {"endless": "/dev/zero", "outside": "../outside/secret.py", "circle": path.name}[kind]
        )


def test_the_tools_and_their_other_names() -> None:
    assert [(tool.name, tool.effect, tool.aliases) for tool in file_tools()] == [
        ("read", "read", ("Read", "NotebookRead")),
        ("ls", "read", ("LS",)),
        ("glob", "read", ("Glob",)),
        ("grep", "read", ("Grep",)),
        ("write", "write", ("Write",)),
        ("edit", "write", ("Edit", "MultiEdit")),
    ]
    for tool in file_tools():
        assert len(tool.description) > 60
        assert all("description" in parameter for parameter in tool.schema["properties"].values())
        assert "ctx" not in tool.schema["properties"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", {"path": "/etc/passwd"}),
        ("read", {"path": "out.py"}),
        ("ls", {"path": ".."}),
        ("ls", {"path": "out"}),
        ("glob", {"pattern": "*", "path": "/etc"}),
        ("glob", {"pattern": "../*"}),
        ("glob", {"pattern": "/etc/*"}),
        ("glob", {"pattern": "out/*.py"}),
        ("grep", {"pattern": "x", "path": "../outside"}),
        ("grep", {"pattern": "x", "path": "out"}),
        ("grep", {"pattern": "x", "path": "out.py"}),
        ("write", {"path": "../x", "content": "x"}),
        ("write", {"path": "out/x", "content": "x"}),
        ("write", {"path": "out.py", "content": "x"}),
        ("edit", {"path": "out.py", "old": "needle", "new": "x"}),
    ],
)
async def test_every_way_out_is_forbidden(
    agent: Agent, tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ForbiddenPath, match=r"^forbidden request: .* is outside the project$"):
        await agent(name, **arguments)
    assert (tmp_path / "outside" / "secret.py").read_text() == "needle canary\n"
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["secret.py"]


# --- read --------------------------------------------------------------------------------------------


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


# --- ls and glob -------------------------------------------------------------------------------------


async def test_ls_lists_one_level_and_names_what_is_ignored(agent: Agent) -> None:
    assert await agent("ls") == (
        ".github/\n.gitignore  23 B\nREADME.md  36 B\nempty/\nkeep.log  7 B\nlib  (link)\nout  (link)\nout.py  (link)\n"
        "src/\n[ignored and not listed: .git/, build/, run.log]"
    )
    assert await agent("ls", path="src/deep") == (
        ".gitignore  9 B\nb.py  29 B\n[ignored and not listed: build/, local.py]"
    )
    assert await agent("ls", path="README.md") == "README.md is a file (36 B)"
    assert await agent("ls", path="empty") == "empty is empty"


async def test_an_ignored_folder_is_listed_when_it_is_named(agent: Agent) -> None:
    assert await agent("ls", path="build") == "made.py  7 B"
    assert await agent("glob", pattern="*.py", path="build") == "build/made.py"


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.py", ".", ["src/a.py", "src/deep/b.py"]),
        ("src/*.py", ".", ["src/a.py"]),
        ("src/**/*.py", ".", ["src/a.py", "src/deep/b.py"]),
        ("**/b.py", ".", ["src/deep/b.py"]),
        ("**", "src", ["src/a.py", "src/deep/.gitignore", "src/deep/b.py", "src/notes.txt"]),
        ("*.{md,txt}", ".", ["README.md", "src/notes.txt"]),
        ("deep/?.py", "src", ["src/deep/b.py"]),
        ("*.yml", ".", [".github/ci.yml"]),
        ("./*.md", ".", ["README.md"]),
        ("*.py", "lib", ["lib/b.py"]),
        ("[!r]*.log", ".", ["keep.log"]),
    ],
)
async def test_glob_finds_by_pattern(agent: Agent, pattern: str, path: str, found: list[str]) -> None:
    assert (await agent("glob", pattern=pattern, path=path)).split("\n") == found


async def test_glob_says_when_nothing_or_too_much_is_found(agent: Agent, project: Path) -> None:
    assert await agent("glob", pattern="*.rs") == "no file matches *.rs in ."
    for number in range(600):
        (project / "empty" / f"{number:03}.dat").touch()
    text = await agent("glob", pattern="*.dat")
    assert text.endswith("empty/499.dat\n[500 of 600 files shown; use a narrower pattern or path]")
    assert (await agent("ls", path="empty")).endswith(
        "[500 of 600 entries shown; glob finds the rest by name]"
    )


async def test_glob_takes_absolute_patterns_where_they_are_allowed(agent: Agent, project: Path) -> None:
    assert await agent("glob", pattern=f"{project}/src/*.py") == "src/a.py"
    agent.files.write("/home/agent/page.md", b"x")
    assert await agent("glob", pattern="/home/agent/*.md") == "/home/agent/page.md"
    assert await agent("glob", pattern="~/*.md") == "/home/agent/page.md"


def test_no_pattern_makes_matching_slow() -> None:
    assert calls(lambda: matcher("*a" * 40 + "b")("a" * 250)) < 50_000
    assert calls(lambda: matcher("**/" * 40 + "b")("/".join("a" * 100))) < 500_000
    assert not matcher("*a" * 40 + "b")("a" * 250)
    assert not matcher("**/" * 40 + "b")("/".join("a" * 100))
    with pytest.raises(ToolError, match="more than 100 patterns"):
        matcher("{a,b}" * 40)


# --- grep --------------------------------------------------------------------------------------------


async def test_grep_finds_lines_sorted_and_keeps_to_the_ignore_files(agent: Agent) -> None:
    result = await agent.result("grep", pattern="needle")
    assert result.text.split("\n") == [
        ".github/ci.yml:1: needle: yes",
        "README.md:3: needle in the readme",
        "keep.log:1: needle",
        "src/a.py:2: needle = 1",
        "src/a.py:5: needle = 2",
        "src/notes.txt:1: needle",
    ]
    assert result.sources[3:5] == (
        Source(path="src/a.py", lines=(2, 2), listed=True),
        Source(path="src/a.py", lines=(5, 5), listed=True),
    )


async def test_grep_in_a_subfolder_still_keeps_to_the_ignore_files_above(agent: Agent) -> None:
    assert await agent("grep", pattern="(?i)needle", path="src") == (
        "src/a.py:2: needle = 1\nsrc/a.py:5: needle = 2\nsrc/deep/b.py:2:     return 'Needle'\nsrc/notes.txt:1: needle"
    )
    assert await agent("grep", pattern="needle", path="src/deep") == "no match for needle in src/deep"


async def test_grep_searches_what_is_named_even_if_it_is_ignored(agent: Agent) -> None:
    assert await agent("grep", pattern="needle", path="build") == "build/made.py:1: needle"
    assert await agent("grep", pattern="needle", path="run.log") == "run.log:1: needle"
    assert (
        await agent("grep", pattern="needle", path="src/deep/build/out.py")
        == "src/deep/build/out.py:1: needle"
    )
    assert await agent("grep", pattern="needle", path=".git") == ".git/config:1: needle"


async def test_grep_follows_a_link_that_stays_inside_only_when_it_is_named(agent: Agent) -> None:
    assert await agent("grep", pattern="Needle", path="lib") == "lib/b.py:2:     return 'Needle'"
    assert "lib/" not in await agent("grep", pattern="Needle")
    assert await agent("grep", pattern="canary") == "no match for canary in ."


@pytest.mark.parametrize(
    ("glob", "files"),
    [
        ("*.py", {"src/a.py"}),
        ("*.{md,txt}", {"README.md", "src/notes.txt"}),
        ("src/**/*.py", {"src/a.py"}),
        ("src/*", {"src/a.py", "src/notes.txt"}),
        ("*.log", {"keep.log"}),
        ("**/*.log", {"keep.log"}),
        ("!*.py", {".github/ci.yml", "README.md", "keep.log", "src/notes.txt"}),
        ("build/**", {"no match for needle in ."}),
    ],
)
async def test_grep_narrows_by_file_name_and_never_brings_ignored_files_back(
    agent: Agent, glob: str, files: set[str]
) -> None:
    text = await agent("grep", pattern="needle", glob=glob)
    assert {line.split(":")[0] for line in text.split("\n")} == files


async def test_grep_shows_context_and_counts_it_as_read(agent: Agent) -> None:
    result = await agent.result("grep", pattern="needle", path="src/a.py", context=1)
    assert result.text.split("\n") == [
        "src/a.py-1- one",
        "src/a.py:2: needle = 1",
        "src/a.py-3- three",
        "src/a.py-4- four",
        "src/a.py:5: needle = 2",
    ]
    assert result.sources == (Source(path="src/a.py", lines=(1, 5)),)
    text = await agent("grep", pattern="needle|Needle", glob="*.py", path="src", context=1)
    assert "\n--\n" in text


async def test_grep_can_ignore_case_and_search_over_line_ends(agent: Agent) -> None:
    assert await agent("grep", pattern="NEEDLE = 1", ignore_case=True) == "src/a.py:2: needle = 1"
    assert await agent("grep", pattern=r"three\nfour") == "src/a.py:3: three\nsrc/a.py:4: four"


async def test_grep_stops_at_its_bound_and_says_so(agent: Agent, project: Path) -> None:
    (project / "many.txt").write_text("needle\n" * 5000)
    text = await agent("grep", pattern="needle", path="many.txt", max_results=3)
    assert text == (
        "many.txt:1: needle\nmany.txt:2: needle\nmany.txt:3: needle\n"
        "[there are more than these 3 matches; use a narrower pattern, path or glob]"
    )
    assert len(await agent("grep", pattern="needle", max_results=100_000)) < 50_000


async def test_grep_shows_where_in_a_long_line_the_match_is(agent: Agent, project: Path) -> None:
    (project / "min.js").write_text("first\n" + "x" * 5000 + "needle" + "y" * 5000 + "\n")
    text = await agent("grep", pattern="needle", path="min.js")
    assert "xneedley" in text
    assert text.endswith("… [long line, match at column 5001; read it with column]")
    assert len(text) < 600
    shown = await agent("read", path="min.js", offset=2, limit=1, column=5001)
    assert shown.startswith("   2\tneedleyyy")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "regex parse error: .* unclosed group"),
        ("(?=x)", "look-around"),
        ("a{1000}{1000}{1000}", "size limit"),
        ("", "the pattern is empty"),
        ("x" * 20_000, "the pattern has 20,000 characters"),
    ],
)
async def test_grep_explains_a_pattern_it_cannot_use(agent: Agent, pattern: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        await agent("grep", pattern=pattern)


@pytest.mark.parametrize("pattern", ["--files", "-e", "--pre=sh", "-f/etc/passwd", "--hostname-bin=sh"])
async def test_a_pattern_or_glob_is_never_taken_for_an_option(
    agent: Agent, project: Path, pattern: str
) -> None:
    (project / "options.txt").write_text(f"{pattern}\n")
    assert await agent("grep", pattern=pattern) == f"options.txt:1: {pattern}"
    assert await agent("grep", pattern="needle", glob=pattern) == "no match for needle in ."
    (project / pattern.replace("/", "")).mkdir()
    assert await agent("grep", pattern="x", path=pattern.replace("/", "")) == (
        f"no match for x in {pattern.replace('/', '')}"
    )


async def test_grep_searches_the_workspace_too(agent: Agent, workspace: Workspace, tmp_path: Path) -> None:
    assert await agent("grep", pattern="needle", path="/home/agent") == "no match for needle in /home/agent"
    assert await agent("ls", path="/home/agent") == "/home/agent is empty"
    agent.files.save("page.md", b"a needle here\n")
    agent.files.write("/home/agent/sub/x.txt", b"no\nneedle\n")
    for path, found in [
        ("/home/agent", "/home/agent/page.md:1: a needle here\n/home/agent/sub/x.txt:2: needle"),
        ("/home/agent/sub", "/home/agent/sub/x.txt:2: needle"),
        ("/home/agent/page.md", "/home/agent/page.md:1: a needle here"),
    ]:
        result = await agent.result("grep", pattern="needle", path=path)
        assert result.text == found
        assert str(tmp_path) not in str(result)
    assert await agent("ls", path="/home/agent") == "page.md  14 B\nsub/"


async def test_without_a_project_the_tools_work_in_the_workspace(workspace: Workspace) -> None:
    agent = Agent(Files(None, workspace))
    assert await agent("ls") == "/home/agent is empty"
    assert (await agent.result("write", path="a/b.txt", content="needle\n")).files == ("/home/agent/a/b.txt",)
    assert await agent("grep", pattern="needle") == "/home/agent/a/b.txt:1: needle"
    assert await agent("glob", pattern="*.txt") == "/home/agent/a/b.txt"
    assert await agent("read", path="a/b.txt") == "   1\tneedle"
    with pytest.raises(
        ForbiddenPath, match=r"^forbidden request: /etc is outside the workspace /home/agent$"
    ):
        await agent("grep", pattern="root", path="/etc")


async def test_names_that_are_strange_are_found_and_shown_safely(agent: Agent, project: Path) -> None:
    strange = ["a b", "we[i]rd{1}", "#hash", "!bang", "back\\slash", "star*", "new\nline", "-dash", "é…"]
    for name in strange:
        (project / "s" / name).mkdir(parents=True)
        (project / "s" / name / "f.txt").write_text("treasure\n")
    (project / "s" / os.fsdecode(b"raw\xff.txt")).write_text("treasure\n")
    for name in strange:
        text = await agent("grep", pattern="treasure", path=f"s/{name}")
        assert text.endswith("/f.txt:1: treasure")
        assert len(text.split("\n")) == 1
    result = await agent.result("grep", pattern="treasure", path="s")
    json.dumps(result.text).encode()
    assert "s/raw\ufffd.txt:1: treasure" in result.text
    assert (await agent("ls", path="s")).count("\n") == len(strange)


async def test_binary_and_unreadable_files_do_not_disturb_a_search(agent: Agent, project: Path) -> None:
    (project / "x.bin").write_bytes(b"\0needle\n" * 10)
    os.mkfifo(project / "pipe")
    assert "x.bin" not in await agent("grep", pattern="needle")
    assert await agent("grep", pattern="needle", path="x.bin") == "no match for needle in x.bin"


async def test_grep_finds_text_in_other_encodings_and_line_endings(agent: Agent, project: Path) -> None:
    (project / "bom.txt").write_bytes(b"\xef\xbb\xbftreasure 1\nx\ntreasure 2\n")
    (project / "dos.txt").write_bytes(b"x\r\ntreasure\r\ntreasure")
    (project / "wide.txt").write_bytes("x\ntreasure \u00e9\n".encode("utf-16"))
    (project / "latin.txt").write_bytes(b"treasure \xe9\n")
    assert (await agent("grep", pattern="treasure")).split("\n") == [
        "bom.txt:1: treasure 1",
        "bom.txt:3: treasure 2",
        "dos.txt:2: treasure",
        "dos.txt:3: treasure",
        "latin.txt:1: treasure \ufffd",
        "wide.txt:2: treasure \u00e9",
    ]


async def test_a_link_swapped_in_during_a_search_shows_nothing_from_outside(
    agent: Agent, project: Path, tmp_path: Path
) -> None:
    (project / "src" / "x.txt").write_text("treasure inside\n")
    (tmp_path / "outside" / "x.txt").write_text("treasure canary\n")
    (project / "src" / "y.txt").symlink_to(tmp_path / "outside" / "x.txt")
    seen: set[str] = set()
    with swapping(project / "src" / "x.txt", project / "src" / "y.txt"):
        for _ in range(60):
            seen.add(await agent("grep", pattern="treasure"))
    assert len(seen) > 1
    assert "canary" not in " ".join(seen)


async def test_a_folder_swapped_for_a_link_during_a_search_names_nothing_from_outside(
    agent: Agent, project: Path, tmp_path: Path
) -> None:
    (project / "box").mkdir()
    (project / "box" / "inside.txt").touch()
    (tmp_path / "outside" / "canary.txt").touch()
    seen: set[str] = set()
    with swapping(project / "box", project / "out"):
        for _ in range(60):
            seen.add(await agent("glob", pattern="*.txt"))
    assert len(seen) > 1
    assert "canary" not in " ".join(seen)


async def test_without_ripgrep_searches_still_work(
    agent: Agent, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "find_rg", lambda: None)
    assert await agent("grep", pattern="needle", path="src") == (
        "src/a.py:2: needle = 1\nsrc/a.py:5: needle = 2\nsrc/deep/build/out.py:1: needle\n"
        "src/deep/local.py:1: needle\nsrc/notes.txt:1: needle"
    )
    assert await agent(
        "grep", pattern="NEEDLE", path="src/a.py", ignore_case=True, context=1, max_results=1
    ) == (
        "src/a.py-1- one\nsrc/a.py:2: needle = 1\nsrc/a.py-3- three\nsrc/a.py-4- four\n"
        "[there are more than these 1 matches; use a narrower pattern, path or glob]"
    )
    assert await agent("glob", pattern="*.md") == "README.md"
    assert await agent("grep", pattern="needle", glob="*.md") == "README.md:3: needle in the readme"
    assert await agent("grep", pattern="canary") == "no match for canary in ."
    with pytest.raises(ToolError, match="regex parse error: missing \\)"):
        await agent("grep", pattern="(")


async def test_a_pattern_that_never_ends_is_killed(
    agent: Agent, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "find_rg", lambda: None)
    monkeypatch.setattr(ripgrep, "SECONDS", 1.0)
    (project / "trap.txt").write_text("a" * 60 + "b\n")
    result = await agent.result("grep", pattern="(a+)+$", path="trap.txt")
    assert result.is_error
    assert "not everything was searched" in result.text


def test_the_stand_in_prints_what_ripgrep_prints(project: Path) -> None:
    rg = ripgrep.find_rg()
    assert rg is not None
    stand_in = [sys.executable, "-I", str(Path(ripgrep.__file__).with_name("plain_grep.py"))]
    flags = [
        "--no-config",
        "--no-ignore",
        "--hidden",
        "--null",
        "--sort=path",
        "--line-number",
        "--byte-offset",
    ]
    flags += ["--column", "--with-filename", "--no-heading", "--glob=!.git", "--regexp=needle", "--", "."]

    def printed(program: list[str], *more: str) -> list[bytes]:
        done = subprocess.run([*program, *more, *flags], cwd=project, capture_output=True, check=True)
        return sorted(line for line in done.stdout.split(b"\n") if line != b"--")

    assert printed(stand_in) == printed([rg])
    assert printed(stand_in, "--context=1") == printed([rg], "--context=1")
    assert len(printed([rg])) > 8


# --- write and edit ----------------------------------------------------------------------------------


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
