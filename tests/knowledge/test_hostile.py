"""Odd arguments from a model and hostile answers from a server: one clear error each, and nothing that lasts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from retinue.errors import ToolError
from retinue.tools.knowledge.causes import SourceError
from retinue.tools.knowledge.sources import SOURCES
from retinue.web.pacing import Limit

from .wiring import Clock, Reply, Shelf, Wire, World

Make = Callable[..., World]
API = "/wikipedia/w/api.php"
EXTRA = ("crossref", "semanticscholar", "pubmed", "openalex", "hackernews")
KEYS = {"WOLFRAM_APP_ID": "a-wolfram-key", "OPENALEX_API_KEY": "an-openalex-key"}
DAY = 86_400.0
FREE = {name: Limit(interval=0, concurrency=9) for name in (*SOURCES, "wikimedia", "wikidata_sparql")}

TEXT_OF = {
    "wiki_search": "query",
    "wiki_summary": "title",
    "wikidata_search": "query",
    "wikidata_query": "sparql",
    "duckduckgo": "query",
    "arxiv_search": "query",
    "dbpedia_query": "sparql",
    "wolfram_query": "query",
    "stackexchange_search": "query",
    "nasa_apod": "date",
    "nasa_neows": "start_date",
    "crossref_search": "query",
    "semantic_scholar_search": "query",
    "pubmed_search": "query",
    "openalex_search": "query",
    "hackernews_search": "query",
}
ODD = {
    "half a character": "Tur\ud800ing",
    "nothing": "",
    "white space": " \n\t",
    "a zero byte": "a\0b",
    "a second header": "a\r\nX-Evil: 1",
    "a second parameter": "a&action=delete#b?c=d%26e%00",
    "a way up": "../../../etc/passwd",
    "quotes": '"} } ; DROP SELECT * { "\\',
    "right to left": "\u202egnp.exe",
    "a picture": "🦆" * 200,
}


def every(wire: Wire, world: Make) -> World:
    return world(extra=EXTRA, environ=KEYS, limits=FREE, clock=Clock(1_780_000_000.0))


def test_every_tool_is_among_those_that_are_tried(world: Make, wire: Wire) -> None:
    assert set(every(wire, world).tools) == set(TEXT_OF)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", TEXT_OF)
async def test_odd_words_are_a_clear_error_and_go_nowhere_but_into_their_parameter(
    world: Make, wire: Wire, name: str, odd: str
) -> None:
    source = every(wire, world)
    with pytest.raises(ToolError):
        await source.ask(name, **{TEXT_OF[name]: ODD[odd]})  # the server knows no path: an error it must be
    known = {"/" + part for part in SOURCES}
    for seen in wire.seen:
        assert any(seen.path.startswith(f"{part}/") or seen.path == part for part in known)
        assert "x-evil" not in seen.headers
        assert seen.query.get("action") != "delete"
        assert ".." not in seen.path.split("/")


@pytest.mark.parametrize("name", TEXT_OF)
async def test_words_without_end_are_refused_with_the_limit_and_never_sent(
    world: Make, wire: Wire, name: str
) -> None:
    with pytest.raises(ToolError, match=r"has 300,000 characters: the limit is 8,000") as caught:
        await every(wire, world).ask(name, **{TEXT_OF[name]: "x" * 300_000})
    assert len(str(caught.value)) < 200
    assert not wire.seen


@pytest.mark.parametrize(
    ("lang", "host"), [("", "/en/w/api.php"), (" EN\n", "/en/w/api.php"), ("zh-Yue", "/zh-yue/w/api.php")]
)
async def test_a_language_is_read_as_models_write_it(world: Make, wire: Wire, lang: str, host: str) -> None:
    found = {"query": {"search": [{"title": "A"}]}}
    wire.on(host, Reply(found))
    asked = world(base_urls={"wikipedia": wire.url + "/{lang}"})
    assert "[1] A" in (await asked.ask("wiki_search", query="a", lang=lang)).text


async def test_options_left_empty_are_the_default(world: Make, wire: Wire) -> None:
    wire.on(
        "/stackexchange/search/advanced", Reply({"items": [{"title": "a", "link": "https://x.test/q/1"}]})
    )
    await world().ask("stackexchange_search", query="a", site="")
    assert wire.seen[-1].query["site"] == "stackoverflow"
    picture = {"title": "a", "date": "1970-01-01", "explanation": "b", "permalink": "https://x.test/p"}
    wire.on("/nasa_science/wp-json/wp/v2/apod-basic", Reply([picture]))
    assert "(1970-01-01)" in (await world().ask("nasa_apod", date="")).text


@pytest.mark.parametrize("said", ["inf", "1e999", "nan", "9" * 400])
async def test_a_server_cannot_have_itself_left_alone_for_ever(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf, said: str
) -> None:
    wire.on(API, Reply("slow down", status=429, type="text/plain", headers={"Retry-After": said}))
    with pytest.raises(SourceError, match="rate limited") as caught:
        await world(clock=clock, shelf=shelf).ask("wiki_search", query="a")
    assert "inf" not in str(caught.value)
    wire.on(API, Reply({"query": {"search": [{"title": "A"}]}}))
    clock.now += DAY + 1
    assert "[1] A" in (await world(clock=clock, shelf=shelf).ask("wiki_search", query="a")).text


async def test_a_wait_of_years_in_a_body_is_a_day(
    world: Make, wire: Wire, clock: Clock, shelf: Shelf
) -> None:
    path = "/stackexchange/search/advanced"
    good = {"items": [{"title": "a", "link": "https://x.test/q/1"}], "backoff": 1e12}
    wire.on(path, Reply(good))
    await world(clock=clock, shelf=shelf).ask("stackexchange_search", query="a")
    clock.now += DAY + 1
    assert "[1] a" in (await world(clock=clock, shelf=shelf).ask("stackexchange_search", query="b")).text


@pytest.mark.parametrize("target", ["http://[", "http://127.0.0.1:99999/", "http://[::1", "//[", ""])
async def test_a_redirect_to_no_address_is_one_clear_error(world: Make, wire: Wire, target: str) -> None:
    wire.on(API, Reply(status=302, headers={"Location": target}))
    with pytest.raises(SourceError, match="not working now"):
        await world().ask("wiki_search", query="a")


@pytest.mark.parametrize("name", [name for name in TEXT_OF if not name.startswith(("arxiv", "wolfram"))])
async def test_json_nested_without_end_is_one_clear_error(world: Make, wire: Wire, name: str) -> None:
    deep = b'{"query":' * 100_000
    anywhere(wire, Reply(deep))
    words = "2026-01-01" if name.startswith("nasa") else "a"
    with pytest.raises(SourceError):
        await every(wire, world).ask(name, **{TEXT_OF[name]: words})


async def test_a_source_remembers_the_digest_of_what_it_came_from(world: Make, wire: Wire) -> None:
    import hashlib

    body = json.dumps({"query": {"search": [{"title": "A"}, {"title": "B"}]}}).encode()
    wire.on(API, Reply(body))
    result = await world().ask("wiki_search", query="a")
    assert {source.sha256 for source in result.sources} == {hashlib.sha256(body).hexdigest()}
    assert all(source.status == 200 and source.fetched_at and source.title for source in result.sources)


# ---- answers with parts exchanged for what they should never be

GOOD: dict[str, tuple[dict[str, Any], Any]] = {
    "wiki_search": (
        {"query": "a"},
        {
            "query": {
                "search": [{"title": "A", "snippet": "<b>a</b>", "timestamp": "2026-01-01T00:00:00Z"}],
                "searchinfo": {"totalhits": 1, "suggestion": "b"},
            },
            "warnings": {"main": {"warnings": "w"}},
        },
    ),
    "wiki_summary": (
        {"title": "A"},
        {
            "title": "A",
            "extract": "a is a letter",
            "type": "standard",
            "timestamp": "2026-01-01",
            "content_urls": {"desktop": {"page": "https://x.test/A"}},
            "query": {
                "pages": [{"title": "A", "extract": "a", "fullurl": "https://x.test/A", "touched": "2026"}]
            },
        },
    ),
    "wikidata_search": (
        {"query": "a"},
        {
            "search": [
                {
                    "id": "Q1",
                    "label": "a",
                    "description": "d",
                    "url": "//www.wikidata.org/wiki/Q1",
                    "match": {"type": "alias", "text": "b"},
                }
            ],
            "search-continue": 1,
        },
    ),
    "wikidata_query": (
        {"sparql": "SELECT"},
        {
            "head": {"vars": ["a"]},
            "results": {"bindings": [{"a": {"type": "uri", "value": "http://www.wikidata.org/entity/Q1"}}]},
        },
    ),
    "duckduckgo": (
        {"query": "a"},
        {
            "Heading": "A",
            "AbstractText": "a",
            "AbstractURL": "https://x.test",
            "Answer": {"x": 1},
            "Infobox": {"content": [{"label": "born", "value": "1912"}]},
            "RelatedTopics": [{"Text": "a - b", "FirstURL": "/i"}, {"Name": "n", "Topics": [{"Text": "c"}]}],
        },
    ),
    "stackexchange_search": (
        {"query": "a", "answers": True},
        {
            "items": [
                {
                    "question_id": 1,
                    "title": "a",
                    "body": "<p>b",
                    "link": "https://x.test/questions/1/a",
                    "creation_date": 1,
                    "answer_count": 1,
                    "tags": ["t"],
                    "owner": {"display_name": "o"},
                }
            ],
            "quota_remaining": 1,
        },
    ),
    "nasa_apod": (
        {"date": "2026-01-01"},
        {
            "title": "a",
            "date": "2026-01-01",
            "explanation": "b",
            "media_type": "video",
            "basic_html": '<iframe src="a">',
        },
    ),
    "nasa_neows": (
        {"start_date": "2026-01-01"},
        {
            "near_earth_objects": {
                "2026-01-01": [
                    {
                        "name": "a",
                        "nasa_jpl_url": "http://x.test",
                        "close_approach_data": [
                            {
                                "miss_distance": {"kilometers": "1", "lunar": "1"},
                                "relative_velocity": {"kilometers_per_second": "1"},
                            }
                        ],
                        "estimated_diameter": {
                            "meters": {"estimated_diameter_min": 1, "estimated_diameter_max": 2}
                        },
                    }
                ]
            }
        },
    ),
}
WRONG: list[Any] = [
    None,
    "",
    0,
    -1,
    1.5,
    10**30,
    1e308,
    True,
    [],
    {},
    [None],
    "²",
    "9" * 5000,
    "0000-00-00",
    "http://[",
    "\x1b]0;x\x07",
    "</p>" * 1000,
]


def spoiled(value: Any, luck: random.Random) -> Any:
    if luck.random() < 0.06:
        return luck.choice(WRONG)
    if isinstance(value, dict):
        return {key: spoiled(one, luck) for key, one in value.items() if luck.random() > 0.04}
    if isinstance(value, list):
        return [spoiled(one, luck) for one in value]
    return value


def anywhere(wire: Wire, reply: Reply) -> None:
    class Everywhere(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            return [reply]

    wire._rules = Everywhere()


@pytest.mark.parametrize("name", GOOD)
async def test_an_answer_with_anything_wrong_in_it_is_a_result_or_one_clear_error(
    world: Make, wire: Wire, name: str
) -> None:
    arguments, good = GOOD[name]
    luck = random.Random(name)
    given = 0
    longest = 0
    for _ in range(60):
        headers = {"X-SPARQL-MaxRows": "²", "Retry-After": "²"} if luck.random() < 0.3 else {}
        anywhere(wire, Reply(spoiled(good, luck), headers=headers))
        source = every(wire, world)
        try:
            result = await source.ask(name, **arguments)
        except ToolError as error:
            longest = max(longest, len(str(error)))
        else:
            given += 1
            assert all(isinstance(found.url, str) for found in result.sources)
        await source.knowledge.close()
    assert 0 < given < 60
    assert longest < 4000
