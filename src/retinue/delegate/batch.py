"""`parallel_tasks`: several tasks for registered agents at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from retinue.delegate.children import ChildRequest, ChildRunner
from retinue.delegate.results import as_json, metrics, needs, registered
from retinue.errors import Fenced, RetinueError, StoreError, ToolError
from retinue.reports import beside, frame, verified
from retinue.tools.base import Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.types import Report, Source, Usage


@dataclass(frozen=True, slots=True)
class Task:
    """One pair of a batch."""

    agent_id: Annotated[str, Field(description="the agent's name")]
    prompt: Annotated[str, Field(description="the whole task; the agent sees nothing else")]


def parallel_tasks_tool(runner: ChildRunner) -> Tool:
    @tool(
        name="parallel_tasks",
        description=describe("parallel_tasks"),
        effect="delegate",
        risk="low",
        repeatable=True,
        timeout=None,
        # Not by the number of children: a batch has a row for each that found no place.
        admit=lambda arguments, run_id: runner.admit(run_id, counted=False),
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
        return await _batch(runner, ctx, tasks, wait_all)

    return parallel_tasks


async def _batch(runner: ChildRunner, ctx: ToolContext, tasks: Sequence[Task], wait_all: bool) -> ToolResult:
    """Start all, then wait: a start that is refused becomes that task's result, nobody else's."""

    async def one(index: int, task: Task) -> tuple[str | None, str]:
        try:
            needs("execute_batch", agent_id=task.agent_id, prompt=task.prompt)
            request = ChildRequest(
                spec=registered(runner, ctx.run_id, task.agent_id),
                prompt=task.prompt,
                call_id=ctx.call_id,
                key=str(index),
                label=f"{task.agent_id} {index + 1}/{len(tasks)}",
                background=not wait_all,
            )
            return await runner.start(ctx.run_id, request), ""
        except (Fenced, StoreError):
            raise
        except (
            RetinueError
        ) as error:  # no such agent, no such model, nothing left to spend: this task's alone
            return None, str(error)

    started = [await one(index, task) for index, task in enumerate(tasks)]
    if not wait_all:
        rows = [
            {"agent": task.agent_id, "success": child is not None, "child_id": child, "error": error or None}
            for task, (child, error) in zip(tasks, started, strict=True)
        ]
        return ToolResult(
            text=as_json({"started": sum(child is not None for child, _ in started), "results": rows}),
            is_error=all(child is None for child, _ in started),
            not_started=sum(child is None for child, _ in started),
        )
    waiting = [runner.wait(ctx.run_id, child) for child, _ in started if child is not None]
    waited = iter(await asyncio.gather(*waiting, return_exceptions=True))
    outcomes: list[tuple[Report | None, str]] = []
    for child, error in started:
        ended = None if child is None else next(waited)
        if isinstance(ended, BaseException) and not isinstance(ended, ToolError):
            raise ended  # the log cannot be written: there is nobody to tell
        outcomes.append((None, str(ended)) if isinstance(ended, ToolError) else (ended, error))
    return await _aggregate(runner, ctx, tasks, outcomes)


async def _aggregate(
    runner: ChildRunner,
    ctx: ToolContext,
    tasks: Sequence[Task],
    outcomes: Sequence[tuple[Report | None, str]],
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
        framed = await runner.shorten(ctx.run_id, report, quoted=True)
        files += framed.files
        sources += verified(report)
        usage = usage + framed.usage
        rows.append(
            {
                "agent": task.agent_id,
                "success": report.ok,
                "child_id": report.run_id,
                "status": report.status,
                **beside(report),
                "metrics": metrics(report),
            }
        )
        sections.append(f"{title}: {report.status}\n{frame(report, framed.text)}")
    completed = sum(1 for report, _ in outcomes if report is not None and report.ok)
    body = {
        "completed": completed,
        "failed": len(tasks) - completed,
        "results": rows,
        "report": "\n\n".join(sections),
    }
    return ToolResult(
        text=as_json(body),
        is_error=completed == 0,
        sources=tuple(sources),
        files=tuple(files),
        usage=usage,
        not_started=sum(report is None for report, _ in outcomes),
    )
