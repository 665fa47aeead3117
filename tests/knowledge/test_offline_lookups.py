"""What a person sees of the knowledge agents without a key: the offline model, the real tools, a local server."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.app import Retinue
from retinue.models.offline.facts import decide
from retinue.models.offline.scene import Say, Scene
from retinue.tools.knowledge.sources import SOURCES
from retinue.types import Report

from .wiring import Reply, Wire

NEO: dict[str, Any] = {
    "name": "(2026 VB1)",
    "nasa_jpl_url": "http://ssd.jpl.nasa.gov/tools/sbdb_lookup.html#/?sstr=1",
    "close_approach_data": [{"miss_distance": {"kilometers": "1234567.8", "lunar": "3.2"}}],
}
PAGE: dict[str, Any] = {
    "title": "Group",
    "extract": "A group is a set with an operation that has an inverse.",
    "canonicalurl": "http://wiki.test/index.php/Group",
}
MARKS = ("lookup results", "begins. It is data", "[1]")


async def look_up(wire: Wire, agent: str, question: str, **environ: str) -> Report:
    settings = {
        "knowledge.contact": "ops@example.org",
        "knowledge.base_urls": {name: f"{wire.url}/{name}" for name in SOURCES},
    }
    async with Retinue(model="offline", db="memory:", environ=environ, settings=settings) as retinue:
        return await retinue.run(agent, question)


async def test_a_computed_answer_is_the_answer_alone(wire: Wire) -> None:
    wire.on("/wolfram/v1/result", Reply("π^2 - 4", type="text/plain"))
    report = await look_up(
        wire, "math-expert", "integrate x^2 sin x from 0 to pi", WOLFRAM_APP_ID="a-key-of-ours"
    )
    assert "**Answer:** π^2 - 4\n" in report.text
    assert not any(mark in report.text for mark in MARKS)
    assert [source.verified for source in report.sources] == [True]


async def test_without_a_key_an_idea_is_looked_up_and_the_answer_says_what_failed(wire: Wire) -> None:
    wire.on("/wikipedia/w/api.php", Reply({"query": {"pages": [PAGE]}}))
    report = await look_up(wire, "math-expert", "What is a group?")
    assert f"**Answer:** {PAGE['extract']}\n" in report.text
    assert "**Failed:** wolfram_query: Wolfram|Alpha needs a key: set WOLFRAM_APP_ID" in report.text
    assert report.problems == ()


async def test_what_no_tool_could_compute_is_not_made_up(wire: Wire) -> None:
    report = await look_up(wire, "math-expert", "integrate x^2 sin x from 0 to pi")
    assert "**Answer:** not solved." in report.text
    assert "**Source:** none" in report.text


async def test_asteroids_of_today_are_in_the_report_with_their_figures_and_source(wire: Wire) -> None:
    wire.on("/nasa/neo/rest/v1/feed", Reply({"near_earth_objects": {"2026-11-16": [NEO]}}))
    report = await look_up(wire, "science-research", "near-Earth asteroids discovered in 2026")
    asked = next(seen for seen in wire.seen if seen.path.startswith("/nasa/"))
    assert asked.query["start_date"] == asked.query["end_date"] != ""
    assert "- **(2026 VB1)**: misses by: 1,234,568 km (3.2 lunar distances)" in report.text
    assert "Source: https://ssd.jpl.nasa.gov/tools/sbdb_lookup.html#/?sstr=1" in report.text
    assert all(source.verified for source in report.sources)
    assert any("near Earth asteroids" in seen.query.get("srsearch", "") for seen in wire.seen)


@pytest.mark.parametrize("agent", ["web-knowledge", "science-research"])
async def test_with_every_source_down_the_answer_says_so_and_cites_nothing(wire: Wire, agent: str) -> None:
    report = await look_up(wire, agent, "Who was Alan Turing?")
    assert report.text.startswith("**Not looked up:** no source could be asked about “Alan Turing”.")
    assert report.incomplete == "nothing was read", "a failed lookup is no finding"
    assert "**Lookups that failed:**" in report.text
    assert report.sources == ()


def test_without_any_source_the_answer_does_not_say_that_one_was_asked() -> None:
    scene = Scene(role="web-knowledge", task="Who was X?", fields={}, done=(), tools={}, turn=0, final=False)
    move = decide(scene)
    assert isinstance(move, Say)
    assert move.text == "**Not looked up:** there is no source here to ask about “X”."


async def test_a_page_that_was_found_and_then_read_is_one_source(wire: Wire) -> None:
    found = Reply({"query": {"search": [{"title": "Group"}]}})
    wire.on(
        "/wikipedia/w/api.php",
        lambda seen: found if "srsearch" in seen.query else Reply({"query": {"pages": [PAGE]}}),
    )
    report = await look_up(wire, "web-knowledge", "What is a group?")
    assert [source.url for source in report.sources] == [PAGE["canonicalurl"]]
