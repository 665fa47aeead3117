"""A question about a command says which part of it no rule covers: in the log, at the terminal, to hosts, to models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested, ToolReturned
from retinue.mcp_server.forms import form_message
from retinue.testing import ScriptedModel, call
from retinue.types import Uncovered
from retinue.view.question import question
from shell_rules import judged

RULES = ["bash(git log*)", "bash(ls*)", "bash(cat docs/*)", "bash(git status* | head*)"]
PARTS = {
    "rm x": Uncovered(part="rm x"),
    "ls -l && rm  -rf x; git log": Uncovered(part="rm  -rf x"),
    "git log | tee x": Uncovered(part="tee x"),
    "git status": Uncovered(part="git status"),
    "X=1 ls": Uncovered(part="X=1 ls"),
    "cat docs/../x": Uncovered(part="cat docs/../x"),
    "cd src && ls": Uncovered(part="cd src"),
    "cd src": Uncovered(part="cd src"),
    "git log -3 --output=F": Uncovered(
        part="git log -3 --output=F", word="--output=F", rule="bash(git log*)"
    ),
    "timeout 5 git log --ext-diff": Uncovered(
        part="timeout 5 git log --ext-diff", word="--ext-diff", rule="bash(git log*)"
    ),
    "ls > x": Uncovered(why="it redirects"),
    "ls $(x)": Uncovered(why="it holds '$'"),
    "ls 'a": Uncovered(why="a quote is not closed"),
}


@pytest.mark.parametrize("command", PARTS)
def test_the_first_part_that_no_rule_covers_is_named(command: str) -> None:
    verdict = judged(command, RULES)
    assert (verdict.action, verdict.uncovered) == ("ask", PARTS[command])


def test_nothing_is_named_where_the_rules_are_not_why_it_asks() -> None:
    assert judged("rm x").uncovered is None
    assert judged("rm x", allow=["write(docs/**)"]).uncovered is None
    assert judged("rm x", RULES, ask=["bash(rm*)"]).uncovered is None
    assert judged("ls", RULES).uncovered is None


async def asked_about(tmp_path: Path, command: str, **options: Any) -> list[ApprovalRequested | ToolReturned]:
    model = ScriptedModel([call("bash", command=command), "done"])
    settings = {"approvals.allow": RULES}
    async with Retinue(model=model, db="memory:", cwd=tmp_path, settings=settings, **options) as retinue:
        return [
            event
            async for event in retinue.stream("general", "go")
            if isinstance(event, ApprovalRequested | ToolReturned)
        ]


async def test_a_person_reads_it_at_the_terminal_and_in_a_host(tmp_path: Path) -> None:
    events = await asked_about(tmp_path, "ls && rm x", approve=lambda asked: Answer(decision="reject"))
    asked = events[0]
    assert isinstance(asked, ApprovalRequested)
    assert asked.uncovered == Uncovered(part="rm x")
    lines, _ = question(asked, number=1, total=1, width=200, height=40)
    assert "no rule covers `rm x`" in "\n".join("".join(text for text, _ in line) for line in lines)
    assert "no rule covers `rm x`" in form_message(asked)


async def test_a_model_reads_it_where_nobody_can_be_asked(tmp_path: Path) -> None:
    (returned,) = await asked_about(tmp_path, "git log --output=F", answering="refuse")
    assert isinstance(returned, ToolReturned)
    assert "does not cover `--output=F` in `git log --output=F`" in returned.text
