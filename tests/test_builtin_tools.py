"""A tool is declared once: the table of names and the tools that are really built are the same."""

from __future__ import annotations

from pathlib import Path

from retinue.agents.toolnames import CLAUDE, RESERVED
from retinue.app import Retinue
from retinue.builtin_tools import BUILT_IN, CODE, EXTRAS, Holder
from retinue.testing import ScriptedModel
from retinue.types import AgentSpec


def of(*holders: Holder) -> set[str]:
    return {name for name, tool in BUILT_IN.items() if tool.holder in holders}


async def test_an_app_has_the_tools_of_the_table_with_their_aliases(tmp_path: Path) -> None:
    async with Retinue(model="offline", db="memory:", cwd=tmp_path, environ={}) as retinue:
        assert {name: tool.aliases for name, tool in retinue.tools.items()} == {
            name: BUILT_IN[name].aliases for name in of("app")
        }


async def test_a_run_that_names_them_is_shown_the_rest(tmp_path: Path) -> None:
    wanted = of("run", "parent")
    seen: set[str] = set()
    model = ScriptedModel(lambda request: seen.update(tool.name for tool in request.tools) or "done")
    spec = AgentSpec(name="everything", description="d", prompt="p", tools=tuple(wanted))
    async with Retinue(
        model=model,
        db="memory:",
        cwd=tmp_path,
        environ={},
        settings={"delegation": {"tools": [*of("parent"), "agents"], "policy": "nested"}},
    ) as retinue:
        await retinue.run(spec, "go")
    assert seen == wanted
    assert CODE in seen


def test_every_name_is_known_to_agent_files() -> None:
    assert set(BUILT_IN) < RESERVED
    for tool in BUILT_IN.values():
        assert not tool.extra or tool.extra in EXTRAS
        for alias in tool.aliases:
            assert CLAUDE[alias.lower()] == (tool.name,)
