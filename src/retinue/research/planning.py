"""Steps of a research plan: questions set, added, and what became of them. Pure, from one plan to the next.

Called by the tools of research.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from retinue.errors import ToolError
from retinue.types import PlanQuestion, QuestionStatus, ResearchPlan

MOST_QUESTIONS = 20
LONGEST_QUESTION = 500
LONGEST_FINDING = 600
DROPPED = "-"
"""What a person writes for a question that is not to be asked."""
MORE = "another"


def one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def planned(plan: ResearchPlan | None, questions: Iterable[str]) -> ResearchPlan:
    """A plan of these questions, added to what there is. One that is there already is not asked twice."""
    before = plan.questions if plan is not None else ()
    known = {each.text.casefold() for each in before}
    fresh: dict[str, str] = {}
    for text in (one_line(question, LONGEST_QUESTION) for question in questions):
        if text and text.casefold() not in known:
            fresh.setdefault(text.casefold(), text)
    if not fresh and not before:
        raise ToolError("questions is empty: give at least one", not_run="bad_arguments")
    if len(before) + len(fresh) > MOST_QUESTIONS:
        raise ToolError(
            f"the plan would have {len(before) + len(fresh)} questions: the limit is {MOST_QUESTIONS}. Join "
            "those that belong together."
        )
    added = tuple(
        PlanQuestion(number=len(before) + at, text=text) for at, text in enumerate(fresh.values(), start=1)
    )
    rounds = plan.round + bool(added) if plan is not None else 1
    by_person = plan.by_person if plan is not None else False
    return ResearchPlan(questions=(*before, *added), round=rounds, by_person=by_person)


def form_of(plan: ResearchPlan) -> dict[str, Any]:
    """The plan as a form: a field for each question, with what it says now."""
    fields: dict[str, Any] = {
        f"question_{each.number}": {
            "type": "string",
            "title": f"question {each.number} ({DROPPED} leaves it out)",
            "default": each.text,
        }
        for each in plan.questions
    }
    fields[MORE] = {"type": "string", "title": "another question, if one is missing", "default": ""}
    return {"type": "object", "properties": fields, "required": []}


def as_filled(plan: ResearchPlan, content: Mapping[str, Any]) -> ResearchPlan:
    """The plan as a person filled in its form. What they left alone stays."""
    said = [str(content.get(f"question_{each.number}", each.text)) for each in plan.questions]
    texts = [one_line(text, LONGEST_QUESTION) for text in (*said, str(content.get(MORE) or ""))]
    kept = [text for text in texts if text and text != DROPPED]
    questions = tuple(PlanQuestion(number=at, text=text) for at, text in enumerate(kept, start=1))
    return ResearchPlan(questions=questions, by_person=True, round=plan.round)


def noted(plan: ResearchPlan | None, number: int, status: QuestionStatus, finding: str) -> ResearchPlan:
    known = plan.questions if plan is not None else ()
    if plan is None or not any(each.number == number for each in known):
        there = ", ".join(str(each.number) for each in known) or "none yet: call research_plan"
        raise ToolError(f"there is no question {number}; the questions are {there}", not_run="bad_arguments")
    finding = one_line(finding, LONGEST_FINDING)
    changed = tuple(
        msgspec.structs.replace(each, status=status, finding=finding) if each.number == number else each
        for each in known
    )
    return msgspec.structs.replace(plan, questions=changed)


def plan_lines(questions: Sequence[PlanQuestion]) -> str:
    """The plan as a model and a person read it."""
    return "\n".join(
        f"{each.number}. [{each.status.replace('_', ' ')}] {each.text}"
        + (f"\n   {each.finding}" if each.finding else "")
        for each in questions
    )
