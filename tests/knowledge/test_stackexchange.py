"""Stack Exchange: always compressed, escaped titles, `backoff` per method, and throttling as a 400."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from retinue.tools.knowledge.causes import SourceError

from .wiring import Reply, Wire, World

Make = Callable[..., World]
SEARCH = "/stackexchange/search/advanced"
ANSWERS = "/stackexchange/questions/11;12/answers"


def wrapped(*items: dict[str, Any], status: int = 200, **more: Any) -> Reply:
    body = {"items": items, "has_more": False, "quota_max": 300, "quota_remaining": 250, **more}
    return Reply(body, status=status, gzipped=True)


def failed(number: int, name: str, message: str) -> Reply:
    return Reply({"error_id": number, "error_name": name, "error_message": message}, status=400, gzipped=True)


def question(number: int = 11, **more: Any) -> dict[str, Any]:
    return {
        "question_id": number,
        "title": "Why is my vector&lt;int&gt; &#39;empty&#39;?",
        "body": "<p>I wrote</p>\n<pre><code>int f() {\n  return v.size();\n}</code></pre>\n<p>&amp; it fails.</p>",
        "link": f"https://stackoverflow.com/questions/{number}/why",
        "score": 5,
        "creation_date": 1767225600,
        "answer_count": 2,
        "tags": ["c++", "vector"],
        **more,
    }


async def test_a_search_asks_as_documented_and_unescapes(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped(question(accepted_answer_id=99)))
    result = await world(environ={"STACKEXCHANGE_KEY": "se-key-123"}).ask(
        "stackexchange_search", query="vector empty", site="stackoverflow", limit=3
    )
    query = wire.seen[0].query
    assert {
        "q": "vector empty",
        "site": "stackoverflow",
        "pagesize": "3",
        "order": "desc",
    }.items() <= query.items()
    assert query["key"] == "se-key-123"
    assert "gzip" in wire.seen[0].headers["accept-encoding"]
    assert "[1] Why is my vector<int> 'empty'? (2026-01-01)" in result.text
    assert "int f() {\n  return v.size();\n}" in result.text
    assert "& it fails." in result.text
    assert "answers: 2 (accepted)\ntags: c++, vector" in result.text
    assert result.sources[0].url == "https://stackoverflow.com/questions/11/why"
    assert result.sources[0].aliases == ("https://stackoverflow.com/q/11",)
    assert "se-key-123" not in repr(result)


async def test_without_a_key_none_is_sent(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped(question()))
    await world().ask("stackexchange_search", query="x")
    assert "key" not in wire.seen[0].query


async def test_answers_are_the_accepted_one_or_the_best(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped(question(11), question(12), question(13, answer_count=0)))
    wire.on(
        ANSWERS,
        wrapped(
            {
                "question_id": 11,
                "score": 90,
                "body": "<p>popular</p>",
                "owner": {"display_name": "Bo &amp; Co"},
            },
            {"question_id": 11, "score": 7, "is_accepted": True, "body": "<p>accepted</p>", "owner": {}},
            {"question_id": 12, "score": 3, "body": "<p>only</p>", "owner": {"display_name": "Cy"}},
        ),
    )
    result = await world().ask("stackexchange_search", query="x", answers=True)
    assert "Accepted answer by someone, 7 votes:\naccepted" in result.text
    assert "Best answer by Cy, 3 votes:\nonly" in result.text
    assert "popular" not in result.text


async def test_a_backoff_holds_its_own_method_only(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped(question(11), question(12), backoff=10))
    wire.on(ANSWERS, wrapped())
    one = world()
    await one.ask("stackexchange_search", query="x", answers=True)
    assert sum(one.clock.slept) < 1  # the other method did not wait
    await one.ask("stackexchange_search", query="y")
    assert sum(one.clock.slept) == pytest.approx(10, abs=0.2)


async def test_a_backoff_longer_than_the_call_is_an_error_and_not_ignored(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped(question(), backoff=120))
    one = world()
    await one.ask("stackexchange_search", query="x")
    with pytest.raises(SourceError, match="rate limited: another request is allowed in 2 min"):
        await one.ask("stackexchange_search", query="y")
    assert len(wire.seen) == 1


async def test_throttling_is_a_400_with_the_wait_in_its_text(world: Make, wire: Wire) -> None:
    message = "too many requests from this IP, more requests available in 17524 seconds"
    wire.on(SEARCH, failed(502, "throttle_violation", message))
    one = world()
    with pytest.raises(SourceError, match=r"allowed in 4.9 h.*STACKEXCHANGE_KEY") as caught:
        await one.ask("stackexchange_search", query="x")
    assert caught.value.cause == "rate_limited"
    with pytest.raises(SourceError, match="rate limited"):
        await one.ask("stackexchange_search", query="y")
    assert len(wire.seen) == 1


async def test_a_violated_backoff_is_waited_out(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, failed(502, "throttle_violation", "Violation of backoff parameter"), wrapped(question()))
    one = world()
    await one.ask("stackexchange_search", query="x")
    assert one.clock.slept == [1.0]


async def test_a_wrong_site_is_a_bad_query(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, failed(400, "bad_parameter", "No site found for name `nosuch`"))
    with pytest.raises(SourceError, match=r"(?s)rejected the query.*No site found for name `nosuch`"):
        await world().ask("stackexchange_search", query="x", site="nosuch")


async def test_a_passing_fault_is_tried_again(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, failed(503, "temporarily_unavailable", "back soon"), wrapped(question()))
    assert "vector<int>" in (await world().ask("stackexchange_search", query="x")).text


async def test_a_small_quota_is_told(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped(question(), quota_remaining=3))
    assert "allows 3 more requests today" in (await world().ask("stackexchange_search", query="x")).text


async def test_failing_answers_do_not_lose_the_questions(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped(question(11), question(12)))
    wire.on(ANSWERS, failed(400, "bad_parameter", "ids"))
    result = await world().ask("stackexchange_search", query="x", answers=True)
    assert "vector<int>" in result.text
    assert "The answers could not be fetched" in result.text


async def test_no_question_is_no_result(world: Make, wire: Wire) -> None:
    wire.on(SEARCH, wrapped())
    with pytest.raises(SourceError, match=r"Stack Exchange \(unix\) has nothing for 'zz'"):
        await world().ask("stackexchange_search", query="zz", site="unix")
