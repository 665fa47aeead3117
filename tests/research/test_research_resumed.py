"""Research that was killed goes on with its pages, and pays for nothing twice."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from research.killed import RUN, paid, writer_for
from research.world import PlantedWeb, things
from retinue import Retinue
from retinue.events import ModelReplied, ToolReturned
from retinue.testing import ScriptedModel


async def test_killed_in_the_middle_it_goes_on_with_what_was_read(tmp_path: Path) -> None:
    told = things()[:3]
    paths, calls = [thing.path for thing in told], tmp_path / "calls"
    db = f"sqlite://{tmp_path}/a.db"
    async with PlantedWeb({thing.path: thing.page for thing in told}) as site:
        site.hold(paths[2])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).with_name("killed.py"))),
            *(db, str(tmp_path), str(calls), site.authority, *paths),
        )
        await asyncio.wait_for(site.all_asked(paths), 120)
        await asyncio.wait_for(site.children_done(tmp_path / "a.db", RUN, 2), 120)
        process.kill()
        await process.wait()
        site.release()
        before = len(calls.read_text().splitlines())
        model = ScriptedModel(paid(writer_for(site.authority, paths), calls))
        async with Retinue(model=model, db=db, cwd=tmp_path, environ={}, settings=site.settings) as retinue:
            await retinue.resume(RUN, take_over=True)
            report = await retinue.wait(RUN)
            events = await retinue.store.events(RUN)
    assert report.ok, report.error
    assert [site.hits[path] for path in paths] == [1, 1, 2], "only what was cut off is fetched again"
    assert all(f"{thing.name}. {site.url(thing.path)}" in report.text for thing in told)
    replies = sum(isinstance(event, ModelReplied) for event in events)
    assert len(calls.read_text().splitlines()) == replies, "each reply was paid for once"
    assert before > 0
    plans = [e for e in events if isinstance(e, ToolReturned) and e.name == "research_plan"]
    assert len(plans) == 1
