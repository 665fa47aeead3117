"""The agents, the tools and the skills there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from fastapi import Path as InPath

from retinue.agents import Finding, check
from retinue.app import Retinue
from retinue.server import markdown
from retinue.server.about import (
    AgentDetail,
    AgentList,
    AgentOut,
    FindingOut,
    SkillList,
    SkillOut,
    ToolFileOut,
    ToolList,
    ToolOut,
)
from retinue.server.context import Served, for_role
from retinue.server.errors import ApiError
from retinue.skills import Skill
from retinue.types import AgentSpec

router = APIRouter(tags=["agents and tools"])
_FIELDS = frozenset(AgentOut.model_fields) & frozenset(AgentSpec.__struct_fields__)


@router.get("/agents", **for_role("watch"))
async def list_agents(served: Served) -> AgentList:
    """Every agent, where it comes from, what it may use, and what is wrong with its file."""
    retinue = served.retinue
    await retinue.reread_agents()
    findings = await asyncio.to_thread(_findings, retinue)
    problems = [_finding(one) for one in retinue.agents.problems]
    agents = [AgentOut(**_facts(retinue, spec, findings)) for spec in retinue.services.specs.values()]
    return AgentList(agents=sorted(agents, key=lambda agent: agent.name), problems=problems)


@router.get("/agents/{name}", **for_role("watch"))
async def read_agent(name: Annotated[str, InPath(max_length=200)], served: Served) -> AgentDetail:
    """One agent, with its system prompt."""
    retinue = served.retinue
    await retinue.reread_agents()
    spec = retinue.services.specs.get(name)
    if spec is None:
        raise ApiError(404, "not_found", f"there is no agent {name!r}", fix="GET /api/v1/agents lists them")
    findings = await asyncio.to_thread(_findings, retinue)
    html = await markdown.render(spec.prompt)
    return AgentDetail(**_facts(retinue, spec, findings), prompt=spec.prompt, prompt_html=html)


def _facts(retinue: Retinue, spec: AgentSpec, findings: dict[str, list[FindingOut]]) -> dict[str, Any]:
    loaded = retinue.agents.agents.get(spec.name)
    ours = loaded is not None and loaded.spec == spec
    file = str(loaded.path) if loaded is not None and ours else None
    facts = {name: value for name, value in msgspec.to_builtins(spec).items() if name in _FIELDS}
    return facts | {
        "scope": loaded.scope if loaded is not None and ours else "code",
        "file": file,
        "findings": findings.get(file or "", []),
        "default": spec.name == retinue.settings.default_agent,
    }


def _findings(retinue: Retinue) -> dict[str, list[FindingOut]]:
    """What `check` says, by file. The built-in agents are not looked over: nobody here can mend them."""
    files = [one.path for one in retinue.agents.agents.values() if one.scope != "builtin"]
    found: dict[str, list[FindingOut]] = {}
    for finding in check(
        _there(files),
        known_tools=_known_tools(retinue),
        withheld=retinue.tool_files.withheld,
        missing=partial(retinue.services.missing_for, retinue.settings),
    ):
        found.setdefault(finding.file, []).append(_finding(finding))
    return found


def _there(files: Iterable[Path]) -> list[Path]:
    return [file for file in files if file.is_file()]


def _known_tools(retinue: Retinue) -> set[str]:
    aliases = {alias for tool in retinue.tools.values() for alias in tool.aliases}
    return {*retinue.tools, *aliases, *retinue.services.specs}


def _finding(one: Finding) -> FindingOut:
    return FindingOut(file=one.file, line=one.line, level=one.level, message=one.message, fix=one.fix)


@router.get("/tools", **for_role("watch"))
async def list_tools(served: Served) -> ToolList:
    """Every tool, what it does to the world, how risky a call is, and which files are not loaded."""
    files = served.retinue.tool_files
    tools = [
        ToolOut(
            name=tool.name,
            description=tool.description,
            effect=tool.effect,
            risk=tool.risk,
            repeatable=tool.repeatable,
            aliases=list(tool.aliases),
            arguments=tool.schema,
            origin=files.origins.get(tool.name, ""),
        )
        for tool in served.retinue.tools.values()
    ]
    waiting = [
        ToolFileOut(file=str(file.path), names=list(file.names), why=file.why_not) for file in files.waiting
    ]
    return ToolList(tools=tools, waiting=waiting)


@router.get("/skills", **for_role("watch"))
async def list_skills(served: Served) -> SkillList:
    """Every skill of the project and of the user, and what keeps others from being used."""
    skills = served.retinue.services.skill_files
    await asyncio.to_thread(skills.reread)
    found = skills.catalogue
    rows = await asyncio.to_thread(lambda: [_skill(each) for each in found.skills.values()])
    return SkillList(skills=rows, problems=[_finding(one) for one in found.problems])


def _skill(skill: Skill) -> SkillOut:
    return SkillOut(
        name=skill.name,
        description=skill.description,
        scope=skill.scope,
        folder=str(skill.folder),
        license=skill.license,
        compatibility=skill.compatibility,
        allowed_tools=list(skill.allowed_tools),
        hidden=skill.hidden,
        files=skill.files()[0],
        findings=[_finding(one) for one in skill.notes],
    )
