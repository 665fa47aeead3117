"""What models are shown: schemas and descriptions of the ways to delegate, and the prompts of the agents."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import shown
from retinue.agents import builtin_agents
from retinue.app import Retinue
from retinue.delegate import delegation_tools
from retinue.store.memory import MemoryStore
from retinue.types import ModelEvent, ModelRequest
from trees import Cast, Stage, reply


class Listener(Cast):
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(("", request))
        yield reply("ok")


def test_the_ways_to_delegate_are_offered_with_these_schemas_and_descriptions() -> None:
    tools = delegation_tools(Stage({}).workflow.children)
    rows = [{"name": t.name, "risk": t.risk, "description": t.description, "schema": t.schema} for t in tools]
    shown.check("delegation.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", sorted(builtin_agents()))
async def test_an_agent_is_shown_this_prompt_and_these_tools(name: str, tmp_path: Path) -> None:
    listener = Listener({})
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "AGENTS.md").write_text("Use tabs.")
    async with Retinue(
        model=listener, db=MemoryStore(), cwd=tmp_path / "project", environ={"HOME": str(tmp_path)}
    ) as retinue:
        await retinue.run(name, "the question")
    _, request = listener.requests[0]
    spec = builtin_agents()[name]
    assert request.system.startswith(spec.prompt.strip())  # which its own file keeps under review
    rest = request.system.removeprefix(spec.prompt.strip())
    system = re.sub(r"Date: \d{4}-\d\d-\d\d", "Date: TODAY", f"(the agent's prompt){rest}")
    tools = "\n".join(f"- {spec.name}" for spec in request.tools)
    messages = "\n".join(f"[{type(m).__name__}] {m.text}" for m in request.messages)
    shown.check(f"agent-{name}.txt", f"{system}\n\n=== tools\n{tools}\n\n=== messages\n{messages}\n")


async def test_project_instructions_reach_the_root_alone(tmp_path: Path) -> None:
    listener = Listener({})
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    async with Retinue(
        model=listener, db=MemoryStore(), cwd=tmp_path, environ={"HOME": str(tmp_path)}
    ) as retinue:
        await retinue.run("general", "x")
    assert "<project-instructions>\nUse tabs.\n</project-instructions>" in listener.requests[0][1].system
