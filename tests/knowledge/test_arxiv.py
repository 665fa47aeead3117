"""arXiv: search, ids, errors that are feeds, pages that are empty for no reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from retinue.errors import ToolError
from retinue.tools.knowledge.arxiv import only_ids, search_query
from retinue.tools.knowledge.causes import SourceError

from .wiring import Reply, Wire, World

Make = Callable[..., World]
PATH = "/arxiv"
TYPE = "application/atom+xml; charset=utf-8"


def entry(number: str = "2601.00001v2", title: str = "On  engines\n  that think", **more: str) -> str:
    extra = "".join(f"<arxiv:{name}>{value}</arxiv:{name}>" for name, value in more.items())
    return f"""<entry><id>http://arxiv.org/abs/{number}</id><title>{title}</title>
      <published>2026-01-02T03:04:05Z</published><summary>We study engines &amp; minds.</summary>
      <author><name>Ada Lovelace</name></author><author><name>Charles Babbage</name></author>
      <arxiv:primary_category term="cs.AI"/>{extra}</entry>"""


def feed(*entries: str, total: int | None = None, status: int = 200) -> Reply:
    count = len(entries) if total is None else total
    text = f"""<?xml version='1.0' encoding='UTF-8'?>
<feed xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/" xmlns:arxiv="http://arxiv.org/schemas/atom"
 xmlns="http://www.w3.org/2005/Atom"><opensearch:totalResults>{count}</opensearch:totalResults>
{"".join(entries)}</feed>"""
    return Reply(text, status=status, type=TYPE)


def error(reason: str, status: int) -> Reply:
    return feed(
        f"<entry><id>https://arxiv.org/api/errors#x</id><title>Error</title><summary>{reason}</summary></entry>",
        status=status,
    )


async def test_a_search_asks_as_documented_and_gives_what_a_citation_needs(world: Make, wire: Wire) -> None:
    wire.on(PATH, feed(entry(journal_ref="J. Eng. 1", doi="10.1/x"), total=214))
    result = await world().ask("arxiv_search", query="thinking engines", limit=7, sort="date", start=3)
    assert wire.seen[0].query == {
        "search_query": "all:thinking AND all:engines",
        "id_list": "",
        "start": "3",
        "max_results": "7",
        "sortBy": "submittedDate",
        "sortOrder": "descending",
    }
    assert "1 of 214 papers" in result.text
    assert "[1] On engines that think (2026-01-02)\nhttps://arxiv.org/abs/2601.00001v2" in result.text
    assert (
        "authors: Ada Lovelace, Charles Babbage\ncategory: cs.AI\npublished in: J. Eng. 1\ndoi: 10.1/x"
        in result.text
    )
    assert "pdf: https://arxiv.org/pdf/2601.00001v2" in result.text
    assert "We study engines & minds." in result.text
    assert "use start=4" in result.text
    assert result.sources[0].url == "https://arxiv.org/abs/2601.00001v2"
    assert result.sources[0].aliases == (
        "https://arxiv.org/abs/2601.00001",
        "https://arxiv.org/pdf/2601.00001v2",
        "https://arxiv.org/pdf/2601.00001",
        "https://doi.org/10.1/x",
    )


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("1707.08567", ["1707.08567"]),
        ("arXiv:1707.08567v2, astro-ph/0601001", ["1707.08567v2", "astro-ph/0601001"]),
        ("math.GT/0309136", ["math.GT/0309136"]),
        ("1707.08567 and others", []),
        ("attention 2017", []),
    ],
)
def test_a_query_of_ids_only_is_a_list_of_ids(query: str, ids: list[str]) -> None:
    assert only_ids(query) == ids


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("attention is all you need", "all:attention AND all:all AND all:you AND all:need"),
        ('"dark matter" halo', 'all:"dark matter" AND all:halo'),
        ("au:turing AND cat:cs.LO", "au:turing AND cat:cs.LO"),
        ("graph-based (GNN) models?", "all:graph-based AND all:GNN AND all:models"),
        ("the of", "all:the AND all:of"),
    ],
)
def test_plain_words_must_all_occur_and_its_own_syntax_is_left_alone(query: str, sent: str) -> None:
    assert search_query(query) == sent


async def test_ids_are_looked_up_and_the_missing_ones_named(world: Make, wire: Wire) -> None:
    wire.on(PATH, feed(entry("1707.08567v1")))
    result = await world().ask("arxiv_search", query="0808.05394, 1707.08567v1")
    assert wire.seen[0].query["id_list"] == "0808.05394,1707.08567v1"
    assert wire.seen[0].query["search_query"] == ""
    assert "not found: 0808.05394." in result.text


async def test_an_unknown_id_is_a_200_without_entries(world: Make, wire: Wire) -> None:
    wire.on(PATH, feed())
    with pytest.raises(SourceError, match=r"nothing for '2699.99999'. Check the ids") as caught:
        await world().ask("arxiv_search", query="2699.99999")
    assert caught.value.cause == "no_result"
    assert len(wire.seen) == 1


@pytest.mark.parametrize("status", [400, 200])
async def test_an_error_is_a_feed_with_one_entry_called_error(world: Make, wire: Wire, status: int) -> None:
    wire.on(PATH, error("incorrect id format for abc", status))
    with pytest.raises(SourceError, match=r"(?s)rejected the query.*incorrect id format for abc") as caught:
        await world().ask("arxiv_search", query="id:abc")
    assert caught.value.cause == "bad_query"
    assert len(wire.seen) == 1


async def test_a_falsely_empty_page_is_asked_for_once_more(world: Make, wire: Wire) -> None:
    wire.on(PATH, feed(total=88), feed(entry(), total=88))
    assert "On engines" in (await world().ask("arxiv_search", query="engines")).text
    assert len(wire.seen) == 2


async def test_a_page_that_stays_empty_is_an_error_after_two_tries(world: Make, wire: Wire) -> None:
    wire.on(PATH, feed(total=88))
    with pytest.raises(SourceError, match="empty page although it counts 88 results") as caught:
        await world().ask("arxiv_search", query="engines")
    assert caught.value.cause == "empty_page"
    assert len(wire.seen) == 2


async def test_a_start_behind_the_last_result_says_how_many_there_are(world: Make, wire: Wire) -> None:
    wire.on(PATH, feed(total=4))
    with pytest.raises(SourceError, match="It has 4 results, and start is 10"):
        await world().ask("arxiv_search", query="engines", start=10)


async def test_three_seconds_pass_between_two_requests(world: Make, wire: Wire) -> None:
    wire.on(PATH, feed(entry()))
    one = world()
    await one.ask("arxiv_search", query="one")
    await one.ask("arxiv_search", query="two")
    assert one.clock.slept == [3.0]


async def test_a_429_below_the_limit_is_waited_out(world: Make, wire: Wire) -> None:
    wire.on(PATH, Reply("Rate exceeded.", status=429, type="text/plain"), feed(entry()))
    one = world()
    await one.ask("arxiv_search", query="one")
    assert one.clock.slept == [3.0]


@pytest.mark.parametrize(
    "body",
    [
        '<?xml version="1.0"?><!DOCTYPE f [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><feed>&b;</feed>',
        '<?xml version="1.0"?><!DOCTYPE f [<!ENTITY x SYSTEM "file:///etc/passwd">]><feed>&x;</feed>',
        "<feed><entry>",
        "",
    ],
)
async def test_hostile_or_broken_xml_is_an_error(world: Make, wire: Wire, body: str) -> None:
    wire.on(PATH, Reply(body, type=TYPE))
    with pytest.raises(SourceError, match="not the XML it promises") as caught:
        await world(request_timeout=60).ask("arxiv_search", query="engines")
    assert caught.value.cause == "down"


@pytest.mark.parametrize(
    "arguments", [{"query": ""}, {"query": "x", "sort": "stars"}, {"query": "x", "start": -1}]
)
async def test_wrong_arguments_are_told_to_the_model(
    world: Make, wire: Wire, arguments: dict[str, object]
) -> None:
    with pytest.raises(ToolError, match=r"query is empty|sort|start"):
        await world().ask("arxiv_search", **arguments)
    assert wire.seen == []
