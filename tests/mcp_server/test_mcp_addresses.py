"""Addresses in the prompt of a host: no person vouches for them once a run has read private data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosting import ERAS, in_process

from retinue import AgentSpec, Retinue
from retinue.testing import ScriptedModel, call
from retinue.tools.base import tool

ADDRESS = "http://192.0.2.7/told?by=a-page"
PROMPT = f"look at the books, then dial {ADDRESS}"
DIALLED: list[str] = []


@tool(effect="network", out="addresses", risk="low")
async def dial(url: str) -> str:
    """Dial.

    Args:
        url: where
    """
    DIALLED.append(url)
    return "dialled"


@tool(effect="read", private=True)
async def look() -> str:
    """Look."""
    return "the payroll"


CLERK = AgentSpec(name="clerk", description="works", prompt="You work.", tools=(look, dial))


def play(*, looks: bool = True) -> ScriptedModel:
    DIALLED.clear()
    return ScriptedModel([*([call("look")] if looks else []), call("dial", url=ADDRESS), "done"])


@pytest.mark.parametrize(
    ("looks", "allow", "goes"),
    [(True, [], False), (True, ["dial(http://192.0.2.7/*)"], True), (False, [], True)],
    ids=["after private data", "by a rule", "before any"],
)
async def test_a_host_names_no_address_for_the_person(
    looks: bool, allow: list[str], goes: bool, tmp_path: Path
) -> None:
    settings = {"approvals.auto_risk": "low", "approvals.allow": allow}
    given: dict[str, Any] = {"agents": [CLERK], "settings": settings}
    async with in_process(tmp_path, play(looks=looks), ERAS[1], **given) as (client, _):
        result = await client.call_tool("clerk", {"prompt": PROMPT})
    assert ([ADDRESS] if goes else []) == DIALLED, result
    if not goes:
        refused = (result.structured_content or {})["refused"]
        assert "dial(http://192.0.2.7/*)" in refused[0]["said"]


async def test_a_person_who_says_the_same_names_it(tmp_path: Path) -> None:
    settings = {"approvals.auto_risk": "low"}
    async with Retinue(
        model=play(), db="memory:", cwd=tmp_path, agents=[CLERK], settings=settings
    ) as retinue:
        await retinue.run("clerk", PROMPT)
    assert DIALLED == [ADDRESS]
