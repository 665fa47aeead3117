"""What is said of one stored workflow beyond the records of its runs: how to go on with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retinue.app import Retinue
    from retinue.store.base import RunRow


async def advice(retinue: Retinue, rows: Sequence[RunRow], most: int = 1) -> list[tuple[RunRow, str]]:
    """What to do about the first runs of these that were interrupted."""
    stopped = [row for row in rows if row.outcome == "interrupted"][:most]
    return [
        (row, go_on(row, await retinue.shown.tree(row.root_id) if row.waiting else ())) for row in stopped
    ]


def go_on(row: RunRow, tree: Sequence[RunRow]) -> str:
    """What to do about a run that was interrupted. `tree`: all of its workflow, if anything in it waits."""
    from retinue.view.commands import command
    from retinue.view.words import parked

    resume = command(f"runs resume {row.root_id}")
    parked_itself = (each for each in tree if each.status == "waiting")
    limits = [each.parked_until for each in parked_itself if each.parked_until is not None]
    if row.waiting > len(limits):
        asked = "a question of it waits ('retinue approvals list')"
        return f"interrupted: its process is gone and {asked}: answer it, then go on with: {resume}"
    if limits:
        waits = parked(max(limits), time.time())
        return f"interrupted: its process is gone; it {waits}; go on then with: {resume}"
    return f"interrupted: its process is gone; go on with: {resume}"
