"""A model call for the sake of a run, mostly of the small model: who pays for it, how long it may take.

Used where something is summed up, reviewed, judged or sampled. The steps of a run are in `modelcall`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from retinue import replies
from retinue.models.base import Model
from retinue.models.prices import paid_for
from retinue.run import Run
from retinue.types import ModelEvent, ModelRequest, Reply, Retrying, Usage


def patience(run: Run, own: float | None = None) -> float | None:
    """Seconds that a call may take: as its agent says, within what the settings say."""
    limit = run.limits.model_timeout
    return own if limit == "auto" else limit if own is None else min(limit, own)


@contextmanager
def paying(run: Run, model: Model | None = None) -> Generator[replies.Paid]:
    """What a call of the cheap model takes, for whoever writes it down; if they are stopped, it is here."""
    paid = paid_for((model or run.small()).name)
    try:
        yield paid
    except asyncio.CancelledError:
        run.cut_off(paid.usage)
        raise


def write_off(run: Run, item: ModelEvent, paid: replies.Paid) -> None:
    """A reply that had begun and is asked for again may be charged for all the same. Nobody knows what it
    took, so that a limit of money cannot hold: nothing more is asked then."""
    if isinstance(item, Retrying) and (item.text_shown or item.begun):
        run.cut_off(paid.unseen)
        paid.usage = Usage()
        if paid.unseen.cost is None:
            run.budget.refuse_unpriced(run.id)


async def complete(run: Run, asked: ModelRequest, paid: replies.Paid, model: Model | None = None) -> Reply:
    """One answer of the cheap model, or of another, charged to this run also where it fails.
    `paid`: what it took."""
    run.budget.begin_turn(run.id, unpriced=run.state.unpriced)
    model = model or run.small()
    try:
        return await replies.collected(
            model.name, model.stream(asked), lambda item: write_off(run, item, paid), paid
        )
    finally:
        run.budget.charge_usage(paid.usage)
