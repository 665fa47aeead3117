"""Answers of people, of a program's function and of nobody: what they are, and how one is read from a signal.

Made by the terminal, the page, `retinue.Answer` of a program and `engine.questions`. Decides nothing.
"""

from __future__ import annotations

import json
import logging
from typing import get_args

import msgspec
from msgspec import Struct

from retinue.errors import ConfigError, Refused, ToolError
from retinue.events import Decision, now
from retinue.store.base import Signal
from retinue.tools.base import Tool, parse_object

log = logging.getLogger("retinue.engine")

FAILED_FUNCTION = "the approve function"
"""Who an answer is by that a program's function could not give: no person said no."""
NOBODY = "nobody"
"""Who answers a question that no one answered in time."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a person said. `decision` is `approve`, `approve_run`, `approve_tool`, `approve_always` or
    `reject`, with a `reason` that the model reads; `arguments` are edited ones, as JSON; `by` is who it
    was."""

    decision: Decision
    reason: str = ""
    arguments: str | None = None
    by: str = "person"
    along_with: str = ""
    """The question whose answer is for this one too."""


def checked(answer: Answer) -> Answer:
    """The same answer if it is one: a program, or another process, may have put anything into it."""
    try:
        answer = msgspec.convert(msgspec.to_builtins(answer), Answer)
        if answer.arguments is not None:
            if not answer.arguments.strip():
                raise ToolError("the arguments are not valid JSON: they are empty")
            parse_object(answer.arguments)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"this is no answer: {error}", fix=_ANSWERS) from None
    except ToolError as error:
        raise ConfigError(f"the edited arguments cannot be used: {error}", fix=_ANSWERS) from None
    return answer


_ANSWERS = (
    f"decision is one of {', '.join(get_args(Decision))}; "
    "reason and by are text; arguments are JSON text or None"
)


def answer_in(signal: Signal) -> Answer:
    """The first answer wins, also one that cannot be read: the call must not wait for another for ever."""
    try:
        # Not by msgspec's own reader: people may have written half a character, which it does not take.
        return checked(msgspec.convert(json.loads(signal.body), Answer))
    except (ValueError, RecursionError, msgspec.ValidationError, ConfigError) as error:
        log.warning("%s: an answer cannot be read: %s", signal.key, error)
        return Answer(decision="reject", reason=f"the answer that was given cannot be read: {error}", by="")


def signal_of(root_id: str, approval_id: str, answer: Answer) -> Signal:
    """An answer on its way to the call that waits for it."""
    return Signal(
        root_id=root_id,
        run_id=approval_id.partition(":")[0],
        kind="answer",
        key=approval_id,
        body=json.dumps(msgspec.structs.asdict(answer)),
        at=now(),
    )


def fitting(tool: Tool, approval_id: str, answer: Answer) -> Answer:
    """The same answer; or a no, where the tool cannot take the arguments that it gives: what was approved
    does not run, and that is not to look as if all went well."""
    if answer.decision == "reject" or answer.arguments is None:
        return answer
    try:
        tool.parse(answer.arguments)
    except ToolError as error:
        why = f"the edited arguments do not fit: {error}"
        log.warning("%s: %s is not run: %s", approval_id, tool.name, why)
        return Answer(decision="reject", reason=why, by="")
    return answer


def obey(tool: Tool, answer: Answer) -> str | None:
    """The arguments that a person edited. A no is a `Refused` that the model reads."""
    if answer.decision == "reject" and answer.by == NOBODY:
        raise Refused(f"not run: {answer.reason}. Find another way.", not_run="rejected")
    if answer.decision == "reject":
        told = f"the person rejected this call of {tool.name}"
        if answer.by in ("", FAILED_FUNCTION):  # nobody could give an answer, or nobody could read it
            told = f"this call of {tool.name} was not approved"
        raise Refused(f"{told}: {answer.reason or 'no reason given'}", not_run="rejected")
    return answer.arguments
