"""The conversations of a workflow, whole: what each of its runs was told, said and was given back.

For `report.messages`, `--messages` and the API. Read from the log by the very fold that the loop works with,
without what was dropped to make room: nothing is kept for it, and nothing is computed unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from retinue.events import Event, HistoryPruned, RunStarted
from retinue.fold import fold
from retinue.types import RunMessages


def run_messages(events: Iterable[Event], below: str) -> tuple[RunMessages, ...]:
    """The conversation of a run and of every run below it, in the order in which they began."""
    logs: dict[str, list[Event]] = {}
    for event in events:
        if not isinstance(event, HistoryPruned):
            logs.setdefault(event.run_id, []).append(event)
    wanted: set[str] = {below}
    found: list[RunMessages] = []
    for run_id, log in logs.items():
        began = log[0]
        if not isinstance(began, RunStarted) or not wanted & {run_id, began.parent_id or ""}:
            continue
        wanted.add(run_id)
        found.append(
            RunMessages(
                run_id=run_id,
                parent_id=began.parent_id,
                depth=began.depth,
                agent=began.spec.name,
                label=began.label,
                system=began.system,
                messages=tuple(fold(log).messages),
            )
        )
    return tuple(found)
