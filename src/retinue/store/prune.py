"""Removing old workflows, by age or until the store is small enough.

Called by `retinue runs prune`. Never removes a workflow that still waits for a person, nor, to save space,
one that has not ended.
"""

from __future__ import annotations

import time

from msgspec import Struct

from retinue.store.base import FOREVER, OldRoot, Store
from retinue.types import ENDED

BEGINNING = 3600.0
"""Seconds. Files are kept before the first event names them: younger ones may be of what is just begun."""


class Pruned(Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    root_ids: tuple[str, ...]
    events: int
    strays: tuple[str, ...] = ()


async def prune(
    store: Store,
    *,
    before: float | None = None,
    max_bytes: int | None = None,
    strays: bool = False,
    dry_run: bool = False,
) -> Pruned:
    """Remove workflows in which nothing happened since `before`, then the oldest until `max_bytes` is met.

    And what belongs to none: files of one that was never begun, since whoever kept them was killed before
    that, and what is left of one without a beginning, as it was deleted meanwhile or the database is
    damaged: where nothing happened in it since `before`, or all of it if `strays` are asked for.
    """
    chosen: dict[str, OldRoot] = {}
    if before is not None:
        for root in await store.old_roots(before):
            if root.status != "waiting":
                chosen[root.root_id] = root
    if max_bytes is not None:
        for root in await _excess(store, max_bytes, chosen):
            chosen[root.root_id] = root
    left = await strays_of(store, silent_since=FOREVER if strays else before or 0.0)
    if not dry_run:
        for root_id in (*chosen, *left):
            await store.delete(root_id)
        if chosen or left:
            await store.compact()
    events = sum(root.events for root in chosen.values())
    return Pruned(root_ids=tuple(chosen), events=events, strays=tuple(left))


async def strays_of(store: Store, *, silent_since: float = FOREVER) -> list[str]:
    """What belongs to no workflow, but for what may be of one that is just begun."""
    return await store.strays(time.time() - BEGINNING, silent_since=silent_since)


async def _excess(store: Store, max_bytes: int, chosen: dict[str, OldRoot]) -> list[OldRoot]:
    """The oldest that have ended, until what is left should fit. Every event counts as equally large."""
    roots = await store.old_roots(time.time())
    weight = await store.size() / max(1, sum(root.events for root in roots))
    left = weight * sum(root.events for root in roots if root.root_id not in chosen)
    found: list[OldRoot] = []
    for root in roots:
        if left <= max_bytes:
            break
        if root.root_id not in chosen and root.status in ENDED:
            found.append(root)
            left -= weight * root.events
    return found
