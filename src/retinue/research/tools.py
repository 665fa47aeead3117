"""The tools of research: `research_plan`, `research_note`, `research_sources`, `research_report`.

Made for each run of an agent that names them. They touch its own notes and files alone; what it has read is
looked up in the logs of the workflow. The plan and the report are in the results, so whoever takes a run up
again finds both by going through its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from retinue.errors import ToolError
from retinue.research.pages import FetchedPage, KeptTable, SourceTable
from retinue.research.planning import (
    MOST_QUESTIONS,
    as_filled,
    form_of,
    noted,
    one_line,
    plan_lines,
    planned,
)
from retinue.research.report import CheckedClaim, CheckedReport, written
from retinue.tools.base import FormQuestion, Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.types import PlanQuestion, QuestionStatus, ResearchPlan
from retinue.web.framing import frame
from retinue.workspace import HOME

REPORT = f"{HOME}/report.md"
LONGEST_REPORT = 200_000
MOST_MENDED = 3
"""Times that a report with flagged claims is sent back; after that it stays as it is, with its marks."""
PLAN_SECONDS = 600.0
"""How long the plan waits for a person before the work goes on without them."""
MOST_TOLD = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchDesk:
    """What the tools are given of their run: its plan as its log has it, what it and those below it have
    read, whether a person is shown the plan, what is left to spend, whether a report may stand for the
    answer, and how many were written."""

    plan: Callable[[], ResearchPlan | None]
    pages: Callable[[], Awaitable[list[FetchedPage]]]
    asks: Callable[[], bool]
    left: Callable[[], str]
    answers: Callable[[], bool]
    reports: Callable[[], int]


TableNow = Callable[[], Awaitable[SourceTable]]
"""What a run and those below it have read until now, numbered."""


def research_tools(desk: ResearchDesk) -> list[Tool]:
    kept = KeptTable()

    async def table() -> SourceTable:
        return await kept.of(await desk.pages())

    return [_plan_tool(desk), _note_tool(desk), _sources_tool(desk, table), _report_tool(desk, table)]


def _listed(value: object) -> object:
    """One question alone, or one on each line, as small models write them, is a list."""
    return [line for line in value.split("\n") if line.strip()] if isinstance(value, str) else value


def _plan_tool(desk: ResearchDesk) -> Tool:
    @tool(description=describe("research_plan"), effect="read", private=False, timeout=None, repeatable=True)
    async def research_plan(
        ctx: ToolContext,
        questions: Annotated[
            list[str], Field(min_length=1, max_length=MOST_QUESTIONS), BeforeValidator(_listed)
        ],
    ) -> ToolResult:
        """Plan.

        Args:
            questions: the questions to look into, each complete in itself, with full names
        """
        before = desk.plan()
        plan = planned(before, questions)
        told = ""
        if before is None and desk.asks():
            plan, told = await _shown(ctx, plan)
        text = f"{plan_lines(plan.questions)}\n\n{told}{desk.left()}"
        return ToolResult(text=text, plan=plan)

    return research_plan


async def _shown(ctx: ToolContext, plan: ResearchPlan) -> tuple[ResearchPlan, str]:
    """The plan as a person wants it. Where nobody is there, or nobody answers, it stays as it is."""
    question = FormQuestion(
        asker=ctx.agent,
        own=True,
        text="This is the plan. Change what you like; without an answer the work goes on with it.",
        schema=form_of(plan),
        shown=plan_lines(plan.questions),
        seconds=PLAN_SECONDS,
    )
    filled = await ctx.inquire(question)
    match filled.action:
        case "accept":
            changed = as_filled(plan, filled.content)
            if not changed.questions:
                raise ToolError("the person took every question out of the plan: stop, and say so")
            same = [each.text for each in changed.questions] == [each.text for each in plan.questions]
            return changed, "" if same else "The person has changed the plan: go by this one.\n"
        case "decline":
            raise ToolError(
                "the person does not agree to this plan. Stop here, and answer with what you need to know."
            )
        case _:
            return plan, "Nobody looked at the plan: go on with it.\n"


def _note_tool(desk: ResearchDesk) -> Tool:
    @tool(description=describe("research_note"), effect="read", private=False, repeatable=True)
    async def research_note(number: int, status: QuestionStatus, finding: str = "") -> ToolResult:
        """Note.

        Args:
            number: of the question
            status: how it stands
            finding: what was found, in one or two sentences, with the numbers of its sources; or what lacks
        """
        plan = noted(desk.plan(), number, status, finding)
        return ToolResult(text=plan_lines(plan.questions), plan=plan)

    return research_note


def _sources_tool(desk: ResearchDesk, table_now: TableNow) -> Tool:
    @tool(description=describe("research_sources"), effect="read", private=False, repeatable=True)
    async def research_sources() -> ToolResult:
        """Sources."""
        table = await table_now()
        plan = desk.plan()
        open_: list[PlanQuestion] = [q for q in plan.questions if q.status != "answered"] if plan else []
        lines = [table.line(number) for number in range(1, len(table.pages) + 1)]
        parts = [frame("\n".join(lines) or "(nothing was read yet)", what="sources by number")]
        if table.differences:
            parts.append(frame(_differences(table), what="contradictions between sources"))
        if open_:
            parts.append(f"Not answered yet:\n{plan_lines(open_)}")
        parts.append(desk.left())
        return ToolResult(
            text="\n\n".join(part for part in parts if part), passing=True, private=table.private
        )

    return research_sources


def _differences(table: SourceTable) -> str:
    lines = [
        f"- {each.kind}: [{table.number(each.one.key)}] “{one_line(each.one.sentence, 200)}”"
        f" / [{table.number(each.other.key)}] “{one_line(each.other.sentence, 200)}”"
        for each in table.differences[:MOST_TOLD]
    ]
    more = len(table.differences) - MOST_TOLD
    return "\n".join([*lines, *([f"(and {more} more)"] if more > 0 else [])])


def _report_tool(desk: ResearchDesk, table_now: TableNow) -> Tool:
    @tool(description=describe("research_report"), effect="read", private=False, repeatable=True)
    async def research_report(
        ctx: ToolContext,
        title: Annotated[str, Field(max_length=300)],
        body: Annotated[str, Field(min_length=1, max_length=LONGEST_REPORT)],
    ) -> ToolResult:
        """Report.

        Args:
            title: of the report
            body: the report in Markdown, with [n] behind each statement; without a list of sources
        """
        table = await table_now()
        report = await asyncio.to_thread(written, title, body, table, desk.plan())
        path = await asyncio.to_thread(ctx.files.write, REPORT, report.text.encode("utf-8", "replace"))
        last = desk.reports() + 1 >= MOST_MENDED
        return ToolResult(
            text=_verdict(report, path, last=last),
            files=(path,),
            answer=report.text if desk.answers() else "",
            private=table.private,
        )

    return research_report


def _verdict(report: CheckedReport, path: str, *, last: bool) -> str:
    wrong = [
        *(f"- [{number}] stands for nothing: research_sources has the numbers" for number in report.unknown),
        *(_wrong(each) for each in report.doubtful[:MOST_TOLD]),
        *(f"- it cites nothing: “{one_line(text, 200)}”" for text in report.uncited[:5]),
        *(
            f"- other sources say otherwise ({', '.join(f'[{n}]' for n in each.denied)}), and the report has "
            f"to say so: “{one_line(each.claim.text, 200)}”"
            for each in report.claims
            if each.denied
        ),
    ]
    head = f"Saved as {path}. Confidence by the figures: {report.confidence}."
    if not wrong:
        return f"{head} Every claim was held against its source. You are done: answer with one line."
    told = frame("\n".join(wrong), what="what does not hold")
    if last:
        return f"{head} What does not hold is marked in it. You are done: answer with one line.\n\n{told}"
    return (
        f"{head} Some of it does not hold, and is marked in it:\n\n{told}\n\nMend these from what the pages "
        "say (look there again where you must), and call research_report again with the whole body."
    )


def _wrong(each: CheckedClaim) -> str:
    claim = each.claim
    what = "; ".join(
        f"“{one.claim}”, where the source has " + (f"“{one.source}”" if one.source else "nothing of the kind")
        for one in claim.differences
    )
    said = f" ({what})" if what else ""
    passage = f" Its nearest passage: “{one_line(claim.passage, 240)}”" if claim.passage else ""
    return f"- {claim.verdict.replace('_', ' ')}: “{one_line(claim.text, 240)}”{said}.{passage}"
