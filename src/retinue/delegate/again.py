"""A child that has ended is asked again: what the ways to delegate that do so have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from retinue.delegate.children import AskedAgain, ChildRunner
from retinue.delegate.results import example, needs, one_of, result_of, the_only_agent
from retinue.errors import ToolError
from retinue.tools.base import Admit, Tool, ToolContext, ToolResult
from retinue.types import Risk


async def again(
    runner: ChildRunner, ctx: ToolContext, child_id: str, prompt: str, *, label: str = ""
) -> ToolResult:
    """Ask a child again, wait, and frame its report."""
    asked = AskedAgain(prompt=prompt, call_id=ctx.call_id, label=label)
    await runner.ask_again(ctx.run_id, child_id, asked)
    return await result_of(runner, ctx, await runner.wait(ctx.run_id, child_id))


def check_again(runner: ChildRunner, run_id: str, arguments: dict[str, Any]) -> None:
    """Refuse a call that names both a new child and an old one, or an old one that cannot be asked again."""
    child_id, prompt, agent = arguments["child_id"], arguments["prompt"], arguments.get("agent_id")
    needs(arguments["operation"], child_id=child_id, prompt=prompt)
    known = {child.child_id: child.agent for child in runner.children(run_id)}
    if agent and known.get(child_id, agent) != agent:
        raise ToolError(
            f"the child {child_id} is {known[child_id]!r}, not {agent!r}. To ask it again, call with "
            f"{example(child_id=child_id, prompt=prompt)}; to start {agent!r}, with "
            f"{example(agent_id=agent, prompt=prompt)}"
        )
    keeps_its_own(arguments, "effort", "isolation", "skills")
    runner.check_ended(run_id, arguments["child_id"])


def admit_or_again(runner: ChildRunner, operation: str) -> Admit:
    """Looks over a call whose `operation` starts a child, or asks one again where it names one."""

    def admit(arguments: dict[str, Any], run_id: str) -> None:
        if arguments["operation"] == operation:
            if arguments["child_id"]:
                check_again(runner, run_id, arguments)
            runner.admit(run_id)
            runner.check_isolation(run_id, arguments["isolation"])

    return admit


def keeps_its_own(arguments: dict[str, Any], *names: str) -> None:
    """Refuse what a child was given when it was started, and is not given again."""
    given = [name for name in names if arguments.get(name) not in (None, [], "none")]
    if given:
        raise ToolError(f"a child that is asked again keeps its own {' and '.join(given)}: leave that out")


def judged_by_child(made: Tool, runner: ChildRunner, operation: str | None = None) -> Tool:
    """The tool, judged by the child where this operation asks one again: what a model made up asks a person,
    by whichever tool it is asked, and a registered agent is under the rules about it. A tool with one thing
    to do has no operation."""
    otherwise = made.risk != "low"
    registered = "agent_id" in made.schema["properties"]

    def makes_up(arguments: dict[str, Any]) -> bool:
        child_id = arguments["child_id"] if arguments.get("operation") == operation else ""
        return runner.made_up(child_id) if child_id else otherwise

    def risk(arguments: dict[str, Any]) -> Risk:
        return "medium" if makes_up(arguments) else "low"

    def starts(arguments: dict[str, Any], run_id: str) -> tuple[str, ...]:
        if arguments.get("operation") != operation:
            return ()
        if child_id := arguments["child_id"]:
            mine = (child for child in runner.children(run_id) if child.child_id == child_id)
            return tuple(child.agent for child in mine if not runner.made_up(child_id))
        if "agent_id" not in arguments:
            return ()
        return (arguments["agent_id"],) if arguments["agent_id"].strip() else the_only_agent(runner, run_id)

    def asks(given: Mapping[str, Any], run_id: str) -> Sequence[str]:
        for child in runner.children(run_id) if given.get("child_id") else ():
            if child.child_id == given["child_id"]:
                return (child.agent,)
        return (one_of(runner, run_id, given.get("agent_id")),) if registered else ()

    return replace(made, makes_up=makes_up, risks=risk, starts=starts, asks=asks)
