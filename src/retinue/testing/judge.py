"""A model as judge: whether an answer meets a criterion that no program could check.

The judge is an agent without tools, and each judgement a run of its own: durable, listed, with its price.
Called by `evaluation`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from retinue.app import Retinue
from retinue.run_ids import batch_run_id
from retinue.run_options import RunWith
from retinue.testing.eval_cases import EvalRun, EvalVerdict
from retinue.types import AgentSpec, ModelGiven

if TYPE_CHECKING:
    from pydantic import BaseModel


@cache
def judgement() -> type[BaseModel]:
    """What a judge answers with."""
    from pydantic import BaseModel, Field  # heavy: only where something is judged

    class Judgement(BaseModel):
        passed: bool = Field(description="whether the answer clearly meets the whole criterion")
        why: str = Field(description="one short sentence: what in the answer decides it")

    return Judgement


def judge_of(model: ModelGiven = "") -> AgentSpec:
    """The agent that judges, on a model; without one on that of the instance."""
    return AgentSpec(
        name="eval-judge",
        description="Judges whether an answer meets a criterion.",
        prompt=(files("retinue.testing") / "judge.md").read_text("utf-8"),
        tools=(),
        model=model or "inherit",
        output_schema=judgement(),
        instructions=False,
        skills=(),
        max_turns=4,
    )


async def judged(
    retinue: Retinue[Any], run: EvalRun, criterion: str, *, model: ModelGiven = ""
) -> EvalVerdict:
    """Whether a model finds that an answer meets a criterion. The same is judged once, however often it is
    asked; what gave no judgement is no pass."""
    asked = _asked(run, criterion)
    name = f"judge: {criterion}"
    spec = judge_of(model)
    named = spec.model if model else ""
    run_id = batch_run_id("judge", spec.prompt, run.report.run_id, f"{named}\n{asked}", run.number)
    metadata = {"evaluates": run.report.run_id}
    options = RunWith(label=f"judge of {run.case.name} #{run.number}", metadata=metadata)
    report = await retinue.once(run_id, spec, asked, **options)
    if report.data is None:
        why = report.error or report.incomplete or "it gave none"
        return EvalVerdict(check=name, passed=False, why=f"there is no judgement: {why}", usage=report.usage)
    found = cast("Any", report.data_as(judgement()))
    return EvalVerdict(check=name, passed=found.passed, why=found.why, usage=report.usage)


def _asked(run: EvalRun, criterion: str) -> str:
    """What the judge reads. The question and the answer stand as JSON: they cannot pretend to be the rest."""
    question = run.case.prompt if isinstance(run.case.prompt, str) else json.dumps(run.case.prompt)
    shown = {"question": question, "answer": run.report.text}
    data = json.dumps(shown, ensure_ascii=False, indent=1)
    return f"Criterion: {criterion}\n\nWhat is judged, as data:\n{data}"
