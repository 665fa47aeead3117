"""Agents as tools, `spawn_agent`, `delegate_task`, `subagent` and `background`.

Each is thin: it checks what the model wrote, builds a spec, starts, waits, and frames the report.
"""

from __future__ import annotations

from typing import Any, Literal

from retinue.delegate.batch import parallel_tasks_tool
from retinue.delegate.results import as_json, known_tools, listed, needs, registered, result_of
from retinue.delegate.staff import (
    MAX_SUBAGENT_TURNS,
    PROMPT_SCHEMA,
    SUMMARY,
    ChildRequest,
    Staff,
    prompt_of,
)
from retinue.errors import ToolError
from retinue.reports import frame, verified
from retinue.tools.base import Tool, ToolContext, ToolResult, tool, tool_from_schema
from retinue.tools.descriptions import describe
from retinue.types import AgentSpec


def agent_tool(spec: AgentSpec, staff: Staff) -> Tool:
    """A registered agent as a tool of its parent, with its own input schema."""

    async def call(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        child = await staff.start(
            ctx.run_id,
            ChildRequest(
                spec=spec,
                prompt=prompt_of(spec, arguments),
                call_id=ctx.call_id,
                background=spec.background,
            ),
        )
        if spec.background:
            return ToolResult(text=f"started in the background as {child}: you will be told when it ends")
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
        parallel_tasks_tool(staff),
        _subagent(staff),
        _background(staff),
    ]


def _spawn_agent(staff: Staff) -> Tool:
    @tool(
        name="spawn_agent",
        description=describe("spawn_agent"),
        effect="delegate",
        risk="medium",
        repeatable=True,
        timeout=None,
        harmless=lambda arguments: arguments["operation"] != "spawn",
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
            return listed(staff.children(ctx.run_id))
        if operation == "terminate":
            needs("terminate", child_id=child_id)
            report = await staff.cancel_child(ctx.run_id, child_id or "", "terminated by its parent")
            return await result_of(staff, ctx, report)
        needs("spawn", name=name, prompt=prompt)
        chosen = f"{provider}:{model}" if provider and model else model or "inherit"
        spec = AgentSpec(
            name=name,
            description=f"temporary agent {name}",
            prompt=system_prompt or f"You are {name}. Do the task you are given, and report what you found.",
            tools=known_tools(staff, ctx, tools),
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
        return await result_of(staff, ctx, await staff.wait(ctx.run_id, child))

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
            return as_json({"agents": [{"agent_id": a.name, "description": a.description} for a in known]})
        needs("delegate", agent_id=agent_id, prompt=prompt)
        spec = registered(staff, ctx.run_id, agent_id)
        child = await staff.start(ctx.run_id, ChildRequest(spec=spec, prompt=prompt, call_id=ctx.call_id))
        return await result_of(staff, ctx, await staff.wait(ctx.run_id, child))

    return delegate_task


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
            tools=known_tools(staff, ctx, allowed_tools),
            shown=staff.shown(ctx.run_id) if allowed_tools is None else None,
            max_turns=max_turns,
            summary=summary_prompt or SUMMARY,
            lifecycle="temporary",
            origin="subagent",
        )
        child = await staff.start(
            ctx.run_id, ChildRequest(spec=spec, prompt=task_prompt, call_id=ctx.call_id, label=label)
        )
        return await result_of(staff, ctx, await staff.wait(ctx.run_id, child))

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
            needs("start", agent_id=agent_id, prompt=prompt)
            spec = registered(staff, ctx.run_id, agent_id)
            request = ChildRequest(spec=spec, prompt=prompt, call_id=ctx.call_id, background=True)
            child = await staff.start(ctx.run_id, request)
            return as_json({"success": True, "child_id": child, "note": "you will be told when it ends"})
        needs(operation, child_id=child_id)
        if operation == "check":
            return listed([c for c in staff.children(ctx.run_id) if c.child_id == child_id])
        if operation == "message":
            needs("message", text=text)
            await staff.message_child(ctx.run_id, child_id, text)
            return "delivered: it reads this before its next step"
        if operation == "cancel":
            report = await staff.cancel_child(ctx.run_id, child_id, "cancelled by its parent")
        else:
            report = await staff.wait(ctx.run_id, child_id)
        return await result_of(staff, ctx, report)

    return background
