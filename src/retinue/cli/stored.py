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
    said: list[tuple[RunRow, str]] = []
    for row in [row for row in rows if row.outcome == "interrupted"][:most]:
        tree = await retinue.shown.tree(row.root_id) if row.waiting else ()
        said.append((row, go_on(row, tree, answered=bool(row.waiting) and await _is_answered(retinue, row))))
    return said


async def _is_answered(retinue: Retinue, row: RunRow) -> bool:
    """Whether every question of its workflow has an answer, which counts when it is resumed."""
    asked = await retinue.store.waiting(row.root_id)
    sent = [await retinue.store.signal(row.root_id, each.approval_id) for each in asked]
    return bool(sent) and all(signal is not None for signal in sent)


def go_on(row: RunRow, tree: Sequence[RunRow], *, answered: bool) -> str:
    """What to do about a run that was interrupted. `tree`: all of its workflow, if anything in it waits.

    `answered`: its questions are, and nothing but the answers is missing in its log.
    """
    from retinue.view.commands import command
    from retinue.view.words import parked

    resume = command(f"runs resume {row.root_id}")
    parked_itself = (each for each in tree if each.status == "waiting")
    limits = [each.parked_until for each in parked_itself if each.parked_until is not None]
    if answered and not limits:
        return f"interrupted: its process is gone; its question is answered: go on with: {resume}"
    if row.waiting > len(limits) and not answered:
        asked = "a question of it waits ('retinue approvals list')"
        return f"interrupted: its process is gone and {asked}: answer it, then go on with: {resume}"
    if limits:
        waits = parked(max(limits), time.time())
        return f"interrupted: its process is gone; it {waits}; go on then with: {resume}"
    return f"interrupted: its process is gone; go on with: {resume}"
