"""Takes a whole tree up again: folds its log, charges what was used, and goes on where it ends.

Called by the app for a workflow that was interrupted, by the workflow for a child it had before.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from retinue.approvals import Authority
from retinue.budget import Budget
from retinue.errors import RunError
from retinue.events import ChildStarted, Event, MessageReceived, RunResumed
from retinue.fold import RunState, fold
from retinue.run import Run
from retinue.types import ENDED, Report

if TYPE_CHECKING:
    from retinue.engine.local import Workflow


async def resume(workflow: Workflow, *, message: str | None = None) -> asyncio.Task[Report]:
    """Take up the root, and whatever ran in the background."""
    logs = workflow.builder.logs
    for event in await workflow.kit.store.events(workflow.root_id):
        logs.setdefault(event.run_id, []).append(event)
    workflow.past = {run_id: fold(log) for run_id, log in logs.items()}
    state = workflow.past.get(workflow.root_id)
    if state is None or state.started is None:
        raise RunError(f"there is no run {workflow.root_id}", run_id=workflow.root_id)
    for past in workflow.past.values():
        workflow.desk.granted |= past.granted
    began = state.started
    workflow.slots.resize(began.limits.concurrency or workflow.kit.settings.delegation.concurrency)
    run = _rebuild(workflow, state, None, workflow.kit.root_authority(began.spec), Budget(began.limits))
    await _take_up(run, message)
    await workflow.desk.open()
    task = workflow.launch(run, background=False)
    await _background(workflow, run)
    return task


async def take_up_child(workflow: Workflow, parent: Run, run_id: str) -> None:
    """A child that was started before a restart: its report if it has one, else it goes on."""
    if run_id in workflow.live:
        return
    state = workflow.past.get(run_id)
    began = parent.state.children[run_id]
    if state is None or state.started is None:
        raise RunError(f"the log of {run_id} is missing", run_id=run_id)
    if state.report is not None and state.status != "cancelled":
        if run_id not in parent.state.ended:  # it ended, and then the process did
            await workflow.tell(parent, state.report, began)
        return
    # What a cancelled child used is charged already; what it may still use is held back again.
    charged = state.status in ENDED
    used = {"turns": state.turns, **_spent(state)} if charged else {}
    budget = parent.budget.adopt(began.reserved, name=began.agent, used=used)
    authority = parent.authority.narrow(state.started.spec)
    run = _rebuild(workflow, state, parent, authority, budget, charged=charged)
    written = _take_up(run, None)
    # Known as running before anything is awaited: its parent's call may ask for it at the same time.
    workflow.launch(run, background=began.background)
    await written
    await _background(workflow, run)


async def _background(workflow: Workflow, run: Run) -> None:
    """Nobody will ask for these again: they go on by themselves."""
    for child, began in list(run.state.children.items()):
        past = workflow.past.get(child)
        if began.background and (past is None or past.status not in ENDED):
            await take_up_child(workflow, run, child)


def _take_up(run: Run, message: str | None) -> asyncio.Future[None]:
    """The first write fences off any other process that still runs this."""
    events: list[Event] = [run.log.stamp(RunResumed, host=socket.gethostname(), pid=os.getpid())]
    if message is not None:
        events.append(run.log.stamp(MessageReceived, text=message, sender="person"))
    return run.log.commit(*events)


def _rebuild(
    workflow: Workflow,
    state: RunState,
    parent: Run | None,
    authority: Authority,
    budget: Budget,
    *,
    charged: bool = False,
) -> Run:
    """A run from its log, with everything it and its children used charged again."""
    began = state.started
    if began is None:
        raise RunError("the log has no beginning")
    if not charged:
        _charge(workflow, budget, state)
    return workflow.builder.build(
        began.run_id,
        parent,
        began.spec,
        authority=authority,
        budget=budget,
        state=state,
        label=began.label,
        system=began.system,
        model=workflow.kit.model(began.model, parent.model if parent else None),
    )


def _charge(workflow: Workflow, budget: Budget, state: RunState) -> None:
    """What a run used by itself, and what those of its children used that have ended."""
    budget.charge("turns", state.turns)
    budget.charge_usage(state.usage)
    for run_id, child in state.children.items():
        budget.charge("children", 1)
        past = workflow.past.get(run_id)
        if past is not None and past.status in ENDED:
            _charge_past(workflow, budget, child, past)


def _charge_past(workflow: Workflow, budget: Budget, child: ChildStarted, past: RunState) -> None:
    part = budget.adopt(child.reserved, name=child.agent)
    _charge(workflow, part, past)
    part.release()


def _spent(state: RunState) -> dict[str, float]:
    usage = state.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": usage.cost or 0.0,
    }
