"""What a question offers as answers, what an answer covers beyond its own call, and what is said instead
where nobody can be asked.

Called by `engine.questions`. Pure: it asks nobody and keeps nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.approvals import Verdict
from retinue.authority.flows import Concern
from retinue.authority.rules import Asked, parse_rule, suggest_rule
from retinue.engine.isolation import MERGE
from retinue.errors import Refused
from retinue.events import Decision
from retinue.run import Run
from retinue.run_state import Grant
from retinue.types import ToolCall


def covers(grant: Grant, asked: Asked, verdict: Verdict) -> bool:
    """Whether a call is one that a person approved for the rest of the run."""
    if grant.tool != asked.tool or verdict.each_time or (verdict.unsealed and not grant.unsealed):
        return False
    if grant.sealed and not asked.sealed:
        return False
    return not grant.rule or parse_rule(grant.rule).matches(asked, "allow")


def offered(
    run: Run, asked: Asked, verdict: Verdict, concern: Concern | None, project: Path | None
) -> dict[str, Any]:
    """What a question says of the answers to it: the rule that covers the call, and what may be said.

    What is done in a copy of the project is approved for that call alone: the same call would mean
    another thing in the project itself. A rule for good is of no use where another rule asks, and none
    is kept for commands that the sandbox makes harmless.
    """
    asks = verdict.action == "ask"
    if run.in_copy or asked.tool == MERGE:  # no two merges are of the same change
        return {"rule": "", "answers": ("approve", "reject"), "sealed": asked.sealed}
    if concern is not None:
        rule = "" if asks else concern.rule or ""
        more: list[Decision] = []
    else:
        rule = "" if verdict.each_time else suggest_rule(asked) or ""
        more = [] if verdict.each_time else ["approve_run", "approve_tool"] if rule else ["approve_tool"]
    boxed = verdict.unsealed or asked.sealed
    if rule and project is not None and not boxed and not (asks and verdict.by_rule):
        more.append("approve_always")
    return {"rule": rule, "answers": ("approve", *more, "reject"), "sealed": asked.sealed}


def refuse_unsealed(run: Run, call: ToolCall, verdict: Verdict) -> None:
    """A question may be older than this process: where it was asked, the command could be sealed off."""
    if verdict.unsealed and call.id not in run.state.unsealed:
        raise Refused(
            f"not run: it was approved to run in the sandbox, and now {verdict.why}. Call it again: the "
            "person is asked anew"
        )


_ASK = "run with --wait-approvals and answer (in a program: approve=…)"
_YES = "run with --yes (in a program: yes=True)"


def nobody_to_ask(
    verdict: Verdict, asked: Asked, concern: Concern | None = None, *, network: bool = True
) -> str:
    """A refusal that says how the call could be allowed. What a rule asks about, no other rule allows."""
    nobody = "and this run has nobody to ask"
    if verdict.unsealed:
        return (
            f"refused: {verdict.why}, {nobody}. 'retinue doctor' says more. To run commands without it, set "
            f'approvals.sandbox = "off", or {_ASK}.'
        )
    if verdict.action == "allow" and concern is not None:
        add = f'add "{concern.rule}" to allow under [approvals] in the settings, or {_YES}'
        return f"refused: {concern.why}, {nobody}. To allow it, {add if concern.rule else _ASK}."
    if verdict.each_time and asked.command is not None:
        return (
            f"refused: {verdict.why}, {nobody}. Write the command plainly, without variables, eval and text "
            f"that is run, or {_ASK}."
        )
    if verdict.by_rule:
        return (
            f"refused: {verdict.why} wants a person asked, {nobody}. To allow it, take that rule out of ask "
            f"under [approvals] in the settings, or {_ASK}."
        )
    rule = suggest_rule(asked)
    way = f'add "{rule}" to allow under [approvals] in the settings' if rule else _ASK
    if asked.sealed and not network and not asked.ways_out:
        way = f'set approvals.auto = "sandboxed" (commands run in the sandbox, without network), or {way}'
    why = verdict.why if verdict.uncovered is None else f"{verdict.why}: {verdict.uncovered}"
    return f"refused: {why}, {nobody}. To allow it, {way}, or {_YES}."
