"""Runs that wait for a limit of their provider to reset: without clock, cost or slot, and by themselves.

The loop hands over an error of its model, and after a restart what is left of such a wait. Waits that a retry
covers never come here: `models/retry` makes them. Until when is a fact in the log, so that whoever takes the
run up waits for the rest alone. A run whose model is another one by then asks that one at once.
"""

from __future__ import annotations

from retinue.clock import say
from retinue.engine.tree import RunTree
from retinue.errors import ModelError
from retinue.events import LimitPassed, LimitReached
from retinue.models.retry import LONGEST_WAIT
from retinue.run import Run


async def park(tree: RunTree, run: Run, error: ModelError) -> bool:
    """Wait for a limit that resets at a known time. False if it is none, or not worth waiting for."""
    seconds, most = error.retry_after, run.limits.longest_park
    if error.kind not in ("rate_limit", "overloaded") or seconds is None or seconds <= LONGEST_WAIT:
        return False
    waiting = tree.config.parking_clock
    until = waiting.until(seconds)
    since = waiting.now() if run.state.parked_since is None else run.state.parked_since
    if until - since > most:
        raise ModelError(
            f"{str(error).rstrip('.')}. It can be asked again in {say(seconds)} s, and so long is not waited "
            f"(limits.longest_park = {say(most)})",
            kind=error.kind,
            status=error.status,
            retry_after=seconds,
        ) from None
    await run.log.write(
        LimitReached, step=run.state.step, model=run.model.name, reason=str(error), until=until
    )
    await wait_out(tree, run)
    return True


async def wait_out(tree: RunTree, run: Run) -> None:
    """Wait for as long as the log says."""
    parked = run.state.parked
    if parked is None:
        return
    if parked.model == run.model.name:
        run.clock.pause()
        try:
            async with tree.resting(run.id):
                await tree.config.parking_clock.wait(parked.until)
        finally:
            run.clock.resume()
    if run.guards is not None:  # what was said meanwhile is part of what is asked as soon as this is over
        await run.guards.incoming(run)
    await run.log.write(LimitPassed, step=run.state.step)
