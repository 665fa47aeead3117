"""`ls` and `glob`."""

from __future__ import annotations

from pathlib import Path

import pytest
from working import Agent

from counting import calls
from retinue.errors import ToolError
from retinue.tools.search import matcher


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
