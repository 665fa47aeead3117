"""OpenAlex: works of all fields, with abstracts put together from an index. Needs a key.

Off unless `knowledge.extra` names it.
"""

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

LABEL = "OpenAlex"
AUTHORS = 8
WORDS = 1000


class _Person(Struct, frozen=True):
    display_name: str | None = None


class _Authorship(Struct, frozen=True):
    author: _Person = _Person()


class _Place(Struct, frozen=True):
    display_name: str | None = None


class _Location(Struct, frozen=True):
    landing_page_url: str | None = None
    pdf_url: str | None = None
    source: _Place | None = None


class _Work(Struct, frozen=True):
    id: str
    display_name: str | None = None
    doi: str | None = None
    publication_date: str | None = None
    cited_by_count: int = 0
    authorships: list[_Authorship] = []
    primary_location: _Location | None = None
    abstract_inverted_index: dict[str, list[int]] | None = None


class _Meta(Struct, frozen=True):
    count: int = 0


class _Found(Struct, frozen=True):
    results: list[_Work]
    meta: _Meta = _Meta()


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def openalex_search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5) -> ToolResult:
        return await search(knowledge, query, limit)

    return [make_tool(knowledge, openalex_search, needs="openalex")]


async def search(knowledge: KnowledgeClient, query: str, limit: int) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give words of a title or a topic")
    request = Request(
        source="openalex",
        url=f"{knowledge.base('openalex')}/works",
        params={"search": query, "per_page": str(limit)},
        secret_params={"api_key": knowledge.required_key("openalex")},
    )

    def parse(answer: SourceResponse) -> _Found:
        found = answer.json(_Found, LABEL)
        if not found.results:
            raise causes.no_result(LABEL, query)
        return found

    found, answer = await knowledge.ask(request, parse)
    items = [_item(work) for work in found.results]
    return result(f"{LABEL}, {query!r}: {len(items)} of {found.meta.count} works", items, answer)


def _item(work: _Work) -> Item:
    names = [a.author.display_name or "" for a in work.authorships]
    place = work.primary_location or _Location()
    return Item(
        title=line(work.display_name or "(no title)"),
        text=abstract(work.abstract_inverted_index or {}),
        listed=not work.abstract_inverted_index,
        url=work.doi or place.landing_page_url or work.id,
        date=work.publication_date,
        extra=facts(
            authors=", ".join(names[:AUTHORS]) + (" and others" * (len(names) > AUTHORS)),
            published_in=place.source.display_name if place.source else None,
            cited_by=work.cited_by_count,
            pdf=place.pdf_url,
        ),
        also=(work.id, place.landing_page_url or "", place.pdf_url or ""),
    )


def abstract(index: dict[str, list[int]]) -> str:
    """The text that an index of words and their places was made from."""
    placed = sorted((place, word) for word, places in index.items() for place in places)
    return line(" ".join(word for _, word in placed[:WORDS]))
