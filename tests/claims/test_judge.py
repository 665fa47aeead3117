"""A judge decides on claims that the program cannot: in batches, within the budget, once, and marked as its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from retinue.engine.replay import replay
from retinue.errors import ModelError
from retinue.events import ClaimsJudged
from retinue.models.base import Model
from retinue.tools.base import ToolResult, tool
from retinue.types import Source
from test_reviewer import Reviewer
from trees import Stage

URL = "https://example.org/bees"
PAGE = "# Bees\n\nA hive of honey bees holds its queen, some drones and thousands of workers through the winter months."
VAGUE = "The bees in such a colony huddle around their queen when winter comes."


@tool(effect="read")
async def fetch(url: str) -> ToolResult:
    """Fetch a page.

    Args:
        url: which
    """
    return ToolResult(text=PAGE, sources=(Source(url=url),))


def said(*verdicts: str) -> str:
    return json.dumps({"verdicts": [{"n": at, "verdict": one} for at, one in enumerate(verdicts, 1)]})


def stage(small: Model, *answers: Any, **more: Any) -> Stage:
    replies = answers or (f"{VAGUE} {URL}",)
    made = Stage(
        {"root": [[("fetch", {"url": URL})], *replies]},
        **{"sources__judge": "small", "tools": [fetch], **more},
    )
    made.config = replace(made.config, small=lambda model: small)
    made.workflow = type(made.workflow)(made.config, made.root_id)
    return made


async def judged(made: Stage) -> list[ClaimsJudged]:
    return [event for event in await made.log() if isinstance(event, ClaimsJudged)]


@pytest.mark.parametrize("verdict", ["supported", "contradicted", "not_found"])
async def test_what_the_program_cannot_decide_a_judge_does_and_its_verdict_is_marked(verdict: str) -> None:
    small = Reviewer(said(verdict))
    made = stage(small)
    report = await made.run(prompt="bees?")
    (claim,) = report.claims
    assert (claim.verdict, bool(claim.judged)) == (verdict, True)
    assert any("judged by" in problem for problem in report.problems) == (verdict == "contradicted")
    (event,) = await judged(made)
    assert (event.usage.input_tokens, event.usage.cost) == (200, 0.01)
    assert report.usage.input_tokens >= 200


async def test_it_sees_the_claim_and_the_passage_and_nothing_else_of_the_run() -> None:
    small = Reviewer(said("supported"))
    await stage(small).run(prompt="a secret question")
    (asked,) = small.requests
    text = asked.messages[-1].text
    assert VAGUE in text
    assert "hive of honey bees" in text
    assert "secret" not in text + asked.system
    assert asked.tools == ()


@pytest.mark.parametrize(
    "answer", ["no idea", said("unsure"), '{"verdicts": []}', ModelError("gone", kind="overloaded"), said()]
)
async def test_a_judge_that_says_nothing_of_use_decides_nothing(answer: Any) -> None:
    report = await stage(Reviewer(answer)).run(prompt="bees?")
    assert [(claim.verdict, claim.judged) for claim in report.claims] == [("unchecked", "")]
    assert report.status == "completed"


async def test_a_verdict_of_the_program_is_never_asked_about() -> None:
    small = Reviewer()
    made = stage(
        small, f"A hive of honey bees holds its queen and some drones through the winter months. {URL}"
    )
    report = await made.run(prompt="bees?")
    assert [(claim.verdict, claim.judged) for claim in report.claims] == [("supported", "")]
    assert small.requests == []


async def test_many_claims_are_asked_about_in_batches() -> None:
    text = "\n".join(f"- {VAGUE[:-1]} number {word}. {URL}" for word in "abcdefghijkl")
    small = Reviewer(said(*["supported"] * 8), said(*["not_found"] * 4))
    made = stage(small, text)
    report = await made.run(prompt="bees?")
    assert [len(event.asked) for event in await judged(made)] == [8, 4]
    assert [claim.verdict for claim in report.claims].count("supported") == 8


async def test_of_very_many_claims_sixty_four_are_asked_about_and_the_rest_stay_unchecked() -> None:
    text = "\n".join(f"- {VAGUE[:-1]} number x{n}. {URL}" for n in range(66))
    small = Reviewer(*[said(*["supported"] * 8)] * 9)
    made = stage(small, text)
    report = await made.run(prompt="bees?")
    assert [len(event.asked) for event in await judged(made)] == [8] * 8
    assert [claim.verdict for claim in report.claims] == ["supported"] * 64 + ["unchecked"] * 2


async def test_without_a_judge_nobody_is_asked() -> None:
    small = Reviewer()
    report = await stage(small, sources__judge="off").run(prompt="bees?")
    assert ([claim.verdict for claim in report.claims], small.requests) == (["unchecked"], [])


async def test_a_replay_plays_what_it_said_and_asks_no_model() -> None:
    made = stage(Reviewer(said("not_found")))
    report = await made.run(prompt="bees?")
    events = await made.log()
    off = stage(Reviewer(), sources__judge="off")
    replayed = await replay(events, replace(off.config, publish=lambda event: None))
    assert replayed.diff == ""
    assert replayed.report is not None
    assert replayed.report.claims == report.claims


async def test_with_strict_sources_it_is_asked_once_for_one_answer() -> None:
    small = Reviewer(said("supported"))
    made = stage(small)
    made.config = replace(made.config, strict_sources=True)
    made.workflow = type(made.workflow)(made.config, made.root_id)
    report = await made.run(prompt="bees?")
    assert len(small.requests) == 1
    assert [claim.verdict for claim in report.claims] == ["supported"]


async def test_with_strict_sources_what_it_calls_contradicted_goes_back() -> None:
    small = Reviewer(said("contradicted"))
    made = stage(small, f"{VAGUE} {URL}", "I can say nothing about them.")
    made.config = replace(made.config, strict_sources=True)
    made.workflow = type(made.workflow)(made.config, made.root_id)
    report = await made.run(prompt="bees?")
    assert (report.text, report.claims) == ("I can say nothing about them.", ())
