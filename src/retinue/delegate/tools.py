"""Agents as tools, `spawn_agent`, `delegate_task` and `subagent`.

Each is thin: it checks what the model wrote, builds a spec, starts, waits, and frames the report.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from retinue.delegate.again import admit_or_again, again, check_again, judged_by_child, keeps_its_own
from retinue.delegate.background import background_tool
from retinue.delegate.batch import parallel_tasks_tool
from retinue.delegate.children import (
    MAX_SUBAGENT_TURNS,
    PROMPT_SCHEMA,
    SUBAGENT_TURNS,
    SUMMARY,
    ChildRequest,
    ChildRunner,
    prompt_of,
)
from retinue.delegate.results import (
    as_json,
    in_fields,
    known_skills,
    known_tools,
    listed,
    needs,
    registered,
    result_of,
    way,
    work,
)
from retinue.errors import ToolError
from retinue.reports import frame, handed_up
from retinue.tools.base import Tool, ToolContext, ToolResult, tool_from_schema
from retinue.tools.schemas import schema_fault
from retinue.types import AgentSpec, Apart, Level

FOR_A_NEW_COPY = ("allowed_tools", "max_turns", "summary_prompt", "effort", "skills", "isolation")
MAY_DELEGATE = "Parts that need many steps of their own, or that are independent, you may hand on in turn."


def agent_tool(spec: AgentSpec, runner: ChildRunner) -> Tool:
    """A registered agent as a tool of its parent, with its own input schema."""

    async def call(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        child = await runner.start(
            ctx.run_id,
            ChildRequest(
                spec=spec,
                prompt=prompt_of(spec, arguments),
                call_id=ctx.call_id,
                background=spec.background,
                as_tool=True,
            ),
        )
        if spec.background:
            return ToolResult(text=f"started in the background as {child}: you will be told when it ends")
        report = await runner.wait(ctx.run_id, child)
        framed = await runner.shorten(ctx.run_id, report)
        return ToolResult(
            text=frame(report, framed.text, measured=True),
            is_error=report.status != "completed",
            sources=handed_up(report),
            files=framed.files,
            usage=framed.usage,
            fields=in_fields(runner, report),
        )

    def admit(arguments: dict[str, Any], run_id: str) -> None:
        runner.admit(run_id, as_tool=True)
        if why := runner.why_not(run_id, spec.name, as_tool=True):
            raise ToolError(f"the agent {spec.name!r} cannot be started here: {why}")

    return tool_from_schema(
        name=spec.name,
        description=spec.description,
        schema=spec.input_schema or PROMPT_SCHEMA,
        effect="delegate",
        private=False,  # what the child has read, its own end says
        call=call,
        repeatable=True,
        timeout=None,
        risk="low",
        admit=admit,
    )


def delegation_tools(runner: ChildRunner) -> list[Tool]:
    """The five delegation tools."""
    return [
        _spawn_agent(runner),
        _delegate_task(runner),
        parallel_tasks_tool(runner),
        _subagent(runner),
        background_tool(runner),
    ]


def _spawn_agent(runner: ChildRunner) -> Tool:
    def admit(arguments: dict[str, Any], run_id: str) -> None:
        if arguments["operation"] == "spawn":
            runner.admit(run_id)
            _designed(runner, run_id, arguments)
            runner.check_isolation(run_id, arguments["isolation"])
        if arguments["operation"] == "continue":
            check_again(runner, run_id, arguments)
            runner.admit(run_id)

    @way("spawn_agent", admit=admit, starts=("spawn", "continue"), risk="medium")
    async def spawn_agent(
        ctx: ToolContext,
        operation: Literal["spawn", "continue", "list_children", "terminate"] = "spawn",
        name: str = "",
        prompt: str = "",
        system_prompt: str | None = None,
        tools: list[str] | None = None,
        mcp_servers: list[str] | None = None,
        provider: str | None = None,
        model: str | None = None,
        output_schema: dict[str, Any] | None = None,
        effort: Level | None = None,
        skills: list[str] | None = None,
        isolation: Apart | None = None,
        child_id: str | None = None,
    ) -> str | ToolResult:
        """Spawn.

        Args:
            operation: what to do
            name: a short name for the new agent
            prompt: the whole task; the agent sees nothing else
            system_prompt: who the agent is and how it works; a general one if left out
            tools: the tools it may use, by name; all of yours if left out
            mcp_servers: the MCP servers it may use; yours if left out
            provider: the model's provider, if not yours
            model: another model, for example a cheaper one
            output_schema: a JSON schema that its report must fit
            effort: how hard its model thinks; as hard as yours if left out
            skills: those of your skills that it may read, by name; none if left out
            isolation: worktree only if it writes while others do: in a copy of the project, which
                merge_child merges
            child_id: for continue and terminate
        """
        if operation == "continue":
            needs("continue", child_id=child_id, prompt=prompt)
            return await again(runner, ctx, child_id or "", prompt)
        if operation == "list_children":
            return listed(runner.children(ctx.run_id))
        if operation == "terminate":
            needs("terminate", child_id=child_id)
            report = await runner.cancel_child(ctx.run_id, child_id or "", "terminated by its parent")
            return await result_of(runner, ctx, report)
        asked: dict[str, Any] = {"name": name, "prompt": prompt, "system_prompt": system_prompt}
        asked |= {"tools": tools, "mcp_servers": mcp_servers, "output_schema": output_schema}
        spec = _designed(
            runner, ctx.run_id, {**asked, "provider": provider, "model": model, "skills": skills}
        )
        request = ChildRequest(
            spec=spec,
            prompt=prompt,
            call_id=ctx.call_id,
            label=name,
            effort=effort or "",
            isolation=isolation,
        )
        return await work(runner, ctx, request)

    return judged_by_child(spawn_agent, runner, "continue")


def _designed(runner: ChildRunner, run_id: str, asked: dict[str, Any]) -> AgentSpec:
    """The temporary agent that a model wants, or a `ToolError` that says what is wrong with it."""
    name, tools, servers, schema = (asked[key] for key in ("name", "tools", "mcp_servers", "output_schema"))
    provider, model = asked["provider"], asked["model"]
    needs("spawn", name=name, prompt=asked["prompt"])
    if runner.taken(name):
        raise ToolError(
            f"the name {name!r} is that of a registered agent: ask that agent by its own tool, or choose "
            "another name"
        )
    unknown = sorted(set(servers or ()) - runner.mcp_servers(run_id))
    if unknown:
        yours = ", ".join(sorted(runner.mcp_servers(run_id))) or "none"
        raise ToolError(f"unknown MCP server {', '.join(map(repr, unknown))}. Your servers: {yours}")
    if provider and not model:
        why = f"provider is {provider!r} and model is missing: name the model as well, or neither"
        raise ToolError(why, not_run="bad_arguments")
    wanted = f"{provider}:{model}" if provider else model or "inherit"
    if "://" in wanted or "@" in wanted:
        raise ToolError(
            f"the model {wanted!r} is an address, and only a person chooses that: name a provider and a "
            "model, or leave both out to use yours"
        )
    fault = None if schema is None else schema_fault(schema)
    if fault is not None:
        raise ToolError(f"output_schema is not a usable JSON schema: {fault}", not_run="bad_arguments")
    return AgentSpec(
        name=name,
        description=f"temporary agent {name}",
        prompt=asked["system_prompt"]
        or f"You are {name}. Do the task you are given, and report what you found.",
        tools=known_tools(runner, run_id, tools),
        disallowed_tools=runner.kept_back(run_id),
        skills=known_skills(runner, run_id, asked["skills"]),
        mcp_servers=None if servers is None else tuple(servers),
        model=wanted,
        shown=runner.shown(run_id) if tools is None else None,
        output_schema=schema,
        lifecycle="temporary",
        origin="spawn",
    )


def _delegate_task(runner: ChildRunner) -> Tool:
    @way("delegate_task", admit=admit_or_again(runner, "delegate"), starts=("delegate",))
    async def delegate_task(
        ctx: ToolContext,
        operation: Literal["delegate", "list_agents"] = "delegate",
        agent_id: str = "",
        prompt: str = "",
        effort: Level | None = None,
        isolation: Apart | None = None,
        child_id: str = "",
    ) -> str | ToolResult:
        """Delegate.

        Args:
            operation: what to do
            agent_id: the agent's name
            prompt: the whole task; the agent sees nothing else
            effort: how hard its model thinks; as usual if left out
            isolation: worktree only if it writes while others do: in a copy of the project, which
                merge_child merges
            child_id: to ask a child that has ended again: its id from its report; left out for a new one
        """
        if operation == "list_agents":
            known = runner.agents(ctx.run_id)
            return as_json({"agents": [{"agent_id": a.name, "description": a.description} for a in known]})
        if child_id:
            needs("delegate", prompt=prompt)
            return await again(runner, ctx, child_id, prompt)
        needs("delegate", prompt=prompt)
        spec = registered(runner, ctx.run_id, agent_id, prompt)
        request = ChildRequest(
            spec=spec, prompt=prompt, call_id=ctx.call_id, effort=effort or "", isolation=isolation
        )
        return await work(runner, ctx, request)

    return judged_by_child(delegate_task, runner, "delegate")


def _subagent(runner: ChildRunner) -> Tool:
    def admit(arguments: dict[str, Any], run_id: str) -> None:
        runner.admit(run_id)
        _copy(runner, run_id, arguments)
        if arguments["child_id"]:
            keeps_its_own(arguments, *FOR_A_NEW_COPY)
            runner.check_ended(run_id, arguments["child_id"])
        runner.check_isolation(run_id, arguments["isolation"])

    @way("subagent", admit=admit, risk="medium")
    async def subagent(
        ctx: ToolContext,
        label: str,
        task_prompt: str,
        summary_prompt: str | None = None,
        allowed_tools: list[str] | None = None,
        max_turns: Annotated[int, Field(ge=1, le=MAX_SUBAGENT_TURNS)] | None = None,
        effort: Level | None = None,
        skills: list[str] | None = None,
        isolation: Apart | None = None,
        child_id: str | None = None,
    ) -> str | ToolResult:
        """Subagent.

        Args:
            label: a few words that name the task
            task_prompt: the whole task; the sub-agent sees nothing else
            summary_prompt: how it should sum up at the end
            allowed_tools: the tools it may use, by name; all of yours if left out
            max_turns: model calls it may make, 1 to 50; 10 if left out
            effort: how hard its model thinks; as hard as yours if left out
            skills: those of your skills that it may read, by name; none if left out
            isolation: worktree only if it writes while others do: in a copy of the project, which
                merge_child merges
            child_id: ask this sub-agent of yours, which has ended, again: it knows what it did
        """
        asked: dict[str, Any] = {"label": label, "task_prompt": task_prompt, "max_turns": max_turns}
        asked |= {"summary_prompt": summary_prompt, "allowed_tools": allowed_tools, "skills": skills}
        spec = _copy(runner, ctx.run_id, asked)
        if child_id:
            return await again(runner, ctx, child_id, task_prompt, label=label)
        request = ChildRequest(
            spec=spec,
            prompt=task_prompt,
            call_id=ctx.call_id,
            label=label,
            effort=effort or "",
            isolation=isolation,
        )
        return await work(runner, ctx, request)

    return judged_by_child(subagent, runner)


def _copy(runner: ChildRunner, run_id: str, asked: dict[str, Any]) -> AgentSpec:
    """The fresh copy of the caller that a model wants, or a `ToolError` that says what is wrong with it."""
    label, allowed, max_turns = asked["label"], asked["allowed_tools"], asked["max_turns"]
    if not label.strip():
        raise ToolError("label is empty: name the task in a few words", not_run="bad_arguments")
    if not asked["task_prompt"].strip():
        raise ToolError("task_prompt is empty: say what the sub-agent should do", not_run="bad_arguments")
    if allowed is not None and "subagent" in allowed:
        raise ToolError(
            "allowed_tools must not contain 'subagent': a sub-agent has it without that, as deep as the "
            "policy lets it"
        )
    task = "You do one delegated task. Work through it with your tools, then answer."
    return AgentSpec(
        name="subagent",
        description=label,
        prompt=f"{task}\n{MAY_DELEGATE}" if runner.ways(run_id) else task,
        tools=known_tools(runner, run_id, allowed),
        disallowed_tools=runner.kept_back(run_id),
        skills=known_skills(runner, run_id, asked["skills"]),
        shown=runner.shown(run_id) if allowed is None else None,
        max_turns=max_turns or SUBAGENT_TURNS,
        summary=asked["summary_prompt"] or SUMMARY,
        lifecycle="temporary",
        origin="subagent",
    )
