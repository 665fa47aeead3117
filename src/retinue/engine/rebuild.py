"""A run built again from its log: what it was told, and what it and those below it had used by then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retinue.approvals import Authority
from retinue.budget import Budget
from retinue.engine.build import build
from retinue.engine.elapsed import seconds_used
from retinue.engine.resources import RunResources
from retinue.engine.tree import RunTree
from retinue.errors import RunError
from retinue.run import Run, SystemPrompt
from retinue.run_state import Before, RunState
from retinue.types import AgentSpec, Usage

if TYPE_CHECKING:
    from retinue.engine.workflow import Workflow


def as_of_today(tree: RunTree, authority: Authority, spec: AgentSpec) -> Authority:
    """An agent that sees its workspace alone by now does so in runs that began before.

    Older logs do not say what their agents see.
    """
    known = tree.config.agents.get(spec.name)
    alone = known is not None and known.files == "workspace"
    return replace(authority, project=False) if alone else authority


def rebuilt(
    workflow: Workflow, state: RunState, parent: Run | None, authority: Authority, budget: Budget
) -> tuple[Run, RunResources]:
    """A run from its log."""
    began = state.started
    if began is None:
        raise RunError("the log has no beginning")
    return build(
        workflow,
        began.run_id,
        parent,
        workflow.tree.config.with_headers(began.spec),
        authority=authority,
        budget=budget,
        state=state,
        label=began.label,
        system=SystemPrompt(text=began.system, parts=began.parts),
        model=workflow.tree.config.model_of(began.spec, parent.model if parent else None, state.model),
        used=seconds_used(began.run_id, workflow.tree.logs),
    )


def done_before(state: RunState, pieces: int) -> Before:
    """What a child had done when it was asked for the time after so many."""
    return state.asked_again[pieces - 1] if pieces else Before()


def _spent(tree: RunTree, run_id: str, usage: Usage) -> float:
    """What a child and those below it are known to have cost, also where one of their prices is unknown."""
    state = tree.past.get(run_id)
    if usage.cost is not None or state is None:
        return usage.cost or 0.0
    below = (_spent(tree, child, ended.usage) for child, ended in state.ended.items())
    return state.spent + sum(below)


def charge(tree: RunTree, budget: Budget, state: RunState, before: Before, *, paid: bool = True) -> None:
    """Count what a run used by itself, and what all those below it did. Of what was `before`, its price
    alone, and not even that unless it is `paid` from this budget."""
    budget.charge("turns", state.turns - before.turns)
    budget.charge("input_tokens", state.usage.input_tokens - before.usage.input_tokens)
    budget.charge("output_tokens", state.usage.output_tokens - before.usage.output_tokens)
    budget.charge("cost", state.spent - (0.0 if paid else before.spent))
    budget.expect_call(state.largest_call)
    for run_id, child in state.children.items():
        past, ended = tree.past.get(run_id), state.ended.get(run_id)
        done, asked = before.children.get(run_id, 0), state.pieces[run_id]
        if done == asked and ended is not None:
            budget.charge("cost", _spent(tree, run_id, ended.usage) if paid else 0.0)
            continue
        done = min(done, asked - 1)  # what had not ended by then counts as well
        budget.charge("children", asked - done)
        budget.charge("agent_calls", int(child.as_tool and not done))
        if past is not None:
            part = budget.adopt(child.reserved, name=child.agent)
            charge(tree, part, past, done_before(past, done), paid=paid)
            part.release()
            # To shorten its report for its parent: that is in the parent's log, and in no child's.
            budget.charge_usage(state.telling.get(run_id, Usage()))
