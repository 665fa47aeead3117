"""`parallel_tasks`: several tasks for registered agents at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from retinue.budget import HeldPlaces
from retinue.delegate.children import ChildRequest, ChildRunner
from retinue.delegate.results import TOLD, child_of, needs, one_of, registered, way
from retinue.delegate.wide import LEADS, TaskRow, fitted
from retinue.errors import BudgetExhausted, Fenced, RetinueError, StoreError, ToolError
from retinue.reports import Framed, beside, brief, cut, frame, handed_up, metrics
from retinue.tools.base import Tool, ToolContext, ToolResult
from retinue.types import Apart, Level, Report, Risk, Usage
from retinue.workspace import Files


@dataclass(frozen=True, slots=True)
class Task:
    """One pair of a batch."""

    agent_id: Annotated[str, Field(description="the agent's name")]
    prompt: Annotated[str, Field(description="the whole task; the agent sees nothing else")]
    effort: Annotated[Level | None, Field(description="how hard its model thinks; as usual if left out")] = (
        None
    )
    isolation: Annotated[
        Apart | None,
        Field(description="worktree only if it writes while others do: in a copy, which merge_child merges"),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one task: a report, or why there is none."""

    agent: str
    child_id: str | None = None
    report: Report | None = None
    error: str = ""
    limited: bool = False
    """A limit kept it from starting, and not a mistake in what was asked."""

    @property
    def wrong(self) -> bool:
        """It could not begin, and no limit kept it from that."""
        return self.child_id is None and not self.limited


def parallel_tasks_tool(runner: ChildRunner) -> Tool:
    def admit(arguments: dict[str, Any], run_id: str) -> None:
        if arguments["operation"] == "execute_batch":
            count = max(1, len(arguments["tasks"] or ()))
            with _of_all(count):
                runner.admit(run_id, count=count)
                for task in arguments["tasks"] or ():
                    runner.check_isolation(run_id, task.isolation)

    @way("parallel_tasks", admit=admit, starts=("execute_batch",), preview=_shown)
    async def parallel_tasks(
        ctx: ToolContext,
        tasks: list[Task] | None = None,
        operation: Literal["execute_batch", "wait"] = "execute_batch",
        wait_all: bool = True,
        child_ids: list[str] | None = None,
    ) -> str | ToolResult:
        """Batch.

        Args:
            tasks: for execute_batch: agent-prompt pairs
            operation: what to do
            wait_all: wait for every report; false lets them run in the background
            child_ids: for wait: the children to wait for; all that run in the background if left out
        """
        if operation == "wait":
            return await _wait(runner, ctx, child_ids)
        if not tasks:
            raise ToolError(
                "tasks is empty: give at least one pair of agent_id and prompt", not_run="bad_arguments"
            )
        return await _batch(runner, ctx, tasks, wait_all)

    def asks(given: Mapping[str, Any], run_id: str) -> Sequence[str]:
        tasks = given.get("tasks")
        each = cast("list[Any]", tasks) if isinstance(tasks, list) else []
        named = (cast("dict[str, Any]", task) if isinstance(task, dict) else {} for task in each)
        return [one_of(runner, run_id, task.get("agent_id")) for task in named] or [""]

    return replace(parallel_tasks, risks=_risk, starts=_agents, asks=asks)


@contextlib.contextmanager
def _of_all(count: int) -> Generator[None]:
    """A refusal in here is that of so many children."""
    try:
        yield
    except ToolError as error:
        error.children = count
        raise


def _agents(arguments: dict[str, Any], run_id: str) -> tuple[str, ...]:
    """Those that a batch has work."""
    tasks: list[Task] = arguments["tasks"] or [] if arguments["operation"] == "execute_batch" else []
    return tuple(dict.fromkeys(task.agent_id for task in tasks))


def _risk(arguments: dict[str, Any]) -> Risk:
    """Of all its parts together: one registered agent is low, several at once are more than one."""
    return "medium" if len(arguments["tasks"] or ()) > 1 else "low"


def _shown(arguments: dict[str, Any], files: Files) -> str:
    """All parts of a batch, for the person who is asked about it."""
    tasks: list[Task] = arguments["tasks"] or []
    parts = [f"{number}. {task.agent_id}\n{task.prompt}" for number, task in enumerate(tasks, start=1)]
    at_once = "agents at the same time" if len(tasks) != 1 else "agent"
    return "\n\n".join([f"{len(tasks)} {at_once}:", *parts])


async def _batch(runner: ChildRunner, ctx: ToolContext, tasks: Sequence[Task], wait_all: bool) -> ToolResult:
    """Start all, then wait: a start that fails becomes that task's result, nobody else's."""
    with _of_all(len(tasks)):
        places = runner.hold_places(ctx.run_id, ctx.call_id, len(tasks))
    try:
        started = [await _start(runner, ctx, tasks, index, places, wait_all) for index in range(len(tasks))]
    finally:
        if places is not None:
            places.close()
    if not wait_all:
        return _in_background(runner, ctx, started)
    return await _aggregate(runner, ctx, await _ends(runner, ctx, started))


async def _start(
    runner: ChildRunner,
    ctx: ToolContext,
    tasks: Sequence[Task],
    index: int,
    places: HeldPlaces | None,
    wait_all: bool,
) -> Outcome:
    task = tasks[index]
    try:
        needs("execute_batch", agent_id=task.agent_id, prompt=task.prompt)
        request = ChildRequest(
            spec=registered(runner, ctx.run_id, task.agent_id),
            prompt=task.prompt,
            call_id=ctx.call_id,
            key=str(index),
            effort=task.effort or "",
            isolation=task.isolation,
            label=f"{task.agent_id} {index + 1}/{len(tasks)}",
            background=not wait_all,
            places=places,
        )
        return Outcome(agent=task.agent_id, child_id=await runner.start(ctx.run_id, request))
    except (Fenced, StoreError):
        raise
    except RetinueError as error:  # no such agent, no such model, nothing left to spend: this task's alone
        limited = isinstance(error, BudgetExhausted) or (
            isinstance(error, ToolError) and error.not_started > 0
        )
        return Outcome(agent=task.agent_id, error=str(error), limited=limited)


def _in_background(runner: ChildRunner, ctx: ToolContext, started: Sequence[Outcome]) -> ToolResult:
    missing = _not_started(started)
    rows: list[dict[str, Any]] = [
        {
            "agent_id": each.agent,
            "child_id": each.child_id,
            "success": each.child_id is not None,
            "error": each.error or None,
        }
        for each in started
    ]
    head: dict[str, Any] = {
        "success": not missing,
        "started": len(started) - missing,
        "note": "you will be told when each one ends; the operation 'wait' waits for all of them",
    }
    text, files = fitted(runner, ctx, head, [TaskRow(row=row, whole=bool(row["success"])) for row in rows])
    return ToolResult(
        text=text,
        files=files,
        is_error=missing == len(started),
        not_started=_not_started(started),
        wrong=_mistaken(started),
        meant=_meant(runner, ctx, started),
    )


async def _wait(runner: ChildRunner, ctx: ToolContext, child_ids: Sequence[str] | None) -> ToolResult:
    """The reports of children that run in the background, once all of them have ended."""
    if child_ids:
        children = [child_of(runner, ctx, child_id) for child_id in dict.fromkeys(child_ids)]
    else:
        children = [
            child
            for child in runner.children(ctx.run_id)
            if child.background and not runner.told(ctx.run_id, child.child_id, when_asked=True)
        ]
    if not children:
        raise ToolError("nothing runs in the background whose report you do not have already")
    waited = [Outcome(agent=child.agent, child_id=child.child_id) for child in children]
    return await _aggregate(runner, ctx, await _ends(runner, ctx, waited))


async def _ends(runner: ChildRunner, ctx: ToolContext, started: Sequence[Outcome]) -> list[Outcome]:
    waiting = [runner.wait(ctx.run_id, each.child_id) for each in started if each.child_id is not None]
    waited = iter(await asyncio.gather(*waiting, return_exceptions=True))
    outcomes: list[Outcome] = []
    for each in started:
        if each.child_id is None:
            outcomes.append(each)
            continue
        ended = next(waited)
        if isinstance(ended, BaseException) and not isinstance(ended, ToolError):
            raise ended  # the log cannot be written: there is nobody to tell
        if isinstance(ended, ToolError):
            outcomes.append(Outcome(agent=each.agent, child_id=each.child_id, error=str(ended)))
        else:
            outcomes.append(Outcome(agent=each.agent, child_id=each.child_id, report=ended))
    return outcomes


async def _aggregate(runner: ChildRunner, ctx: ToolContext, outcomes: Sequence[Outcome]) -> ToolResult:
    """A row for each task with its report, and one text that begins each of them."""
    told = [await _told(runner, ctx, outcomes, index) for index in range(len(outcomes))]
    framed = [each for _, each in told if each is not None]
    reports = [each.report for each in outcomes if each.report is not None]
    news = [each.report for each, (_, new) in zip(outcomes, told, strict=True) if new is not None]
    head = _head(outcomes)
    text, files = fitted(runner, ctx, head, [part for part, _ in told])
    return ToolResult(
        text=text,
        is_error=head["completed"] == 0,
        sources=tuple(source for report in news if report is not None for source in handed_up(report)),
        files=(*(path for each in framed for path in each.files), *files),
        usage=sum((each.usage for each in framed), Usage()),
        not_started=_not_started(outcomes),
        wrong=_mistaken(outcomes),
        meant=_meant(runner, ctx, outcomes),
        children=tuple(report.run_id for report in reports),
    )


async def _told(
    runner: ChildRunner, ctx: ToolContext, outcomes: Sequence[Outcome], index: int
) -> tuple[TaskRow, Framed | None]:
    """What is told of one task, and its report as its parent is shown it, unless it has been already."""
    each, title = outcomes[index], f"## {index + 1}. {outcomes[index].agent}"
    report = each.report
    if report is None:
        row = _row(each, success=False, report=None, error=each.error)
        title = f"{title}: not started"
        return TaskRow(row=row, whole=False, title=title, words=each.error), None
    before = runner.reported_before(report.run_id)
    title, whole = f"{title}: {report.status}", report.outcome == "completed"
    facts = {"status": report.status, **beside(report, before), "metrics": metrics(report, before)}
    if runner.told(ctx.run_id, report.run_id):
        row = _row(each, success=report.ok, report=TOLD, error=None) | facts
        return TaskRow(row=row, whole=whole, title=title, words=TOLD), None
    framed = await runner.shorten(ctx.run_id, report, quoted=True, among=len(outcomes))
    row = _row(each, success=report.ok, report=frame(report, framed.text, before=before), error=None) | facts
    lead = cut(framed.text, LEADS[0])
    more = "" if lead == framed.text else f"\n[the whole report is in results[{index}]]"
    part = TaskRow(
        row=row,
        whole=whole,
        title=title,
        words=brief(report, framed.text, before),
        beginning=f"{frame(report, lead, before=before)}{more}",
    )
    return part, framed


def _head(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """How a batch came out, in figures. `incomplete` are those of the completed whose report is not whole,
    where there are any."""
    ended = [each.report for each in outcomes if each.report is not None and each.report.ok]
    lacking = sum(report.outcome != "completed" for report in ended)
    return {
        "success": len(ended) == len(outcomes),
        "completed": len(ended),
        **({"incomplete": lacking} if lacking else {}),
        "failed": len(outcomes) - len(ended),
    }


def _not_started(outcomes: Sequence[Outcome]) -> int:
    return sum(each.child_id is None for each in outcomes)


def _mistaken(outcomes: Sequence[Outcome]) -> int:
    """How many of those a mistake kept from starting, and no limit."""
    return sum(each.wrong for each in outcomes)


def _meant(runner: ChildRunner, ctx: ToolContext, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """For whom those were that did not start, first those of a mistake: empty, where there is no such."""
    missing = sorted((each for each in outcomes if each.child_id is None), key=lambda each: not each.wrong)
    return tuple(one_of(runner, ctx.run_id, each.agent) for each in missing)


def _row(each: Outcome, *, success: bool, report: str | None, error: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"agent_id": each.agent, "child_id": each.child_id, "success": success}
    return {**row, "report": report, "error": error}
