"""Children that a call was to start and did not: counted here for every way to delegate, and for code.

What people or rules said no to is counted as that. What a mistake in the call kept from starting, and what
was too many at once, is missing until a call of a later reply stands in for it: for the same agent, by
whichever way, also where its name was mistyped; by any other where the mistaken one named none that is there,
or its way is one that this run does not hold; by the same tool where that makes an agent up. Called by
`toolcall` before a result is logged; `standing` adds up what the log says.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from retinue.errors import ToolError
from retinue.fold_results import ANY, corrected
from retinue.run import Run
from retinue.tools.base import ToolResult
from retinue.tools.mistyped import agent_meant, way_meant
from retinue.tools.signatures import parse_object
from retinue.types import NotRun, ToolCall

_OTHERWISE: frozenset[NotRun] = frozenset({"denied", "outcome_unknown", "rejected", "repeated", "unattended"})
"""Calls that did not run, and are counted as something else or with an earlier one."""


def with_unstarted(run: Run, call: ToolCall, result: ToolResult) -> ToolResult:
    """The result, with what it was to start and did not, and the mistakes that it stands in for."""
    result = _counted(run, call, result)
    if not run.state.mistakes:
        return result
    tool = run.tools.get(call.name)
    started = [child.agent for child in run.state.children.values() if child.call_id == call.id]
    names = (*started, *result.meant)
    before = corrected(run.state, call.name if tool is None else tool.name, names)
    return replace(result, corrects=len(before))


def nearest(run: Run, name: str) -> str:
    """The tool that looks most like a name that is none."""
    return next(iter(difflib.get_close_matches(name, sorted(spec.name for spec in run.shown), 1)), "")


def _counted(run: Run, call: ToolCall, result: ToolResult) -> ToolResult:
    tool = run.tools.get(call.name)
    if result.not_run == "unknown_tool":
        offered = {spec.name: run.tools[spec.name] for spec in run.shown if spec.name in run.tools}
        other = run.withheld(call.name) or way_meant(call.name, offered, _given(call))
        if other is not None:
            count = 0 if other.only_looks(call.arguments) else len(other.asked_for(_given(call), run.id))
            return replace(result, not_started=count, wrong=count, meant=(ANY,) * count)
        meant = agent_meant(call.name, offered, _given(call))
        return replace(result, not_started=1, wrong=1, meant=(meant,)) if meant else result
    if tool is None or tool.effect != "delegate" or not result.is_error or result.meant:
        return result
    began = any(child.call_id == call.id for child in run.state.children.values())
    if began or result.children or result.not_run in _OTHERWISE:
        return result
    if result.not_started and tool.only_looks(call.arguments):
        return replace(result, not_started=0, wrong=0)
    asked = tool.asked_for(_given(call), run.id)
    if result.not_started:
        return replace(result, meant=asked)
    try:
        arguments = tool.parse(call.arguments)
    except ToolError:
        wrong = replace(result, not_started=len(asked), wrong=len(asked), meant=asked)
        return result if tool.only_looks(call.arguments) else wrong
    if tool.harmless is not None and tool.harmless(arguments):
        return result
    wrong = len(asked) if result.not_run in ("", "bad_arguments") else 0
    return replace(result, not_started=len(asked), wrong=wrong, meant=asked)


def _given(call: ToolCall) -> Mapping[str, Any]:
    """The arguments as they were written, as far as they can be read at all."""
    try:
        return parse_object(call.arguments)
    except ToolError:
        return {}
