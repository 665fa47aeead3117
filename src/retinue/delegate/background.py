"""`background`: a child that works while its parent goes on."""

from __future__ import annotations

from typing import Any, Literal

from retinue.delegate.again import check_again, judged_by_child
from retinue.delegate.children import AskedAgain, ChildRequest, ChildRunner
from retinue.delegate.results import as_json, child_of, listed, needs, registered, result_of
from retinue.tools.base import Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.types import Apart, Level


def background_tool(runner: ChildRunner) -> Tool:
    def admit(arguments: dict[str, Any], run_id: str) -> None:
        if arguments["operation"] == "start":
            if arguments["child_id"]:
                check_again(runner, run_id, arguments)
            runner.admit(run_id)
            runner.check_isolation(run_id, arguments["isolation"])

    @tool(
        name="background",
        description=describe("background"),
        effect="delegate",
        risk="low",
        repeatable=True,
        timeout=None,
        harmless=lambda arguments: arguments["operation"] != "start",
        admit=admit,
    )
    async def background(
        ctx: ToolContext,
        operation: Literal["start", "check", "wait", "message", "cancel"],
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
            agent_id: for start: the agent's name
            prompt: for start: the whole task; the agent sees nothing else
            child_id: for check, wait, message and cancel; for start instead of agent_id: a child that has
                ended, to ask it again
            text: for message: what to tell it
            effort: for start: how hard its model thinks; as usual if left out
            isolation: for start: worktree lets it write in a copy of the project, for merge_child to merge
        """
        if operation == "start" and child_id:
            needs("start", prompt=prompt)
            asked = AskedAgain(prompt=prompt, call_id=ctx.call_id, background=True)
            await runner.ask_again(ctx.run_id, child_id, asked)
            return as_json({"success": True, "child_id": child_id, "note": "you will be told when it ends"})
        if operation == "start":
            needs("start", agent_id=agent_id, prompt=prompt)
            spec = registered(runner, ctx.run_id, agent_id)
            request = ChildRequest(
                spec=spec,
                prompt=prompt,
                call_id=ctx.call_id,
                background=True,
                effort=effort or "",
                isolation=isolation,
            )
            child = await runner.start(ctx.run_id, request)
            return as_json({"success": True, "child_id": child, "note": "you will be told when it ends"})
        needs(operation, child_id=child_id)
        if operation == "check":
            return listed([child_of(runner, ctx, child_id)])
        if operation == "message":
            needs("message", text=text)
            await runner.message_child(ctx.run_id, child_id, text)
            return "delivered: it reads this before its next step"
        if operation == "cancel":
            report = await runner.cancel_child(ctx.run_id, child_id, "cancelled by its parent")
        else:
            report = await runner.wait(ctx.run_id, child_id)
        return await result_of(runner, ctx, report)

    return judged_by_child(background, runner, "start")
