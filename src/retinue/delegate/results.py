"""What the delegation tools have in common: checking what the model wrote, and what it gets back."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from retinue.delegate.staff import ChildInfo, Staff
from retinue.errors import ToolError
from retinue.reports import verified
from retinue.tools.base import ToolContext, ToolResult
from retinue.types import AgentSpec, Report


def needs(operation: str, **given: object) -> None:
    missing = [
        name for name, value in given.items() if not (value.strip() if isinstance(value, str) else value)
    ]
    if missing:
        raise ToolError(f"the operation {operation!r} needs {' and '.join(missing)}")


def registered(staff: Staff, parent_id: str, name: str) -> AgentSpec:
    known = {spec.name: spec for spec in staff.agents(parent_id)}
    if name not in known:
        raise ToolError(f"there is no agent {name!r}. Agents: {', '.join(sorted(known)) or 'none'}")
    return known[name]


async def result_of(staff: Staff, ctx: ToolContext, report: Report) -> ToolResult:
    framed = await staff.shorten(ctx.run_id, report)
    body = {
        "success": report.ok,
        "child_id": report.run_id,
        "agent": report.agent,
        "status": report.status,
        "report": framed.text,
        **({"incomplete": report.incomplete} if report.incomplete else {}),
        **({"error": report.error} if report.error else {}),
        "metrics": metrics(report),
    }
    return ToolResult(
        text=as_json(body),
        is_error=not report.ok,
        sources=verified(report),
        files=framed.files,
        usage=framed.usage,
    )


def metrics(report: Report) -> dict[str, int]:
    return {
        "duration_ms": report.duration_ms,
        "input_tokens": report.usage.input_tokens,
        "output_tokens": report.usage.output_tokens,
    }


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def listed(children: Sequence[ChildInfo]) -> str:
    return as_json({"children": [msgspec.to_builtins(child) for child in children]})


def known_tools(staff: Staff, ctx: ToolContext, names: list[str] | None) -> tuple[str, ...] | None:
    """The tools asked for a child, checked: each must be one of the parent's."""
    if names is None:
        return None
    mine = staff.tool_names(ctx.run_id)
    unknown = [name for name in names if name not in mine]
    if unknown:
        raise ToolError(f"unknown tool {', '.join(map(repr, unknown))}. Your tools: {', '.join(mine)}")
    return tuple(names)
