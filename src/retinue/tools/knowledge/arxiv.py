"""arXiv: preprints by search or by id.

Its errors are feeds with one entry called Error, its pages are at times empty without reason, and its
answers are XML from the net: parsed with defusedxml only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct
from pydantic import Field

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result
from retinue.tools.knowledge.wire import Request, SourceResponse
from retinue.tools.knowledge.xml import parse_xml

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

LABEL = "arXiv"
AUTHORS = 10
_ATOM = {
    "a": "http://www.w3.org/2005/Atom",
    "o": "http://a9.com/-/spec/opensearch/1.1/",
    "x": "http://arxiv.org/schemas/atom",
}
_ID = re.compile(r"(?:arxiv:)?((?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?)", re.IGNORECASE)
_FIELDS = re.compile(r"\b(?:ti|au|abs|co|jr|cat|rn|id|all|submittedDate):|\b(?:AND|OR|ANDNOT)\b")
_SMALL = frozenset(
    {
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "by",
        "for",
        "from",
        "in",
        "is",
        "it",
        "of",
        "on",
        "or",
        "the",
        "to",
        "with",
    }
)
_SORT = {"relevance": "relevance", "date": "submittedDate"}


class Feed(Struct, frozen=True, kw_only=True):
    total: int
    items: list[Item]
    ids: frozenset[str]


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def arxiv_search(
        query: str,
        limit: Annotated[int, Field(ge=1, le=50)] = 5,
        sort: Literal["relevance", "date"] = "relevance",
        start: Annotated[int, Field(ge=0)] = 0,
    ) -> ToolResult:
        return await search(knowledge, query, limit, sort, start)

    return [make_tool(knowledge, arxiv_search)]


async def search(knowledge: KnowledgeClient, query: str, limit: int, sort: str, start: int) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give words, a field query like 'au:turing', or arXiv ids")
    ids = only_ids(query)
    params = {
        "search_query": "" if ids else search_query(query),
        "id_list": ",".join(ids),
        "start": str(start),
        "max_results": str(max(limit, len(ids))),
        "sortBy": _SORT[sort],
        "sortOrder": "descending",
    }
    request = Request(source="arxiv", url=knowledge.base("arxiv"), params=params, handles=frozenset({400}))

    def parse(answer: SourceResponse) -> Feed:
        feed = read(answer)
        if feed.items:
            return feed
        if feed.total > start:
            raise causes.SourceError(
                f"{LABEL} gave an empty page although it counts {feed.total} results. Try again later.",
                cause="empty_page",
                again=True,
            )
        if feed.total:
            raise causes.no_result(LABEL, query, f"It has {feed.total} results, and start is {start}.")
        raise causes.no_result(LABEL, query, "Check the ids." if ids else "Try fewer or other words.")

    feed, answer = await knowledge.ask(request, parse)
    missing = [i for i in ids if re.sub(r"v\d+$", "", i) not in feed.ids]
    notes = [f"not found: {', '.join(missing)}."] if missing else []
    if not ids and feed.total > start + len(feed.items):
        notes.append(f"For more, use start={start + len(feed.items)}.")
    head = f"{LABEL}, {query!r}: {len(feed.items)} of {feed.total} papers"
    return result(head, feed.items, answer, notes=notes)


def only_ids(query: str) -> list[str]:
    """The ids in a query that holds nothing else."""
    words = re.split(r"[\s,;]+", query.strip().strip(",;"))
    matches = [_ID.fullmatch(word) for word in words]
    return [match[1] for match in matches if match] if all(matches) else []


def search_query(query: str) -> str:
    """Plain words must all occur, a quoted phrase as such; a query in arXiv's own syntax is left alone."""
    if _FIELDS.search(query):
        return query
    parts: list[str] = re.findall(r'"[^"]+"|[^\s"]+', query)
    words = [p for p in parts if p.startswith('"') or p.lower() not in _SMALL] or parts
    clean = [w if w.startswith('"') else re.sub(r"[^\w.+-]", "", w) for w in words]
    return " AND ".join(f"all:{word}" for word in clean if word.strip("-.+")) or query


def read(answer: SourceResponse) -> Feed:
    root = parse_xml(answer, LABEL, "{http://www.w3.org/2005/Atom}feed")
    entries = root.findall("a:entry", _ATOM)
    for entry in entries:
        if _text(entry, "a:title") == "Error" or "/api/errors" in _text(entry, "a:id"):
            raise causes.bad_query(LABEL, _text(entry, "a:summary"))
    if answer.status == 400:
        raise causes.bad_query(LABEL, answer.start)
    total = _text(root, "o:totalResults")
    return Feed(
        total=int(total) if total.isdecimal() and len(total) < 19 else len(entries),
        items=[_item(entry) for entry in entries],
        ids=frozenset(re.sub(r"v\d+$", "", _paper_id(entry)) for entry in entries),
    )


def _item(entry: Element) -> Item:
    paper = _paper_id(entry)
    authors = [" ".join((name.text or "").split()) for name in entry.findall("a:author/a:name", _ATOM)]
    shown = ", ".join(authors[:AUTHORS]) + (f" and {len(authors) - AUTHORS} more" * (len(authors) > AUTHORS))
    category = entry.find("x:primary_category", _ATOM)
    doi = _text(entry, "x:doi")
    any_version = re.sub(r"v\d+$", "", paper)
    same = [f"https://arxiv.org/{kind}/{name}" for kind in ("abs", "pdf") for name in (paper, any_version)]
    return Item(
        title=_text(entry, "a:title"),
        text=_text(entry, "a:summary"),
        url=f"https://arxiv.org/abs/{paper}",
        date=_text(entry, "a:published")[:10] or None,
        extra=facts(
            authors=shown,
            category="" if category is None else category.get("term", ""),
            published_in=_text(entry, "x:journal_ref"),
            doi=doi,
            comment=_text(entry, "x:comment"),
            pdf=f"https://arxiv.org/pdf/{paper}",
        ),
        listed=not _text(entry, "a:summary"),
        also=(*same[1:], f"https://doi.org/{doi}" if doi else ""),
    )


def _paper_id(entry: Element) -> str:
    return _text(entry, "a:id").rpartition("/abs/")[2]


def _text(element: Element, path: str) -> str:
    return " ".join((element.findtext(path, "", _ATOM) or "").split())
