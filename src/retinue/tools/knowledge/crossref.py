"""Crossref: works that have a DOI. Off unless `knowledge.extra` names it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct
from pydantic import Field

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import line
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "Crossref"
AUTHORS = 8


class _Author(Struct, frozen=True):
    given: str = ""
    family: str = ""
    name: str = ""


class _Issued(Struct, frozen=True):
    """Year, month, day: as many as are known, and `[[null]]` when none is."""

    parts: list[list[int | None]] = msgspec.field(name="date-parts", default_factory=list[list[int | None]])


class _Work(Struct, frozen=True):
    DOI: str
    title: list[str] = []
    author: list[_Author] = []
    issued: _Issued = _Issued()
    journal: list[str] = msgspec.field(name="container-title", default_factory=list[str])
    abstract: str = ""
    cited: int = msgspec.field(name="is-referenced-by-count", default=0)
    type: str = ""


class _Message(Struct, frozen=True):
    items: list[_Work]
    total: int = msgspec.field(name="total-results", default=0)


class _Found(Struct, frozen=True):
    message: _Message


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def crossref_search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5) -> ToolResult:
        return await search(knowledge, query, limit)

    return [make_tool(knowledge, crossref_search)]


async def search(knowledge: KnowledgeClient, query: str, limit: int) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give a title, an author, a topic")
    params = {"query": query, "rows": str(limit)}
    if "@" in knowledge.contact:
        params["mailto"] = knowledge.contact.removeprefix("mailto:")
    request = Request(source="crossref", url=f"{knowledge.base('crossref')}/works", params=params)

    def parse(answer: SourceResponse) -> _Message:
        found = answer.json(_Found, LABEL).message
        if not found.items:
            raise causes.no_result(LABEL, query)
        return found

    found, answer = await knowledge.ask(request, parse)
    items = [_item(work) for work in found.items]
    return result(f"{LABEL}, {query!r}: {len(items)} of {found.total} works", items, answer)


def _item(work: _Work) -> Item:
    names = [line(f"{a.given} {a.family}" if a.family else a.name) for a in work.author]
    day = "-".join(f"{part:02d}" for part in (work.issued.parts or [[]])[0] if part is not None)
    return Item(
        title=line(work.title[0]) if work.title else work.DOI,
        text=line(work.abstract),
        listed=not work.abstract,
        url=f"https://doi.org/{work.DOI}",
        date=day or None,
        extra=facts(
            authors=", ".join(names[:AUTHORS]) + (" and others" * (len(names) > AUTHORS)),
            published_in=line(work.journal[0]) if work.journal else "",
            type=work.type.replace("-", " "),
            cited_by=work.cited,
        ),
    )
