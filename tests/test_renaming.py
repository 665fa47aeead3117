"""A name that a person gives a workflow is a fact of its log: every list reads the same, and nothing else moves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retinue.app import Retinue
from retinue.errors import ConfigError
from retinue.events import RunRenamed
from retinue.story import Story
from retinue.testing import ScriptedModel, Step
from retinue.types import AgentSpec

ROOT = AgentSpec(name="root", description="answers", prompt="Answer.", tools=())


def _open(db: str, *scripts: str | Step) -> Retinue:
    return Retinue(
        model=ScriptedModel([*scripts]), db=db, project=False, agents=[ROOT], environ={}, conversations=True
    )


@pytest.fixture(params=["memory", "sqlite"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite://{tmp_path}/r.db"


async def test_the_last_name_counts_in_lists_and_stories(db: str) -> None:
    async with _open(db, "one", "two") as retinue:
        report = await retinue.run("root", "first", label="as begun")
        before = await retinue.store.run(report.run_id)
        await retinue.rename(report.run_id, "  the\nretry question ")
        row = await retinue.store.run(report.run_id)
        assert before is not None
        assert row is not None
        assert (before.label, row.label) == ("as begun", "the retry question")
        assert (row.outcome, row.completed_at) == (before.outcome, before.completed_at)
        story = Story()
        for event in await retinue.store.events(report.run_id):
            story.apply(event)
        assert story.root is not None
        assert story.root.label == "the retry question"
        await retinue.rename(report.run_id, "")
        row = await retinue.store.run(report.run_id)
        assert row is not None
        assert row.label == ""


async def test_a_named_conversation_goes_on_and_its_model_hears_nothing_of_it(db: str) -> None:
    model = ScriptedModel(["one", "two"])
    async with Retinue(
        model=model, db=db, project=False, agents=[ROOT], environ={}, conversations=True
    ) as retinue:
        report = await retinue.run("root", "first")
        await retinue.rename(report.run_id, "parrots")
        await retinue.resume(report.run_id, message="second")
        again = await retinue.wait(report.run_id)
        assert again.text == "two"
        assert "parrots" not in str(model.requests[-1])
        row = await retinue.store.run(report.run_id)
        assert row is not None
        assert row.label == "parrots"
        replayed = await retinue.replay(report.run_id)
        assert replayed.same, replayed.diff


async def test_whoever_listens_hears_it(db: str) -> None:
    async with _open(db, "one") as retinue:
        report = await retinue.run("root", "first")
        heard: list[RunRenamed] = []
        stop = retinue.hear(lambda event: heard.append(event) if isinstance(event, RunRenamed) else None)
        await retinue.rename(report.run_id, "parrots")
        stop()
        assert [event.label for event in heard] == ["parrots"]


async def test_what_is_at_work_is_not_named_and_a_name_has_a_length(db: str) -> None:
    gate = asyncio.Event()
    async with _open(db, Step(text="one", gate=gate)) as retinue:
        run_id = await retinue.start("root", "first")
        with pytest.raises(ConfigError, match="has not ended"):
            await retinue.rename(run_id, "parrots")
        gate.set()
        await retinue.wait(run_id)
        with pytest.raises(ConfigError, match="at most 200 characters, this one 201"):
            await retinue.rename(run_id, "x" * 201)
        await retinue.rename(run_id, " " + "x" * 200)
        row = await retinue.store.run(run_id)
        assert row is not None
        assert row.label == "x" * 200
