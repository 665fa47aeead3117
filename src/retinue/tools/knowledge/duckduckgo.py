"""DuckDuckGo's instant answers: an abstract, a direct answer, related topics. Not a web search.

No answer here says nothing about the web, and the error says that.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote_plus, urljoin

from msgspec import Struct

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import line
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, make_tool, result
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "DuckDuckGo"
SITE = "https://duckduckgo.com"
TOPICS = 8
FACTS = 12


class _Topic(Struct, frozen=True):
    """A topic, or a group of them: then only `Name` and `Topics` are there."""

    Text: str = ""
    FirstURL: str = ""
    Name: str = ""
    Topics: list[_Topic] = []


class _Instant(Struct, frozen=True):
    """`Answer` and `Infobox` are "" or an object. Topics are always there, if only as an empty list."""

    RelatedTopics: list[_Topic]
    Heading: str = ""
    AbstractText: str = ""
    AbstractURL: str = ""
    AbstractSource: str = ""
    Answer: Any = ""
    Definition: str = ""
    DefinitionURL: str = ""
    DefinitionSource: str = ""
    Redirect: str = ""
    Infobox: Any = ""
    Results: list[_Topic] = []


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def duckduckgo(query: str) -> ToolResult:
        return await ask(knowledge, query)

    return [make_tool(knowledge, duckduckgo)]


async def ask(knowledge: KnowledgeClient, query: str) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give a name or a short question")
    request = Request(
        source="duckduckgo",
        url=f"{knowledge.base('duckduckgo')}/",
        params={
            "q": query,
            "format": "json",
            "no_html": "1",
            "skip_disambig": "1",
            "no_redirect": "1",
            "t": "retinue",
        },
    )

    def parse(answer: SourceResponse) -> list[Item]:
        if not answer.body.strip():
            # 202 with a body is an answer; without one it is how the service says «too many».
            raise causes.rate_limited(LABEL, answer.retry_after)
        items = found(answer.json(_Instant, LABEL), query)
        if not items:
            raise causes.no_result(
                LABEL,
                query,
                "It gives instant answers only: this does not mean the web has nothing. Use web_search.",
            )
        return items

    items, answer = await knowledge.ask(request, parse)
    return result(f"{LABEL}, instant answer for {query!r}", items, answer)


def found(instant: _Instant, query: str) -> list[Item]:
    items: list[Item] = []
    here = f"{SITE}/?q={quote_plus(query)}"
    direct = line(instant.Answer) if isinstance(instant.Answer, str) else ""
    if direct:
        items.append(Item(title="Answer", text=direct, url=here))
    if instant.AbstractText:
        source = (
            f"{instant.Heading} ({instant.AbstractSource})" if instant.AbstractSource else instant.Heading
        )
        items.append(
            Item(
                title=source or query,
                text=line(instant.AbstractText),
                url=_absolute(instant.AbstractURL) or here,
                extra=_infobox(instant.Infobox),
            )
        )
    if instant.Definition:
        title = f"Definition ({instant.DefinitionSource})"
        items.append(
            Item(title=title, text=line(instant.Definition), url=_absolute(instant.DefinitionURL) or here)
        )
    if instant.Redirect:
        # Made of the query ("!bang words"), by nobody: it is shown, and is no address that was found.
        items.append(Item(title="Leads to", text=_absolute(instant.Redirect) or ""))
    items += [_topic("Official site", topic) for topic in instant.Results if topic.FirstURL]
    flat = [*_flat(instant.RelatedTopics)]
    return items + [_topic("", topic) for topic in flat[:TOPICS]]


def _flat(topics: list[_Topic]) -> list[_Topic]:
    """Topics and groups of topics as topics."""
    return [
        leaf for topic in topics for leaf in (_flat(topic.Topics) if topic.Topics else [topic]) if leaf.Text
    ]


def _topic(title: str, topic: _Topic) -> Item:
    text = line(topic.Text)
    head, _, rest = text.partition(" - ")
    return Item(title=title or head, text=text if title else rest, url=_absolute(topic.FirstURL), listed=True)


def _absolute(url: str) -> str | None:
    return urljoin(SITE, url) if url else None


def _infobox(box: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(box, dict):
        return ()
    facts: list[tuple[str, str]] = []
    for entry in cast("dict[str, list[Any]]", box).get("content") or []:
        if not isinstance(entry, dict):
            continue
        row = cast("dict[str, Any]", entry)
        if row.get("label") and isinstance(row.get("value"), str | int | float):
            facts.append((str(row["label"]), line(str(row["value"]))))
    return tuple(facts[:FACTS])
