"""Every way to delegate, as ordinary tools over one primitive: start a child under a parent.

`Staff` is that primitive, implemented by the engine. Agents as tools, `spawn_agent`, `delegate_task`,
`parallel_tasks`, `subagent` and `background` are thin: they check what the model wrote, build a spec, start,
wait, and frame the report. The policy says who may delegate at all. The loop never imports this module.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Struct
from pydantic import Field

from retinue.errors import Refused, ToolError
from retinue.reports import Framed, frame, verified
from retinue.settings import DelegationSettings
from retinue.tools.base import Tool, ToolContext, ToolResult, tool, tool_from_schema
from retinue.tools.descriptions import describe
from retinue.types import AgentSpec, JsonSchema, Report, Source, Status, Usage

DELEGATION_TOOLS = ("spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background")
MAX_SUBAGENT_TURNS = 50
SUMMARY = (
    "Now report your findings concisely: what was asked, what you found, what is uncertain. No preamble."
)
PROMPT_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {
        "prompt": {
            "type": "string",
            "minLength": 1,
            "description": "the whole task: the agent sees nothing else",
        }
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildRequest:
    """A child to start. `key` tells the children of one call apart."""

    spec: AgentSpec
    prompt: str
    call_id: str
    key: str = ""
    label: str = ""
    background: bool = False


class ChildInfo(Struct, frozen=True, kw_only=True):
    child_id: str
    agent: str
    label: str
    status: Status
    background: bool
    doing: str = ""


class Staff(Protocol):
    """What delegation needs of the engine. A parent is named by its run id."""

    async def start(self, parent_id: str, request: ChildRequest) -> str:
        """The child's id. Starts nothing twice: the same call finds the child it started before."""
        ...

    async def wait(self, parent_id: str, child_id: str) -> Report: ...

    async def cancel_child(self, parent_id: str, child_id: str, reason: str) -> Report: ...

    async def message_child(self, parent_id: str, child_id: str, text: str) -> None: ...

    def children(self, parent_id: str) -> list[ChildInfo]: ...

    def agents(self, parent_id: str) -> list[AgentSpec]:
        """The registered agents this parent may delegate to."""
        ...

    def tool_names(self, parent_id: str) -> list[str]:
        """What the parent may hand on."""
        ...

    def shown(self, parent_id: str) -> tuple[str, ...]:
        """What the parent is shown itself, without the ways to delegate."""
        ...

    async def shorten(self, parent_id: str, report: Report) -> Framed:
        """The part of a report its parent is shown."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Who may delegate, how deep, and how many children a workflow may have."""

    kind: Literal["flat", "nested"]
    max_depth: int
    max_children: int

    @classmethod
    def of(cls, settings: DelegationSettings) -> Policy:
        if settings.policy == "flat":
            return cls(kind="flat", max_depth=2, max_children=settings.max_children)
        return cls(kind="nested", max_depth=settings.max_depth, max_children=settings.nested_children)

    def offers(self, depth: int) -> bool:
        """Whether a run at this depth is shown the delegation tools."""
        return depth + 1 < self.max_depth and self.max_children > 0

    def admit(self, depth: int) -> None:
        if depth + 1 < self.max_depth:
            return
        if self.kind == "flat":
            raise Refused(
                f"not started: the policy 'flat' lets only the root delegate, and you are at depth {depth}. "
                "Do the work yourself."
            )
        raise Refused(
            f"not started: the depth limit is {self.max_depth} levels (0 to {self.max_depth - 1}); you are "
            f"at depth {depth}, so the child would be at depth {depth + 1}. Do the work yourself."
        )

    @property
    def sharers(self) -> int:
        """How many children one parent is expected to have: a fair share is reckoned by it."""
        levels = max(1, self.max_depth - 1)
        return max(1, round(self.max_children ** (1 / levels)))

    @property
    def children_limit(self) -> str:
        name = "max_children" if self.kind == "flat" else "nested_children"
        return f"policy {self.kind}, delegation.{name} = {self.max_children}"


def prompt_of(spec: AgentSpec, arguments: dict[str, Any]) -> str:
    """What a child is asked, from the arguments of its tool."""
    given = {name: value for name, value in arguments.items() if value not in (None, "")}
    if len(given) == 1:
        only = next(iter(given.values()))
        return only if isinstance(only, str) else json.dumps(only, ensure_ascii=False)
    lines = [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in given.items()
    ]
    return "\n".join(lines)


def arguments_for(spec: AgentSpec, prompt: str) -> dict[str, Any]:
    """A plain prompt as the arguments of an agent's input schema: it fills the first required field."""
    schema = spec.input_schema or PROMPT_SCHEMA
    required: list[str] = schema.get("required") or list(schema.get("properties", {})) or ["prompt"]
    return {required[0]: prompt}


def agent_tool(spec: AgentSpec, staff: Staff) -> Tool:
    """A registered agent as a tool of its parent, with its own input schema."""

    async def call(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        child = await staff.start(
            ctx.run_id,
            ChildRequest(spec=spec, prompt=prompt_of(spec, arguments), call_id=ctx.call_id),
        )
        report = await staff.wait(ctx.run_id, child)
        framed = await staff.shorten(ctx.run_id, report)
        return ToolResult(
            text=frame(report, framed.text),
            is_error=report.status != "completed",
            sources=verified(report),
            files=framed.files,
            usage=framed.usage,
        )

    return tool_from_schema(
        name=spec.name,
        description=spec.description,
        schema=spec.input_schema or PROMPT_SCHEMA,
        effect="delegate",
        call=call,
        repeatable=True,
        timeout=None,
        risk="low",
    )


def delegation_tools(staff: Staff) -> list[Tool]:
    """The five delegation tools."""
    return [
        _spawn_agent(staff),
        _delegate_task(staff),
        _parallel_tasks(staff),
        _subagent(staff),
        _background(staff),
    ]


def _needs(operation: str, **given: object) -> None:
    missing = [
        name for name, value in given.items() if not (value.strip() if isinstance(value, str) else value)
    ]
    if missing:
        raise ToolError(f"the operation {operation!r} needs {' and '.join(missing)}")


def _registered(staff: Staff, parent_id: str, name: str) -> AgentSpec:
    known = {spec.name: spec for spec in staff.agents(parent_id)}
    if name not in known:
        raise ToolError(f"there is no agent {name!r}. Agents: {', '.join(sorted(known)) or 'none'}")
    return known[name]


async def _result(staff: Staff, ctx: ToolContext, report: Report) -> ToolResult:
    framed = await staff.shorten(ctx.run_id, report)
    body = {
        "success": report.ok,
        "child_id": report.run_id,
        "agent": report.agent,
        "status": report.status,
        "report": framed.text,
        **({"incomplete": report.incomplete} if report.incomplete else {}),
        **({"error": report.error} if report.error else {}),
        "metrics": _metrics(report),
    }
    return ToolResult(
        text=_json(body),
        is_error=not report.ok,
        sources=verified(report),
        files=framed.files,
        usage=framed.usage,
    )


def _metrics(report: Report) -> dict[str, int]:
    return {
        "duration_ms": report.duration_ms,
        "input_tokens": report.usage.input_tokens,
        "output_tokens": report.usage.output_tokens,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _listed(children: Sequence[ChildInfo]) -> str:
    return _json({"children": [msgspec.to_builtins(child) for child in children]})


def _known_tools(staff: Staff, ctx: ToolContext, names: list[str] | None) -> tuple[str, ...] | None:
    """The tools asked for a child, checked: each must be one of the parent's."""
    if names is None:
        return None
    mine = staff.tool_names(ctx.run_id)
    unknown = [name for name in names if name not in mine]
    if unknown:
        raise ToolError(f"unknown tool {', '.join(map(repr, unknown))}. Your tools: {', '.join(mine)}")
    return tuple(names)


def _spawn_agent(staff: Staff) -> Tool:
    @tool(
        name="spawn_agent",
        description=describe("spawn_agent"),
        effect="delegate",
        risk="medium",
        repeatable=True,
        timeout=None,
    )
    async def spawn_agent(
        ctx: ToolContext,
        operation: Literal["spawn", "list_children", "terminate"] = "spawn",
        name: str = "",
        prompt: str = "",
        system_prompt: str | None = None,
        tools: list[str] | None = None,
        mcp_servers: list[str] | None = None,
        provider: str | None = None,
        model: str | None = None,
        output_schema: dict[str, Any] | None = None,
        child_id: str | None = None,
    ) -> str | ToolResult:
        """Spawn.

        Args:
            operation: what to do
            name: a short name for the new agent
            prompt: the whole task; the agent sees nothing else
            system_prompt: who the agent is and how it works; a general one if left out
            tools: the tools it may use, by name; all of yours but delegation if left out
            mcp_servers: the MCP servers it may use; yours if left out
            provider: the model's provider, if not yours
            model: another model, for example a cheaper one
            output_schema: a JSON schema that its report must fit
            child_id: for terminate
        """
        if operation == "list_children":
            return _listed(staff.children(ctx.run_id))
        if operation == "terminate":
            _needs("terminate", child_id=child_id)
            report = await staff.cancel_child(ctx.run_id, child_id or "", "terminated by its parent")
            return await _result(staff, ctx, report)
        _needs("spawn", name=name, prompt=prompt)
        chosen = f"{provider}:{model}" if provider and model else model or "inherit"
        spec = AgentSpec(
            name=name,
            description=f"temporary agent {name}",
            prompt=system_prompt or f"You are {name}. Do the task you are given, and report what you found.",
            tools=_known_tools(staff, ctx, tools),
            mcp_servers=None if mcp_servers is None else tuple(mcp_servers),
            model=chosen,
            shown=staff.shown(ctx.run_id) if tools is None else None,
            output_schema=output_schema,
            lifecycle="temporary",
            origin="spawn",
        )
        child = await staff.start(
            ctx.run_id, ChildRequest(spec=spec, prompt=prompt, call_id=ctx.call_id, label=name)
        )
        return await _result(staff, ctx, await staff.wait(ctx.run_id, child))

    return spawn_agent


def _delegate_task(staff: Staff) -> Tool:
    @tool(
        name="delegate_task",
        description=describe("delegate_task"),
        effect="delegate",
        risk="low",
        repeatable=True,
        timeout=None,
    )
    async def delegate_task(
        ctx: ToolContext,
        operation: Literal["delegate", "list_agents"] = "delegate",
        agent_id: str = "",
        prompt: str = "",
    ) -> str | ToolResult:
        """Delegate.

        Args:
            operation: what to do
            agent_id: the agent's name
            prompt: the whole task; the agent sees nothing else
        """
        if operation == "list_agents":
            known = staff.agents(ctx.run_id)
            return _json({"agents": [{"agent_id": a.name, "description": a.description} for a in known]})
        _needs("delegate", agent_id=agent_id, prompt=prompt)
        spec = _registered(staff, ctx.run_id, agent_id)
        child = await staff.start(ctx.run_id, ChildRequest(spec=spec, prompt=prompt, call_id=ctx.call_id))
        return await _result(staff, ctx, await staff.wait(ctx.run_id, child))

    return delegate_task


@dataclass(frozen=True, slots=True)
class Task:
    """One pair of a batch."""

    agent_id: Annotated[str, Field(description="the agent's name")]
    prompt: Annotated[str, Field(description="the whole task; the agent sees nothing else")]


def _parallel_tasks(staff: Staff) -> Tool:
    @tool(
        name="parallel_tasks",
        description=describe("parallel_tasks"),
        effect="delegate",
        risk="low",
        repeatable=True,
        timeout=None,
    )
    async def parallel_tasks(
        ctx: ToolContext,
        tasks: list[Task],
        operation: Literal["execute_batch"] = "execute_batch",
        wait_all: bool = True,
    ) -> str | ToolResult:
        """Batch.

        Args:
            tasks: agent-prompt pairs
            operation: what to do
            wait_all: wait for every report; false lets them run in the background
        """
        if not tasks:
            raise ToolError("tasks is empty: give at least one pair of agent_id and prompt")
        for task in tasks:
            _needs("execute_batch", agent_id=task.agent_id, prompt=task.prompt)
            _registered(staff, ctx.run_id, task.agent_id)
        return await _batch(staff, ctx, tasks, wait_all)

    return parallel_tasks


async def _batch(staff: Staff, ctx: ToolContext, tasks: Sequence[Task], wait_all: bool) -> ToolResult:
    """Start all, then wait: a start that is refused becomes that task's result, nobody else's."""

    async def one(index: int, task: Task) -> tuple[str | None, str]:
        spec = _registered(staff, ctx.run_id, task.agent_id)
        request = ChildRequest(
            spec=spec,
            prompt=task.prompt,
            call_id=ctx.call_id,
            key=str(index),
            label=f"{task.agent_id} {index + 1}/{len(tasks)}",
            background=not wait_all,
        )
        try:
            return await staff.start(ctx.run_id, request), ""
        except ToolError as error:
            return None, str(error)

    started = [await one(index, task) for index, task in enumerate(tasks)]
    if not wait_all:
        rows = [
            {"agent": task.agent_id, "success": child is not None, "child_id": child, "error": error or None}
            for task, (child, error) in zip(tasks, started, strict=True)
        ]
        return ToolResult(
            text=_json({"started": sum(child is not None for child, _ in started), "results": rows}),
            is_error=all(child is None for child, _ in started),
        )
    waiting = [staff.wait(ctx.run_id, child) for child, _ in started if child is not None]
    reports = iter(await asyncio.gather(*waiting))
    return await _aggregate(
        staff, ctx, tasks, [(next(reports) if child is not None else None, error) for child, error in started]
    )


async def _aggregate(
    staff: Staff, ctx: ToolContext, tasks: Sequence[Task], outcomes: Sequence[tuple[Report | None, str]]
) -> ToolResult:
    rows: list[dict[str, Any]] = []
    sections: list[str] = []
    files: list[str] = []
    sources: list[Source] = []
    usage = Usage()
    for index, (task, (report, error)) in enumerate(zip(tasks, outcomes, strict=True)):
        title = f"## {index + 1}. {task.agent_id}"
        if report is None:
            rows.append({"agent": task.agent_id, "success": False, "child_id": None, "error": error})
            sections.append(f"{title}: not started\n{error}")
            continue
        framed = await staff.shorten(ctx.run_id, report)
        files += framed.files
        sources += verified(report)
        usage = usage + framed.usage
        rows.append(
            {
                "agent": task.agent_id,
                "success": report.ok,
                "child_id": report.run_id,
                "status": report.status,
                **({"error": report.error} if report.error else {}),
                **({"incomplete": report.incomplete} if report.incomplete else {}),
                "metrics": _metrics(report),
            }
        )
        sections.append(f"{title}: {report.status}\n{framed.text}")
    completed = sum(1 for report, _ in outcomes if report is not None and report.ok)
    body = {
        "completed": completed,
        "failed": len(tasks) - completed,
        "results": rows,
        "report": "\n\n".join(sections),
    }
    return ToolResult(
        text=_json(body),
        is_error=completed == 0,
        sources=tuple(sources),
        files=tuple(files),
        usage=usage,
    )


def _subagent(staff: Staff) -> Tool:
    @tool(
        name="subagent",
        description=describe("subagent"),
        effect="delegate",
        risk="medium",
        repeatable=True,
        timeout=None,
    )
    async def subagent(
        ctx: ToolContext,
        label: str,
        task_prompt: str,
        summary_prompt: str | None = None,
        allowed_tools: list[str] | None = None,
        max_turns: int = 10,
    ) -> str | ToolResult:
        """Subagent.

        Args:
            label: a few words that name the task
            task_prompt: the whole task; the sub-agent sees nothing else
            summary_prompt: how it should sum up at the end
            allowed_tools: the tools it may use, by name; all of yours but delegation if left out
            max_turns: model calls it may make, 1 to 50
        """
        if not label.strip():
            raise ToolError("label is empty: name the task in a few words")
        if not task_prompt.strip():
            raise ToolError("task_prompt is empty: say what the sub-agent should do")
        if not 1 <= max_turns <= MAX_SUBAGENT_TURNS:
            raise ToolError(f"max_turns is {max_turns}: it must be from 1 to {MAX_SUBAGENT_TURNS}")
        if allowed_tools is not None and "subagent" in allowed_tools:
            raise ToolError(
                "allowed_tools must not contain 'subagent': a sub-agent cannot start its own kind"
            )
        spec = AgentSpec(
            name="subagent",
            description=label,
            prompt="You do one delegated task. Work through it with your tools, then answer.",
            tools=_known_tools(staff, ctx, allowed_tools),
            shown=staff.shown(ctx.run_id) if allowed_tools is None else None,
            max_turns=max_turns,
            summary=summary_prompt or SUMMARY,
            lifecycle="temporary",
            origin="subagent",
        )
        child = await staff.start(
            ctx.run_id, ChildRequest(spec=spec, prompt=task_prompt, call_id=ctx.call_id, label=label)
        )
        return await _result(staff, ctx, await staff.wait(ctx.run_id, child))

    return subagent


def _background(staff: Staff) -> Tool:
    @tool(
        name="background",
        description=describe("background"),
        effect="delegate",
        risk="low",
        repeatable=True,
        timeout=None,
    )
    async def background(
        ctx: ToolContext,
        operation: Literal["start", "check", "wait", "message", "cancel"],
        agent_id: str = "",
        prompt: str = "",
        child_id: str = "",
        text: str = "",
    ) -> str | ToolResult:
        """Background.

        Args:
            operation: what to do
            agent_id: for start: the agent's name
            prompt: for start: the whole task; the agent sees nothing else
            child_id: for check, wait, message and cancel
            text: for message: what to tell it
        """
        if operation == "start":
            _needs("start", agent_id=agent_id, prompt=prompt)
            spec = _registered(staff, ctx.run_id, agent_id)
            request = ChildRequest(spec=spec, prompt=prompt, call_id=ctx.call_id, background=True)
            child = await staff.start(ctx.run_id, request)
            return _json({"success": True, "child_id": child, "note": "you will be told when it ends"})
        _needs(operation, child_id=child_id)
        if operation == "check":
            return _listed([c for c in staff.children(ctx.run_id) if c.child_id == child_id])
        if operation == "message":
            _needs("message", text=text)
            await staff.message_child(ctx.run_id, child_id, text)
            return "delivered: it reads this before its next step"
        if operation == "cancel":
            report = await staff.cancel_child(ctx.run_id, child_id, "cancelled by its parent")
        else:
            report = await staff.wait(ctx.run_id, child_id)
        return await _result(staff, ctx, report)

    return background
