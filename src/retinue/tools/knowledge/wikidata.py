"""Wikidata: search for entities, and SPARQL over its graph.

Scholarly articles live in a graph of their own, at another address: a query about them is sent there.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Struct
from pydantic import Field

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes, mediawiki, prefixes, sparql
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result, sources
from retinue.tools.knowledge.sources import SOURCES
from retinue.tools.knowledge.wikipedia import checked
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "Wikidata"
ENTITIES = "www.wikidata.org"
SCHOLARLY = "Q13442814"


class _Match(Struct, frozen=True):
    type: str = ""
    text: str = ""


class _Entity(Struct, frozen=True):
    """`description` may be absent, `url` may lack its scheme."""

    id: str
    label: str = ""
    description: str = ""
    url: str = ""
    concepturi: str = ""
    match: _Match = _Match()


class _Search(Struct, frozen=True):
    search: list[_Entity]
    more: int | None = msgspec.field(name="search-continue", default=None)


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def wikidata_search(
        query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5, lang: str = "en"
    ) -> ToolResult:
        return await search(knowledge, query, limit, checked(lang))

    async def wikidata_query(sparql: str) -> ToolResult:
        return await query(knowledge, sparql)

    return [make_tool(knowledge, wikidata_search), make_tool(knowledge, wikidata_query)]


async def search(knowledge: KnowledgeClient, query: str, limit: int, lang: str) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give the name of a thing")
    base = knowledge.base("wikidata")
    request = Request(
        source="wikidata",
        url=base if base.endswith("api.php") else f"{base}/w/api.php",
        params={
            "action": "wbsearchentities",
            "search": query,
            "language": lang,
            "uselang": lang,
            "limit": str(limit),
            "format": "json",
            "formatversion": "2",
            "maxlag": "5",
        },
    )

    def parse(answer: SourceResponse) -> _Search:
        found = mediawiki.decode(answer, _Search, LABEL)
        if not found.search:
            raise causes.no_result(LABEL, query, "Try a shorter name, or another language with lang.")
        return found

    found, answer = await knowledge.ask(request, parse)
    items = [_item(entity) for entity in found.search]
    notes = ["There are more results: raise limit to see them."] if found.more is not None else []
    return result(f"{LABEL}, search for {query!r}: {len(items)} results", items, answer, notes=notes)


def _item(entity: _Entity) -> Item:
    alias = entity.match.text if entity.match.type == "alias" else ""
    url = entity.url or entity.concepturi
    return Item(
        title=f"{entity.id} {entity.label}".rstrip(),
        text=entity.description,
        url=f"https:{url}" if url.startswith("//") else url or f"https://www.wikidata.org/wiki/{entity.id}",
        extra=facts(also_known_as=alias),
        also=(entity.concepturi or f"http://www.wikidata.org/entity/{entity.id}",),
        listed=True,
    )


async def query(knowledge: KnowledgeClient, text: str) -> ToolResult:
    if not text.strip():
        raise ToolError("sparql is empty: give a SPARQL query")
    source = "wikidata_scholarly" if re.search(rf"\b{SCHOLARLY}\b", text) else "wikidata_sparql"
    table, answer = await run(knowledge, text, source, knowledge.deadline())
    notes = ["answered by the graph of scholarly articles, which holds nothing else."] * (
        source == "wikidata_scholarly"
    )
    return tabled(knowledge, table, answer, text, source, notes)


async def run(
    knowledge: KnowledgeClient, text: str, source: str, deadline: float
) -> tuple[sparql.QueryResult, SourceResponse]:
    """A query to one of Wikidata's graphs. Also how DBpedia's questions are answered when it is down."""
    label = SOURCES[source].label

    def parse(answer: SourceResponse) -> sparql.QueryResult:
        table = sparql.parse(answer, label)
        if table.empty:
            raise causes.SourceError(
                f"{label} found no rows for this query. Check ids and properties with wikidata_search, "
                "and that every triple must hold at once: use OPTIONAL where one may be missing.",
                cause="no_result",
            )
        return table

    request = Request(
        source=source,
        url=knowledge.base(source),
        form={"query": prefixes.declared(text, prefixes.WIKIDATA)},
        headers={"Accept": sparql.ACCEPT},
        handles=frozenset({400, 500}),
    )
    return await knowledge.ask(request, parse, deadline=deadline)


def tabled(
    knowledge: KnowledgeClient,
    table: sparql.QueryResult,
    answer: SourceResponse,
    text: str,
    source: str,
    notes: list[str],
) -> ToolResult:
    """A table as a tool result, cited by the entities in it, or by the query itself."""
    base = knowledge.base(source).removesuffix("/sparql").removesuffix("/query")
    address = f"{base}/#{quote(text, safe='')}"
    items = sparql.items(table, address, ENTITIES) or [Item(title="SPARQL query", url=address)]
    head = f"{SOURCES[source].label}: {max(len(table.rows), len(table.triples), 1)} rows"
    return ToolResult(text=sparql.render(table, head, notes), sources=sources(items, answer))
