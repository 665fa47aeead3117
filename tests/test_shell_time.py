"""A command of a run whose time is short."""

from __future__ import annotations

from pathlib import Path

from retinue import AgentSpec, Retinue
from retinue.events import ToolReturned
from retinue.testing import ScriptedModel, call


async def test_a_command_is_ended_in_time_for_its_run_to_sum_up_with_what_it_printed(tmp_path: Path) -> None:
    kid = AgentSpec(name="kid", description="runs commands", prompt="You run commands.", tools=("bash",))
    model = ScriptedModel([call("bash", command="echo found; sleep 50"), "summed up"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[kid], environ={}) as retinue:
        report = await retinue.run("kid", "go", settings={"limits.timeout": 4}, yes=True)
        events = await retinue.store.events(report.run_id)
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert returned.text.startswith("found\n[timed out after ")
    assert (report.status, report.ended_by, report.text) == ("completed", "time", "summed up")
