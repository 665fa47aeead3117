"""Stored workflows as the views show them: for what a record of a run does not say, its log is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.engine.elapsed import seconds_used
from retinue.events import AnyEvent
from retinue.store.base import RunRow, Store
from retinue.story import Story
from retinue.types import ENDED, Outcome

if TYPE_CHECKING:
    from retinue.app import Retinue

MOST_READ = 5000
"""Events of a workflow that are read to show how it stands."""


class Stored:
    """One workflow as it stands in the store. `abandoned`: whoever worked on it is gone."""

    def __init__(self, root_id: str, events: Sequence[AnyEvent], *, last_at: float, abandoned: bool) -> None:
        self.root_id, self.tree, self.last_at, self.abandoned = root_id, Story(), last_at, abandoned
        self._logs: dict[str, list[AnyEvent]] = {}
        for event in events:
            self.tree.apply(event)
            self._logs.setdefault(event.run_id, []).append(event)

    def shown(self, row: RunRow) -> Outcome:
        """The status of a run for people."""
        if row.status not in ENDED and self.abandoned:
            return "interrupted"
        node = self.tree.nodes.get(row.run_id)
        return row.status if node is None or node.status != row.status else node.outcome

    def seconds(self, row: RunRow, now: float) -> float:
        """How long a run has worked: nobody works while it waits for a person, or after its process ended."""
        if row.duration_ms is not None:
            return row.duration_ms / 1000
        if row.run_id not in self._logs:
            return max(0.0, (now if self.working(row) else self.last_at) - row.created_at)
        used = seconds_used(row.run_id, self._logs)
        return used + max(0.0, now - self.last_at) if self.working(row) else used

    def working(self, row: RunRow) -> bool:
        """Whether somebody works on a run right now, as far as can be seen from here."""
        node = self.tree.nodes.get(row.run_id)
        waits = node is not None and any(one.waiting and not one.over for one in node.walk())
        return row.status not in ENDED and not self.abandoned and not waits


async def stored(retinue: Retinue, root_id: str) -> Stored:
    """A workflow as it stands, with a look at whoever works on it."""
    return await read(retinue.store, root_id, abandoned=await retinue.abandoned(root_id))


async def read(store: Store, root_id: str, *, abandoned: bool) -> Stored:
    """Of a very large workflow only the root's own log is read: a list must not take longer for it."""
    last = await store.tail(root_id, limit=1)
    at, count = (last[-1].at, last[-1].pos) if last else (0.0, 0)
    only = None if count <= MOST_READ else root_id
    events = await store.events(root_id, run_id=only)
    return Stored(root_id, events, last_at=at, abandoned=abandoned)


def go_on(row: RunRow) -> str:
    """What to do about a run that was interrupted."""
    return f"interrupted: its process is gone; go on with: retinue runs resume {row.root_id}"
