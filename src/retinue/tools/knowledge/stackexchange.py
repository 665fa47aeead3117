"""Stack Exchange: questions of any of its sites, with their best answers where asked for.

The server may ask that one of its methods be left alone for a while (`backoff`): the lane honours that.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Struct
from pydantic import Field

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import cut, plain, title
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "Stack Exchange"
ANSWER = 2000
QUESTION = 600
FEW = 20


class _Owner(Struct, frozen=True):
    display_name: str = ""


class _Post(Struct, frozen=True):
    """A question or an answer."""

    question_id: int = 0
    title: str = ""
    body: str = ""
    link: str = ""
    score: int = 0
    creation_date: int = 0
    answer_count: int = 0
    accepted_answer_id: int | None = None
    is_accepted: bool = False
    tags: list[str] = []
    owner: _Owner = _Owner()


class _Wrapper(Struct, frozen=True):
    """`given` is None where the answer has no items at all, not even none."""

    given: list[_Post] | None = msgspec.field(name="items", default=None)
    backoff: float | None = None
    quota_remaining: int | None = None
    error_id: int | None = None
    error_name: str = ""
    error_message: str = ""

    @property
    def items(self) -> list[_Post]:
        return self.given or []


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def stackexchange_search(
        query: str,
        site: str = "stackoverflow",
        limit: Annotated[int, Field(ge=1, le=50)] = 5,
        answers: bool = False,
    ) -> ToolResult:
        return await search(knowledge, query, site.strip() or "stackoverflow", limit, answers)

    return [make_tool(knowledge, stackexchange_search)]


async def search(knowledge: KnowledgeClient, query: str, site: str, limit: int, answers: bool) -> ToolResult:
    if not query.strip():
        raise ToolError("query is empty: give words to search for")
    deadline = knowledge.deadline()

    def parse(answer: SourceResponse) -> _Wrapper:
        found = read(answer)
        if not found.items:
            raise causes.no_result(f"{LABEL} ({site})", query, "Try fewer words, or another site.")
        return found

    params = {"q": query, "site": site, "sort": "relevance", "order": "desc", "pagesize": str(limit)}
    request = _request(knowledge, "/search/advanced", params, method="search/advanced")
    found, answer = await knowledge.ask(request, parse, deadline=deadline)
    said: list[str] = []
    notes: list[str] = []
    best: dict[int, _Post] = {}
    if answers and (ids := [post.question_id for post in found.items if post.answer_count]):
        try:
            best = await _best(knowledge, ids, site, deadline)
        except causes.SourceError as error:
            said.append(f"The answers could not be fetched: {error}")
    if found.quota_remaining is not None and found.quota_remaining < FEW:
        notes.append(f"{LABEL} allows {found.quota_remaining} more requests today.")
    items = [_item(post, best.get(post.question_id)) for post in found.items]
    return result(
        f"{LABEL} ({site}), {query!r}: {len(items)} questions",
        items,
        answer,
        said=said,
        notes=notes,
        most=4000,
    )


async def _best(knowledge: KnowledgeClient, ids: list[int], site: str, deadline: float) -> dict[int, _Post]:
    """The accepted answer of each question, else the one with the most votes."""
    params = {"site": site, "sort": "votes", "order": "desc", "pagesize": "100"}
    path = f"/questions/{';'.join(str(i) for i in ids)}/answers"
    request = _request(knowledge, path, params, method="questions/answers")
    found, _ = await knowledge.ask(request, read, deadline=deadline)
    best: dict[int, _Post] = {}
    for post in found.items:
        kept = best.get(post.question_id)
        if kept is None or (post.is_accepted, post.score) > (kept.is_accepted, kept.score):
            best[post.question_id] = post
    return best


def _request(knowledge: KnowledgeClient, path: str, params: dict[str, str], *, method: str) -> Request:
    key = knowledge.key("stackexchange")
    return Request(
        source="stackexchange",
        url=knowledge.base("stackexchange") + path,
        params={**params, "filter": "withbody"},
        secret_params={"key": key} if key else {},
        method=method,
        handles=frozenset({400, 404}),
        pause=lambda answer: answer.json(_Wrapper, LABEL).backoff,
    )


def read(answer: SourceResponse) -> _Wrapper:
    found = answer.json(_Wrapper, LABEL)
    if found.error_id is None and found.given is None:
        raise causes.no_answer(LABEL, "some other JSON", answer.start)
    if found.error_id is None:
        return found
    said = title(found.error_message) or found.error_name
    if found.error_name == "throttle_violation" or found.error_id == 502:
        span = re.search(r"available in (\d+) seconds", found.error_message)
        raise causes.rate_limited(LABEL, float(span[1]) if span else answer.retry_after)
    if found.error_name == "temporarily_unavailable" or found.error_id in (500, 503):
        raise causes.down(LABEL, said=said)
    raise causes.bad_query(LABEL, said)


def _item(post: _Post, answer: _Post | None) -> Item:
    text = cut(plain(post.body), QUESTION)
    if answer is not None:
        kind = "Accepted answer" if answer.is_accepted else "Best answer"
        who = title(answer.owner.display_name) or "someone"
        text += f"\n\n{kind} by {who}, {answer.score} votes:\n{cut(plain(answer.body), ANSWER)}"
    day = _day(post.creation_date)
    state = "accepted" if post.accepted_answer_id else "none accepted"
    return Item(
        title=title(post.title),
        text=text,
        listed=answer is None,  # the beginning of a question answers nothing
        url=post.link or None,
        date=day,
        also=(re.sub(r"/questions/(\d+)/.*", r"/q/\1", post.link),),
        extra=facts(
            score=str(post.score),
            answers=f"{post.answer_count} ({state})" if post.answer_count else "0",
            tags=", ".join(post.tags),
        ),
    )


def _day(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).date().isoformat() if seconds else None
    except (ValueError, OverflowError, OSError):
        return None
