"""Wikipedia, and any other MediaWiki at `knowledge.base_urls["wikipedia"]`: search and summaries.

A wiki without Wikipedia's summary service gets its summaries from the plain API. An address that ends in
`api.php` is taken as that API, for wikis that keep it elsewhere than under `/w`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Struct
from pydantic import Field

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes, mediawiki
from retinue.tools.knowledge.clean import line, plain, snippet
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "Wikipedia"


class _Hit(Struct, frozen=True):
    title: str
    snippet: str = ""
    timestamp: str = ""


class _SearchInfo(Struct, frozen=True):
    totalhits: int | None = None
    suggestion: str = ""


class _Query(Struct, frozen=True):
    search: list[_Hit]
    searchinfo: _SearchInfo = _SearchInfo()


class _Search(Struct, frozen=True):
    query: _Query
    warnings: Any = None


class _Link(Struct, frozen=True):
    page: str = ""


class _Links(Struct, frozen=True):
    desktop: _Link = _Link()


class _Summary(Struct, frozen=True):
    """`content_urls` came late, and its `mobile` half is optional; older answers lack `type` too."""

    title: str
    extract: str = ""
    type: str = "standard"
    description: str = ""
    timestamp: str = ""
    content_urls: _Links = _Links()


class WikipediaPage(Struct, frozen=True, kw_only=True):
    """A page as both ways of asking give it."""

    title: str
    extract: str
    url: str
    type: str = "standard"
    description: str = ""
    date: str = ""


class Elsewhere(Exception):
    """This wiki has no summary service."""


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    bare: set[str] = set()

    async def wiki_search(
        query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5, lang: str = "en"
    ) -> ToolResult:
        return await search(knowledge, query, limit, checked(lang))

    async def wiki_summary(title: str, lang: str = "en") -> ToolResult:
        return await summary(knowledge, title, checked(lang), bare)

    return [make_tool(knowledge, wiki_search), make_tool(knowledge, wiki_summary)]


async def search(knowledge: KnowledgeClient, query: str, limit: int, lang: str) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give words to search for")

    def parse(answer: SourceResponse) -> _Search:
        found = mediawiki.decode(answer, _Search, LABEL)
        if not found.query.search:
            hint = found.query.searchinfo.suggestion
            advice = "Did you mean this?" if hint else "Try fewer or other words."
            raise causes.no_result(LABEL, query, advice, said=hint)
        return found

    found, answer = await knowledge.ask(search_request(knowledge, query, limit, lang), parse)
    items = [
        Item(
            title=hit.title,
            text=snippet(hit.snippet),
            url=page_url(knowledge, hit.title, lang),
            date=hit.timestamp[:10] or None,
            listed=True,
        )
        for hit in found.query.search
    ]
    total = found.query.searchinfo.totalhits
    count = f"{len(items)} of {total}" if total is not None else str(len(items))
    said = [f"The wiki warns: {text}" for text in mediawiki.warnings(found.warnings)]
    return result(f"{LABEL} ({lang}), search for {query!r}: {count} results", items, answer, said=said)


def search_request(
    knowledge: KnowledgeClient, query: str, limit: int, lang: str = "en", maxlag: int = 5
) -> Request:
    return Request(
        source="wikipedia",
        url=api(knowledge, lang),
        params={
            "action": "query",
            "list": "search",
            "srsearch": query,
            "srlimit": str(limit),
            "format": "json",
            "formatversion": "2",
            "maxlag": str(maxlag),
        },
    )


async def summary(knowledge: KnowledgeClient, title: str, lang: str, bare: set[str]) -> ToolResult:
    """`bare` remembers the wikis that turned out to have no summary service."""
    title = " ".join(title.replace("_", " ").split())
    if not title:
        raise ToolError("title is empty: give the title of a page; wiki_search finds titles")
    deadline = knowledge.deadline()
    base = knowledge.base("wikipedia", lang)
    notes: list[str] = []
    try:
        if base in bare or base.endswith("api.php"):
            raise Elsewhere
        page, answer = await knowledge.ask(
            _summary_request(base, title), lambda a: _parse_summary(a, title, base), deadline=deadline
        )
    except Elsewhere:
        bare.add(base)
        page, answer = await knowledge.ask(
            extract_request(knowledge, title, lang, intro=True),
            lambda a: _parse_extract(a, title),
            deadline=deadline,
        )
    if page.type == "disambiguation":
        notes.append("This title stands for several pages. Choose one and ask for its summary.")
        page, answer = await knowledge.ask(
            extract_request(knowledge, page.title, lang, intro=False),
            lambda a: _parse_extract(a, title),
            deadline=deadline,
        )
    moved = page.title.casefold() != title.casefold()
    said = [f"{title!r} led to {page.title!r}."] if moved else []
    item = Item(
        title=page.title,
        text=page.extract or "(this page has no summary text; fetch the page itself)",
        url=page.url,
        date=page.date or None,
        extra=facts(description=page.description),
        also=(page_url(knowledge, title, lang),),
    )
    return result(f"{LABEL} ({lang}), summary", [item], answer, said=said, notes=notes, most=6000)


def _summary_request(base: str, title: str) -> Request:
    path = quote(title.replace(" ", "_"), safe="")
    return Request(
        source="wikipedia",
        url=f"{base}/api/rest_v1/page/summary/{path}",
        headers={"Accept": "application/json"},
        handles=frozenset({400, 404}),
        or_page=True,
    )


def _parse_summary(answer: SourceResponse, title: str, base: str) -> WikipediaPage:
    if answer.status in (400, 404):
        if _knows_pages(answer):
            raise causes.no_result(LABEL, title, "wiki_search finds the right title.")
        raise Elsewhere
    if "json" not in answer.headers.get("content-type", ""):
        raise Elsewhere
    found = answer.json(_Summary, LABEL)
    return WikipediaPage(
        title=line(found.title),
        extract="" if found.type == "no-extract" else found.extract.strip(),
        url=found.content_urls.desktop.page or f"{base}/wiki/{quote(found.title.replace(' ', '_'))}",
        type=found.type,
        description=found.description,
        date=found.timestamp[:10],
    )


def _knows_pages(answer: SourceResponse) -> bool:
    """Whether a 404 comes from a summary service that knows the title is wrong, or from none at all."""
    if "json" not in answer.headers.get("content-type", ""):
        return False
    text = answer.text
    return not re.search(r"rest-no-match|did not match any known handler|Cannot GET", text)


def extract_request(knowledge: KnowledgeClient, title: str, lang: str, *, intro: bool) -> Request:
    params = {
        "action": "query",
        "prop": "extracts|info|pageprops",
        "inprop": "url",
        "ppprop": "disambiguation",
        "explaintext": "1",
        "titles": title,
        "redirects": "1",
        "format": "json",
        "formatversion": "2",
        "maxlag": "5",
    }
    if intro:
        params["exintro"] = "1"
    return Request(source="wikipedia", url=api(knowledge, lang), params=params)


def _parse_extract(answer: SourceResponse, title: str) -> WikipediaPage:
    found = mediawiki.decode(answer, mediawiki.PagesReply, LABEL)
    page = found.query.first
    if page is not None and page.invalid not in (None, False):
        raise causes.bad_query(LABEL, page.invalidreason, detail=f"{title!r} is not a title")
    if page is None or page.missing not in (None, False):
        raise causes.no_result(LABEL, title, "wiki_search finds the right title.")
    return WikipediaPage(
        title=page.title,
        extract=plain(page.extract or ""),
        url=page.canonicalurl or page.fullurl,
        type="disambiguation" if "disambiguation" in page.pageprops else "standard",
        date=page.touched[:10],
    )


def api(knowledge: KnowledgeClient, lang: str) -> str:
    base = knowledge.base("wikipedia", lang)
    return base if base.endswith("api.php") else f"{base}/w/api.php"


def page_url(knowledge: KnowledgeClient, title: str, lang: str) -> str:
    name = quote(title.replace(" ", "_"), safe="/:(),!'*")
    if knowledge.is_usual("wikipedia"):
        return f"{knowledge.base('wikipedia', lang)}/wiki/{name}"
    script = api(knowledge, lang).removesuffix("api.php")
    return f"{script}index.php?title={quote(title.replace(' ', '_'), safe='')}"  # works on every wiki


def checked(lang: str) -> str:
    """A language that may become part of a host name. Models leave it empty where they mean the default."""
    lang = lang.strip().lower() or "en"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", lang) or len(lang) > 20:
        raise ToolError(f"lang is {lang!r}: give the code of a Wikipedia, for example 'en', 'de', 'zh-yue'")
    return lang
