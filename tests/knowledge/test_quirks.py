"""The list of what is odd about each source is complete, and the oddities that have no file of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.tools.knowledge.dbpedia import translate
from retinue.tools.knowledge.sources import SOURCES

from .wiring import Reply, Wire, World

Make = Callable[..., World]
LIST = (Path(__file__).parent / "quirks.md").read_text("utf-8")


def test_every_oddity_on_the_list_has_tests_that_exist() -> None:
    sources = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    defined = set(re.findall(r"(?m)^(?:async )?def (test_\w+)", sources))
    lines = [line for line in LIST.splitlines() if line.startswith("- ")]
    assert len(lines) >= 45
    for line in lines:
        named = re.findall(r"`(test_\w+)`", line)
        assert named, line
        assert set(named) <= defined, f"{line}: {sorted(set(named) - defined)}"


@pytest.mark.parametrize(
    "name", ["Wikipedia", "Wikidata", "DuckDuckGo", "arXiv", "DBpedia", "Wolfram", "Stack Exchange", "NASA"]
)
def test_each_of_the_eight_sources_is_on_the_list(name: str) -> None:
    assert re.search(rf"(?m)^## {name}", LIST)


async def test_a_summary_without_its_mobile_address_works(world: Make, wire: Wire) -> None:
    page = {"desktop": {"page": "https://en.wikipedia.org/wiki/Pi"}}
    body = {"type": "standard", "title": "Pi", "extract": "A number.", "content_urls": page}
    wire.on("/wikipedia/api/rest_v1/page/summary/Pi", Reply(body))
    result = await world().ask("wiki_summary", title="Pi")
    assert result.sources[0].url == "https://en.wikipedia.org/wiki/Pi"


def test_no_source_is_on_the_gateway_that_is_being_retired() -> None:
    assert not any("api.wikimedia.org" in source.base for source in SOURCES.values())


async def test_our_own_queries_and_advice_use_no_service_of_one_backend(world: Make) -> None:
    ours, _ = translate("SELECT ?b { dbr:Ada_Lovelace dbo:birthDate ?b }")
    assert ours is not None
    assert "SERVICE" not in ours
    assert "rdfs:label" in ours
    assert 'FILTER(LANG(?property) = "en")' in ours
    told = world().tools["wikidata_query"].description
    assert "rdfs:label" in told
    assert "LANG(" in told


async def test_wikidata_search_fills_in_what_an_entity_lacks(world: Make, wire: Wire) -> None:
    found = [
        {"id": "Q1", "label": "universe", "url": "//www.wikidata.org/wiki/Q1"},
        {"id": "Q2", "label": "Earth", "description": "third planet", "url": "//www.wikidata.org/wiki/Q2"},
    ]
    wire.on("/wikidata/w/api.php", Reply({"search": found, "search-continue": 2, "success": 1}))
    result = await world().ask("wikidata_search", query="world", limit=2)
    assert [source.url for source in result.sources] == [
        "https://www.wikidata.org/wiki/Q1",
        "https://www.wikidata.org/wiki/Q2",
    ]
    assert "third planet" in result.text
    assert "None" not in result.text
    assert "more" in result.text, "there is more where this came from"


async def test_an_address_without_a_host_never_becomes_a_source(world: Make, wire: Wire) -> None:
    topic = {"Text": "Byron, a poet", "FirstURL": "/Lord_Byron", "Icon": {"URL": "/i/aa11.png"}}
    body = {
        "Heading": "Byron",
        "AbstractText": "A poet.",
        "AbstractURL": "https://en.wikipedia.org/wiki/Byron",
        "Image": "/i/bb22.jpg",
        "RelatedTopics": [topic],
        "Infobox": {"content": [{"data_type": "string", "label": "Picture", "value": "/i/cc33.jpg"}]},
    }
    wire.on("/duckduckgo/", Reply(body, type="application/x-javascript"))
    result = await world().ask("duckduckgo", query="byron")
    assert all((source.url or "").startswith("https://") for source in result.sources)
    assert "/i/aa11.png" not in result.text
    assert "/i/bb22.jpg" not in result.text
