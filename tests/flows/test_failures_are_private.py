"""What a program's own tool says when it fails is as private as what it returns, and no id is used twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from retinue import AgentSpec, Answer, Retinue, tool
from retinue.events import ToolReturned
from retinue.testing import ScriptedModel, call
from retinue.tools.base import Tool, ToolResult


@tool(effect="read")
async def exits(number: str) -> str:
    """Look it up."""
    raise SystemExit("secret 4711")


@tool(effect="read")
async def cancels(number: str) -> str:
    """Look it up."""
    raise asyncio.CancelledError("secret 4711")


@tool(effect="read", timeout=0.05)
async def hangs(number: str) -> str:
    """Look it up."""
    await asyncio.Event().wait()
    return ""


def _broken(arguments: dict[str, Any], files: Any) -> tuple[str, ...]:
    raise ValueError("secret 4711")


@tool(effect="read", private=_broken)
async def unsure(number: str) -> str:
    """Look it up."""
    return "secret 4711"


@pytest.mark.parametrize("given", [exits, cancels, hangs, unsure], ids=lambda each: each.name)
async def test_a_tool_of_a_program_that_fails_has_shown_private_data(given: Tool) -> None:
    returned = await _returned(given)
    assert returned.private == (f"what {given.name} returned",)


async def test_an_approval_holds_for_no_call_whose_id_a_model_guessed(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(question: Any) -> Answer:
        asked.append(question.tool)
        return Answer(decision="approve" if question.tool == "write" else "reject")

    model = ScriptedModel(
        [
            [call("write", "x.2.0", path="a.txt", content="a"), call("ls", "x", path=".")],
            call("bash", "x", command="touch there"),
            "done",
        ]
    )
    agent = AgentSpec(name="a", description="a", prompt="You work.", tools=("write", "ls", "bash"))
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[agent], approve=approve) as retinue:
        report = await retinue.run("a", "go")
    assert asked == ["write", "bash"]
    assert report.outcome == "rejected"
    assert not (tmp_path / "there").exists()


@tool(effect="spend")
async def buys(number: str) -> str:
    """Buy it."""
    return "secret 4711"


@tool(effect="network")
async def unusable(number: str) -> ToolResult:
    """Look it up."""
    return ToolResult(text="secret 4711", usage=cast("Any", 7), private=("the ledger",))


@tool(effect="network")
async def unwritable(number: str) -> ToolResult:
    """Look it up."""
    return ToolResult(text="secret 4711", files=cast("Any", (object(),)), private=("the ledger",))


@tool(effect="network")
async def misnamed(number: str) -> ToolResult:
    """Look it up."""
    return ToolResult(text="secret 4711", private=cast("Any", 7))


@tool(effect="read", private=cast("Any", lambda arguments, files: 7))
async def unnamed(number: str) -> str:
    """Look it up."""
    return "secret 4711"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (buys, "what buys returned"),
        (unusable, "the ledger"),
        (unwritable, "the ledger"),
        (misnamed, "what misnamed returned"),
        (unnamed, "what unnamed returned"),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_what_a_tool_of_a_program_returned_is_private_whether_it_can_be_used_or_not(
    given: Tool, name: str
) -> None:
    returned = await _returned(given)
    assert name in returned.private


async def _returned(given: Tool) -> ToolReturned:
    agent = AgentSpec(name="a", description="a", prompt="You work.", tools=(given.name,))
    model = ScriptedModel([call(given.name, number="7"), "done"])
    async with Retinue(
        model=model, db="memory:", project=False, tools=[given], agents=[agent], yes=True
    ) as retinue:
        report = await retinue.run("a", "go")
        events = await retinue.store.events(report.run_id)
    (returned,) = [e for e in events if isinstance(e, ToolReturned)]
    return returned
