"""Runs that have an end and are taken up without a word: whether a limit ended them, and is raised by now.

Called by the front door before a workflow is taken up, for its root or a child of it. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from retinue.engine.rebuild import charge
from retinue.engine.tree import RunTree
from retinue.errors import BudgetExhausted, NothingLeft
from retinue.events import Event
from retinue.fold import fold
from retinue.run_state import RunState

MORE_TURNS = 'settings={"limits.max_turns": …}'


def refuse_if_nothing_left(tree: RunTree, named: str) -> None:
    """A workflow whose root has completed is not taken up to do nothing: something has to be said to it,
    unless the root has more by now of what it ran out of. Time begins anew, so there is always more of that.

    `named` is the run that whoever takes it up means.
    """
    state = tree.past[tree.root_id]
    report, began = state.report, state.started
    if report is None or began is None or report.status != "completed" or report.ended_by == "time":
        return
    short = ""
    if report.ended_by == "max_turns" and state.work_turns < tree.config.max_turns(began.spec, 0):
        return
    if report.ended_by == "budget":
        short = _exhausted(tree, state)
        if not short:
            return
    raise _nothing_left(tree.past.get(named, state), short)


def _exhausted(tree: RunTree, state: RunState) -> str:
    """What there is no more of for a root, and which limit says so."""
    if state.started is None:
        return ""
    budget = tree.config.root_budget(state.started.spec)
    charge(tree, budget, state, state.before)
    try:
        budget.check(tree.root_id)
    except BudgetExhausted as error:
        return str(error)
    return budget.short() or ""


def _nothing_left(state: RunState, short: str) -> NothingLeft:
    report = state.report
    if report is None:
        return NothingLeft("the workflow has ended: there is nothing to resume", fix="go on with message=…")
    ended = f"{report.run_id} has ended ({report.outcome})"
    if report.ended_by == "max_turns":
        more = f"allow more than {state.work_turns} with {MORE_TURNS}"
        return NothingLeft(f"{ended}: {report.incomplete}", fix=f"{more}, or go on with it with message=…")
    if short:
        return NothingLeft(f"{ended}: {short}", fix="raise that limit, or go on with it with message=…")
    return NothingLeft(f"{ended}: there is nothing to resume", fix="go on with it with message=…")


def goes_on(log: Iterable[Event], turns: int) -> str | None:
    """What is said to a child that is given more turns and no word: to go on, if these had ended it."""
    report = fold(log).report
    if report is None or report.ended_by != "max_turns":
        return None
    return f"Go on where you stopped: you have {turns} turns more."
