"""PubMed: biomedical articles with abstracts. Off unless `knowledge.extra` names it.

Two requests: one finds ids, one fetches the articles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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

LABEL = "PubMed"
AUTHORS = 8


class _Ids(Struct, frozen=True):
    count: str = "0"
    idlist: list[str] = []
    ERROR: str = ""


class _Search(Struct, frozen=True):
    esearchresult: _Ids | None = None
    error: str = ""


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def pubmed_search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5) -> ToolResult:
        return await search(knowledge, query, limit)

    return [make_tool(knowledge, pubmed_search)]


async def search(knowledge: KnowledgeClient, query: str, limit: int) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give words, or PubMed's own query syntax")
    deadline = knowledge.deadline()

    def parse(answer: SourceResponse) -> _Ids:
        found = answer.json(_Search, LABEL)
        if found.error:
            raise causes.rate_limited(LABEL, answer.retry_after)  # «API rate limit exceeded», its only use
        if found.esearchresult is None:
            raise causes.no_answer(LABEL, "some other JSON", answer.start)
        if found.esearchresult.ERROR:
            raise causes.bad_query(LABEL, found.esearchresult.ERROR)
        if not found.esearchresult.idlist:
            raise causes.no_result(LABEL, query)
        return found.esearchresult

    params = {"term": query, "retmax": str(limit), "retmode": "json", "sort": "relevance"}
    found, _ = await knowledge.ask(_request(knowledge, "esearch", params), parse, deadline=deadline)
    items, answer = await knowledge.ask(
        _request(knowledge, "efetch", {"id": ",".join(found.idlist), "retmode": "xml"}),
        articles,
        deadline=deadline,
    )
    return result(f"{LABEL}, {query!r}: {len(items)} of {found.count} articles", items, answer)


def _request(knowledge: KnowledgeClient, program: str, params: dict[str, str]) -> Request:
    key = knowledge.key("pubmed")
    email = {"email": knowledge.contact} if "@" in knowledge.contact else {}
    return Request(
        source="pubmed",
        url=f"{knowledge.base('pubmed')}/{program}.fcgi",
        params={"db": "pubmed", "tool": "retinue", **email, **params},
        secret_params={"api_key": key} if key else {},
    )


def articles(answer: SourceResponse) -> list[Item]:
    root = parse_xml(answer, LABEL, "PubmedArticleSet")
    found = [_item(article) for article in root.findall("PubmedArticle")]
    if not found:
        raise causes.SourceError(
            f"{LABEL} gave none of the articles that it had found. Try again later.",
            cause="empty_page",
            again=True,
        )
    return found


def _item(article: Element) -> Item:
    number = _text(article.find("MedlineCitation/PMID"))
    body = article.find("MedlineCitation/Article")
    names = [
        f"{_text(author.find('LastName'))} {_text(author.find('Initials'))}".strip()
        or _text(author.find("CollectiveName"))
        for author in article.findall("MedlineCitation/Article/AuthorList/Author")
    ]
    doi = next((_text(i) for i in article.iter("ArticleId") if i.get("IdType") == "doi"), "")
    abstract: list[str] = []
    for part in article.iter("AbstractText"):
        label = part.get("Label")
        abstract.append(f"{label}: {_text(part)}" if label else _text(part))
    year = article.find("MedlineCitation/Article/Journal/JournalIssue/PubDate/Year")
    return Item(
        title=_text(None if body is None else body.find("ArticleTitle")) or f"PMID {number}",
        text=" ".join(abstract),
        listed=not any(abstract),
        url=f"https://pubmed.ncbi.nlm.nih.gov/{number}/",
        date=_text(year) or None,
        extra=facts(
            authors=", ".join(names[:AUTHORS]) + (" and others" * (len(names) > AUTHORS)),
            published_in=_text(None if body is None else body.find("Journal/Title")),
            doi=doi,
        ),
        also=(f"https://doi.org/{doi}" if doi else "",),
    )


def _text(element: Element | None) -> str:
    """All text within, markup such as <i> left out."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
