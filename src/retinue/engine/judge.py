"""The judge: a model is asked about those claims of an answer that the program cannot decide.

Called by `report_facts.check_sources` with what it found, if `sources.judge` is on. It sees a claim and its
passage, nothing else of the run. It is charged to the run, within its budget; what it said is in the log and
never paid for again. It never speaks against a verdict of the program.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.claims.report import Claims
from retinue.clock import say
from retinue.errors import BudgetExhausted, in_words, unwind
from retinue.events import ClaimsJudged, JudgedClaim
from retinue.models.base import Model
from retinue.run import Run
from retinue.run_log import storable
from retinue.small_call import complete, paying
from retinue.types import Claim, ModelRequest, Reply, UserMessage
from retinue.web.framing import frame

SECONDS = 120.0
"""How long one batch may take, with all that is tried again."""
BATCH = 8
"""Claims that are asked about at once."""
MOST = 64
"""Claims of one answer; what is beyond stays unchecked."""
SCHEMA = {
    "type": "object",
    "properties": {
        "verdicts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "verdict": {"enum": ["supported", "contradicted", "not_found", "unsure"]},
                },
                "required": ["n", "verdict"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["verdicts"],
    "additionalProperties": False,
}
Recorded = Callable[[str, tuple[str, ...]], Awaitable[ClaimsJudged | None]]
"""In a replay: what was said of these claims of a run."""


class JudgeVerdict(Struct, frozen=True, kw_only=True):
    n: int
    verdict: Literal["supported", "contradicted", "not_found", "unsure"]


class JudgeAnswer(Struct, frozen=True, kw_only=True):
    verdicts: list[JudgeVerdict]


async def judge_claims(
    model: Callable[[], Model] | None, recorded: Recorded | None, run: Run, found: Claims
) -> Claims:
    """What was found, with the verdicts of the judge where the program has none. `model` is None where none
    is to be asked."""
    undecided = [claim for claim in found.claims if claim.verdict == "unchecked" and claim.passage]
    asked = {_digest(claim): claim for claim in undecided[:MOST] if _digest(claim) not in run.state.judged}
    pairs = list(asked.items()) if model is not None else []
    for at in range(0, len(pairs), BATCH):
        if model is None or not await _ask(model, recorded, run, dict(pairs[at : at + BATCH])):
            break
    if not any(_digest(claim) in run.state.judged for claim in undecided):
        return found
    return replace(found, claims=tuple(_with_verdict(run, claim) for claim in found.claims))


def _with_verdict(run: Run, claim: Claim) -> Claim:
    found = run.state.judged.get(_digest(claim)) if claim.verdict == "unchecked" else None
    if found is None or found.verdict == "unchecked":
        return claim
    return msgspec.structs.replace(claim, verdict=found.verdict, judged=found.model)


def _digest(claim: Claim) -> str:
    return hashlib.sha256(storable(f"{claim.text}\0{claim.passage}").encode()).hexdigest()[:32]


async def _ask(
    model: Callable[[], Model], recorded: Recorded | None, run: Run, asked: dict[str, Claim]
) -> bool:
    """Ask about some claims, and write down what came of it. False where there is no money or time left."""
    digests = tuple(asked)
    if recorded is not None:
        found = await recorded(run.id, digests)
        if found is None:
            return False
        run.budget.charge("turns", 1)
        run.budget.charge_usage(found.usage)
        names = ("verdicts", "why", "model", "usage", "duration_ms")
        facts = {name: getattr(found, name) for name in names}
    else:
        try:
            run.budget.check(run.id)
        except BudgetExhausted as error:
            unwind(error)
            return False
        facts = await _judged(run, model(), asked)
    await run.log.write(ClaimsJudged, asked=digests, **facts)
    return not facts["why"]


async def _judged(run: Run, model: Model, asked: dict[str, Claim]) -> dict[str, Any]:
    began = time.perf_counter()
    reply, why = None, ""
    with paying(run, model) as paid:
        try:
            async with asyncio.timeout(SECONDS):
                reply = await complete(run, _request(list(asked.values())), paid, model)
        except TimeoutError:
            why = f"no answer within {say(SECONDS)} s"
        except Exception as error:  # of a provider, or of a program's own model: the claims stay unchecked
            why = in_words(error)
            unwind(error)
    name = reply.model if reply is not None else model.name
    verdicts = () if reply is None else _read(reply, tuple(asked), name)
    if reply is not None and not verdicts:
        why = "its answer was not in the form that it was asked for"
    return {
        "verdicts": verdicts,
        "why": why,
        "model": name,
        "usage": paid.usage,
        "duration_ms": int((time.perf_counter() - began) * 1000),
    }


def _request(claims: Sequence[Claim]) -> ModelRequest:
    pairs = [
        frame(f"Claim: {claim.text}\n\nPassage: {claim.passage}", what=f"pair {number}")
        for number, claim in enumerate(claims, 1)
    ]
    return ModelRequest(
        system=_prompt(),
        messages=(UserMessage(text=storable("\n\n".join(pairs))),),
        schema=SCHEMA,
        timeout=SECONDS,
    )


def _read(reply: Reply, asked: tuple[str, ...], model: str) -> tuple[JudgedClaim, ...]:
    """What it said of each, as far as that can be read: of two answers on one pair none counts."""
    try:
        said = msgspec.json.decode(reply.message.text.strip().encode(), type=JudgeAnswer)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    found: dict[int, list[str]] = {}
    for one in said.verdicts:
        found.setdefault(one.n, []).append(one.verdict)
    return tuple(
        JudgedClaim(of=digest, verdict=_verdict(found.get(number, [])), model=model)
        for number, digest in enumerate(asked, 1)
    )


def _verdict(said: list[str]) -> Any:
    return said[0] if len(said) == 1 and said[0] != "unsure" else "unchecked"


@cache
def _prompt() -> str:
    return files("retinue.engine").joinpath("judge.md").read_text("utf-8").strip()
