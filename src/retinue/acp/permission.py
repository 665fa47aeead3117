"""A question to a person, put to the editor: what it shows, what may be said, and what the answer means.

The choices are those of the terminal: once, for the rest of the session or always by the narrowest rule that
covers the call, or not.
"""

from __future__ import annotations

import json
from typing import Any, cast

from acp import helpers, schema

from retinue.acp.calls import diffs, kind_of, path_of
from retinue.errors import ToolError
from retinue.events import ApprovalRequested, Decision
from retinue.view import words
from retinue.view.question import because
from retinue.workspace import Files

MOST_READ = 1_000_000
"""Bytes of a file that are shown beside what shall replace them."""
_KINDS: dict[Decision, schema.PermissionOptionKind] = {
    "approve": "allow_once",
    "approve_run": "allow_always",
    "approve_tool": "allow_always",
    "approve_always": "allow_always",
    "reject": "reject_once",
}


def options(asked: ApprovalRequested) -> list[schema.PermissionOption]:
    rule = words.one_line(asked.rule or "", 120)
    says: dict[Decision, str] = {
        "approve": "Allow",
        "approve_run": f"Allow in this session: {rule}"
        if rule
        else f"Allow every {asked.tool} in this session",
        "approve_tool": f"Allow every {asked.tool} in this session",
        "approve_always": f"Always allow in this folder: {rule}",
        "reject": "Reject",
    }
    offered: list[Decision] = [
        decision for decision in says if decision in asked.answers or decision == "reject"
    ]
    if rule:  # the narrower one is enough, unless the rule is the tool itself
        offered.remove("approve_tool") if "approve_tool" in offered else None
    elif "approve_tool" in offered and "approve_run" in offered:
        offered.remove("approve_run")
    return [
        schema.PermissionOption(option_id=decision, name=says[decision], kind=_KINDS[decision])
        for decision in offered
    ]


def shown(
    asked: ApprovalRequested, call_id: str, project: Files, before: str | None
) -> schema.ToolCallUpdate:
    """What the person sees of the call. `before` is what the editor has of its file, if it says so."""
    given = arguments_of(asked)
    cwd = project.cwd
    content: list[Any] = list(
        diffs(asked.tool, given, cwd, before if before is not None else _there(given, project))
    )
    if not content and asked.preview:
        content = [helpers.tool_content(helpers.text_block(words.clean(asked.preview)))]
    if why := because(asked):
        content.append(helpers.tool_content(helpers.text_block(f"asked because: {why}")))
    where = path_of(given, cwd)
    title = " › ".join((*asked.path[1:], f"{asked.tool} {words.arguments(asked.arguments)}"))
    return schema.ToolCallUpdate(
        tool_call_id=call_id,
        title=words.one_line(title, 300),
        kind=kind_of(asked.tool, asked.effect),
        status="pending",
        content=content or None,
        locations=[schema.ToolCallLocation(path=where)] if where else None,
        raw_input=given or asked.arguments,
    )


def decision_of(response: schema.RequestPermissionResponse, asked: ApprovalRequested) -> Decision | None:
    """What was chosen; None if nothing was."""
    outcome = response.outcome
    if isinstance(outcome, schema.AllowedOutcome):
        chosen = outcome.option_id
        known = {option.option_id for option in options(asked)}
        return cast("Decision", chosen) if chosen in known else None
    return None


def _there(given: dict[str, Any], project: Files) -> str | None:
    """What stands in the file on the disk, as far as a run may see it."""
    path = given.get("path")
    if not isinstance(path, str):
        return None
    try:
        data = project.read_bytes(path, MOST_READ + 1)
    except ToolError:
        return None
    return data.decode("utf-8", "replace") if len(data) <= MOST_READ else None


def arguments_of(asked: ApprovalRequested) -> dict[str, Any]:
    try:
        value: Any = json.loads(asked.arguments)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
