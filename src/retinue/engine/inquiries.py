"""What a call that runs asks a person, with a form: what an MCP server wants to know before it goes on, or
whether a plan is as they want it.

It is a question like any other: in the log, at the terminal, on the page, answered by whoever is faster. The
answer are its arguments. Called with what the tools of a run are given, never by the loop.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, cast

from retinue.engine.answers import NOBODY
from retinue.engine.questions import Questions
from retinue.errors import ToolError
from retinue.events import INQUIRY, ApprovalAnswered, ApprovalRequested, now
from retinue.run import Run
from retinue.tools.base import FormFilled, FormQuestion, Tool, parse_object
from retinue.tools.schemas import schema_problems
from retinue.types import ToolCall

MOST_ASKED = 5
"""Questions of one call."""


async def inquire(
    questions: Questions, run: Run, tool: Tool, call: ToolCall, question: FormQuestion
) -> FormFilled:
    """The person's answer. What does not fit the form is asked again; nobody there: that is said."""
    async with questions.one_by_one(run, call.id):
        return await _inquire(questions, run, tool, call, question)


async def _inquire(
    questions: Questions, run: Run, tool: Tool, call: ToolCall, question: FormQuestion
) -> FormFilled:
    known = json.dumps(_known(question.schema), ensure_ascii=False)
    for _ in range(MOST_ASKED):
        number = 1 + sum(1 for one in run.state.answers if one.startswith(f"{call.id}{INQUIRY}"))
        inner = f"{call.id}{INQUIRY}{number}.{_digest(question)}"
        await _close_others(run, call, inner)
        if number > MOST_ASKED or not questions.may_ask(f"{run.id}:{inner}"):
            return FormFilled(action="cancel")

        async def write(approval_id: str, inner: str = inner, asked: FormQuestion = question) -> None:
            await run.log.write(
                ApprovalRequested,
                approval_id=approval_id,
                call_id=inner,
                tool=tool.name,
                arguments=known,
                effect=tool.effect,
                risk="low",
                reason=f"{'' if asked.own else 'the MCP server '}{asked.asker} asks: {asked.text}",
                preview=_shown(asked),
                path=run.path,
                answer_by=_until(questions.deadline(now()), asked),
                rule="",
                answers=("approve", "reject"),
                form=asked.schema,
            )

        answer = await questions.put(run, inner, write)
        if answer.decision == "reject":
            return FormFilled(action="cancel" if answer.by == NOBODY else "decline")
        if question.url:
            return FormFilled(action="accept")
        try:
            content = parse_object(known if answer.arguments is None else answer.arguments)
            problems = schema_problems(content, question.schema)
        except ToolError as error:
            content, problems = {}, [str(error)]
        if not problems:
            return FormFilled(action="accept", content=content)
        question = replace(question, text=f"{question.text} (the answer did not fit: {'; '.join(problems)})")
    return FormFilled(action="cancel")


def _until(deadline: float | None, question: FormQuestion) -> float | None:
    """Until when a question waits: as long as the settings say, or less where it says so itself."""
    if question.seconds is None:
        return deadline
    own = now() + question.seconds
    return own if deadline is None else min(own, deadline)


def _digest(question: FormQuestion) -> str:
    """By which an answer is held to what was asked: after a restart a server may ask for something else."""
    whole = [question.asker, question.text, question.schema, question.url, question.shown]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:12]


async def _close_others(run: Run, call: ToolCall, inner: str) -> None:
    """What the call asked before a restart and does not ask again, nobody is to answer any more."""
    for old in list(run.state.waiting.values()):
        if old.call_id.startswith(f"{call.id}{INQUIRY}") and old.call_id != inner:
            await run.log.write(
                ApprovalAnswered,
                approval_id=old.approval_id,
                call_id=old.call_id,
                decision="reject",
                reason="it asks for something else now",
                by=NOBODY,
            )


def _fields(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in cast("dict[str, Any]", found).items() if isinstance(v, dict)}


def _known(schema: dict[str, Any]) -> dict[str, Any]:
    """The form as far as it is filled in: with its defaults, and empty texts for what must be given."""
    required = cast("list[Any]", schema.get("required") or ())
    return {
        name: field.get("default", "" if field.get("type") == "string" else None)
        for name, field in _fields(schema).items()
        if "default" in field or name in required
    }


def _shown(question: FormQuestion) -> str:
    if question.shown:
        return question.shown
    if question.url:
        return f"{question.text}\n\nOpen {question.url} and approve when you are done there."
    lines = [
        f"  {name}: {field.get('title') or field.get('description') or ''} ({_kind(field)})"
        for name, field in _fields(question.schema).items()
    ]
    return "\n".join([question.text, "", "It wants to know:", *lines])


def _kind(field: dict[str, Any]) -> str:
    choices = field.get("enum")
    if isinstance(choices, list):
        return "one of " + ", ".join(map(str, cast("list[Any]", choices)))
    return str(field.get("format") or field.get("type") or "text")
