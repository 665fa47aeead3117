"""A call for which no file can be opened waits for a handle; one that never got any does not count as done."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue import Report, Retinue, tool_running
from retinue.events import ToolReturned
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest, ToolCall

CALLS = {
    "read": call("read", path="a.txt"),
    "ls": call("ls", path="."),
    "grep": call("grep", pattern="hello"),
    "bash": call("bash", command="cat a.txt"),
}


class Handles:
    """The file handles of this process, taken away and given back. What is open stays open."""

    def __init__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def take(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, self.before[1]))

    def give_back(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self.before)


@pytest.fixture
def handles() -> Iterator[Handles]:
    found = Handles()
    yield found
    found.give_back()


async def asked(folder: Path, *replies: Any) -> tuple[Report, ToolReturned, str]:
    (folder / "a.txt").write_text("hello\n")
    model = ScriptedModel([*replies, "done"])
    async with Retinue(model=model, db="memory:", cwd=folder, environ={}, yes=True) as retinue:
        warm = await retinue.run("general", "begin")  # what is opened once is open from here on
        assert warm.status == "completed"
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
        row = await retinue.store.run(report.run_id)
        assert row is not None
    (returned,) = [each for each in events if isinstance(each, ToolReturned)]
    return report, returned, row.outcome


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_waits_until_something_can_be_opened(
    tmp_path: Path, handles: Handles, name: str
) -> None:
    def without(request: ModelRequest) -> ToolCall:
        handles.take()
        asyncio.get_running_loop().call_later(0.2, handles.give_back)
        return CALLS[name]

    _, returned, outcome = await asked(tmp_path, CALLS[name], "warm", without)
    assert not returned.is_error, returned.text
    assert ("a.txt" if name == "ls" else "hello") in returned.text
    assert outcome == "completed"


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_never_got_a_handle_leaves_its_run_incomplete(
    tmp_path: Path, handles: Handles, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_running, "HANDLE_SECONDS", 0.1)

    def without(request: ModelRequest) -> ToolCall:
        handles.take()
        return CALLS[name]

    def after(request: ModelRequest) -> str:
        handles.give_back()
        return "all is well"

    report, returned, outcome = await asked(tmp_path, CALLS[name], "warm", without, after)
    assert returned.is_error
    assert returned.not_run == "no_handles"
    assert "ulimit -n" in returned.text
    assert outcome == "incomplete"
    assert report.shortfall
