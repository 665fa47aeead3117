"""DBpedia: partial results, and Wikidata in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from retinue.tools.knowledge.causes import SourceError
from retinue.tools.knowledge.dbpedia import translate

from .wiring import Clock, Reply, Seen, Shelf, Wire, World

Make = Callable[..., World]
HERE, THERE = "/dbpedia", "/wikidata_sparql"
JSON = "application/sparql-results+json"
QUERY = "SELECT ?b { dbr:Ada_Lovelace dbo:birthDate ?b } LIMIT 1"
FACT = {
    "head": {"vars": ["item", "property", "value"]},
    "results": {
        "bindings": [
            {
                "item": {"type": "uri", "value": "http://www.wikidata.org/entity/Q7259"},
                "property": {"type": "literal", "xml:lang": "en", "value": "date of birth"},
                "value": {"type": "literal", "value": "1815-12-10T00:00:00Z"},
            }
        ]
    },
}


def table(*values: Any, **headers: str) -> Reply:
    rows = [{"v": value} for value in values]
    body = {
        "head": {"link": [], "vars": ["v"]},
        "results": {"distinct": False, "ordered": True, "bindings": rows},
    }
    return Reply(body, type=JSON, headers={k.replace("_", "-"): v for k, v in headers.items()})


async def test_a_query_goes_with_graph_time_limit_and_accept(world: Make, wire: Wire) -> None:
    wire.on(HERE, table({"type": "uri", "value": "http://dbpedia.org/resource/Lord_Byron"}))
    result = await world().ask("dbpedia_query", sparql=QUERY)
    [seen] = wire.seen
    assert seen.form["query"].endswith(QUERY)
    assert seen.form["default-graph-uri"] == "http://dbpedia.org"
    assert 0 < int(seen.form["timeout"]) < 15_000
    assert seen.headers["accept"].startswith(JSON)  # without it DBpedia sends a web page
    assert "dbr:Lord_Byron" in result.text
    assert [source.url for source in result.sources] == ["http://dbpedia.org/resource/Lord_Byron"]
    assert result.sources[0].aliases == ("https://dbpedia.org/page/Lord_Byron",)


async def test_an_address_elsewhere_is_cited_by_the_query(world: Make, wire: Wire) -> None:
    wire.on(HERE, table({"type": "uri", "value": "https://invented.example/dbpedia.org/resource/Ada"}))
    result = await world().ask("dbpedia_query", sparql="SELECT 1")
    assert [(s.url, s.aliases) for s in result.sources] == [(f"{wire.url}/dbpedia?query=SELECT%201", ())]


@pytest.mark.parametrize("kind", ["typed-literal", "literal"])
async def test_both_ways_of_typing_a_literal_are_read(world: Make, wire: Wire, kind: str) -> None:
    date = {"type": kind, "datatype": "http://www.w3.org/2001/XMLSchema#date", "value": "1815-12-10"}
    wire.on(HERE, table(date))
    assert "1815-12-10" in (await world().ask("dbpedia_query", sparql=QUERY)).text


@pytest.mark.parametrize("tool", ["dbpedia_query", "wikidata_query"])
@pytest.mark.parametrize("name", ["__ASK_RETVAL", "__ask_retval"])
@pytest.mark.parametrize(("rows", "said"), [([1], "yes"), ([], "no"), ([0], "no")])
async def test_virtuosos_way_to_say_yes_and_no_is_read(
    world: Make, wire: Wire, tool: str, name: str, rows: list[int], said: str
) -> None:
    """It gives a table of one column: a row with 1 for yes, none for no."""
    number = "http://www.w3.org/2001/XMLSchema#integer"
    bindings = [{name: {"type": "typed-literal", "datatype": number, "value": str(row)}} for row in rows]
    answer = {"head": {"link": [], "vars": [name]}, "results": {"distinct": False, "bindings": bindings}}
    wire.on(HERE if tool == "dbpedia_query" else THERE, Reply(answer, type=JSON))
    result = await world().ask(tool, sparql="ASK { dbr:A ?p ?o }")
    assert f"\n\n{said}" in result.text
    assert name not in result.text


@pytest.mark.parametrize(
    ("value", "shown"), [(42, "42"), (4.5, "4.5"), (1500, "1500"), (True, "true"), ("true", "true")]
)
async def test_what_virtuoso_describes_may_hold_numbers_that_are_numbers(
    world: Make, wire: Wire, value: Any, shown: str
) -> None:
    row = {
        "s": {"type": "uri", "value": "http://dbpedia.org/resource/A"},
        "p": {"type": "uri", "value": "http://dbpedia.org/ontology/height"},
        "o": {"type": "literal", "value": value, "datatype": "http://www.w3.org/2001/XMLSchema#integer"},
    }
    answer = {"head": {"link": [], "vars": ["s", "p", "o"]}, "results": {"ordered": True, "bindings": [row]}}
    wire.on(HERE, Reply(answer, type=JSON))
    result = await world().ask("dbpedia_query", sparql="DESCRIBE dbr:A")
    assert f"dbr:A | http://dbpedia.org/ontology/height | {shown}" in result.text


@pytest.mark.parametrize("tool", ["dbpedia_query", "wikidata_query"])
async def test_prefixes_that_a_query_uses_and_does_not_declare_are_declared(
    world: Make, wire: Wire, tool: str
) -> None:
    wire.on(HERE, table({"type": "literal", "value": "1"}))
    wire.on(THERE, table({"type": "literal", "value": "1"}))
    query = (
        "# not skos:this\nPREFIX rdfs: <http://own.example/rdfs#>\nprefix o: <http://own.example/dct:x#>\n"
        "SELECT ?v { ?x wdt:P31/dbo:p wd:Q5 ; rdfs:label ?v ; o:y 'not foaf:this', \"nor owl:this\"@en ; "
        "<http://x/schema:y> ?z ; nobody:knows ?w }"
    )
    await world().ask(tool, sparql=query)
    sent = wire.seen[-1].form["query"]
    assert sent.endswith(query)
    added = sent.removesuffix(query).split("\n")[:-1]
    here = {"dbpedia_query": ["PREFIX dbo: <http://dbpedia.org/ontology/>"]}
    there = [
        "PREFIX wdt: <http://www.wikidata.org/prop/direct/>",
        "PREFIX wd: <http://www.wikidata.org/entity/>",
    ]
    assert added == here.get(tool, there)


async def test_a_result_cut_at_the_most_rows_says_so(world: Make, wire: Wire) -> None:
    values = [{"type": "literal", "value": str(n)} for n in range(5)]
    wire.on(HERE, table(*values, X_SPARQL_MaxRows="5"))
    assert (
        "INCOMPLETE: the server gives at most 5 rows"
        in (await world().ask("dbpedia_query", sparql=QUERY)).text
    )
    wire.on(HERE, table(*values[:3], X_SPARQL_MaxRows="5"))
    assert "INCOMPLETE" not in (await world().ask("dbpedia_query", sparql=QUERY)).text


async def test_a_result_cut_by_time_says_so_and_is_not_kept(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on(HERE, table({"type": "literal", "value": "7"}, X_SQL_State="S1TAT"))
    one = world(clock=clock, shelf=shelf)
    assert (
        "INCOMPLETE: the server stopped at its time limit"
        in (await one.ask("dbpedia_query", sparql=QUERY)).text
    )
    await one.ask("dbpedia_query", sparql=QUERY)
    assert len(wire.seen) == 2


async def test_a_syntax_error_is_a_bad_query_and_wikidata_is_not_asked(world: Make, wire: Wire) -> None:
    text = "Virtuoso 37000 Error SP030: line 1: syntax error at 'SELEC'\n\nSPARQL query:\nSELEC dbr:X"
    wire.on(HERE, Reply(text, status=400, type="text/plain"))
    with pytest.raises(
        SourceError, match=r"(?s)rejected the query.*Virtuoso 37000 Error SP030.*'SELEC'"
    ) as caught:
        await world().ask("dbpedia_query", sparql="SELEC dbr:X")
    assert caught.value.cause == "bad_query"
    assert "SPARQL query:" not in str(caught.value)
    assert {seen.path for seen in wire.seen} == {HERE}


async def test_no_rows_is_no_result_and_wikidata_is_not_asked(world: Make, wire: Wire) -> None:
    wire.on(HERE, table())
    with pytest.raises(SourceError, match="found no rows"):
        await world().ask("dbpedia_query", sparql=QUERY)
    assert {seen.path for seen in wire.seen} == {HERE}


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (Reply("bad gateway", status=502, type="text/html"), "down"),
        (Reply("<html>maintenance</html>", type="text/html"), "down"),
        (Reply(status=429, headers={"Retry-After": "600"}), "rate limited"),
        (table(X_SQL_State="S1TAT"), "timeout"),
        (
            Reply(
                "Virtuoso 42000 Error The estimated execution time 1500 (sec) exceeds the limit.",
                status=500,
                type="text/plain",
            ),
            "timeout",
        ),
    ],
)
async def test_wikidata_answers_in_its_place_and_the_result_says_so(
    world: Make, wire: Wire, trouble: Reply, why: str
) -> None:
    wire.on(HERE, trouble)
    wire.on(THERE, Reply(FACT, type=JSON))
    result = await world().ask("dbpedia_query", sparql=QUERY)
    assert f"DBpedia did not answer ({why}), so this is from Wikidata instead" in result.text
    assert "Q7259 | date of birth | 1815-12-10" in result.text
    assert (
        "<https://en.wikipedia.org/wiki/Ada_Lovelace> <http://schema.org/about> ?item"
        in wire.seen[-1].form["query"]
    )
    assert "SERVICE" not in wire.seen[-1].form["query"]
    assert result.sources[0].url == "http://www.wikidata.org/entity/Q7259"


async def test_a_silent_dbpedia_leaves_time_for_wikidata(world: Make, wire: Wire) -> None:
    import asyncio

    forever = asyncio.Event()

    async def silent(_: Seen) -> Reply:
        await forever.wait()
        return table()

    wire.on(HERE, silent)
    wire.on(THERE, Reply(FACT, type=JSON))
    result = await world(request_timeout=4.0).ask("dbpedia_query", sparql=QUERY)
    assert "(timeout)" in result.text
    forever.set()


async def test_when_both_fail_the_error_tells_of_both(world: Make, wire: Wire) -> None:
    wire.on(HERE, Reply(status=503))
    wire.on(THERE, Reply(status=503))
    with pytest.raises(
        SourceError, match=r"DBpedia is not working.*Wikidata was asked instead: the Wikidata"
    ):
        await world().ask("dbpedia_query", sparql=QUERY)


async def test_a_query_that_names_nothing_is_not_guessed_at(world: Make, wire: Wire) -> None:
    wire.on(HERE, Reply(status=503))
    with pytest.raises(SourceError, match=r"could not stand in.*wikidata_query"):
        await world().ask("dbpedia_query", sparql="SELECT ?c { ?c a dbo:City } LIMIT 5")
    assert {seen.path for seen in wire.seen} == {HERE}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * { dbr:Ada_Lovelace ?p ?o }", "<https://en.wikipedia.org/wiki/Ada_Lovelace>"),
        ("SELECT * { <http://dbpedia.org/resource/AC/DC> ?p ?o }", "<https://en.wikipedia.org/wiki/AC/DC>"),
        ("DESCRIBE <http://dbpedia.org/resource/%C5%81%C3%B3d%C5%BA>", "wiki/%C5%81%C3%B3d%C5%BA>"),
        ("SELECT * { dbr:Java_(language) ?p ?o }", "wiki/Java_(language)>"),
        ('SELECT * { ?x rdfs:label "Ada Lovelace"@en ; dbo:birthDate ?b }', '"Ada Lovelace"@en .'),
        ("SELECT ?l { ?x rdfs:label ?l } LIMIT 1", "SELECT ?l { ?x rdfs:label ?l } LIMIT 1"),
    ],
)
def test_a_query_is_translated_by_the_thing_it_is_about(query: str, expected: str) -> None:
    translated, about = translate(query)
    assert translated is not None
    assert expected in translated
    assert about


def test_a_resource_cannot_smuggle_sparql_into_the_translation() -> None:
    translated, _ = translate(
        "SELECT * { <http://dbpedia.org/resource/x%3E%20%3Fa%20%3Fb%20.%20%3Chttp://y> ?p ?o }"
    )
    assert translated is not None
    assert "> ?a ?b" not in translated
