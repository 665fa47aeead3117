"""The log of a workflow at rest, for what a person does to it: name it, undo it, merge copies of it.

Called by those who do that (`naming`, `take_back`). The end of the log is read before anybody looks whether
the run has ended, and what is written goes behind that end or nowhere: another process that took the run up
in between goes on, and the person is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from retinue.engine.shown import ShownRuns
from retinue.errors import ConfigError, Fenced, RunError
from retinue.events import AnyEvent, Beside, LiveEvent, next_event
from retinue.standing import OPEN
from retinue.store.base import RunRow, Store

E = TypeVar("E", bound=Beside)
MOST_BESIDE = 50
"""Events that are looked through for such."""


class AtRest:
    """One log as it ended before it was looked at."""

    def __init__(self, store: Store, last: AnyEvent, *, publish: Callable[[LiveEvent], None]) -> None:
        self._store, self._last, self._publish = store, last, publish

    async def write(self, kind: type[E], /, **fields: Any) -> None:
        """Raises `RunError` where the run was taken up since."""
        await self._let_finish()
        await self.append(next_event(self._last, kind, **fields))

    async def _let_finish(self) -> None:
        """What a workflow wrote that gave back its things is no taking up: the end is behind that."""
        root_id, run_id = self._last.root_id, self._last.run_id
        for event in await self._store.tail(root_id, run_id=run_id, limit=MOST_BESIDE):
            if event.seq == self._last.seq + 1 and isinstance(event, Beside):
                self._last = event

    async def append(self, event: Beside) -> None:
        """The same with an event that is made already."""
        try:
            await self._store.append([event])
        except Fenced:
            run_id = self._last.run_id
            raise RunError(
                f"{run_id} was taken up just then: its log does not say what was done to it", run_id=run_id
            ) from None
        self._last = event
        self._publish(event)


async def at_rest(
    store: Store, shown: ShownRuns, run_id: str, *, publish: Callable[[LiveEvent], None], doing: str, fix: str
) -> tuple[RunRow, AtRest]:
    """A whole workflow that has ended, and its log. `doing`: what is done to it, in a word; `fix`: what to do
    first where it has not ended."""
    tail = await store.tail(run_id, run_id=run_id, limit=1)
    row = await shown.run(run_id)
    if row is None:
        raise RunError(f"there is no run {run_id}", run_id=run_id)
    if row.parent_id is not None:
        raise ConfigError(f"{run_id} is part of {row.root_id}", fix=f"{doing} {row.root_id}")
    if row.outcome in OPEN:
        raise ConfigError(f"{run_id} has not ended ({row.outcome})", fix=fix)
    return row, AtRest(store, tail[-1], publish=publish)
