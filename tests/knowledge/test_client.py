"""The client: who we say we are, what is cached, what is tried again, what a model is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import ConfigError, ToolError
from retinue.settings import KnowledgeSettings
from retinue.tools.knowledge.causes import SourceError
from retinue.tools.knowledge.client import MOST_BYTES, KnowledgeClient
from retinue.tools.knowledge.wire import Request, SourceResponse
from retinue.web.pacing import Limit

from .wiring import Clock, Reply, Seen, Shelf, Wire, World

API = "/wikipedia/w/api.php"
HIT: dict[str, Any] = {"query": {"search": [{"title": "Ada Lovelace", "snippet": "wrote the first program"}]}}
Make = Callable[..., World]


def plain(answer: SourceResponse) -> str:
    return answer.text


def request(world: World, **more: Any) -> Request:
    return Request(**{"source": "hackernews", "url": world.knowledge.base("hackernews") + "/x", **more})


async def test_the_user_agent_names_the_operator(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(HIT))
    await world(contact="https://example.org/bot").ask("wiki_search", query="ada")
    agent = wire.seen[0].headers["user-agent"]
    assert re.fullmatch(r"retinue/[\d.]+ \(https://example\.org/bot\) aiohttp/[\d.]+", agent)


async def test_a_missing_contact_is_warned_about_once(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(HIT))
    one = world(contact=None)
    await one.ask("wiki_search", query="ada")
    await one.knowledge.close()
    await one.ask("wiki_search", query="lovelace")
    assert re.fullmatch(r"retinue/[\d.]+ aiohttp/[\d.]+", wire.seen[0].headers["user-agent"])
    assert len(one.warnings) == 1
    assert "knowledge.contact" in one.warnings[0]
    named = world()
    await named.ask("wiki_search", query="ada")
    assert named.warnings == []


async def test_no_password_of_a_netrc_is_sent_along(
    world: Make, wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("default login me password planted\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    wire.on(API, Reply(HIT))
    await world().ask("wiki_search", query="ada")
    assert "authorization" not in wire.seen[0].headers


async def test_a_contact_cannot_break_out_of_the_header(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(HIT))
    await world(contact="me@example.org)\r\nX-Evil: 1").ask("wiki_search", query="ada")
    assert "(me@example.orgX-Evil: 1)" in wire.seen[0].headers["user-agent"]
    assert "x-evil" not in wire.seen[0].headers


async def test_no_cookie_is_ever_sent_back(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(HIT, headers={"Set-Cookie": "WMF-Uniq=abc; Path=/"}))
    named = wire.url.replace("127.0.0.1", "localhost")  # no client keeps cookies of a bare address
    one = world(base_urls={"wikipedia": f"{named}/wikipedia"})
    await one.ask("wiki_search", query="ada")
    await one.ask("wiki_search", query="babbage")
    assert "cookie" not in wire.seen[1].headers


async def test_wikimedia_gets_200_a_minute_with_a_contact_and_10_without(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(HIT))
    for contact, allowed in (("ops@example.org", 200), (None, 10)):
        one = world(contact=contact, request_timeout=600)
        begun = one.clock.now
        for number in range(allowed):
            await one.ask("wiki_search", query=f"a{number}")
        assert one.clock.now - begun < 60  # none of them had to wait for another minute
        await one.ask("wiki_search", query="one more")
        assert one.clock.now - begun >= 61


async def test_equal_questions_are_asked_once_and_kept(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on(API, Reply(HIT))
    one = world(clock=clock, shelf=shelf)
    first = await one.ask("wiki_search", query="ada")
    again = await one.ask("wiki_search", query="ada")
    assert len(wire.seen) == 1
    assert "(cached)" not in first.text
    assert "(cached)" in again.text
    assert again.sources == first.sources  # the time of the fetch, not of the second question
    clock.now += 3601
    await one.ask("wiki_search", query="ada")
    assert len(wire.seen) == 2


async def test_another_process_finds_what_was_kept(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on(API, Reply(HIT))
    await world(clock=clock, shelf=shelf).ask("wiki_search", query="ada")
    await world(clock=clock, shelf=shelf).ask("wiki_search", query="ada")
    assert len(wire.seen) == 1


async def test_nothing_is_kept_with_a_ttl_of_zero(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on(API, Reply(HIT))
    one = world(clock=clock, shelf=shelf, cache_ttl=0)
    await one.ask("wiki_search", query="ada")
    await one.ask("wiki_search", query="ada")
    assert len(wire.seen) == 2
    assert shelf.rows == {}


async def test_an_error_in_a_200_is_never_kept(world: Make, wire: Wire, clock: Clock, shelf: Shelf) -> None:
    wire.on(API, Reply({"error": {"code": "srsearch-error", "info": "no"}}), Reply(HIT))
    one = world(clock=clock, shelf=shelf)
    with pytest.raises(SourceError):
        await one.ask("wiki_search", query="ada")
    assert "Ada Lovelace" in (await one.ask("wiki_search", query="ada")).text


async def test_a_damaged_cache_entry_is_asked_for_again(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on(API, Reply(HIT))
    one = world(clock=clock, shelf=shelf)
    await one.ask("wiki_search", query="ada")
    shelf.rows = {k: (b"\xc1 not msgpack", v[1]) for k, v in shelf.rows.items()}
    assert "Ada Lovelace" in (await one.ask("wiki_search", query="ada")).text
    assert len(wire.seen) == 2


async def test_equal_requests_in_flight_are_one(world: Make, wire: Wire) -> None:
    release = asyncio.Event()

    async def slow(_: Seen) -> Reply:
        await release.wait()
        return Reply(HIT)

    wire.on(API, slow)
    one = world()
    asked = [asyncio.create_task(one.ask("wiki_search", query="ada")) for _ in range(20)]
    while not wire.seen:
        await asyncio.sleep(0)
    release.set()
    texts = {(await task).text for task in asked}
    assert len(wire.seen) == 1
    assert len(texts) == 1


async def test_a_cancelled_asker_does_not_cancel_the_others(world: Make, wire: Wire) -> None:
    release = asyncio.Event()

    async def slow(_: Seen) -> Reply:
        await release.wait()
        return Reply(HIT)

    wire.on(API, slow)
    one = world()
    first = asyncio.create_task(one.ask("wiki_search", query="ada"))
    while not wire.seen:
        await asyncio.sleep(0)
    second = asyncio.create_task(one.ask("wiki_search", query="ada"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert "Ada Lovelace" in (await second).text
    assert len(wire.seen) == 1


async def test_the_last_cancelled_asker_ends_the_request(world: Make, wire: Wire) -> None:
    gone = asyncio.Event()

    async def slow(_: Seen) -> Reply:
        await gone.wait()
        return Reply(HIT)

    wire.on(API, slow, Reply(HIT))
    one = world(limits={"wikimedia": Limit(concurrency=1)})
    task = asyncio.create_task(one.ask("wiki_search", query="ada"))
    while not wire.seen:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The same question starts anew; another finds the only place free, which the first one gave back.
    assert "Ada Lovelace" in (await one.ask("wiki_search", query="ada")).text
    assert "Ada Lovelace" in (await one.ask("wiki_search", query="countess")).text
    gone.set()


async def test_a_server_error_is_tried_three_times_with_growing_pauses(world: Make, wire: Wire) -> None:
    wire.on(API, Reply("oops", status=500, type="text/plain"), Reply(status=502), Reply(HIT))
    one = world()
    assert "Ada Lovelace" in (await one.ask("wiki_search", query="ada")).text
    assert len(wire.seen) == 3
    pauses = [s for s in one.clock.slept if s > 0.3]
    assert 0.4 <= pauses[0] <= 0.6
    assert 0.8 <= pauses[1] <= 1.2


async def test_a_server_that_stays_down_is_one_clear_error(world: Make, wire: Wire) -> None:
    wire.on(API, Reply("upstream connect error", status=503, type="text/plain"))
    with pytest.raises(
        SourceError, match=r"Wikipedia is not working now \(status 503\)(?s:.*)upstream"
    ) as caught:
        await world().ask("wiki_search", query="ada")
    assert caught.value.cause == "down"
    assert len(wire.seen) == 3


async def test_no_server_at_all_is_one_clear_error(world: Make) -> None:
    one = world(base_urls={"wikipedia": "http://127.0.0.1:9"})
    with pytest.raises(SourceError, match="no connection, ClientConnectorError") as caught:
        await one.ask("wiki_search", query="ada")
    assert caught.value.cause == "down"


async def test_a_connection_cut_in_the_body_is_tried_again(world: Make, wire: Wire) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        counts.append(1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
        await writer.drain()
        writer.close()

    counts: list[int] = []
    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        one = world(base_urls={"wikipedia": f"http://127.0.0.1:{port}"})
        with pytest.raises(SourceError, match="ClientPayloadError"):
            await one.ask("wiki_search", query="ada")
    assert len(counts) == 3


async def test_retry_after_in_seconds_is_waited_for(world: Make, wire: Wire) -> None:
    wire.on(API, Reply("slow down", status=429, headers={"Retry-After": "7"}), Reply(HIT))
    one = world()
    assert "Ada Lovelace" in (await one.ask("wiki_search", query="ada")).text
    assert one.clock.slept == [7.0]


async def test_retry_after_as_a_date_is_waited_for(world: Make, wire: Wire) -> None:
    clock = Clock(now=1_000_000.0)
    date = "Mon, 12 Jan 1970 13:46:49 GMT"  # nine seconds later
    wire.on(API, Reply(status=429, headers={"Retry-After": date}), Reply(HIT))
    one = world(clock=clock)
    await one.ask("wiki_search", query="ada")
    assert clock.slept == [pytest.approx(9.0)]


async def test_a_nonsense_retry_after_is_a_growing_pause(world: Make, wire: Wire) -> None:
    refusal = Reply(status=429, headers={"Retry-After": "soon"})
    wire.on(API, refusal, refusal, Reply(HIT))
    one = world()
    await one.ask("wiki_search", query="ada")
    assert one.clock.slept == [1.0, 2.0]


async def test_the_pause_is_short_again_after_an_answer(world: Make, wire: Wire) -> None:
    refusal = Reply(status=429)
    wire.on(API, refusal, refusal, Reply(HIT), refusal, Reply(HIT))
    one = world(limits={"wikimedia": Limit()})
    await one.ask("wiki_search", query="ada")
    await one.ask("wiki_search", query="babbage")
    assert one.clock.slept == [1.0, 2.0, 1.0]


async def test_a_long_retry_after_is_an_error_at_once_and_is_kept_to(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(status=429, headers={"Retry-After": "3600"}), Reply(HIT))
    one = world()
    with pytest.raises(SourceError, match=r"rate limited: another request is allowed in 60 min") as caught:
        await one.ask("wiki_search", query="ada")
    assert caught.value.cause == "rate_limited"
    with pytest.raises(SourceError, match="rate limited"):
        await one.ask("wiki_search", query="something else")
    with pytest.raises(SourceError, match="rate limited"):
        await one.ask("wikidata_search", query="the same lane")
    assert len(wire.seen) == 1
    one.clock.now += 3600
    assert "Ada Lovelace" in (await one.ask("wiki_search", query="ada")).text


async def test_a_ban_by_one_server_is_none_by_another_of_the_same_source(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on(API, Reply(status=429, headers={"Retry-After": "3600"}), Reply(HIT))
    with pytest.raises(SourceError, match="rate limited"):
        await world(clock=clock, shelf=shelf).ask("wiki_search", query="ada")
    with pytest.raises(SourceError, match="rate limited"):
        await world(clock=clock, shelf=shelf).ask("wiki_search", query="grace")
    elsewhere = {"wikipedia": f"{wire.url}//wikipedia"}
    wire.on(f"/{API}", Reply(HIT))
    await world(clock=clock, shelf=shelf, base_urls=elsewhere).ask("wiki_search", query="ada")


async def test_a_ban_outlives_the_process_through_the_store(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    wire.on("/wikidata_sparql", Reply(status=429, headers={"Retry-After": "900"}))
    with pytest.raises(SourceError, match="rate limited"):
        await world(clock=clock, shelf=shelf).ask("wikidata_query", sparql="ASK {}")
    with pytest.raises(SourceError, match=r"allowed in 15 min"):
        await world(clock=clock, shelf=shelf).ask("wikidata_query", sparql="ASK {}")
    assert len(wire.seen) == 1


async def test_the_error_says_how_to_raise_the_limit(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(status=429, headers={"Retry-After": "99"}))
    with pytest.raises(SourceError, match=r"knowledge\.contact"):
        await world(contact=None).ask("wiki_search", query="ada")
    wire.on("/nasa/neo/rest/v1/feed", Reply(status=429, headers={"Retry-After": "2870"}))
    with pytest.raises(SourceError, match="NASA_API_KEY"):
        await world().ask("nasa_neows", start_date="2026-11-01")


async def test_a_silent_server_is_a_timeout(world: Make, wire: Wire) -> None:
    forever = asyncio.Event()

    async def silent(_: Seen) -> Reply:
        await forever.wait()
        return Reply(HIT)

    wire.on(API, silent)
    with pytest.raises(SourceError, match="Wikipedia did not answer within 1 s") as caught:
        await world(request_timeout=1.0).ask("wiki_search", query="ada")
    assert caught.value.cause == "timeout"
    assert len(wire.seen) == 1
    forever.set()


async def test_a_wait_in_the_queue_counts_against_the_time_of_the_call(world: Make, wire: Wire) -> None:
    wire.on("/arxiv", Reply(status=500))
    one = world(request_timeout=10, limits={"arxiv": Limit(interval=8.0, concurrency=1)})
    with pytest.raises(SourceError, match=r"rate limited: another request is allowed in \d s, and this call"):
        await one.ask("arxiv_search", query="ada")
    assert len(wire.seen) == 2


async def test_an_answer_that_is_too_large_is_refused(world: Make, wire: Wire) -> None:
    wire.on(API, Reply(b" " * (MOST_BYTES + 1), gzipped=True))
    with pytest.raises(SourceError, match="larger than 5,000,000 bytes"):
        await world().ask("wiki_search", query="ada")


async def test_html_instead_of_json_is_one_clear_error(world: Make, wire: Wire) -> None:
    wire.on(API, Reply("<html><body>Maintenance</body></html>", type="text/html"))
    with pytest.raises(SourceError, match=r"(?s)a page for people instead of an answer.*Maintenance"):
        await world().ask("wiki_search", query="ada")


async def test_a_redirect_within_the_host_is_followed_in_its_own_turn(world: Make, wire: Wire) -> None:
    wire.on("/hackernews/x", Reply(status=301, headers={"Location": "/hackernews/y?a=1"}))
    wire.on("/hackernews/y", Reply("here", type="text/plain"))
    one = world()
    text, _ = await one.knowledge.ask(request(one), plain)
    assert text == "here"
    assert wire.seen[1].query == {"a": "1"}
    assert one.clock.slept == [pytest.approx(0.4)]


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "//evil.example/x", "file:///etc/passwd", ""]
)
async def test_a_redirect_to_another_host_is_not_followed(world: Make, wire: Wire, target: str) -> None:
    wire.on("/hackernews/x", Reply(status=302, headers={"Location": target} if target else {}))
    one = world()
    with pytest.raises(SourceError, match=r"sends us elsewhere|more than 3 redirects"):
        await one.knowledge.ask(request(one), plain)


async def test_redirects_in_a_circle_end(world: Make, wire: Wire) -> None:
    wire.on("/hackernews/x", Reply(status=302, headers={"Location": "/hackernews/x"}))
    one = world()
    with pytest.raises(SourceError, match="more than 3 redirects"):
        await one.knowledge.ask(request(one), plain)
    assert len(wire.seen) == 3


async def test_keys_are_nowhere_but_on_the_wire(world: Make, wire: Wire, clock: Clock, shelf: Shelf) -> None:
    key = "sEcr3t+key/42"
    wire.on(
        "/hackernews/x",
        lambda seen: Reply({"echo": seen.query["k"], "link": f"http://x/?k={'sEcr3t%2Bkey%2F42'}"}),
    )
    one = world(clock=clock, shelf=shelf)
    asked = request(one, secret_params={"k": key})
    text, answer = await one.knowledge.ask(asked, plain)
    assert wire.seen[0].query["k"] == key
    assert "sEcr3t" not in text
    assert text.count("[key]") == 2
    assert b"sEcr3t" not in b"".join(value for value, _ in shelf.rows.values())
    assert "sEcr3t" not in repr(shelf.rows)
    assert "sEcr3t" not in repr(answer)
    assert asked.key() == request(one).key()


async def test_a_key_in_a_bearer_header_is_taken_out_of_the_body_too(world: Make, wire: Wire) -> None:
    wire.on(
        "/hackernews/x", lambda seen: Reply(f"you are {seen.headers['authorization']}", type="text/plain")
    )
    one = world()
    text, _ = await one.knowledge.ask(
        request(one, secret_headers={"Authorization": "Bearer abcd1234"}), plain
    )
    assert text == "you are Bearer [key]"


async def test_a_rejected_key_names_its_variable_and_not_its_value(world: Make, wire: Wire) -> None:
    wire.on("/pubmed/esearch.fcgi", Reply("API key invalid: k-123456", status=403, type="text/plain"))
    one = world(environ={"NCBI_API_KEY": "k-123456"}, extra=["pubmed"])
    with pytest.raises(SourceError, match="rejected the key in NCBI_API_KEY") as caught:
        await one.ask("pubmed_search", query="asthma")
    assert "k-123456" not in str(caught.value)
    assert caught.value.cause == "needs_key"


async def test_a_client_error_is_a_bad_query_and_is_not_tried_again(world: Make, wire: Wire) -> None:
    wire.on("/hackernews/search", Reply("bad hitsPerPage", status=422, type="text/plain"))
    with pytest.raises(SourceError, match=r"(?s)rejected the query: status 422.*bad hitsPerPage") as caught:
        await world(extra=["hackernews"]).ask("hackernews_search", query="x")
    assert caught.value.cause == "bad_query"
    assert len(wire.seen) == 1


async def test_every_source_error_is_a_tool_error() -> None:
    assert issubclass(SourceError, ToolError)


def test_a_base_url_of_an_unknown_source_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"wikipedai.*known are"):
        KnowledgeClient(KnowledgeSettings(base_urls={"wikipedai": "http://x"}))


async def test_closing_twice_and_before_use_is_fine(world: Make) -> None:
    one = world()
    await one.knowledge.close()
    await one.knowledge.close()
