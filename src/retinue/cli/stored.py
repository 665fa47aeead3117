"""What is said of one stored workflow beyond the records of its runs: its story, and how to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.story import Story

if TYPE_CHECKING:
    from retinue.store.base import RunRow, Store

MOST_READ = 5000
"""Events of a workflow that are read to show one run of it."""


async def told(store: Store, row: RunRow) -> Story:
    """The workflow of a run. Of a very large one only the run's own log is read."""
    only = None if await store.count(row.root_id) <= MOST_READ else row.run_id
    story = Story()
    for event in await store.events(row.root_id, run_id=only):
        story.apply(event)
    if row.outcome == "interrupted":
        story.interrupt()
    return story


def go_on(row: RunRow) -> str:
    """What to do about a run that was interrupted."""
    return f"interrupted: its process is gone; go on with: retinue runs resume {row.root_id}"
