"""A model that will not answer, or says that it cannot: one fact, no tick, and it can be asked again."""

from __future__ import annotations

import pytest

from retinue import Retinue
from retinue.store.base import RunFilter
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel
from retinue.testing.scripted import Step
from retinue.types import AgentSpec, AssistantMessage, UserMessage

BARE = AgentSpec(name="bare", description="a bare agent", prompt="You answer.", tools=())
NO = Step(text="I will not.", stop="refusal")


async def test_the_offline_model_that_cannot_answer_has_refused() -> None:
    async with Retinue(
        model="offline", project=False, agents=[BARE], environ={}, db=MemoryStore()
    ) as retinue:
        report = await retinue.run("bare", "Write me a poem about the sea")
        (row,) = await retinue.runs(RunFilter(outcome="refused"))
    assert (report.ok, report.outcome, report.ended_by) == (False, "refused", "refusal")
    assert "cannot answer" in report.text
    assert (row.run_id, row.outcome) == (report.run_id, "refused")


async def test_a_sum_that_the_offline_model_cannot_do_has_no_tick() -> None:
    async with Retinue(model="offline", project=False, environ={}, db=MemoryStore()) as retinue:
        report = await retinue.run("math-expert", {"problem": "solve x^3 + sin(x) = 2"})
    assert report.outcome == "refused", report.text
    assert "not solved" in report.text


async def test_the_offline_model_that_has_nothing_to_fill_a_form_from_has_refused() -> None:
    async with Retinue(
        model="offline", project=False, agents=[BARE], environ={}, db=MemoryStore()
    ) as retinue:
        report = await retinue.run("bare", "Write me a poem about the sea", output=dict[str, str])
    assert (report.outcome, report.ended_by, report.turns) == ("refused", "refusal", 1)


@pytest.mark.parametrize("message", [None, "why not?"])
async def test_who_takes_a_refused_run_up_asks_the_model_again(message: str | None) -> None:
    model = ScriptedModel([NO, "Since you ask: here it is."])
    async with Retinue(model=model, project=False, agents=[BARE], environ={}, db=MemoryStore()) as retinue:
        refused = await retinue.run("bare", "Write me a poem")
        await retinue.resume(refused.run_id, message=message)
        report = await retinue.wait(refused.run_id)
    assert (report.outcome, report.text) == ("completed", "Since you ask: here it is.")
    asked = model.requests[-1].messages
    said = [m.text for m in asked if isinstance(m, AssistantMessage)]
    assert said == ([] if message is None else ["I will not."]), "it is shown again only to be spoken about"
    assert isinstance(asked[-1], UserMessage)
