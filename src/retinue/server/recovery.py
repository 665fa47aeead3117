"""Workflows that a dead process left behind: found, and taken up where their logs end.

A server does this when it starts, and whenever somebody speaks to a workflow that nobody works on. It takes
up only what belongs to its own project and was run on this machine by a process that is gone.
"""

from __future__ import annotations

import logging
import time

from retinue.app import Retinue
from retinue.engine.abandoned import owner_of
from retinue.errors import RetinueError
from retinue.store.base import Letter, RunFilter, RunRow
from retinue.types import Status

log = logging.getLogger("retinue.server")
NOT_OLDER = 7 * 86400.0
"""Seconds since its last event after which a workflow is left alone: whoever asked has moved on."""
_OPEN: tuple[Status, ...] = ("running", "waiting", "pending")


async def resume_all(retinue: Retinue) -> list[str]:
    """Take up whatever a dead process left in this project. Returns the workflows that go on."""
    taken: list[str] = []
    for row in await _left(retinue):
        try:
            if await abandoned(retinue, row):
                await take_up(retinue, row)
                taken.append(row.root_id)
                log.info("%s goes on where its log ends", row.root_id)
        except RetinueError as error:  # one broken workflow must not keep the others from going on
            log.warning("%s cannot be taken up: %s", row.root_id, error)
    return taken


async def _left(retinue: Retinue) -> list[RunRow]:
    found: dict[str, RunRow] = {}
    for status in _OPEN:
        rows = await retinue.runs(RunFilter(roots_only=True, status=status, limit=1000))
        found.update((row.run_id, row) for row in rows if belongs(retinue, row))
    recent: list[RunRow] = []
    for row in found.values():
        last = await retinue.store.tail(row.root_id, limit=1)
        if last and time.time() - last[0].at < NOT_OLDER:
            recent.append(row)
        else:
            log.info("%s was left long ago and stays as it is; it can be resumed by hand", row.root_id)
    return sorted(recent, key=lambda row: row.created_at)


def belongs(retinue: Retinue, row: RunRow) -> bool:
    """Whether a run worked in the folder this server works in: its tools would touch another one else."""
    return row.cwd == str(retinue.project or "")


async def abandoned(retinue: Retinue, row: RunRow) -> bool:
    """Whether a workflow is unfinished and the process that ran it is gone from this machine."""
    return await retinue.abandoned(row.root_id)


async def take_up(retinue: Retinue, row: RunRow, *, message: str | None = None) -> None:
    """Go on with a workflow, without what somebody cancelled while nobody worked on it."""
    if message is None:
        for letter in await _cancelled_since(retinue, row.root_id):
            await retinue.cancel(letter.run_id, "cancelled while nobody worked on it")
            if letter.run_id == row.root_id:
                return
    await retinue.resume(row.root_id, message=message)


async def _cancelled_since(retinue: Retinue, root_id: str) -> list[Letter]:
    owner = owner_of(await retinue.store.events(root_id, run_id=root_id), root_id)
    letters = await retinue.store.letters(root_id)
    return [one for one in letters if one.kind == "cancel" and owner is not None and one.at > owner.at]
