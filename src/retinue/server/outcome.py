"""How a run stands in one word: its status, unless that would promise too much.

A run that completed without what a person rejected, or without finishing its work, is not simply done. What
is needed for that is in the log: the report is the last event of a run, and answers are letters.
"""

from __future__ import annotations

import json

from retinue.app import Retinue
from retinue.events import RunFinished
from retinue.server import shapes
from retinue.store.base import RunRow, Store
from retinue.types import Outcome


async def outcome(retinue: Retinue, row: RunRow) -> Outcome:
    if row.status == "running" and await retinue.abandoned(row.root_id):
        return "interrupted"
    if row.status != "completed":
        return row.status
    if await _rejected(retinue.store, row):
        return "rejected"
    last = await retinue.store.tail(row.root_id, run_id=row.run_id, limit=1)
    unfinished = any(isinstance(event, RunFinished) and event.report.incomplete for event in last)
    return "incomplete" if unfinished else row.status


async def _rejected(store: Store, row: RunRow) -> bool:
    """Whether a person rejected a call of this run or of one below it."""
    refused = {
        letter.run_id
        for letter in await store.letters(row.root_id)
        if letter.kind == "answer" and json.loads(letter.body).get("decision") == "reject"
    }
    if not refused or row.run_id in refused:
        return bool(refused)
    return any(one.run_id in refused for one in shapes.below(await store.tree(row.root_id), row.run_id))
