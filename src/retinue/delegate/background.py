"""`background`: a child that works while its parent goes on."""

from __future__ import annotations

from typing import Literal

from retinue.delegate.again import admit_or_again, judged_by_child
from retinue.delegate.children import AskedAgain, ChildRequest, ChildRunner
from retinue.delegate.results import (
    MOST_SHOWN,
    as_json,
    child_of,
    example,
    listed,
    needs,
    registered,
    result_of,
    way,
)
from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolContext, ToolResult
from retinue.types import ENDED, Apart, Level


def background_tool(runner: ChildRunner) -> Tool:
    @way("background", admit=admit_or_again(runner, "start"), starts=("start",))
    async def background(
        ctx: ToolContext,
        operation: Literal["start", "check", "wait", "message", "cancel"] = "start",
        agent_id: str = "",
        prompt: str = "",
        child_id: str = "",
        text: str = "",
        effort: Level | None = None,
        isolation: Apart | None = None,
    ) -> str | ToolResult:
        """Background.

        Args:
            operation: what to do
            agent_id: the agent's name
            prompt: for start: the whole task; the agent sees nothing else
            child_id: the id that start returned; for start only to ask a child that has ended again
            text: for message: what to tell it
            effort: for start: how hard its model thinks; as usual if left out
            isolation: for start: worktree only if it writes while others do: in a copy of the
                project, which merge_child merges
        """
        if operation == "start" and child_id:
            needs("start", prompt=prompt)
            asked = AskedAgain(prompt=prompt, call_id=ctx.call_id, background=True)
            await runner.ask_again(ctx.run_id, child_id, asked)
            return _started(child_id)
        if operation == "start":
            needs("start", prompt=prompt)
            spec = registered(runner, ctx.run_id, agent_id, prompt)
            request = ChildRequest(
                spec=spec,
                prompt=prompt,
                call_id=ctx.call_id,
                background=True,
                effort=effort or "",
                isolation=isolation,
            )
            return _started(await runner.start(ctx.run_id, request))
        child_id = child_id or _the_only(runner, ctx, operation, agent_id)
        if operation == "check":
            return listed([child_of(runner, ctx, child_id)])
        if operation == "message":
            needs("message", text=text)
            await runner.message_child(ctx.run_id, child_id, text, ctx.call_id)
            return "delivered: it reads this before its next step"
        if operation == "cancel":
            report = await runner.cancel_child(ctx.run_id, child_id, "cancelled by its parent")
        else:
            report = await runner.wait(ctx.run_id, child_id)
        return await result_of(runner, ctx, report)

    return judged_by_child(background, runner, "start")


def _the_only(runner: ChildRunner, ctx: ToolContext, operation: str, agent_id: str) -> str:
    """The child that a call without an id is about: the only one in the background, or of that agent.

    One that works comes before those that have ended. None of another agent's is ever meant.
    """
    mine = [each for each in runner.children(ctx.run_id) if each.background]
    named = [each for each in mine if each.agent == agent_id] if agent_id.strip() else mine
    found = [each for each in named or mine if each.status not in ENDED] or named or mine
    if named and len(found) == 1:
        return found[0].child_id
    calls = "\n".join(
        f"{example(operation=operation, child_id=each.child_id)} ({each.agent})"
        for each in found[:MOST_SHOWN]
    )
    which = f"there are {len(found)}" if named else f"no child of {agent_id} is in the background"
    if not found:
        raise ToolError("child_id is missing, and nothing of yours is in the background")
    raise ToolError(f"child_id is missing, and {which}. Call again with one of these:\n{calls}")


def _started(child_id: str) -> str:
    return as_json({"success": True, "child_id": child_id, "note": "you will be told when it ends"})
