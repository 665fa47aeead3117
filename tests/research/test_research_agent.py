"""Research as a whole, on a local web: what a careless writer gets wrong is flagged in its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from research.planted import CONTRADICTING
from research.world import PlantedWeb, Thing, Writer, things
from retinue import Retinue
from retinue.events import ToolReturned
from retinue.testing import ScriptedModel
from retinue.types import Report

ALL = things()
EACH = 3
"""Things that one report is about."""


def slips(at: int, told: list[Thing], strangers: list[Thing]) -> tuple[str, str]:
    """The body of the report of that number, and the sentence in it that is not true."""
    lines = [list(thing.sentences) for thing in told]
    cites = [[f"{{{n}}}"] * 3 for n in range(1, EACH + 1)]
    thing, other = told[at % EACH], strangers[at % len(strangers)]
    which = at % EACH
    match at % 5:
        case 0:
            lines[which][0] = f"The {thing.name} is {thing.metres + 20} metres high."
            place = 0
        case 1:
            lines[which][1] = f"The {thing.name} was designed by {other.maker}."
            place = 1
        case 2:
            lines[which][2] = f"The {thing.name} opened in {thing.year - 7}."
            place = 2
        case 3:  # the page of another one
            cites[which][0] = f"{{{(which + 1) % EACH + 1}}}"
            place = 0
        case _:
            lines[which][0] = f"The {thing.name} is {thing.metres} kilometres high."
            place = 0
    paragraphs = [
        " ".join(f"{line[:-1]} {cite}." for line, cite in zip(of_one, marks, strict=True))
        for of_one, marks in zip(lines, cites, strict=True)
    ]
    return "\n\n".join(paragraphs), lines[which][place]


async def researched(
    tmp_path: Path, site: PlantedWeb, writer: Any, *, prompt: str = "Tell me.", **given: Any
) -> tuple[Report, list[Any]]:
    async with Retinue(
        model=ScriptedModel(writer), db="memory:", cwd=tmp_path, environ={}, settings=site.settings
    ) as retinue:
        run_id = await retinue.start("research", {"question": prompt}, **given)
        report = await retinue.wait(run_id)
        return report, await retinue.store.events(run_id)


@pytest.mark.parametrize("at", range(20))
async def test_one_wrong_number_name_or_source_in_a_report_is_flagged(tmp_path: Path, at: int) -> None:
    told = ALL[at * 7 : at * 7 + EACH]
    strangers = [thing for thing in ALL if thing.maker not in {one.maker for one in told}]
    body, wrong = slips(at, told, strangers)
    async with PlantedWeb({thing.path: thing.page for thing in ALL}) as site:
        writer = Writer(urls=[site.url(thing.path) for thing in told], body=body)
        report, events = await researched(tmp_path, site, writer)
    assert report.ok, report.error
    flagged = [claim for claim in report.claims if claim.verdict in ("contradicted", "not_found")]
    assert [claim.text.rstrip(" ⚠") for claim in flagged] == [wrong]
    assert len(report.claims) == EACH * 3
    assert report.text.count("⚠") == 2, "once behind it, once in the figures"
    sent_back = [e for e in events if isinstance(e, ToolReturned) and e.name == "research_report"]
    assert len(sent_back) == 3, "it was to be mended, twice, and stayed as it was"
    assert wrong[:-1] in sent_back[0].text


async def test_a_true_report_is_not_flagged_and_is_the_answer_and_a_file(tmp_path: Path) -> None:
    told = ALL[:EACH]
    body = "\n\n".join(
        " ".join(f"{line[:-1]} {{{n}}}." for line in thing.sentences) for n, thing in enumerate(told, start=1)
    )
    async with PlantedWeb({thing.path: thing.page for thing in ALL}) as site:
        urls = [site.url(thing.path) for thing in told]
        report, events = await researched(tmp_path, site, Writer(urls=urls, body=body))
    assert [claim.verdict for claim in report.claims] == ["supported"] * 9
    assert (report.problems, report.uncited, report.incomplete) == ((), 0, None)
    assert "⚠" not in report.text
    assert report.text.startswith("# What was found\n")
    assert all(f"] {thing.name}. {site.url(thing.path)}\n" in report.text for thing in told)
    assert "/home/agent/report.md" in report.files
    written = [e for e in events if isinstance(e, ToolReturned) and e.answer]
    assert len(written) == 1
    assert written[0].answer == report.text


async def test_contradictions_between_pages_stand_in_the_report_with_both_numbers(tmp_path: Path) -> None:
    pages: dict[str, str] = {}
    for at, (title, text, other_title, other_text, *_) in enumerate(CONTRADICTING):
        for side, name, said in (("a", title, text), ("b", other_title, other_text)):
            pages[f"/{at}{side}"] = (
                f"<html><head><title>{name}</title></head><body><p>{said}</p></body></html>"
            )
    async with PlantedWeb(pages) as site:
        urls = [site.url(path) for path in list(pages)[:12]]
        body = "The Orsa Dam was completed in 1962 {3}."
        report, _ = await researched(tmp_path, site, Writer(urls=urls, body=body))
    section = report.text.partition("## Where the sources contradict one another")[2]
    pairs = [row for row in CONTRADICTING[:6] if row[4] in section and row[5] in section]
    assert len(pairs) == 6
    assert report.problems == (), "what the program adds holds against its sources"


async def test_a_dozen_children_are_allowed_and_the_thirteenth_is_refused(tmp_path: Path) -> None:
    told = ALL[:13]
    async with PlantedWeb({thing.path: thing.page for thing in ALL}) as site:
        writer = Writer(urls=[site.url(thing.path) for thing in told[:12]], body="Nothing.")
        report, events = await researched(tmp_path, site, writer)
        assert sum(site.hits[thing.path] for thing in told) == 12
    assert report.ok
    refused = [e for e in events if isinstance(e, ToolReturned) and e.not_started]
    assert refused == []


async def test_without_a_model_the_report_is_sentences_of_the_pages_with_their_numbers(
    tmp_path: Path,
) -> None:
    async with (
        PlantedWeb({thing.path: thing.page for thing in ALL}) as site,
        Retinue(model="offline", db="memory:", cwd=tmp_path, environ={}, settings=site.settings) as retinue,
    ):
        run_id = await retinue.start("research", {"question": "Who designed the Harrow Tower?"})
        report = await retinue.wait(run_id)
    assert "was designed by Ida Kolstad" in report.text
    assert "not by a language model" in report.text
    assert "## Sources" in report.text
    assert report.claims
    assert {claim.verdict for claim in report.claims} == {"supported"}
