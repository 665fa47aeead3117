"""Children that a call was to start and did not: counted here for every way to delegate, and for code.

What people or rules said no to is counted as that. What a mistake in the call kept from starting is missing
until a later call of the same tool, or for the same agent, stands in for it. Called by `toolcall` before a
result is logged; `standing` adds up what the log says.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from retinue.builtin_tools import DELEGATION_TOOLS
from retinue.errors import ToolError
from retinue.fold import mistakes_before
from retinue.run import Run
from retinue.tools.base import ToolResult
from retinue.types import NotRun, ToolCall

_OTHERWISE: frozenset[NotRun] = frozenset({"denied", "outcome_unknown", "rejected", "repeated", "unattended"})
"""Calls that did not run, and are counted as something else or with an earlier one."""


def with_unstarted(run: Run, call: ToolCall, result: ToolResult) -> ToolResult:
    """The result, with what it was to start and did not, and the mistakes that it stands in for."""
    result = _counted(run, call, result)
    started = [child for child in run.state.children.values() if child.call_id == call.id]
    tool = run.tools.get(call.name)
    if tool is not None and tool.effect != "delegate":
        return result
    names = {call.name if tool is None else tool.name, *result.meant, *(child.agent for child in started)}
    before = sum(each.count for each in mistakes_before(run.state, call.id, names))
    return replace(result, corrects=min(before, len(started) + result.not_started))


def nearest(run: Run, name: str) -> str:
    """The tool that looks most like a name that is none."""
    return next(iter(difflib.get_close_matches(name, sorted(spec.name for spec in run.shown), 1)), "")


def _counted(run: Run, call: ToolCall, result: ToolResult) -> ToolResult:
    tool = run.tools.get(call.name)
    if result.not_run == "unknown_tool":
        meant = _meant(run, call)
        return replace(result, not_started=1, wrong=1, meant=(meant,)) if meant else result
    if tool is None or tool.effect != "delegate" or not result.is_error:
        return result
    began = any(child.call_id == call.id for child in run.state.children.values())
    if began or result.children or result.not_started or result.not_run in _OTHERWISE:
        return result
    try:
        arguments = tool.parse(call.arguments)
    except ToolError:
        wrong = replace(result, not_started=1, wrong=1)
        return result if tool.only_looks(call.arguments) else wrong
    if tool.harmless is not None and tool.harmless(arguments):
        return result
    wrong = int(result.not_run in ("", "bad_arguments"))
    meant = () if tool.starts is None else tool.starts(arguments, run.id)
    return replace(result, not_started=1, wrong=wrong, meant=meant if wrong else ())


def _meant(run: Run, call: ToolCall) -> str:
    """The agent whose name that of a tool which is not there plainly is, mistyped: it looks like it, and the
    arguments are those of that agent. Any other name that a model makes up is a call that failed."""
    tool = run.tools.get(nearest(run, call.name))
    if tool is None or tool.effect != "delegate" or tool.name in DELEGATION_TOOLS:
        return ""
    try:
        tool.parse(call.arguments)
    except ToolError:
        return ""
    return tool.name
