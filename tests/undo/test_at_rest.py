"""What a person does to a workflow that has ended never harms one that another process takes up meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.engine import take_back
from retinue.engine.naming import rename
from retinue.engine.shown import ShownRuns
from retinue.errors import RunError
from retinue.testing import ScriptedModel, Step, call
from retinue.types import AgentSpec

WRITER = AgentSpec(name="writer", description="writes", prompt="Write.", tools=("write",))


def _two(tmp_path: Path, gate: asyncio.Event) -> tuple[Retinue, Retinue, ScriptedModel]:
    """Two processes' worth of instances on one database. The second answer of the first waits at a gate."""
    model = ScriptedModel(
        [call("write", path="a.txt", content="x"), "first", Step(text="second answer", gate=gate)]
    )
    folder = tmp_path / "p"
    folder.mkdir()
    given: dict[str, Any] = {
        "db": f"sqlite://{tmp_path}/r.db", "cwd": folder, "agents": [WRITER], "environ": {}, "yes": True,
    }  # fmt: skip
    return Retinue(model=model, **given), Retinue(model=ScriptedModel([]), **given), model


async def _taken_up(other: Retinue, run_id: str, model: ScriptedModel) -> None:
    await other.resume(run_id, message="go on")
    while len(model.requests) < 3:
        await asyncio.sleep(0)


async def test_a_run_that_is_taken_up_while_it_is_named_goes_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    worker, namer, model = _two(tmp_path, gate)
    async with worker, namer:
        run_id = (await worker.run("writer", "hi")).run_id

        class TakenUpAfterTheLook(ShownRuns):
            async def run(self, run_id: str) -> Any:
                row = await namer.shown.run(run_id)
                await _taken_up(worker, run_id, model)
                return row

        shown = TakenUpAfterTheLook.__new__(TakenUpAfterTheLook)
        with pytest.raises(RunError, match=f"{run_id} was taken up"):
            await rename(
                namer.store,
                shown,
                run_id,
                "another name",
                taking_up=namer._workflows.taking_up,
                publish=lambda _: None,
            )
        gate.set()
        assert (await worker.wait(run_id)).text == "second answer"


async def test_a_run_that_is_taken_up_while_its_changes_are_undone_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, at_it, go_on = asyncio.Event(), threading.Event(), threading.Event()
    worker, undoer, model = _two(tmp_path, gate)
    real = take_back.undo

    def held_up(*args: Any, **named: Any) -> Any:
        at_it.set()
        assert go_on.wait(30)
        return real(*args, **named)

    monkeypatch.setattr(take_back, "undo", held_up)
    async with worker, undoer:
        run_id = (await worker.run("writer", "hi")).run_id
        undoing = asyncio.create_task(undoer.changes.undo(run_id))
        await asyncio.to_thread(at_it.wait, 30)
        await _taken_up(worker, run_id, model)
        go_on.set()
        with pytest.raises(RunError, match=f"{run_id} was taken up"):
            await undoing
        gate.set()
        assert (await worker.wait(run_id)).text == "second answer"
