"""Wikidata: search for entities, SPARQL, and results that break off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from retinue.errors import ToolError
from retinue.sources import check
from retinue.tools.knowledge.causes import SourceError

from .wiring import Clock, Reply, Shelf, Wire, World

Make = Callable[..., World]
API = "/wikidata/w/api.php"
SPARQL = "/wikidata_sparql"
JSON = "application/sparql-results+json;charset=utf-8"
TRACE = """SPARQL-QUERY: queryStr=SELECT * WHERE { ?s ?p ?o }
java.util.concurrent.TimeoutException
\tat java.util.concurrent.FutureTask.get(FutureTask.java:205)
\tat com.bigdata.rdf.sail.webapp.BigdataServlet.submitApiTask(BigdataServlet.java:292)
"""


def uri(value: str) -> dict[str, str]:
    return {"type": "uri", "value": value}


def table(names: list[str], *rows: dict[str, Any]) -> Reply:
    return Reply({"head": {"vars": names}, "results": {"bindings": rows}}, type=JSON)


async def test_a_search_asks_as_documented(world: Make, wire: Wire) -> None:
    entity = {
        "id": "Q7259",
        "label": "Ada Lovelace",
        "description": "English mathematician (1815–1852)",
        "url": "//www.wikidata.org/wiki/Q7259",
        "match": {"type": "alias", "language": "en", "text": "Countess of Lovelace"},
    }
    wire.on(API, Reply({"search": [entity, {"id": "Q99"}], "search-continue": 2, "success": 1}))
    result = await world().ask("wikidata_search", query="countess", limit=2, lang="de")
    assert {
        "action": "wbsearchentities",
        "search": "countess",
        "language": "de",
        "uselang": "de",
        "limit": "2",
    }.items() <= wire.seen[0].query.items()
    assert "[1] Q7259 Ada Lovelace\nhttps://www.wikidata.org/wiki/Q7259" in result.text
    assert "also known as: Countess of Lovelace" in result.text
    assert "[2] Q99\nhttps://www.wikidata.org/wiki/Q99" in result.text  # no label, no description, no url
    assert "There are more results" in result.text
    assert [source.url for source in result.sources] == [
        "https://www.wikidata.org/wiki/Q7259",
        "https://www.wikidata.org/wiki/Q99",
    ]


async def test_more_than_fifty_entities_cannot_be_asked_for(world: Make) -> None:
    with pytest.raises(ToolError, match="limit"):
        await world().ask("wikidata_search", query="x", limit=51)


async def test_no_entity_is_no_result(world: Make, wire: Wire) -> None:
    wire.on(API, Reply({"searchinfo": {"search": "qqq"}, "search": [], "success": 1}))
    with pytest.raises(SourceError, match="Wikidata has nothing for 'qqq'"):
        await world().ask("wikidata_search", query="qqq")


async def test_a_query_is_posted_and_its_rows_are_a_table(world: Make, wire: Wire) -> None:
    rows = [
        {
            "item": uri("http://www.wikidata.org/entity/Q7259"),
            "born": {
                "type": "literal",
                "value": "1815-12-10T00:00:00Z",
                "datatype": "http://www.w3.org/2001/XMLSchema#dateTime",
            },
            "name": {"type": "literal", "value": "Ada Lovelace", "xml:lang": "en"},
        },
        {"item": uri("http://www.wikidata.org/entity/Q46633")},
    ]
    wire.on(SPARQL, table(["item", "born", "name"], *rows))
    query = "SELECT ?item ?born ?name WHERE { ?item wdt:P569 ?born } LIMIT 2"
    result = await world().ask("wikidata_query", sparql=query)
    [seen] = wire.seen
    known = "PREFIX wdt: <http://www.wikidata.org/prop/direct/>\n"
    assert (seen.method, seen.form, seen.query) == ("POST", {"query": known + query}, {})
    assert seen.headers["accept"].startswith("application/sparql-results+json")
    assert "item | born | name\nQ7259 | 1815-12-10 | Ada Lovelace\nQ46633 |  | " in result.text
    assert [source.url for source in result.sources] == [
        "http://www.wikidata.org/entity/Q7259",
        "http://www.wikidata.org/entity/Q46633",
    ]
    assert result.sources[0].aliases == ("https://www.wikidata.org/wiki/Q7259",)


async def test_rows_without_addresses_are_cited_by_the_query(world: Make, wire: Wire) -> None:
    wire.on(SPARQL, table(["n"], {"n": {"type": "literal", "value": "42"}}))
    result = await world().ask("wikidata_query", sparql="SELECT (42 AS ?n) {}")
    assert [source.url for source in result.sources] == [
        f"{wire.url}/wikidata_sparql/#SELECT%20%2842%20AS%20%3Fn%29%20%7B%7D"
    ]


@pytest.mark.parametrize(
    "address",
    [
        "https://nature.example/articles/invented",
        "https://www.wikidata.org.evil.example/entity/Q1",
        "https://www.wikidata.org@evil.example/entity/Q1",
        "https://evil.example\\@www.wikidata.org/entity/Q1",
        "https://www.wikidata.org:8443/entity/Q1",
    ],
)
async def test_an_address_elsewhere_in_a_row_is_no_source(world: Make, wire: Wire, address: str) -> None:
    words = {"type": "literal", "value": "The committee found no evidence of any effect"}
    wire.on(SPARQL, table(["page", "said"], {"page": uri(address), "said": words}))
    result = await world().ask("wikidata_query", sparql="SELECT 1")
    assert [(source.url, source.aliases) for source in result.sources] == [
        (f"{wire.url}/wikidata_sparql/#SELECT%201", ())
    ]
    claim = f'It says "{words["value"]}" ([report]({address})).'
    texts = {source.url: result.text for source in result.sources if source.url}
    assert check(claim, result.sources, texts).problems


async def test_a_row_with_a_foreign_address_first_is_cited_by_its_entity(world: Make, wire: Wire) -> None:
    page, ada = uri("https://en.wikipedia.org/wiki/Ada"), uri("http://www.wikidata.org/entity/Q7259")
    wire.on(SPARQL, table(["page", "item"], {"page": page, "item": ada}))
    result = await world().ask("wikidata_query", sparql="SELECT 1")
    assert [source.url for source in result.sources] == ["http://www.wikidata.org/entity/Q7259"]


async def test_two_queries_are_two_questions_to_the_cache(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on(
        SPARQL,
        Reply({"head": {}, "boolean": True}, type=JSON),
        Reply({"head": {}, "boolean": False}, type=JSON),
    )
    one = world(clock=clock, shelf=shelf)
    assert "\n\nyes" in (await one.ask("wikidata_query", sparql="ASK { ?a ?b 1 }")).text
    assert "\n\nno" in (await one.ask("wikidata_query", sparql="ASK { ?a ?b 2 }")).text
    assert "\n\nyes" in (await one.ask("wikidata_query", sparql="ASK { ?a ?b 1 }")).text
    assert len(wire.seen) == 2


async def test_a_thing_in_several_rows_is_one_source_named_by_the_first(world: Make, wire: Wire) -> None:
    ada = uri("http://www.wikidata.org/entity/Q7259")
    rows = [{"item": ada, "n": {"type": "literal", "value": value}} for value in ("first", "second")]
    wire.on(SPARQL, table(["item", "n"], *rows))
    result = await world().ask("wikidata_query", sparql="SELECT …")
    assert [source.title for source in result.sources] == ["item: Q7259 | n: first"]


async def test_yes_and_no_are_answers(world: Make, wire: Wire) -> None:
    wire.on(SPARQL, Reply({"head": {}, "boolean": False}, type=JSON))
    assert "\n\nno" in (await world().ask("wikidata_query", sparql="ASK {}")).text


async def test_triples_are_shown_as_they_come(world: Make, wire: Wire) -> None:
    wire.on(SPARQL, Reply("<http://a> <http://b> <http://c> .\n", type="application/n-triples;charset=utf-8"))
    result = await world().ask("wikidata_query", sparql="CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }")
    assert "<http://a> <http://b> <http://c> ." in result.text


async def test_a_timeout_is_a_200_with_cut_json_and_never_a_short_result(world: Make, wire: Wire) -> None:
    cut = '{"head":{"vars":["s"]},"results":{"bindings":[{"s":{"type":"uri","value":"http://x"}},' + TRACE
    wire.on(SPARQL, Reply(cut, type=JSON))
    with pytest.raises(SourceError, match=r"ran out of time, and its result is incomplete.*LIMIT") as caught:
        await world().ask("wikidata_query", sparql="SELECT * WHERE { ?s ?p ?o }")
    assert caught.value.cause == "timeout"
    assert "FutureTask" not in str(caught.value)
    assert len(wire.seen) == 1


async def test_a_timeout_before_the_first_row_is_a_500_and_not_tried_again(world: Make, wire: Wire) -> None:
    wire.on(SPARQL, Reply(TRACE, status=500, type="text/plain"))
    with pytest.raises(SourceError, match="ran out of time") as caught:
        await world().ask("wikidata_query", sparql="SELECT * WHERE { ?s ?p ?o }")
    assert caught.value.cause == "timeout"
    assert len(wire.seen) == 1


async def test_json_cut_for_another_reason_gives_the_reason(world: Make, wire: Wire) -> None:
    body = (
        '{"head":{"vars":["a"]},"results":{"bindings":[failed to lookup address information: no such name\n'
    )
    wire.on(SPARQL, Reply(body, type=JSON))
    with pytest.raises(
        SourceError, match=r"(?s)broke off its answer.*failed to lookup address information"
    ) as caught:
        await world().ask("wikidata_query", sparql="SELECT * {}")
    assert caught.value.cause == "down"


async def test_a_malformed_query_gives_the_parsers_message(world: Make, wire: Wire) -> None:
    text = (
        "SPARQL-QUERY: queryStr=SELEC nope\njava.util.concurrent.ExecutionException: "
        'org.openrdf.query.MalformedQueryException: Encountered " <PNAME_LN> "SELEC" at line 1, column 1.\n'
        "\tat java.util.concurrent.FutureTask.report(FutureTask.java:122)\n"
    )
    wire.on(SPARQL, Reply(text, status=400, type="text/plain"))
    with pytest.raises(
        SourceError, match=r"(?s)rejected the query.*Encountered .*at line 1, column 1"
    ) as caught:
        await world().ask("wikidata_query", sparql="SELEC nope")
    assert caught.value.cause == "bad_query"
    assert "FutureTask" not in str(caught.value)


async def test_after_a_rejected_query_the_service_is_left_alone_for_two_seconds(
    world: Make, wire: Wire
) -> None:
    wire.on(
        SPARQL, Reply("bad", status=400, type="text/plain"), Reply({"head": {}, "boolean": True}, type=JSON)
    )
    one = world()
    with pytest.raises(SourceError):
        await one.ask("wikidata_query", sparql="nope")
    await one.ask("wikidata_query", sparql="ASK {}")
    assert sum(one.clock.slept) == pytest.approx(2.0)  # thirty errors a minute at most


async def test_no_rows_is_no_result_with_advice(world: Make, wire: Wire) -> None:
    wire.on(SPARQL, table(["x"]))
    with pytest.raises(SourceError, match=r"found no rows.*OPTIONAL") as caught:
        await world().ask("wikidata_query", sparql="SELECT ?x {}")
    assert caught.value.cause == "no_result"


async def test_scholarly_articles_are_asked_for_in_their_own_graph(world: Make, wire: Wire) -> None:
    wire.on("/wikidata_scholarly", table(["a"], {"a": uri("http://www.wikidata.org/entity/Q1")}))
    result = await world().ask("wikidata_query", sparql="SELECT ?a { ?a wdt:P31 wd:Q13442814 } LIMIT 1")
    assert [seen.path for seen in wire.seen] == ["/wikidata_scholarly"]
    assert "graph of scholarly articles" in result.text


async def test_a_long_result_is_cut_and_says_so(world: Make, wire: Wire) -> None:
    rows = [{"n": {"type": "literal", "value": str(n)}} for n in range(130)]
    wire.on(SPARQL, table(["n"], *rows))
    result = await world().ask("wikidata_query", sparql="SELECT ?n {}")
    assert "\n99\n" in result.text
    assert "\n100" not in result.text
    assert "30 of 130 rows are not shown" in result.text


async def test_an_empty_query_is_not_sent(world: Make, wire: Wire) -> None:
    with pytest.raises(ToolError, match="sparql is empty"):
        await world().ask("wikidata_query", sparql="  ")
    assert wire.seen == []
