"""DBpedia: SPARQL over facts taken from Wikipedia, answered by Wikidata when DBpedia cannot.

The two graphs share no vocabulary, so a query is not simply sent on. A resource of DBpedia is the title of
a page of the English Wikipedia, and Wikidata knows which of its items that page is about: the fallback
gives that item's facts. It says so, and a query that names no resource is not guessed at.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes, prefixes, sparql, wikidata
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, make_tool, sources
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "DBpedia"
RESOURCES = "dbpedia.org"
FACTS = 60
_RESOURCE = re.compile(r"<https?://dbpedia\.org/resource/([^>\s]+)>|\bdbr:([^\s;,.{}()<>|]+(?:\([^\s)]*\))?)")
_LABEL = re.compile(r'"([^"\\\n]{2,100})"@([a-z-]{2,12})')
_VOCABULARY = re.compile(r"dbpedia\.org|\b(?:dbo|dbp|dbr|dbc|dbpedia|dbpedia-owl|dbpprop):", re.IGNORECASE)


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def dbpedia_query(sparql: str) -> ToolResult:
        return await query(knowledge, sparql)

    return [make_tool(knowledge, dbpedia_query)]


async def query(knowledge: KnowledgeClient, text: str) -> ToolResult:
    if not text.strip():
        raise ToolError("sparql is empty: give a SPARQL query")
    deadline = knowledge.deadline()
    try:
        table, answer = await knowledge.ask(
            _request(knowledge, text), _parse, deadline=deadline, keep=lambda table: not table.partial
        )
    except causes.SourceError as failure:
        if failure.cause not in ("down", "timeout", "rate_limited"):
            raise
        return await instead(knowledge, text, failure, deadline)
    address = f"{knowledge.base('dbpedia')}?query={quote(text, safe='')}"
    items = sparql.items(table, address, RESOURCES) or [Item(title="SPARQL query", url=address)]
    head = f"{LABEL}: {max(len(table.rows), len(table.triples), 1)} rows"
    return ToolResult(text=sparql.render(table, head, []), sources=sources(items, answer))


def _request(knowledge: KnowledgeClient, text: str) -> Request:
    most = min(15.0, knowledge.settings.request_timeout / 2)  # the other half is for the fallback
    return Request(
        source="dbpedia",
        url=knowledge.base("dbpedia"),
        form={
            "query": prefixes.declared(text, prefixes.DBPEDIA),
            "default-graph-uri": "http://dbpedia.org",
            "timeout": str(int(most * 900)),  # milliseconds, a little before we stop waiting
        },
        headers={"Accept": sparql.ACCEPT},
        handles=frozenset({400, 500}),
        timeout=most,
    )


def _parse(answer: SourceResponse) -> sparql.QueryResult:
    table = sparql.parse(answer, LABEL)
    if table.empty and table.partial:
        raise causes.SourceError(
            f"{LABEL} found nothing before its time limit. {table.partial}", cause="timeout"
        )
    if table.empty:
        raise causes.SourceError(
            f"{LABEL} found no rows for this query. Resources are titles of the English Wikipedia with "
            "underscores (dbr:Alan_Turing), properties are dbo: or dbp:; OPTIONAL is for what may be absent.",
            cause="no_result",
        )
    return table


async def instead(
    knowledge: KnowledgeClient, text: str, failure: causes.SourceError, deadline: float
) -> ToolResult:
    """What Wikidata knows of the thing the query is about."""
    asked, about = translate(text)
    if asked is None:
        raise causes.SourceError(
            f"{failure} Wikidata could not stand in: the query uses DBpedia's vocabulary and names no "
            "resource. Write it for Wikidata and use wikidata_query.",
            cause=failure.cause,
        ) from None
    try:
        table, answer = await wikidata.run(knowledge, asked, "wikidata_sparql", deadline)
    except causes.SourceError as second:
        raise causes.SourceError(
            f"{failure} Wikidata was asked instead: {second}", cause=second.cause
        ) from None
    why = failure.cause.replace("_", " ")
    said = f"DBpedia did not answer ({why}), so this is from Wikidata instead: {about}."
    return wikidata.tabled(knowledge, table, answer, asked, "wikidata_sparql", [said])


def translate(text: str) -> tuple[str | None, str]:
    """A query for Wikidata, and what it asks for. None if there is no honest translation."""
    resource = _RESOURCE.search(text)
    if resource:
        title = unquote(resource[1] or resource[2])
        page = "https://en.wikipedia.org/wiki/" + quote(title, safe="/:(),!'*")
        start = f"<{page}> <http://schema.org/about> ?item ."
        return _facts(start), f"the facts of the item about {title.replace('_', ' ')!r}"
    label = _LABEL.search(text)
    if label and _VOCABULARY.search(text):
        start = f'?item <http://www.w3.org/2000/01/rdf-schema#label> "{label[1]}"@{label[2]} .'
        return _facts(start), f"the facts of items named {label[1]!r}"
    if _VOCABULARY.search(text):
        return None, ""
    return text, "the same query"


def _facts(start: str) -> str:
    """Portable SPARQL: labels by `rdfs:label` and `FILTER`, no service of one backend."""
    return f"""PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX wikibase: <http://wikiba.se/ontology#>
SELECT ?item ?property ?value WHERE {{
  {start}
  ?item ?direct ?v .
  ?p wikibase:directClaim ?direct ; rdfs:label ?property .
  FILTER(LANG(?property) = "en")
  OPTIONAL {{ ?v rdfs:label ?named . FILTER(LANG(?named) = "en") }}
  BIND(COALESCE(?named, STR(?v)) AS ?value)
}} LIMIT {FACTS}"""
