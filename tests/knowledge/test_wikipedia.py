"""Wikipedia: search and summaries, and every way in which it says no."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from retinue.errors import ToolError
from retinue.tools.knowledge.causes import SourceError

from .wiring import Reply, Wire, World

Make = Callable[..., World]
API = "/wikipedia/w/api.php"
REST = "/wikipedia/api/rest_v1/page/summary/"


def search(*hits: dict[str, Any], **more: Any) -> Reply:
    return Reply({"batchcomplete": True, "query": {"searchinfo": {"totalhits": 41}, "search": hits}, **more})


def summary(title: str, **more: Any) -> Reply:
    page = f"https://en.wikipedia.org/wiki/{title.replace(' ', '_')}"
    body = {
        "type": "standard",
        "title": title,
        "description": "a thing",
        "extract": f"{title} is a thing.",
        "timestamp": "2026-10-01T08:00:00Z",
        "content_urls": {"desktop": {"page": page}},
        **more,
    }
    return Reply(
        body, type='application/json; charset=utf-8; profile="https://www.mediawiki.org/wiki/Specs/Summary"'
    )


def extract(**page: Any) -> Reply:
    return Reply({"batchcomplete": True, "query": {"pages": [page]}})


async def test_a_search_asks_as_documented_and_cleans_what_comes(world: Make, wire: Wire) -> None:
    wire.on(
        API,
        search(
            {
                "title": "Analytical engine",
                "snippet": '&#039;&#039;The engine&#039;&#039; of <span class="searchmatch">Babbage</span>'
                " &amp; [[Ada Lovelace|Lovelace]] &lt;1837&gt;",
                "timestamp": "2026-09-30T10:00:00Z",
            }
        ),
    )
    result = await world().ask("wiki_search", query="babbage engine", limit=3, lang="de")
    assert wire.seen[0].query == {
        "action": "query",
        "list": "search",
        "srsearch": "babbage engine",
        "srlimit": "3",
        "format": "json",
        "formatversion": "2",
        "maxlag": "5",
    }
    assert "1 of 41 results" in result.text
    assert "[1] Analytical engine (2026-09-30)" in result.text
    assert "The engine of Babbage & Lovelace <1837>" in result.text
    assert "span" not in result.text
    [source] = result.sources
    assert (source.title, source.status, source.fetched_at) == ("Analytical engine", 200, 1000.0)


@pytest.mark.parametrize(
    ("title", "path"),
    [
        ("AC/DC", "AC%2FDC"),
        ("Who's Afraid of Virginia Woolf?", "Who%27s_Afraid_of_Virginia_Woolf%3F"),
        ("Łódź", "%C5%81%C3%B3d%C5%BA"),
        ("C#", "C%23"),
        ("100% Love", "100%25_Love"),
        ("  Alan   Turing ", "Alan_Turing"),
        ("A+B & C", "A%2BB_%26_C"),
    ],
)
async def test_titles_arrive_as_one_path_segment(world: Make, wire: Wire, title: str, path: str) -> None:
    wire.on(REST + path, summary(" ".join(title.split())))
    result = await world().ask("wiki_summary", title=title)
    assert wire.seen[0].path == REST + path
    assert unquote(path).replace("_", " ") in result.text


async def test_the_language_is_part_of_the_host(wire: Wire, world: Make) -> None:
    wire.on("/fr/w/api.php", search({"title": "Chat"}))
    one = world(base_urls={"wikipedia": wire.url + "/{lang}"})
    assert "Wikipedia (fr)" in (await one.ask("wiki_search", query="chat", lang="fr")).text


async def test_results_of_wikipedia_itself_have_its_addresses(world: Make) -> None:
    from retinue.tools.knowledge.wikipedia import page_url

    usual = world(base_urls={}).knowledge
    assert page_url(usual, "AC/DC", "en") == "https://en.wikipedia.org/wiki/AC/DC"
    assert page_url(usual, "What Is Life?", "de") == "https://de.wikipedia.org/wiki/What_Is_Life%3F"
    own = world(base_urls={"wikipedia": "https://wiki.example.org/api.php"}).knowledge
    assert page_url(own, "What Is Life?", "en") == "https://wiki.example.org/index.php?title=What_Is_Life%3F"


@pytest.mark.parametrize("lang", ["en.evil.org/", "e n", "-", "x" * 30, "en\nx", "en@x", "en:80"])
async def test_a_language_that_is_none_never_becomes_a_host(world: Make, wire: Wire, lang: str) -> None:
    with pytest.raises(ToolError, match="lang is"):
        await world().ask("wiki_search", query="x", lang=lang)
    assert wire.seen == []


@pytest.mark.parametrize("limit", [0, 51, -1])
async def test_a_limit_out_of_range_is_told_to_the_model(world: Make, limit: int) -> None:
    with pytest.raises(ToolError, match="limit"):
        await world().ask("wiki_search", query="x", limit=limit)


async def test_an_empty_question_is_not_sent(world: Make, wire: Wire) -> None:
    with pytest.raises(ToolError, match="query is empty"):
        await world().ask("wiki_search", query=" ")
    with pytest.raises(ToolError, match="title is empty"):
        await world().ask("wiki_summary", title="_ _")
    assert wire.seen == []


async def test_nothing_found_offers_the_suggestion(world: Make, wire: Wire) -> None:
    wire.on(API, Reply({"query": {"searchinfo": {"totalhits": 0, "suggestion": "babbage"}, "search": []}}))
    with pytest.raises(
        SourceError, match=r"(?s)has nothing for 'babage'. Did you mean this.*babbage"
    ) as caught:
        await world().ask("wiki_search", query="babage")
    assert caught.value.cause == "no_result"
    assert len(wire.seen) == 1


async def test_an_error_object_with_status_200_is_an_error(world: Make, wire: Wire) -> None:
    body = {
        "error": {"code": "missingparam", "info": 'The "srsearch" parameter must be set.', "docref": "See …"}
    }
    wire.on(API, Reply(body, headers={"MediaWiki-API-Error": "missingparam"}))
    with pytest.raises(
        SourceError, match=r'The "srsearch" parameter must be set. \[missingparam\]'
    ) as caught:
        await world().ask("wiki_search", query="x")
    assert caught.value.cause == "bad_query"


async def test_errors_in_the_newer_list_form_are_read_too(world: Make, wire: Wire) -> None:
    wire.on(API, Reply({"errors": [{"code": "unknown_action", "text": "Unrecognized value."}]}))
    with pytest.raises(SourceError, match="Unrecognized value"):
        await world().ask("wiki_search", query="x")


async def test_maxlag_is_a_200_that_is_waited_out(world: Make, wire: Wire) -> None:
    lag = {"error": {"code": "maxlag", "info": "Waiting for 10.64.16.7: 6.2 seconds lagged."}}
    wire.on(API, Reply(lag, headers={"Retry-After": "5", "X-Database-Lag": "6"}), search({"title": "T"}))
    one = world()
    await one.ask("wiki_search", query="x")
    assert one.clock.slept == [5.0]
    assert len(wire.seen) == 2


async def test_a_rate_limit_in_a_200_is_waited_out(world: Make, wire: Wire) -> None:
    wire.on(API, Reply({"error": {"code": "ratelimited", "info": "too many"}}), search({"title": "T"}))
    one = world()
    await one.ask("wiki_search", query="x")
    assert one.clock.slept == [1.0]


async def test_a_read_only_wiki_is_down(world: Make, wire: Wire) -> None:
    wire.on(API, Reply({"error": {"code": "readonly", "info": "The wiki is currently in read-only mode."}}))
    with pytest.raises(SourceError, match="read-only mode") as caught:
        await world().ask("wiki_search", query="x")
    assert caught.value.cause == "down"


async def test_warnings_stand_beside_the_results(world: Make, wire: Wire) -> None:
    warned = {"search": {"warnings": 'The value "9999" for parameter "srlimit" must be between 1 and 500.'}}
    wire.on(API, search({"title": "T"}, warnings=warned))
    result = await world().ask("wiki_search", query="x")
    assert "[1] T" in result.text
    assert "The wiki warns: The value" in result.text


async def test_a_refused_user_agent_is_one_clear_error(world: Make, wire: Wire) -> None:
    text = "Please set a user-agent and respect our robot policy https://w.wiki/4wJS. See also T400119."
    wire.on(API, Reply(text, status=403, type="text/plain"))
    with pytest.raises(SourceError, match=r"(?s)refused us with status 403.*Please set a user-agent"):
        await world(contact=None).ask("wiki_search", query="x")
    assert len(wire.seen) == 1


async def test_a_summary_is_the_extract_with_its_address(world: Make, wire: Wire) -> None:
    wire.on(REST + "Ada_Lovelace", summary("Ada Lovelace"))
    result = await world().ask("wiki_summary", title="Ada_Lovelace")
    assert "[1] Ada Lovelace (2026-10-01)" in result.text
    assert "https://en.wikipedia.org/wiki/Ada_Lovelace" in result.text
    assert "Ada Lovelace is a thing." in result.text
    assert "led to" not in result.text
    assert result.sources[0].url == "https://en.wikipedia.org/wiki/Ada_Lovelace"


async def test_an_old_summary_without_type_and_addresses_works(world: Make, wire: Wire) -> None:
    wire.on(REST + "Pi", Reply({"title": "Pi", "extract": "A number."}))
    result = await world().ask("wiki_summary", title="Pi")
    assert "A number." in result.text
    assert result.sources[0].url == f"{wire.url}/wikipedia/wiki/Pi"


async def test_a_page_without_extract_says_so(world: Make, wire: Wire) -> None:
    wire.on(REST + "Stub", summary("Stub", type="no-extract", extract=""))
    assert "has no summary text" in (await world().ask("wiki_summary", title="Stub")).text


async def test_a_redirect_to_the_right_title_is_followed_and_told(world: Make, wire: Wire) -> None:
    wire.on(REST + "Countess_of_Lovelace", Reply(status=302, headers={"Location": "Ada_Lovelace"}))
    wire.on(REST + "Ada_Lovelace", summary("Ada Lovelace"))
    result = await world().ask("wiki_summary", title="Countess of Lovelace")
    assert "'Countess of Lovelace' led to 'Ada Lovelace'" in result.text


async def test_a_disambiguation_page_lists_what_it_could_be(world: Make, wire: Wire) -> None:
    wire.on(REST + "Mercury", summary("Mercury", type="disambiguation", extract="Mercury may refer to:"))
    text = "Mercury most commonly refers to:\nMercury (planet), nearest to the Sun\nMercury (element)"
    wire.on(
        API,
        extract(
            pageid=1, title="Mercury", extract=text, canonicalurl="https://en.wikipedia.org/wiki/Mercury"
        ),
    )
    result = await world().ask("wiki_summary", title="Mercury")
    assert "stands for several pages" in result.text
    assert "Mercury (planet), nearest to the Sun" in result.text
    assert "exintro" not in wire.seen[1].query


async def test_an_unknown_title_is_no_result(world: Make, wire: Wire) -> None:
    body = {
        "type": "Internal error",
        "title": "Not found.",
        "detail": "Page or revision not found.",
        "status": 404,
    }
    wire.on(REST + "Nope", Reply(body, status=404, type="application/problem+json"))
    with pytest.raises(SourceError, match=r"nothing for 'Nope'. wiki_search finds") as caught:
        await world().ask("wiki_summary", title="Nope")
    assert caught.value.cause == "no_result"
    assert len(wire.seen) == 1


async def test_a_wiki_without_the_summary_service_is_asked_for_an_extract(world: Make, wire: Wire) -> None:
    page = {
        "pageid": 2,
        "title": "Ada Lovelace",
        "extract": "Ada wrote notes.",
        "fullurl": "http://w/index.php/Ada_Lovelace",
        "touched": "2026-11-15T22:37:58Z",
    }
    wire.on(API, Reply({"query": {"redirects": [{"from": "Ada", "to": "Ada Lovelace"}], "pages": [page]}}))
    one = world()
    result = await one.ask("wiki_summary", title="Ada")
    assert "Ada wrote notes." in result.text
    assert "'Ada' led to 'Ada Lovelace'" in result.text
    assert result.sources[0].url == "http://w/index.php/Ada_Lovelace"
    assert wire.seen[1].query["redirects"] == "1"
    assert wire.seen[1].query["exintro"] == "1"
    await one.ask("wiki_summary", title="Ada Lovelace")
    assert [seen.path for seen in wire.seen[2:]] == [API]  # not asked for the service a second time


async def test_mediawikis_own_rest_404_leads_to_the_extract_too(world: Make, wire: Wire) -> None:
    body = {
        "errorKey": "rest-no-match",
        "httpCode": 404,
        "messageTranslations": {"en": "did not match any known handler"},
    }
    wire.on(REST + "Ada", Reply(body, status=404))
    wire.on(API, extract(title="Ada", extract="Ada.", fullurl="http://w/Ada"))
    assert "Ada." in (await world().ask("wiki_summary", title="Ada")).text


async def test_an_address_of_an_api_is_used_as_it_is(world: Make, wire: Wire) -> None:
    wire.on("/deep/mw/api.php", extract(title="Ada", extract="Ada.", fullurl="http://w/Ada"))
    one = world(base_urls={"wikipedia": wire.url + "/deep/mw/api.php"})
    assert "Ada." in (await one.ask("wiki_summary", title="Ada")).text
    assert len(wire.seen) == 1


@pytest.mark.parametrize(
    "pages", [[{"title": "X", "missing": True}], {"-1": {"title": "X", "missing": ""}}, []]
)
async def test_a_missing_page_is_no_result_in_both_formats(world: Make, wire: Wire, pages: Any) -> None:
    wire.on(API, Reply({"query": {"pages": pages}}))
    with pytest.raises(SourceError, match="nothing for 'X'"):
        await world().ask("wiki_summary", title="X")


async def test_an_invalid_title_is_a_bad_query(world: Make, wire: Wire) -> None:
    wire.on(API, extract(title="{bad}", invalid=True, invalidreason='contains invalid characters: "{".'))
    with pytest.raises(SourceError, match="contains invalid characters") as caught:
        await world().ask("wiki_summary", title="{bad}")
    assert caught.value.cause == "bad_query"


async def test_a_disambiguation_page_of_a_plain_wiki_is_known_by_its_property(
    world: Make, wire: Wire
) -> None:
    page = {
        "title": "Pi",
        "extract": "Pi may be:",
        "fullurl": "http://w/Pi",
        "pageprops": {"disambiguation": ""},
    }
    wire.on(API, extract(**page), extract(**{**page, "extract": "Pi may be:\n- a number\n- a letter"}))
    result = await world().ask("wiki_summary", title="Pi")
    assert "- a letter" in result.text
    assert "stands for several pages" in result.text


async def test_the_password_of_a_private_wiki_is_sent_to_it_and_shown_to_nobody(
    world: Make, wire: Wire
) -> None:
    wire.on(API, search({"title": "Engine", "snippet": "a thing", "timestamp": "2026-09-30T10:00:00Z"}))
    address = wire.url.replace("://", "://bob:hunter2@") + "/wikipedia"
    result = await world(base_urls={"wikipedia": address}).ask("wiki_search", query="engine")
    assert wire.seen[0].headers["authorization"].startswith("Basic ")
    assert [source.url for source in result.sources] == [f"{wire.url}/wikipedia/w/index.php?title=Engine"]
    assert "hunter2" not in result.text
