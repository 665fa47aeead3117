"""Hacker News: stories by Algolia's index. Off unless `knowledge.extra` names it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from pydantic import Field

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import line, plain
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "Hacker News"


class _Hit(Struct, frozen=True):
    objectID: str
    title: str | None = None
    url: str | None = None
    author: str | None = None
    points: int | None = None
    num_comments: int | None = None
    created_at: str | None = None
    story_text: str | None = None


class _Found(Struct, frozen=True):
    hits: list[_Hit]
    nbHits: int = 0


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def hackernews_search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5) -> ToolResult:
        return await search(knowledge, query, limit)

    return [make_tool(knowledge, hackernews_search)]


async def search(knowledge: KnowledgeClient, query: str, limit: int) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give words of a story's title")
    request = Request(
        source="hackernews",
        url=f"{knowledge.base('hackernews')}/search",
        params={"query": query, "tags": "story", "hitsPerPage": str(limit)},
    )

    def parse(answer: SourceResponse) -> _Found:
        found = answer.json(_Found, LABEL)
        if not found.hits:
            raise causes.no_result(LABEL, query)
        return found

    found, answer = await knowledge.ask(request, parse)
    items = [_item(hit) for hit in found.hits]
    return result(f"{LABEL}, {query!r}: {len(items)} of {found.nbHits} stories", items, answer)


def _item(hit: _Hit) -> Item:
    return Item(
        title=line(hit.title or "(no title)"),
        text=plain(hit.story_text or ""),
        listed=not hit.story_text,
        url=f"https://news.ycombinator.com/item?id={hit.objectID}",
        date=(hit.created_at or "")[:10] or None,
        extra=facts(link=hit.url, points=hit.points, comments=hit.num_comments, by=hit.author),
    )
