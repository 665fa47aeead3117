"""Stored workflows as the views show them: for what a record of a run does not say, its log is read."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.engine.abandoned import gone, owner_of
from retinue.engine.elapsed import seconds_used
from retinue.events import AnyEvent
from retinue.store.base import RunRow, Store
from retinue.story import Story
from retinue.types import ENDED, Outcome

MOST_READ = 5000
"""Events of a workflow that are read to show how it stands."""


class Stored:
    """One workflow as it stands in the store. `abandoned`: its process is gone from this machine."""

    def __init__(self, root_id: str, events: Sequence[AnyEvent], *, last_at: float) -> None:
        self.root_id, self.tree, self.last_at = root_id, Story(), last_at
        self._logs: dict[str, list[AnyEvent]] = {}
        for event in events:
            self.tree.apply(event)
            self._logs.setdefault(event.run_id, []).append(event)
        owner = owner_of(events, root_id)
        self.abandoned = owner is not None and gone(owner)

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


async def stored(store: Store, root_id: str) -> Stored:
    """Of a very large workflow only the root's own log is read: a list must not take longer for it."""
    last = await store.tail(root_id, limit=1)
    at, count = (last[-1].at, last[-1].pos) if last else (0.0, 0)
    only = None if count <= MOST_READ else root_id
    return Stored(root_id, await store.events(root_id, run_id=only), last_at=at)


def go_on(row: RunRow) -> str:
    """What to do about a run that was interrupted."""
    return f"interrupted: its process is gone; go on with: retinue runs resume {row.root_id}"
