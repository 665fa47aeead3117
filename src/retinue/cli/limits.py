"""A run at the command line that does nothing any more but wait for a limit of its provider.

Fed with the events of the workflow by `driving`. With --wait-limits it is waited for; at a terminal `asking`
puts the question; else the run is left as it is, without an end, for `retinue runs resume`.
"""

from __future__ import annotations

import asyncio
import time

from retinue.app import Retinue
from retinue.errors import ModelError
from retinue.events import Event, LimitReached, LiveEvent
from retinue.story import Story
from retinue.story_nodes import Node
from retinue.view import words

SETTLED = 0.3
"""Seconds for which nothing must happen: between the end of a child and the next step of its parent nobody
works either."""


def idle_until(tree: Story) -> LimitReached | None:
    """The limit that is gone first, if nobody in the tree does anything but wait for one."""
    going_on = [node for node in tree.nodes.values() if not node.over]
    parked = [node.parked for node in going_on if node.parked is not None]
    return min(parked, key=lambda each: each.until) if parked and not any(map(_busy, going_on)) else None


def _busy(node: Node) -> bool:
    at_work = node.asking not in ("", "parked") or any(not call.delegated for call in node.calls.values())
    return at_work or node.status == "pending" or bool(node.waiting)


def left_at(run_id: str, limit: LimitReached) -> ModelError:
    """What is said of a run that was left there."""
    rest = words.duration(limit.until - time.time())
    return ModelError(
        f"{limit.reason.rstrip('.')}. It can be asked again at {words.moment(limit.until)} (in {rest}). "
        f"The run waits: 'retinue runs resume {run_id}' goes on then, and with --wait-limits waits for it",
        kind="rate_limit",
    )


class LimitWatch:
    """Leaves a run that only waits for a limit, unless it is to be waited for or a person is asked."""

    def __init__(self, retinue: Retinue, tree: Story, *, leaves: bool) -> None:
        self.left: LimitReached | None = None
        self._retinue, self._tree, self._leaves = retinue, tree, leaves
        self._check: asyncio.Task[None] | None = None

    def hear(self, event: LiveEvent) -> None:
        if self._leaves and isinstance(event, Event) and self.left is None:
            self.stop()
            if idle_until(self._tree) is not None:
                self._check = asyncio.create_task(self._leave_soon(), name="a limit at the terminal")

    async def _leave_soon(self) -> None:
        await asyncio.sleep(SETTLED)
        await self.leave()

    async def leave(self) -> None:
        """Stop working on the run without ending it."""
        self.left = idle_until(self._tree)
        if self.left is not None:
            await self._retinue.leave()

    def stop(self) -> None:
        if self._check is not None and self.left is None:
            self._check.cancel()
