"""A question to a person as a form of the host, and what was filled in as an answer.

Anything but a clear yes is a no.
"""

from __future__ import annotations

from typing import Any

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult
from msgspec import Struct

from retinue.events import ApprovalRequested, Decision
from retinue.mcp_server.caller import Caller
from retinue.view import words
from retinue.view.question import because, shown_arguments

MOST_SHOWN = 6000
"""Characters of what a call would do in a form."""
SAYS: dict[Decision, str] = {
    "approve": "this one call",
    "approve_run": "and, in the rest of this run, what the rule covers",
    "approve_tool": "and every further call of this tool in this run",
    "approve_always": "always: the rule is written into the settings, for this folder",
    "reject": "do not run it",
}


class FormAnswer(Struct, frozen=True, kw_only=True):
    decision: Decision
    reason: str = ""


def form_message(asked: ApprovalRequested) -> str:
    """Who asks, what it would do, how risky it is and why it is asked."""
    who = " › ".join(words.one_line(name) for name in asked.path)
    body = asked.preview or "\n".join(f"{name}: {text}" for name, text in shown_arguments(asked.arguments))
    body = words.clean(body)
    if len(body) > MOST_SHOWN:
        body = body[:MOST_SHOWN] + f"\n… {len(body) - MOST_SHOWN:,} more characters, see 'retinue approvals'"
    rule = f"\nRule: {asked.rule}" if asked.rule else ""
    return (
        f"{who} wants to use {asked.tool} (risk: {asked.risk}).\n\n{body}\n\n"
        f"Asked because: {because(asked)}{rule}"
    )


def offered(asked: ApprovalRequested, caller: Caller) -> list[Decision]:
    """What this caller may say to a question: to keep a rule needs the same role as over HTTP."""
    kept = () if caller.may_keep else ("approve_always",)
    return [*(each for each in asked.answers if each not in (*kept, "reject")), "reject"]


def form_schema(asked: ApprovalRequested, caller: Caller) -> dict[str, Any]:
    """The plainest form that every revision knows: one choice, one text."""
    answers = offered(asked, caller)
    meaning = "; ".join(f"{answer}: {SAYS[answer]}" for answer in answers)
    return {
        "type": "object",
        "properties": {
            "decision": {"type": "string", "title": "Decision", "description": meaning, "enum": answers},
            "reason": {
                "type": "string",
                "title": "Reason",
                "description": "if you reject it: what the agent is told",
            },
        },
        "required": ["decision"],
    }


def form_request(asked: ApprovalRequested, caller: Caller) -> ElicitRequest:
    schema = form_schema(asked, caller)
    return ElicitRequest(params=ElicitRequestFormParams(message=form_message(asked), requested_schema=schema))


def answer_of(asked: ApprovalRequested, caller: Caller, result: ElicitResult) -> FormAnswer:
    """What a person said in a form to this question."""
    if result.action == "decline":
        return FormAnswer(decision="reject", reason="declined in the host")
    content = result.content or {}
    said, reason = content.get("decision"), content.get("reason")
    why = reason if isinstance(reason, str) else ""
    for known in offered(asked, caller):
        if result.action == "accept" and said == known:
            return FormAnswer(decision=known, reason=why)
    return FormAnswer(decision="reject", reason=why or "the form was closed without a decision")
