"""The sentences of a report, what they cite, and what people and parents are told of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from claims.pages import PAGES
from counting import assert_linear
from retinue import Retinue, tool
from retinue.claims.citing import cited_sentences
from retinue.sources import Checked, check
from retinue.testing import ScriptedModel, call
from retinue.tools.base import ToolResult
from retinue.types import AgentSpec, Claim, Report, Source
from retinue.view.answer import claim_lines
from retinue.view.marked import marked_text

BRIDGE, TEA = "https://example.org/bridge", "https://example.org/tea"
SOURCES = [Source(url=url, title="") for url in PAGES]


def checked(text: str) -> Checked:
    return check(text, SOURCES, PAGES)


def claims(text: str) -> list[Claim]:
    return list(checked(text).claims.claims)


@pytest.mark.parametrize(
    "text",
    [
        f"The main span is 350 m long ({BRIDGE}).",
        f"The main span is 350 m long. {BRIDGE}",
        f"The main span is [350 m long]({BRIDGE}).",
        f"The main span is 350 m long [1].\n\n## Sources\n[1] The bridge: {BRIDGE}\n",
        f"The main span is 350 m long.[^1]\n\n[^1]: {BRIDGE}\n",
        f"- The main span is 350 m long [1, 2]\n\n1. {BRIDGE}\n2. {TEA}\n",
        f"The bridge crosses the Tamsin. Its main span is 350 m long [2-3].\n\n[2]: {TEA}\n[3]: {BRIDGE}",
        f"* **Span**: the main span is 350 m long — source: {BRIDGE}",
        f"The main span is 350 m long 【1】.\n\n[1] {BRIDGE}",
        f"The main span is 350 m long【1】.\n\n【1】 {BRIDGE}",
        f"The main span is 350 m long¹.\n\n¹ {BRIDGE}",
        f"The main span is 350 m long.²\n\n¹ {TEA}\n² {BRIDGE}",
        f'The main span is 350 m long [the bridge][b].\n\n[b]: {BRIDGE} "The page of the bridge"',
        f"The main span is 350 m long [Bridge][].\n\n[bridge]: {BRIDGE}",
        f"Look:\n\n```py\nspan = 330\n```\n\nThe main span is 350 m long ({BRIDGE}).",
    ],
)
def test_a_wrong_number_is_noticed_however_its_source_is_cited(text: str) -> None:
    wrong = [claim for claim in claims(text) if claim.verdict == "contradicted"]
    assert [claim.source for claim in wrong] == [BRIDGE]
    assert "350 m long" in text[wrong[0].start : wrong[0].end]


def test_a_quotation_of_one_page_that_is_cited_to_another_is_not_found_there() -> None:
    text = f"They said “We will plant more trees before we build another factory.” ({BRIDGE})"
    (claim,) = claims(text)
    assert claim.verdict in ("not_found", "contradicted")


def test_one_source_at_the_end_of_an_item_counts_for_its_sentences() -> None:
    text = f"- The bridge opened in March 1874. It was designed by Ada Whitlock. {BRIDGE}\n- Calder has 12 bridges."
    found = checked(text).claims
    assert [claim.verdict for claim in found.claims] == ["supported", "supported"]
    assert found.uncited == ("Calder has 12 bridges.",)


@pytest.mark.parametrize(
    "text",
    [
        "# The Harrow Bridge in 1874",
        "Is the main span 350 m long?",
        "```\nspan = 350\n```",
        f"Sources:\n- {BRIDGE}\n- {TEA}",
        "I looked at both pages and compared them.",
    ],
)
def test_what_states_nothing_is_no_claim(text: str) -> None:
    found = checked(text).claims
    assert (found.claims, found.uncited) == ((), ())


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (f"The main span is 330 m long [Wikipedia]({BRIDGE}).", "The main span is 330 m long."),
        (f"The main span is 330 m long [p]({BRIDGE}).", "The main span is 330 m long."),
        (f"The main span is 330 m long ([Harrow Bridge]({BRIDGE})).", "The main span is 330 m long."),
        (f"It was designed by [Ada Whitlock]({BRIDGE}).", "It was designed by Ada Whitlock."),
        (f"The main span is [330 m long]({BRIDGE}).", "The main span is 330 m long."),
        (f"The deck has an area of 300 m² in all {BRIDGE}", "The deck has an area of 300 m² in all"),
    ],
)
def test_the_name_of_a_source_is_no_word_of_the_claim(text: str, claim: str) -> None:
    assert [each.text for each in claims(text)] == [claim]


def test_a_claim_behind_code_is_found_where_it_stands() -> None:
    text = f"So:\n\n```py\nx = 1\ny = 2\n```\n\nThe main span is 330 m long ({BRIDGE})."
    (claim,) = claims(text)
    assert text[claim.start : claim.end] == f"The main span is 330 m long ({BRIDGE})."


def test_a_page_that_was_only_listed_decides_nothing() -> None:
    listed = [Source(url=BRIDGE, listed=True)]
    found = check(f"The main span is 350 m long ({BRIDGE}).", listed, PAGES)
    assert [claim.verdict for claim in found.claims.claims] == ["unchecked"]


def test_a_contradicted_claim_is_a_problem_that_says_what_its_source_says() -> None:
    (problem,) = checked(f"The main span is 350 m long ({BRIDGE}).").problems
    assert problem.kind == "contradicted"
    assert "330 metres" in problem.note


def test_every_claim_is_shown_with_its_passage_when_asked_for() -> None:
    report = Report(
        run_id="r1",
        status="completed",
        agent="a",
        text="",
        uncited=1,
        claims=tuple(claims(f"The main span is 350 m long. The bridge opened in March 1874. {BRIDGE}")),
    )
    short, *nothing = ("".join(text for text, _ in line) for line in claim_lines(report, 100, each=False))
    assert (short, nothing) == ("claims: 1 supported · 1 contradicted · 1 sentence without a source", [])
    shown = "\n".join("".join(text for text, _ in line) for line in claim_lines(report, 200, each=True))
    assert "✗ The main span is 350 m long." in shown
    assert "number: 350 m; there: 330 metres" in shown


def test_what_a_source_does_not_bear_out_is_marked_behind_its_sentence() -> None:
    text = f"The main span is 350 m long ({BRIDGE}). The bridge opened in March 1874 ({BRIDGE}).\n\nCalder has 12 bridges."
    found = checked(text).claims
    report = Report(
        run_id="r1",
        status="completed",
        agent="a",
        text=text,
        claims=found.claims,
        uncited=1,
        uncited_at=found.uncited_at,
        ended_by="correction",
    )
    assert marked_text(report) == (
        f"The main span is 350 m long ({BRIDGE}). **[✗ its source says 330 metres]** The bridge opened in March 1874 "
        f"({BRIDGE}).\n\nCalder has 12 bridges. **[no source]**"
    )
    assert marked_text(replace(report, format="json")) == text


@pytest.mark.parametrize(
    "piece", ["[1] ", "a. ", "- a\n", "https://a.b ", "(source: ", "| a ", "[a](", "1. x\n", "“"]
)
def test_reading_a_report_takes_time_in_proportion(piece: str) -> None:
    assert_linear(lambda size: cited_sentences(piece * size), 2_000)


# ---- in a run


@tool(effect="network")
def fetch(url: str) -> ToolResult:
    """Fetch a page."""
    return ToolResult(text=PAGES[url], sources=(Source(url=url),))


def _clerk() -> AgentSpec:
    return AgentSpec(name="clerk", description="reads", prompt="You are the clerk.", tools=[fetch])


async def _run(tmp_path: Path, model: ScriptedModel, spec: AgentSpec, *, strict: bool = False) -> Report:
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[spec], yes=True) as retinue:
        return await retinue.run(spec.name, "How long is the bridge?", strict_sources=strict)


def test_a_run_holds_its_own_report_against_what_it_read(tmp_path: Path) -> None:
    model = ScriptedModel([call("fetch", url=BRIDGE), f"The main span is 350 m long ({BRIDGE})."])
    report = asyncio.run(_run(tmp_path, model, _clerk()))
    assert [claim.verdict for claim in report.claims] == ["contradicted"]
    (difference,) = report.to_dict()["claims"][0]["differences"]
    assert difference == {"kind": "number", "claim": "350 m", "source": "330 metres"}


def test_with_strict_sources_a_contradicted_claim_goes_back(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            call("fetch", url=BRIDGE),
            f"The main span is 350 m long ({BRIDGE}).",
            f"The main span is 330 m long ({BRIDGE}).",
        ]
    )
    report = asyncio.run(_run(tmp_path, model, _clerk(), strict=True))
    assert [claim.verdict for claim in report.claims] == ["supported"]


def test_with_strict_sources_what_is_stated_from_nothing_goes_back(tmp_path: Path) -> None:
    said = "Ada Lovelace was born in London in 1815 and had 3 children."
    model = ScriptedModel([said, "I have read nothing about her."])
    report = asyncio.run(_run(tmp_path, model, _clerk(), strict=True))
    assert (report.ended_by, report.text) == ("answer", "I have read nothing about her.")
    assert "it cites nothing" in model.requests[1].messages[-1].text


def test_a_parent_reads_which_claims_of_its_child_do_not_hold(tmp_path: Path) -> None:
    boss = AgentSpec(name="boss", description="asks", prompt="You are the boss.", tools=[_clerk()])
    model = ScriptedModel(
        {
            "You are the boss": [call("clerk", prompt="How long?"), "It is long."],
            "You are the clerk": [call("fetch", url=BRIDGE), f"The main span is 350 m long ({BRIDGE})."],
        }
    )
    report = asyncio.run(_run(tmp_path, model, boss))
    told = [message.text for request in model.requests for message in request.messages]
    assert any("not verified" in text and "330 metres" in text for text in told)
    assert any("330 metres" in problem for problem in report.problems)
