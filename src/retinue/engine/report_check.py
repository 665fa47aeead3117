"""What keeps an answer from being a report: a JSON schema it has to fit, sources that are not true."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from retinue import report_facts
from retinue.run import Problem, Run
from retinue.sources import Checked
from retinue.tools.schemas import schema_problems
from retinue.types import TypedSchema, type_problems

MOST_UNCITED = 5
"""Sentences without a source that a model is told of at once."""


def _not_held(checked: Checked) -> str:
    """What is wrong with an answer: citations, claims, and statements that cite nothing."""
    wrong = [f"{problem.cited} ({problem.note})" for problem in checked.problems]
    wrong += [f"“{text}” (it cites nothing)" for text in checked.claims.uncited[:MOST_UNCITED]]
    return "; ".join(wrong)


async def review(
    run: Run, text: str, *, strict_sources: bool = False, kinds: Sequence[TypedSchema] = ()
) -> Problem | None:
    """What is wrong with an answer, for the model and for people; None, and its data kept, if nothing is."""
    if strict_sources and (
        wrong := _not_held(await report_facts.check_sources(run, text, strict=True, judge=True))
    ):
        return Problem(
            about="sources",
            for_model=f"Your answer does not hold against its sources: {wrong}. Fetch or read what you cite, "
            "say what the source says, cite what you state, or take it out. Answer again in full.",
            for_people=f"the answer does not hold against its sources: {wrong}",
        )
    schema = run.output_schema
    if schema is None:
        return None
    value = json_in(text)
    problems = ["it is not JSON"] if value is None else schema_problems(value, schema)
    for typed in () if problems else (each for each in kinds if each == schema):
        problems = type_problems(value, typed.kind)
    if not problems:
        run.data = value
        return None
    why = "; ".join(problems)
    return Problem(
        about="form",
        for_model=f"Your answer does not fit the required JSON schema: {why}. Answer again with JSON alone, "
        f"no other text, that fits this schema: {json.dumps(schema)}",
        for_people=f"the answer does not fit the required JSON schema: {why}",
    )


def json_in(text: str) -> Any:
    """The JSON value a text consists of, or that its only code block holds; None if there is none."""
    blocks = re.findall(r"```(?:json)?[^\S\n]*\n(.*?)```", text, re.S)
    for candidate in (text, *blocks[:1]):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return None
