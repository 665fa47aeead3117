"""Wolfram|Alpha: computed answers, short or in full. Needs a key."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote_plus

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, make_tool, result
from retinue.tools.knowledge.sources import SOURCES
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "Wolfram|Alpha"
MOST = 6000


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def wolfram_query(query: str, mode: Literal["short", "full"] = "short") -> ToolResult:
        return await ask(knowledge, query, mode)

    return [make_tool(knowledge, wolfram_query, needs="wolfram")]


async def ask(knowledge: KnowledgeClient, query: str, mode: str) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give a computation or a question with a computable answer")
    request = _short(knowledge, query) if mode == "short" else _full(knowledge, query)

    def parse(answer: SourceResponse) -> str:
        return read(answer, query, mode)

    text, answer = await knowledge.ask(request, parse)
    page = f"https://www.wolframalpha.com/input?i={quote_plus(query)}"
    return result(f"{LABEL}, {mode} answer", [Item(title=query, text=text, url=page)], answer, most=MOST)


def _short(knowledge: KnowledgeClient, query: str) -> Request:
    return Request(
        source="wolfram",
        url=f"{knowledge.base('wolfram')}/v1/result",
        params={"i": query, "units": "metric", "timeout": "15"},
        secret_params={"appid": knowledge.required_key("wolfram")},
        handles=frozenset({400, 403, 501}),
    )


def _full(knowledge: KnowledgeClient, query: str) -> Request:
    return Request(
        source="wolfram_llm",
        url=f"{knowledge.base('wolfram_llm')}/api/v1/llm-api",
        params={"input": query, "maxchars": str(MOST), "units": "metric"},
        secret_headers={"Authorization": f"Bearer {knowledge.required_key('wolfram')}"},
        handles=frozenset({400, 403, 501}),
    )


def read(answer: SourceResponse, query: str, mode: str) -> str:
    text = answer.text.strip()
    info = SOURCES["wolfram"]
    # A bad key is 403, or 200 with «Error 1: Invalid appid»: only the body tells.
    if answer.status == 403 or re.match(r"Error \d+: .*appid", text, re.IGNORECASE):
        raise causes.key_rejected(LABEL, info.key, info.get_key)
    if answer.status == 501:
        raise _not_understood(text, query, mode)
    if answer.status == 400 or text.startswith("Error "):
        raise causes.bad_query(LABEL, text)
    if "json" in answer.headers.get("content-type", "") or re.match(r"<[?!a-zA-Z]", text):
        raise causes.no_answer(LABEL, "markup", answer.start)  # its answers are plain text
    if not text:
        raise causes.no_result(LABEL, query, "Ask for one computable fact, in English.")
    return text


def _not_understood(text: str, query: str, mode: str) -> causes.SourceError:
    if mode == "short" and "no short answer" in text.lower():
        return causes.SourceError(
            f"{LABEL} has no short answer for {query!r}: ask again with mode='full'.", cause="no_result"
        )
    return causes.SourceError(
        f"{LABEL} did not understand {query!r}. Ask for one computable fact, in plain English.",
        cause="no_result",
        said=text,
    )
