"""Another name for a workflow in lists, given by a person at any time that nobody works on it.

An event in the log of its root, so that every list, page and export reads the same. Called by the app.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from retinue.engine.at_rest import at_rest
from retinue.engine.shown import ShownRuns
from retinue.errors import ConfigError
from retinue.events import LiveEvent, RunRenamed
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
    fix = "name it when it has ended"
    _, log = await at_rest(store, shown, run_id, publish=publish, doing="name", fix=fix)
    async with taking_up(run_id):  # meanwhile nobody here goes on with it
        await log.write(RunRenamed, label=label)
