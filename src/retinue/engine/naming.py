"""Another name for a workflow in lists, given by a person at any time that nobody works on it.

An event in the log of its root, so that every list, page and export reads the same. Called by the app.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from retinue.engine.shown import ShownRuns
from retinue.errors import ConfigError, Fenced, RunError
from retinue.events import LiveEvent, RunRenamed, next_event
from retinue.standing import OPEN
from retinue.store.base import Store

MOST_LABEL = 200
"""Characters of a name."""


async def rename(
    store: Store,
    shown: ShownRuns,
    run_id: str,
    label: str,
    *,
    taking_up: Callable[[str], AbstractAsyncContextManager[None]],
    publish: Callable[[LiveEvent], None],
) -> None:
    """Write the name to the log. Raises where the run is at work, is a part of another, or is not there."""
    label = " ".join(label.split())
    if len(label) > MOST_LABEL:
        raise ConfigError(f"a name has at most {MOST_LABEL} characters, this one {len(label)}")
    row = await shown.run(run_id)
    if row is None:
        raise RunError(f"there is no run {run_id}", run_id=run_id)
    if row.parent_id is not None:
        raise ConfigError(f"{run_id} is part of {row.root_id}", fix=f"name {row.root_id}")
    if row.outcome in OPEN:
        raise ConfigError(f"{run_id} is at work ({row.outcome})", fix="name it when it has ended")
    async with taking_up(run_id):  # meanwhile nobody here goes on with it
        last = (await store.tail(run_id, run_id=run_id, limit=1))[-1]
        event = next_event(last, RunRenamed, label=label)
        try:
            await store.append([event])
        except Fenced:
            raise RunError(
                f"{run_id} was taken up just then: name it when it has ended", run_id=run_id
            ) from None
    publish(event)
