"""What a person is asked about although the rules would let a call run: a flow outward, a file of secrets, a
change to what runs later.

Called by `engine.questions` before every call. Knows the workflow by the states of its runs, asks nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from retinue.approvals import Rules
from retinue.authority.flows import Concern, Passage, known_to, leaving
from retinue.authority.later import RunsLater, run_later
from retinue.authority.rules import Asked, exact_rule
from retinue.authority.secrets import secrets_in
from retinue.engine.tree import RunTree
from retinue.run import Run
from retinue.run_log import storable
from retinue.run_state import RunState
from retinue.tools.base import Tool


def handed_on(
    tree: RunTree, parent: Run, child_id: str, call_id: str, text: str | None = None
) -> tuple[str, ...]:
    """The private data that may be in what a call of a parent hands a child: its task, or a message."""
    recorded = tree.config.handed(child_id, None if text is None else storable(text))
    return known_to(parent.state, call_id, tree.states()) if recorded is None else recorded


async def later_of(tool: Tool, asked: Asked, environ: Mapping[str, str]) -> tuple[RunsLater, ...]:
    """What runs later and would be changed by a call: by one that writes, or that may do anything."""
    changes = tool.effect in ("write", "execute") and asked.command is None
    if asked.files is None or not changes or not asked.paths:
        return ()
    found = await asyncio.to_thread(run_later, asked.paths, asked.files, environ)
    return tuple(dict.fromkeys(found.values()))


def passage_of(
    run: Run,
    tool: Tool,
    asked: Asked,
    workflow: Collection[RunState],
    rules: Rules,
    *,
    call_id: str = "",
    later: Iterable[RunsLater] = (),
) -> Passage:
    """Where a call goes, and what is to be asked before it does. A rule of a person answers that.

    `rules` are those of when it was made. `call_id` is that of the call, where it was made by the model or by
    code; `later` is what it changes that runs later.
    """
    if tool.effect == "delegate":  # whoever it starts is looked at itself
        return Passage()
    told = asked.arguments
    if tool.out == "addresses" and tool.dials is not None:
        told = {name: value for name, value in told.items() if name in tool.dials}
    private = () if tool.out == "nowhere" else known_to(run.state, call_id, workflow)
    passage = leaving(tool.name, tool.out, told, private, workflow)
    if passage.concern is not None and not rules.opens(asked):
        return passage
    secret = None if rules.opens(asked, secret=True) else _secret(tool, asked, workflow)
    kept = secret or _later(tool, [each for each in later if not rules.opens_later(asked, each)], workflow)
    if kept is not None:
        return Passage(address=passage.address, concern=kept)
    return passage if passage.concern is None else Passage(address=passage.address)


def _secret(tool: Tool, asked: Asked, workflow: Collection[RunState]) -> Concern | None:
    if asked.files is None or asked.command is not None:
        return None
    made = tool.effect not in ("read", "network")
    for name in secrets_in(asked.paths, asked.files, made=made):
        key = f"changes of {name}" if made else f"file {name}"
        if not any(key in state.cleared for state in workflow):
            why = f"{name} is a file that usually holds secrets"
            return Concern(why=why, about=(key,), rule=exact_rule(tool.name, name))
    return None


def _later(tool: Tool, later: Iterable[RunsLater], workflow: Collection[RunState]) -> Concern | None:
    for each in later:
        key = f"changes of {each.name}"
        if not any(key in state.cleared for state in workflow):
            return Concern(why=each.why, about=(key,), rule=exact_rule(tool.name, each.path))
    return None


def is_withheld(concern: Concern, workflow: Collection[RunState]) -> bool:
    """Whether a person has said no to it, in this workflow and since they last spoke."""
    return any(key in state.withheld for key in concern.about for state in workflow)
