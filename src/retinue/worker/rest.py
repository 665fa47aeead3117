"""Workflows that only wait are let go of: they hold no slot and no memory here, and are woken by what they
wait for, on whichever worker is free.

Looked at a few times a second, which costs a look at the runs of each workflow. Called by the worker.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from retinue.engine.tree import RunTree
from retinue.events import now
from retinue.types import ENDED
from retinue.worker.legs import Leg

LOOK_SECONDS = 0.25
WORTH_SECONDS = 5.0
"""What goes on by itself sooner than that is not let go of."""


class Rest:
    """`after`: seconds for which a workflow has done nothing but wait."""

    def __init__(self, after: float) -> None:
        self._after = after
        self._since: dict[str, tuple[float, int]] = {}
        """Since when a workflow rests, and the last signal that it had read by then."""

    def look(self, legs: Iterable[Leg]) -> None:
        """Park what has rested long enough. What it was told meanwhile wakes it at once."""
        seen: dict[str, tuple[float, int]] = {}
        for leg in legs:
            workflow = leg.workflow
            if workflow is None or not _can_go(workflow.tree):
                continue
            since, signals = seen[leg.root_id] = self._since.get(
                leg.root_id, (time.monotonic(), workflow.inbox.last)
            )
            until = wakes_at(workflow.tree)
            if until is not None and until - now() < WORTH_SECONDS:
                continue
            if time.monotonic() - since >= self._after:
                leg.hand_over(workflow, "parked", signals=signals, until=until)
        self._since = seen


def _can_go(tree: RunTree) -> bool:
    """Servers of the tree that run may know something that no log has."""
    servers = tree.config.servers
    return bool(tree.live) and tree.idle and not (servers is not None and servers.running)


def wakes_at(tree: RunTree) -> float | None:
    """When a tree that rests goes on by itself: at the first limit that resets, or question that nobody
    answers any more."""
    moments: list[float] = []
    for state in tree.states():
        if state.status in ENDED:
            continue
        if state.parked is not None:
            moments.append(state.parked.until)
        moments += [asked.answer_by for asked in state.waiting.values() if asked.answer_by is not None]
    return min(moments, default=None)
