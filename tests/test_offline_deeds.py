"""The offline model does what is spelled out, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asking_offline import CODE, LS, request, spec
from retinue import Retinue
from retinue.models.offline import answer
from retinue.types import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

BASH = spec("bash", required=("command",), command="string")


WRITE = spec("write", required=("path", "content"), path="string", content="string")


DEEDS = (BASH, WRITE, LS)


@pytest.mark.parametrize(
    ("task", "name", "arguments"),
    [
        ("write hello.txt saying hi", "write", {"path": "hello.txt", "content": "hi\n"}),
        (
            "Please create a file docs/a.md with the text 'x y'",
            "write",
            {"path": "docs/a.md", "content": "x y\n"},
        ),
        ('write "good day" to notes.txt', "write", {"path": "notes.txt", "content": "good day\n"}),
        ("run `make lint`", "bash", {"command": "make lint"}),
        ("run the tests", "ls", {"path": "."}),
    ],
)
def test_what_is_spelled_out_is_called_for(task: str, name: str, arguments: dict[str, str]) -> None:
    message, _ = answer(request("general", UserMessage(text=task), tools=DEEDS))
    assert [(one.name, json.loads(one.arguments)) for one in message.calls] == [(name, arguments)]


@pytest.mark.parametrize(
    "task", ["where do we write hello.txt?", "how are the tests run?", "write better tests"]
)
def test_what_is_only_spoken_of_is_not_done(task: str) -> None:
    message, _ = answer(request("general", UserMessage(text=task), tools=(*DEEDS, *CODE)))
    assert {one.name for one in message.calls}.isdisjoint({"bash", "write"})


def test_a_refusal_is_passed_on_and_not_tried_again() -> None:
    call = ToolCall(id="a", name="write", arguments='{"path": "hello.txt", "content": "hi\\n"}')
    said = ToolMessage(call_id="a", name="write", text="refused: nobody to ask", is_error=True)
    messages = UserMessage(text="write hello.txt saying hi"), AssistantMessage(calls=(call,)), said
    message, _ = answer(request("general", *messages, tools=DEEDS))
    assert message.calls == ()
    assert message.text.startswith("**Not done:** refused: nobody to ask")


def test_the_tests_run_as_the_project_says() -> None:
    call = ToolCall(id="a", name="ls", arguments='{"path": "."}')
    listed = ToolMessage(call_id="a", name="ls", text="Cargo.toml  20 B\nsrc/")
    messages = UserMessage(text="run the tests"), AssistantMessage(calls=(call,)), listed
    message, _ = answer(request("general", *messages, tools=DEEDS))
    assert [json.loads(one.arguments) for one in message.calls] == [{"command": "cargo test"}]


def test_an_agent_that_is_given_a_range_of_commits_lists_them() -> None:
    message, _ = answer(request("release-notes", UserMessage(text="v1.2..HEAD"), tools=DEEDS))
    assert json.loads(message.calls[0].arguments) == {"command": "git log --oneline --no-decorate v1.2..HEAD"}


@pytest.mark.parametrize(
    ("task", "rules", "outcome", "said"),
    [
        ("write a.txt/b.txt saying hi", {}, "refused", "**Not done:**"),
        ("run the tests", {}, "refused", "**Not run:**"),
        ("write b.txt saying hi", {"approvals.deny": ["write"]}, "completed", "**Not done:** denied"),
        ("run `exit 3`", {}, "completed", "**Ran, and failed:**"),
        ("write b.txt saying hi", {}, "completed", "**Done"),
    ],
)
async def test_what_was_not_done_is_not_completed_and_what_ran_and_failed_is_told(
    tmp_path: Path, task: str, rules: dict[str, Any], outcome: str, said: str
) -> None:
    (tmp_path / "a.txt").write_text("a file")
    async with Retinue(model="offline", db="memory:", cwd=tmp_path, yes=True, settings=rules) as retinue:
        report = await retinue.run("general", task)
    assert (report.outcome, report.text[: len(said)]) == (outcome, said)
