"""DuckDuckGo: an odd content type, an odd status, and fields that are "" or an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from retinue.tools.knowledge.causes import SourceError

from .wiring import Reply, Wire, World

Make = Callable[..., World]
ROOT = "/duckduckgo/"
TYPE = "application/x-javascript"
EMPTY: dict[str, Any] = {
    "Abstract": "",
    "AbstractText": "",
    "AbstractURL": "",
    "Answer": "",
    "Definition": "",
    "Heading": "",
    "ImageWidth": "",
    "Infobox": "",
    "Redirect": "",
    "RelatedTopics": [],
    "Results": [],
    "Type": "",
    "meta": None,
}


def instant(status: int = 200, **fields: Any) -> Reply:
    return Reply({**EMPTY, **fields}, status=status, type=TYPE)


async def test_it_asks_as_documented(world: Make, wire: Wire) -> None:
    wire.on(ROOT, instant(AbstractText="A poet.", Heading="Byron"))
    await world().ask("duckduckgo", query="lord byron")
    assert wire.seen[0].query == {
        "q": "lord byron",
        "format": "json",
        "no_html": "1",
        "skip_disambig": "1",
        "no_redirect": "1",
        "t": "retinue",
    }


@pytest.mark.parametrize("status", [200, 202])
async def test_a_202_with_a_body_is_an_answer(world: Make, wire: Wire, status: int) -> None:
    wire.on(
        ROOT,
        instant(
            status,
            Heading="Lord Byron",
            AbstractText="An English poet &amp; peer.",
            AbstractSource="Wikipedia",
            AbstractURL="https://en.wikipedia.org/wiki/Lord_Byron",
        ),
    )
    result = await world().ask("duckduckgo", query="lord byron")
    assert (
        "[1] Lord Byron (Wikipedia)\nhttps://en.wikipedia.org/wiki/Lord_Byron\nAn English poet & peer."
        in result.text
    )
    assert result.sources[0].status == status


async def test_a_202_without_a_body_is_a_rate_limit(world: Make, wire: Wire) -> None:
    wire.on(ROOT, Reply(status=202, type=TYPE), instant(Answer="42"))
    one = world()
    assert "42" in (await one.ask("duckduckgo", query="x")).text
    assert one.clock.slept == [1.0]


async def test_topics_and_groups_of_topics_are_one_list(world: Make, wire: Wire) -> None:
    topics = [
        {
            "Text": "Mercury - The planet nearest to the Sun.",
            "FirstURL": "https://duckduckgo.com/Mercury_(planet)",
        },
        {
            "Name": "Science",
            "Topics": [
                {"Text": "Mercury (element) - A liquid metal.", "FirstURL": "/Mercury_(element)"},
                {"Name": "deeper", "Topics": [{"Text": "Mercury poisoning", "FirstURL": "/c/Mercury"}]},
            ],
        },
    ]
    wire.on(ROOT, instant(Type="D", Heading="Mercury", RelatedTopics=topics))
    result = await world().ask("duckduckgo", query="mercury")
    assert (
        "[1] Mercury\nhttps://duckduckgo.com/Mercury_(planet)\nThe planet nearest to the Sun." in result.text
    )
    assert [source.url for source in result.sources] == [
        "https://duckduckgo.com/Mercury_(planet)",
        "https://duckduckgo.com/Mercury_(element)",
        "https://duckduckgo.com/c/Mercury",
    ]


async def test_an_infobox_gives_its_plain_facts(world: Make, wire: Wire) -> None:
    box = {
        "content": [
            {"data_type": "string", "label": "Born", "value": "22 January 1788"},
            {"data_type": "wd_description", "label": "Wikidata", "value": {"id": "Q5679"}},
            "junk",
        ],
        "meta": [],
    }
    wire.on(ROOT, instant(Heading="Byron", AbstractText="A poet.", Infobox=box))
    result = await world().ask("duckduckgo", query="byron")
    assert "Born: 22 January 1788" in result.text
    assert "Q5679" not in result.text


async def test_a_direct_answer_may_be_text_or_an_object(world: Make, wire: Wire) -> None:
    wire.on(ROOT, instant(Answer="<b>7</b> bits", AnswerType="calc"))
    assert (
        "[1] Answer\nhttps://duckduckgo.com/?q=bits+in+ascii\n7 bits"
        in (await world().ask("duckduckgo", query="bits in ascii")).text
    )
    wire.on(ROOT, instant(Answer={"from": "calculator", "result": ""}, AbstractText="An abstract."))
    assert "An abstract." in (await world().ask("duckduckgo", query="2+2")).text


async def test_a_bang_says_where_it_leads(world: Make, wire: Wire) -> None:
    wire.on(ROOT, instant(Type="E", Redirect="https://www.imdb.com/find?q=dune"))
    result = await world().ask("duckduckgo", query="!imdb dune")
    assert "[1] Leads to\nhttps://www.imdb.com/find?q=dune" in result.text
    assert (result.found, result.sources) == ((), ()), "it is made of the query, so nobody has written it"


async def test_an_empty_answer_is_not_nothing_on_the_web(world: Make, wire: Wire) -> None:
    wire.on(ROOT, instant())
    with pytest.raises(SourceError, match=r"does not mean the web has nothing. Use web_search") as caught:
        await world().ask("duckduckgo", query="wiring diagram of a 2007 tahoe")
    assert caught.value.cause == "no_result"
