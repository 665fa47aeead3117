"""The tools against real server software: MediaWiki, Oxigraph, nginx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.settings import KnowledgeSettings
from retinue.store.sqlite import SqliteStore
from retinue.tools.base import ToolResult
from retinue.tools.knowledge import knowledge_tools, wikipedia
from retinue.tools.knowledge.causes import SourceError
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.mediawiki import decode
from retinue.web.pacing import Limit

from . import servers
from .wiring import Clock

pytestmark = pytest.mark.slow
CLOSED = "http://127.0.0.1:9"
FREE = Limit(concurrency=3)


class Asking:
    """A `KnowledgeClient` on given addresses, in real time, and its tools."""

    def __init__(self, base_urls: dict[str, str], **options: Any) -> None:
        contact = options.pop("contact", "ops@example.org")
        timeout = options.pop("timeout", 30)
        settings = KnowledgeSettings(base_urls=base_urls, contact=contact, request_timeout=timeout)
        limits = {"wikimedia": FREE, "wikidata_sparql": Limit(concurrency=1), **options.pop("limits", {})}
        self.knowledge = KnowledgeClient(settings, environ={}, limits=limits, warn=lambda _: None, **options)
        self.tools = {tool.name: tool for tool in knowledge_tools(self.knowledge)}

    async def __call__(self, name: str, **arguments: Any) -> ToolResult:
        result = await self.tools[name].call(self.tools[name].parse(json.dumps(arguments)), None)  # pyright: ignore[reportArgumentType]
        assert isinstance(result, ToolResult)
        return result


# ---- MediaWiki


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.mediawiki(tmp_path_factory.mktemp("wiki")) as url:
        yield url


@pytest.fixture
async def ask_wiki(wiki: str) -> AsyncIterator[Asking]:
    asking = Asking({"wikipedia": wiki})
    yield asking
    await asking.knowledge.close()


@pytest.mark.timeout(300)
async def test_mediawiki_search_gives_clean_snippets_and_working_addresses(
    ask_wiki: Asking, wiki: str
) -> None:
    result = await ask_wiki("wiki_search", query="turing", limit=5)
    assert "3 of 3 results" in result.text
    assert (
        "was a mathematician who asked whether machines can think. He described a machine with a tape"
        in result.text
    )
    assert "redirects to Alan Turing" in result.text
    assert "<span" not in result.text
    import aiohttp

    async with aiohttp.ClientSession() as session:
        for source in result.sources:
            async with session.get(source.url or "") as response:
                assert response.status == 200
                assert "Turing" in await response.text()


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Alan Turing", "asked whether machines can think"),
        ("Turing", "'Turing' led to 'Alan Turing'"),
        ("AC/DC", "a slash in it"),
        ("What Is Life?", "a question mark in its title"),
        ("Łódź", "not in ASCII"),
        ("ada_Lovelace", "& how to make it count"),
    ],
)
async def test_mediawiki_summaries_come_from_the_plain_api(ask_wiki: Asking, title: str, words: str) -> None:
    result = await ask_wiki("wiki_summary", title=title)
    assert words in result.text
    assert "In the war" not in result.text  # the introduction only


async def test_mediawiki_does_not_know_a_page(ask_wiki: Asking) -> None:
    with pytest.raises(SourceError, match="nothing for 'Nobody'"):
        await ask_wiki("wiki_summary", title="Nobody")
    with pytest.raises(SourceError, match="invalid characters"):
        await ask_wiki("wiki_summary", title="a{b}c")
    with pytest.raises(SourceError, match="nothing for 'qwertzuiop'"):
        await ask_wiki("wiki_search", query="qwertzuiop")


async def test_mediawikis_real_maxlag_is_waited_for_and_then_told(wiki: str) -> None:
    clock = Clock()
    asking = Asking({"wikipedia": wiki}, clock=clock, sleep=clock.sleep, wall=clock)
    request = wikipedia.search_request(asking.knowledge, "turing", 5, maxlag=-5)
    with pytest.raises(SourceError, match="rate limited: another request is allowed in 5 s") as caught:
        await asking.knowledge.ask(request, lambda answer: decode(answer, dict, "Wikipedia"))
    assert caught.value.wait == 5.0
    assert clock.slept == [5.0, 5.0]
    await asking.knowledge.close()


async def test_mediawikis_real_errors_are_200_and_errors(ask_wiki: Asking) -> None:
    request = wikipedia.search_request(ask_wiki.knowledge, "", 5)
    with pytest.raises(SourceError, match=r'"srsearch" parameter must be set. \[missingparam\]') as caught:
        await ask_wiki.knowledge.ask(request, lambda answer: decode(answer, dict, "Wikipedia"))
    assert caught.value.cause == "bad_query"


async def test_mediawikis_answers_are_kept_in_a_real_store(wiki: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    try:
        first = Asking({"wikipedia": wiki}, cached=store.cached, cache=store.cache)
        fresh = await first("wiki_search", query="lovelace")
        await first.knowledge.close()
        second = Asking({"wikipedia": CLOSED}, cached=store.cached, cache=store.cache)
        with pytest.raises(SourceError, match="no connection"):
            await second("wiki_search", query="lovelace")  # another address is another question
        third = Asking({"wikipedia": wiki}, cached=store.cached, cache=store.cache)
        kept = await third("wiki_search", query="lovelace")
        assert "(cached)" in kept.text
        assert kept.sources == fresh.sources
        await second.knowledge.close()
        await third.knowledge.close()
    finally:
        await store.close()


# ---- Oxigraph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.oxigraph(tmp_path_factory.mktemp("graph")) as url:
        yield url


@pytest.fixture
async def ask_graph(graph: str) -> AsyncIterator[Asking]:
    asking = Asking({"wikidata_sparql": graph, "dbpedia": CLOSED})
    yield asking
    await asking.knowledge.close()


PREFIXES = """PREFIX wd: <http://www.wikidata.org/entity/> PREFIX wdt: <http://www.wikidata.org/prop/direct/>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> """


@pytest.mark.parametrize("declared", [PREFIXES, ""])
async def test_oxigraph_answers_select_ask_and_construct(ask_graph: Asking, declared: str) -> None:
    """It knows no prefixes of its own."""
    rows = declared + (
        "SELECT ?item ?born ?job WHERE { ?item wdt:P569 ?born ; wdt:P106 ?j . ?j rdfs:label ?job "
        'FILTER(LANG(?job) = "en") } LIMIT 5'
    )
    result = await ask_graph("wikidata_query", sparql=rows)
    assert "item | born | job\nQ7259 | 1815-12-10 | mathematician" in result.text
    assert result.sources[0].url == "http://www.wikidata.org/entity/Q7259"
    asked = await ask_graph("wikidata_query", sparql=declared + "ASK { wd:Q7259 wdt:P106 wd:Q170790 }")
    assert "\n\nyes" in asked.text
    made = await ask_graph(
        "wikidata_query", sparql=declared + "CONSTRUCT { ?s wdt:P106 ?o } WHERE { ?s wdt:P106 ?o }"
    )
    assert "<http://www.wikidata.org/entity/Q7259>" in made.text


async def test_oxigraph_says_what_is_wrong_with_a_query(ask_graph: Asking) -> None:
    with pytest.raises(SourceError, match=r"(?s)rejected the query.*(expected|error).*") as caught:
        await ask_graph("wikidata_query", sparql="SELEC nope")
    assert caught.value.cause == "bad_query"


async def test_a_200_that_breaks_off_is_an_error_and_not_a_short_result(ask_graph: Asking) -> None:
    query = "SELECT * WHERE { ?s ?p ?o SERVICE <http://127.0.0.1:9/sparql> { ?a ?b ?c } }"
    with pytest.raises(SourceError, match=r"broke off its answer, and the result is incomplete") as caught:
        await ask_graph("wikidata_query", sparql=query)
    assert caught.value.cause == "down"


async def test_with_dbpedia_down_the_graph_answers_in_its_place(ask_graph: Asking) -> None:
    result = await ask_graph("dbpedia_query", sparql="SELECT ?b { dbr:Ada_Lovelace dbo:birthDate ?b }")
    assert "DBpedia did not answer (down), so this is from Wikidata instead" in result.text
    assert "Q7259 | date of birth | 1815-12-10" in result.text
    assert "Q7259 | occupation | mathematician" in result.text


async def test_with_dbpedia_down_a_label_is_enough(ask_graph: Asking) -> None:
    result = await ask_graph(
        "dbpedia_query", sparql='SELECT ?b { ?x rdfs:label "Ada Lovelace"@en ; dbo:birthDate ?b }'
    )
    assert "Q7259 | occupation | mathematician" in result.text


# ---- nginx

HIT = '{"query":{"search":[{"title":"Ada","snippet":"a &amp; b"}]}}'
FEED = """<feed xmlns="http://www.w3.org/2005/Atom" xmlns:o="http://a9.com/-/spec/opensearch/1.1/"><o:totalResults>1
</o:totalResults><entry><id>http://arxiv.org/abs/2601.00001v1</id><title>T</title><summary>S</summary></entry></feed>"""
LOCATIONS = r"""
location /polite/ {
  default_type text/plain;
  if ($http_user_agent !~ "^retinue/[0-9.]+ \([^)]+\) aiohttp/") {
    return 403 "Please set a user-agent and respect our robot policy.";
  }
  alias {own}/files/;
}
location /odd/ { default_type application/x-javascript; return 202 '{"AbstractText":"An engine.","Infobox":"","RelatedTopics":[]}'; }
location /packed/ { gzip on; gzip_min_length 1; gzip_types *; default_type application/json; alias {own}/files/; }
location /strict {
  limit_req zone=strict; limit_req_status 429; limit_conn one 1; limit_conn_status 429;
  default_type application/atom+xml; alias {own}/files/feed.xml;
}
location /banned { default_type text/plain; add_header Retry-After 1800 always; return 429 "slow down"; }
location /broken { return 502; }
"""
ZONES = "limit_req_zone $binary_remote_addr zone=strict:1m rate=20r/s; limit_conn_zone $binary_remote_addr zone=one:1m;"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    own = tmp_path_factory.mktemp("nginx")
    files = own / "files"
    (files / "w").mkdir(parents=True)
    (files / "w" / "api.php").write_text(HIT, "utf-8")
    (files / "search").mkdir()
    (files / "search" / "advanced").write_text(
        '{"items":[{"title":"Why &lt;T&gt;?","link":"https://x"}]}', "utf-8"
    )
    (files / "feed.xml").write_text(FEED, "utf-8")
    with servers.nginx(own, LOCATIONS, ZONES) as url:
        yield url, own


async def test_nginx_lets_us_in_by_our_user_agent_and_refuses_without_a_contact(
    web: tuple[str, Path],
) -> None:
    url, _ = web
    known = Asking({"wikipedia": url + "/polite"})
    assert "a & b" in (await known("wiki_search", query="ada")).text
    unknown = Asking({"wikipedia": url + "/polite"}, contact=None)
    with pytest.raises(SourceError, match=r"(?s)refused us with status 403.*Please set a user-agent"):
        await unknown("wiki_search", query="ada")
    await known.knowledge.close()
    await unknown.knowledge.close()


async def test_nginx_sends_an_odd_type_with_an_odd_status(web: tuple[str, Path]) -> None:
    asking = Asking({"duckduckgo": web[0] + "/odd"})
    result = await asking("duckduckgo", query="engine")
    assert "An engine." in result.text
    assert result.sources[0].status == 202
    await asking.knowledge.close()


async def test_nginx_compresses_and_we_read_it(web: tuple[str, Path]) -> None:
    asking = Asking({"stackexchange": web[0] + "/packed"})
    assert "Why <T>?" in (await asking("stackexchange_search", query="generics")).text
    await asking.knowledge.close()


async def test_nginx_says_429_once_and_is_left_alone(web: tuple[str, Path]) -> None:
    url, own = web
    asking = Asking({"arxiv": url + "/banned"})
    for _ in range(3):
        with pytest.raises(SourceError, match="rate limited: another request is allowed in 30 min"):
            await asking("arxiv_search", query=f"engines {_}")
    assert (own / "access.log").read_text().count("/banned") == 1
    await asking.knowledge.close()


async def test_nginx_is_down_and_says_so(web: tuple[str, Path]) -> None:
    asking = Asking({"wikidata_sparql": web[0] + "/broken"})
    with pytest.raises(SourceError, match=r"not working now \(status 502(?s:.*)502 Bad Gateway"):
        await asking("wikidata_query", sparql="ASK {}")
    await asking.knowledge.close()


async def test_fifty_children_never_trip_nginxs_own_limiter(web: tuple[str, Path]) -> None:
    url, own = web
    asking = Asking({"arxiv": url + "/strict"}, limits={"arxiv": Limit(interval=0.051, concurrency=1)})
    results = await asyncio.gather(*(asking("arxiv_search", query=f"engine {n}") for n in range(50)))
    assert len(results) == 50
    async with asyncio.timeout(60):  # nginx writes a line after its answer
        while (log := (own / "access.log").read_text()).count("/strict") < 50:
            await asyncio.sleep(0.01)
    lines = [line for line in log.splitlines() if "/strict" in line]
    assert len(lines) == 50
    assert all('" 200 ' in line for line in lines)
    await asking.knowledge.close()


async def test_nginxs_limiter_does_bite_who_does_not_keep_to_it(web: tuple[str, Path]) -> None:
    asking = Asking({"arxiv": web[0] + "/strict"}, limits={"arxiv": Limit(concurrency=8)}, timeout=1.0)
    results = await asyncio.gather(
        *(asking("arxiv_search", query=f"rude {n}") for n in range(20)), return_exceptions=True
    )
    assert any(isinstance(result, SourceError) and result.cause == "rate_limited" for result in results)
    await asking.knowledge.close()
