"""The reviewer: the small model clears calls that are plainly harmless, and no person is asked about them.

Called by `engine.questions` where a call would ask a person, if `approvals.reviewer` is on. It never speaks
against a rule, never clears a call of high risk or a delegation, grants nothing beyond the one call, and
whatever is not a plain yes leaves the call to the person. A call can be worded to deceive it:
`docs/security.md`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from retinue.approvals import Verdict
from retinue.authority.rules import Asked
from retinue.clock import say
from retinue.engine.preview import preview_of
from retinue.engine.tree import RunTree
from retinue.errors import BudgetExhausted, in_words, unwind
from retinue.events import CallReviewed
from retinue.run import Run
from retinue.run_log import storable
from retinue.small_call import complete, paying
from retinue.tools.base import Tool
from retinue.types import ModelRequest, Reply, ToolCall, UserMessage
from retinue.web.framing import frame

SECONDS = 15.0
"""How long a review may take, with all that is tried again."""
MOST = 20_000
"""Characters of arguments, and of a preview. What cannot be seen whole is not cleared."""
MOST_SAID = 8000
"""Characters of what people said, and of what a tool says of itself."""
MOST_WHY = 300
SCHEMA = {
    "type": "object",
    "properties": {"harmless": {"type": "boolean"}, "why": {"type": "string"}},
    "required": ["harmless", "why"],
    "additionalProperties": False,
}


class Review(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reviewer answers, to the letter."""

    harmless: bool
    why: str


def may_clear(asked: Asked, verdict: Verdict) -> bool:
    """Whether a reviewer may clear a call like this at all: no rule asks, and little is at stake."""
    by_person = verdict.by_rule or verdict.each_time or verdict.unsealed
    return verdict.action == "ask" and not by_person and asked.risk != "high" and asked.effect != "delegate"


async def clears(tree: RunTree, run: Run, tool: Tool, call: ToolCall, asked: Asked) -> bool:
    """Whether the call may run unasked. What was said of it before a restart is not paid for again."""
    earlier, of_call = run.state.reviews.get(call.id), _digest(tool, call)
    if earlier is not None:
        return earlier.cleared and earlier.of_call == of_call
    if tree.config.reviewed is not None:  # in a replay
        found = await tree.config.reviewed(run.id, call.id)
        if found is None:
            return False
        run.budget.charge("turns", 1)
        run.budget.charge_usage(found.usage)
        facts = {name: getattr(found, name) for name in ("cleared", "why", "model", "usage", "duration_ms")}
    else:
        asking = await _request(tree, run, tool, asked)
        if asking is None:
            return False
        try:
            run.budget.check(run.id)
        except BudgetExhausted as error:
            unwind(error)
            return False
        facts = await _reviewed(run, asking)
    await run.log.write(CallReviewed, call_id=call.id, tool=tool.name, of_call=of_call, **facts)
    return bool(facts["cleared"])


def _digest(tool: Tool, call: ToolCall) -> str:
    said = json.dumps([tool.name, storable(call.arguments)])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


async def _request(tree: RunTree, run: Run, tool: Tool, asked: Asked) -> ModelRequest | None:
    """What the reviewer is asked; None where it is not to be."""
    if tree.config.settings.approvals.reviewer == "off":
        return None
    states = tree.states()
    if any(tool.name in state.rejected for state in states):
        return None  # whoever said no is asked again, and nobody else in their place
    if run.budget.left("cost") is not None and any(state.usage.cost is None for state in states):
        return None  # a limit of money cannot hold for more of what nobody knows the price of
    arguments = json.dumps(asked.arguments, ensure_ascii=False, indent=1, default=str)
    shown = await preview_of(run, tool, asked)
    if shown.digest or not shown.whole:  # with a digest it is not in the arguments what it would do: a merge
        return None
    preview = shown.text
    if max(len(arguments), len(preview)) >= MOST:
        return None
    root = tree.state(tree.root_id)
    said = "\n\n".join(root.vouched if root is not None else ())
    parts = [
        ("What the person said", said[-MOST_SAID:]),
        ("What the tool says of itself", tool.description[:MOST_SAID]),
        ("The arguments of the call", arguments),
        ("The preview of the call", preview),
    ]
    framed = [frame(storable(text), what=what) for what, text in parts if text]
    facts = f"tool: {tool.name}\neffect: {asked.effect}\nrisk: {asked.risk}"
    return ModelRequest(
        system=_prompt(),
        messages=(UserMessage(text="\n\n".join([facts, *framed, "Is this call harmless?"])),),
        schema=SCHEMA,
        timeout=SECONDS,
    )


async def _reviewed(run: Run, asking: ModelRequest) -> dict[str, Any]:
    """What the small model says. Whatever it does instead, nothing is cleared."""
    began = time.perf_counter()
    reply, why = None, ""
    with paying(run) as paid:
        try:
            async with asyncio.timeout(SECONDS):
                reply = await complete(run, asking, paid)
        except TimeoutError:
            why = f"no answer within {say(SECONDS)} s"
        except Exception as error:  # of a provider, or of a program's own model: the person is asked
            why = in_words(error)
            unwind(error)
    review = Review(harmless=False, why=why) if reply is None else _read(reply)
    return {
        "cleared": review.harmless,
        "why": review.why.strip()[:MOST_WHY] or "it gave no reason",
        "model": reply.model if reply is not None else run.small().name,
        "usage": paid.usage,
        "duration_ms": int((time.perf_counter() - began) * 1000),
    }


def _read(reply: Reply) -> Review:
    """The answer, if it is one. A fence around it, a word before it or a call beside it is none."""
    if reply.stop == "end" and not reply.message.calls:
        try:
            return msgspec.json.decode(reply.message.text, type=Review)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            pass
    return Review(harmless=False, why="its answer was not in the form that it was asked for")


@cache
def _prompt() -> str:
    return files("retinue.engine").joinpath("reviewer.md").read_text("utf-8").strip()
