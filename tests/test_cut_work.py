"""Work that was cut at a model's output limit is not whole, however well it is summed up."""

from __future__ import annotations

import pytest

from retinue import AgentSpec, Retinue
from retinue.testing import ScriptedModel, call
from retinue.testing.scripted import Step

TEAM = {"delegation.tools": ["subagent"]}


@pytest.mark.parametrize("cut", ["the work", "the summary", "nothing"])
async def test_a_summary_of_work_that_was_cut_is_incomplete(cut: str) -> None:
    spec = AgentSpec(name="a", description="a", prompt="You work.", tools=(), summary="Sum up.")
    work = Step(text="half of the", stop="length" if cut == "the work" else "end")
    summary = Step(text="All done.", stop="length" if cut == "the summary" else "end")
    async with Retinue(model=ScriptedModel([work, summary]), db="memory:", agents=[spec]) as retinue:
        report = await retinue.run("a", "go")
        assert not (await retinue.replay(report.run_id)).diff
    whole = cut == "nothing"
    assert (report.outcome, report.ended_by) == (
        ("completed", "answer") if whole else ("incomplete", "length")
    )


async def test_a_subagent_whose_work_was_cut_is_counted_by_its_parent() -> None:
    boss = AgentSpec(name="boss", description="b", prompt="You are boss.", tools=("subagent",))
    model = ScriptedModel(
        {
            "You are boss": [call("subagent", task_prompt="work it out", label="part"), "done"],
            "": [Step(text="half of the", stop="length"), "Summed up."],
        }
    )
    async with Retinue(model=model, db="memory:", agents=[boss], settings=TEAM, yes=True) as retinue:
        report = await retinue.run("boss", "go")
    assert (report.outcome, report.shortfall.incomplete) == ("incomplete", 1)
