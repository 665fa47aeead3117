"""Semantic Scholar: papers with citation counts. Off unless `knowledge.extra` names it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from pydantic import Field

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import line
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "Semantic Scholar"
FIELDS = "title,abstract,year,publicationDate,authors,url,venue,citationCount,openAccessPdf,externalIds"
AUTHORS = 8


class _Author(Struct, frozen=True):
    name: str = ""


class _Pdf(Struct, frozen=True):
    url: str | None = None


class _Paper(Struct, frozen=True):
    paperId: str
    title: str | None = None
    abstract: str | None = None
    year: int | None = None
    publicationDate: str | None = None
    authors: list[_Author] = []
    url: str | None = None
    venue: str | None = None
    citationCount: int | None = None
    openAccessPdf: _Pdf | None = None
    externalIds: dict[str, str | int] | None = None


class _Found(Struct, frozen=True):
    """`data` is left out when there is nothing."""

    total: int
    data: list[_Paper] = []


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def semantic_scholar_search(
        query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5
    ) -> ToolResult:
        return await search(knowledge, query, limit)

    return [make_tool(knowledge, semantic_scholar_search)]


async def search(knowledge: KnowledgeClient, query: str, limit: int) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give words of a title or a topic")
    key = knowledge.key("semanticscholar")
    request = Request(
        source="semanticscholar",
        url=f"{knowledge.base('semanticscholar')}/graph/v1/paper/search",
        params={"query": query, "limit": str(limit), "fields": FIELDS},
        secret_headers={"x-api-key": key} if key else {},
    )

    def parse(answer: SourceResponse) -> _Found:
        found = answer.json(_Found, LABEL)
        if not found.data:
            raise causes.no_result(LABEL, query, "Use plain words without operators.")
        return found

    found, answer = await knowledge.ask(request, parse)
    items = [_item(paper) for paper in found.data]
    return result(f"{LABEL}, {query!r}: {len(items)} of {found.total} papers", items, answer)


def _item(paper: _Paper) -> Item:
    names = [author.name for author in paper.authors]
    doi = (paper.externalIds or {}).get("DOI")
    pdf = paper.openAccessPdf.url if paper.openAccessPdf else None
    return Item(
        title=line(paper.title or "(no title)"),
        text=line(paper.abstract or ""),
        listed=not paper.abstract,
        url=paper.url or f"https://www.semanticscholar.org/paper/{paper.paperId}",
        date=paper.publicationDate or (str(paper.year) if paper.year else None),
        extra=facts(
            authors=", ".join(names[:AUTHORS]) + (" and others" * (len(names) > AUTHORS)),
            published_in=paper.venue,
            cited_by=paper.citationCount,
            doi=doi,
            pdf=pdf,
        ),
        also=(f"https://doi.org/{doi}" if doi else "", pdf or ""),
    )
