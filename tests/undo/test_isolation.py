"""Children that write in copies of the project: no edit is lost, merges are clean or the conflict is shown."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from projects import project

from retinue.app import Retinue
from retinue.events import ApprovalRequested, ToolReturned
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import AgentSpec, ModelRequest, ToolMessage

CODER = AgentSpec(
    name="coder",
    description="writes code",
    prompt="You write code.",
    tools=("read", "write", "edit", "bash"),
    isolation="worktree",
)
BOSS = AgentSpec(
    name="boss",
    description="asks coders",
    prompt="PLAY boss",
    tools=("coder", "merge_child", "read", "write", "edit", "bash"),
)


def opened(folder: Path, steps: Any, **options: Any) -> Retinue:
    options.setdefault("db", str(folder.parent / "runs.db"))
    options.setdefault("yes", True)
    return Retinue(model=ScriptedModel(steps), agents=[CODER, BOSS], cwd=folder, environ={}, **options)


def said(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, ToolMessage)]


def children(request: ModelRequest) -> list[str]:
    """The ids of the children whose reports a parent has read, in order."""
    import re

    return [
        found for text in said(request) for found in re.findall(r"merge_child\(child_id='(c\w+)'\)", text)
    ]


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


async def test_a_conflict_is_shown_and_nothing_is_merged_unless_the_rest_is_wanted(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")

    def meddle(request: ModelRequest) -> object:
        (folder / "main.py").write_text("print('theirs')\n")
        return call("merge_child", child_id=children(request)[0])

    steps = {
        "TASK": [
            call("edit", path="main.py", old="one", new="two"),
            call("write", path="new.txt", content="n"),
            "did it",
        ],
        "PLAY boss": [
            call("coder", prompt="TASK"),
            meddle,
            lambda request: call("merge_child", child_id=children(request)[0], rest=True),
            "done",
        ],
    }
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        events = await retinue.store.events(report.run_id)
        refused, rest = [e for e in events if isinstance(e, ToolReturned) and e.name == "merge_child"]
        assert refused.is_error
        assert "conflict in main.py" in refused.text
        assert "print('theirs')" in refused.text
        assert "print('two')" in refused.text
        assert not rest.is_error
        assert (folder / "new.txt").read_text() == "n"
        assert (folder / "main.py").read_text() == "print('theirs')\n"
        (kept,) = retinue.services.worktrees.all()
        assert git(folder, "show", f"{kept.branch}:main.py") == "print('two')\n"


async def test_a_copy_that_nothing_was_changed_in_goes_with_its_workflow(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    steps = {"TASK": ["did nothing"], "PLAY boss": [call("coder", prompt="TASK"), "done"]}
    async with opened(folder, steps) as retinue:
        await retinue.run("boss", "go")
        assert retinue.services.worktrees.all() == []
    assert git(folder, "branch", "--list", "retinue/*") == ""


async def test_a_merge_asks_a_person_with_the_whole_diff(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    asked: list[ApprovalRequested] = []

    async def approve(question: ApprovalRequested) -> Any:
        from retinue import Answer

        asked.append(question)
        return Answer(decision="approve")

    steps = {
        "TASK": [call("edit", path="main.py", old="one", new="two"), "did it"],
        "PLAY boss": [
            call("coder", prompt="TASK"),
            lambda request: call("merge_child", child_id=children(request)[0]),
            "done",
        ],
    }
    async with opened(folder, steps, yes=False, approve=approve) as retinue:
        await retinue.run("boss", "go")
    merge = next(question for question in asked if question.tool == "merge_child")
    assert merge.effect == "write"
    assert "-print('one')\n+print('two')" in merge.preview
    assert (folder / "main.py").read_text() == "print('two')\n"


async def test_nothing_of_a_repository_is_run_when_copies_are_made_committed_and_removed(
    tmp_path: Path,
) -> None:
    folder, trap = project(tmp_path / "p"), tmp_path / "ran"
    hooks = folder / ".git" / "hooks"
    for name in ("post-checkout", "pre-commit", "reference-transaction", "post-commit", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {trap}\n")
        (hooks / name).chmod(0o755)
    for key in ("core.fsmonitor", "filter.bad.clean", "filter.bad.smudge", "core.pager", "diff.external"):
        git(folder, "config", key, f"touch {trap}; cat")
    (folder / ".gitattributes").write_text("*.py filter=bad\n*.txt eol=crlf\n")
    trap.unlink(missing_ok=True)
    steps = {
        "TASK": [call("edit", path="main.py", old="one", new="two"), "did it"],
        "PLAY boss": [
            call("coder", prompt="TASK"),
            lambda request: call("merge_child", child_id=children(request)[0]),
            "done",
        ],
    }
    async with opened(folder, steps) as retinue:
        await retinue.run("boss", "go")
    assert (folder / "main.py").read_text() == "print('two')\n"
    assert not trap.exists()


KILLED = """
import asyncio, os, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from projects import bash
from test_isolation import call, opened
async def main():
    steps = {{
        "TASK": [call("edit", path="main.py", old="one", new="two"), bash(f"kill -9 {{os.getpid()}}; sleep 60"), "x"],
        "PLAY boss": [call("coder", prompt="TASK"), "x"],
    }}
    async with opened(Path({folder!r}), steps) as retinue:
        await retinue.run("boss", "go", run_id={run_id!r})
asyncio.run(main())
"""


async def test_a_copy_outlives_kill_9_and_the_resumed_child_goes_on_in_it(tmp_path: Path) -> None:
    folder, run_id = project(tmp_path / "p"), "r1m7h4bbbbbbbbbbbb"
    paths = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    code = KILLED.format(paths=paths, folder=str(folder), run_id=run_id)
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert killed.returncode == -9
    steps = {
        "TASK": [call("edit", path="main.py", old="two", new="three"), "did it"],
        "PLAY boss": [lambda request: call("merge_child", child_id=children(request)[0]), "done"],
    }
    async with opened(folder, steps) as retinue:
        assert len(retinue.services.worktrees.all()) == 1
        await retinue.resume(run_id, yes=True)
        await retinue.wait(run_id)
    assert (folder / "main.py").read_text() == "print('three')\n"
