"""A limit within which nothing can be done, or that is none, is refused before anything begins, with its value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Retinue
from retinue.errors import ConfigError
from retinue.testing import ScriptedModel
from retinue.types import Limits

WHOLE = ("turns", "input_tokens", "output_tokens", "concurrency")
IMPOSSIBLE = [
    *((name, number) for name in WHOLE for number in (0, -1)),
    *((name, number) for name in ("cost", "seconds") for number in (0, -0.5, math.inf, math.nan)),
    ("children", -1),
]


def opened(tmp_path: Path, **given: Any) -> Retinue:
    return Retinue(model=ScriptedModel(lambda r: "ok"), db=str(tmp_path / "a.db"), cwd=tmp_path, **given)


def a(**given: Any) -> AgentSpec:
    return AgentSpec(name="a", description="d", prompt="p", tools=[], **given)


@pytest.mark.parametrize(("name", "number"), IMPOSSIBLE)
async def test_a_limit_of_a_run_or_an_agent_that_is_impossible_is_named_with_its_value(
    tmp_path: Path, name: str, number: Any
) -> None:
    async with opened(tmp_path) as retinue:
        with pytest.raises(ConfigError, match=rf"^limits\.{name} is {number} "):
            await retinue.run(a(), "hi", limits=Limits(**{name: number}))
        with pytest.raises(ConfigError, match=rf"^limits\.{name} of a is {number} "):
            await retinue.run(a(limits=Limits(**{name: number})), "hi")
        assert await retinue.runs() == []


async def test_no_children_at_all_is_a_limit_to_work_with(tmp_path: Path) -> None:
    async with opened(tmp_path) as retinue:
        assert (await retinue.run(a(), "hi", limits=Limits(children=0))).outcome == "completed"


@pytest.mark.parametrize("name", ["max_turns", "max_tokens"])
@pytest.mark.parametrize("number", [0, -1])
async def test_turns_and_tokens_of_an_agent_that_are_none_are_named(
    tmp_path: Path, name: str, number: int
) -> None:
    async with opened(tmp_path) as retinue:
        with pytest.raises(ConfigError, match=rf"^{name} of a is {number} "):
            await retinue.run(a(**{name: number}), "hi")


@pytest.mark.parametrize("number", [0, -1, math.inf, math.nan])
async def test_a_time_of_an_agent_that_is_none_or_endless_is_named(tmp_path: Path, number: float) -> None:
    async with opened(tmp_path) as retinue:
        with pytest.raises(ConfigError, match=rf"^timeout of a is {number} "):
            await retinue.run(a(timeout=number), "hi")


SETTINGS = ("limits.timeout", "limits.tree_seconds", "limits.max_cost", "limits.tool_timeout")


@pytest.mark.parametrize("name", [*SETTINGS, "limits.model_timeout", "limits.longest_park"])
@pytest.mark.parametrize("number", [0, -1, math.inf, math.nan, "inf"])
async def test_a_setting_that_is_no_limit_is_named_with_its_value(
    tmp_path: Path, name: str, number: float | str
) -> None:
    """An endless one could not be written down, and its run not be resumed."""
    async with opened(tmp_path) as retinue:
        with pytest.raises(ConfigError, match=rf"{name} = {number!r}: must be"):
            await retinue.run(a(), "hi", settings={name: number})
    with pytest.raises(ConfigError, match=rf"{name} = {number!r}: must be"):
        await opened(tmp_path, settings={name: number}).__aenter__()


@pytest.mark.parametrize("number", [10**30, 2**64])
async def test_a_limit_that_nobody_reaches_is_kept_and_the_run_resumed(tmp_path: Path, number: int) -> None:
    async with opened(tmp_path) as retinue:
        first = await retinue.run(a(), "hi", settings={"limits.max_turns": number})
    async with opened(tmp_path) as retinue:
        await retinue.resume(first.run_id, message="again")
        assert (await retinue.wait(first.run_id)).outcome == "completed"
