"""`grep`: what it finds, what it leaves out, and what it says about both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from working import Agent

from retinue.errors import ForbiddenPath, ToolError
from retinue.tools import ripgrep
from retinue.types import Source
from retinue.workspace import Files
from retinue.workspace_folder import Workspace
from swapping import swapping


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
    monkeypatch.setattr(ripgrep, "find_rg", lambda project: None)
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
    monkeypatch.setattr(ripgrep, "find_rg", lambda project: None)
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
