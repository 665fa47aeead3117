"""How a stored run stands in one word. A report is the last event of a run, and says so itself."""

from __future__ import annotations

from retinue.app import Retinue
from retinue.events import RunFinished
from retinue.store.base import RunRow
from retinue.types import ENDED, Outcome


async def outcome(retinue: Retinue, row: RunRow) -> Outcome:
    if row.status == "running" and await retinue.abandoned(row.root_id):
        return "interrupted"
    if row.status not in ENDED:
        return row.status
    last = await retinue.store.tail(row.root_id, run_id=row.run_id, limit=1)
    for event in last:
        if isinstance(event, RunFinished):
            return event.report.outcome
    return row.status
