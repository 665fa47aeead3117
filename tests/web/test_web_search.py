"""Searching: backends in their real wire forms, the next one when one fails, and never "nothing" for a failure."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from local_web import Asked, Kept, Site

from retinue.errors import ToolError
from retinue.settings import WebSettings
from retinue.web.pages import CachedPages
from retinue.web.search import Searcher
from retinue.web.search_ddgs import Ddgs

BRAVE = {
    "type": "search",
    "query": {"original": "bridges"},
    "web": {
        "type": "search",
        "results": [
            {
                "title": "How <strong>bridges</strong> stand",
                "url": "https://a.test/bridges?utm_source=brave",
                "description": "All about <strong>bridges</strong> &amp; arches.",
                "page_age": "2024-05-06T10:00:00",
                "language": "en",
                "family_friendly": True,
            },
            {"title": "Spans", "url": "https://b.test/spans", "description": "Long ones."},
        ],
    },
}
TAVILY = {
    "query": "bridges",
    "answer": None,
    "images": [],
    "results": [
        {
            "title": "Arches",
            "url": "https://c.test/arches",
            "content": "They hold.",
            "score": 0.9,
            "raw_content": None,
        },
        {
            "title": "Bridges again",
            "url": "http://a.test/bridges/",
            "content": "The same page.",
            "score": 0.8,
        },
    ],
    "response_time": 0.4,
}
SEARXNG = {
    "query": "bridges",
    "number_of_results": 0,
    "results": [
        {"url": "https://d.test/x", "title": "X", "content": "About x.", "engine": "startpage", "score": 1.0,
         "publishedDate": "2023-02-01T00:00:00"},
        {"url": "ftp://d.test/y", "title": "Not a page", "content": ""},
    ],
    "answers": [],
    "unresponsive_engines": [["google", "CAPTCHA"]],
}  # fmt: skip


class Apis:
    """A server that speaks for all three, as each really answers."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.answers: dict[str, tuple[str, object, dict[str, str]]] = {}
        self.asked: list[tuple[str, Asked]] = []
        for name, path in (("brave", "/res/v1/web/search"), ("searxng", "/search"), ("tavily", "/t/search")):
            self.set(name, {"brave": BRAVE, "searxng": SEARXNG, "tavily": TAVILY}[name])
            site.pages[path] = self._respond(name)

    def set(self, name: str, body: object, status: str = "200 OK", **headers: str) -> None:
        self.answers[name] = (status, body, headers)

    def _respond(self, name: str):
        async def respond(asked: Asked) -> None:
            self.asked.append((name, asked))
            status, body, headers = self.answers[name]
            text = body if isinstance(body, str) else json.dumps(body)
            await asked.reply(text, status=status, kind="application/json", **headers)

        return respond

    def settings(self, *search: str) -> dict:
        url = self.site.url("").rstrip("/")
        return {"search": search, "brave_url": url, "searxng_url": url, "tavily_url": f"{url}/t"}


KEYS = {"BRAVE_API_KEY": "brave-secret", "TAVILY_API_KEY": "tavily-secret"}


@pytest.fixture
def apis(site: Site) -> Apis:
    return Apis(site)


async def failure(web, *queries: str) -> str:
    with pytest.raises(ToolError) as caught:
        await web.search(list(queries), 8)
    return str(caught.value)


async def test_a_query_that_no_backend_takes_is_told_and_harms_no_other(make_web, apis: Apis) -> None:
    web = make_web(**apis.settings("searxng"))
    assert "a query has 90,000 characters: the limit is 400" in await failure(web, "x" * 90_000, "bridges")
    assert apis.asked == []
    (answer,) = (await web.search(["brid\ud800ges"], 5)).answered
    assert answer.query == "brid?ges"
    assert answer.ok


async def test_brave_is_asked_and_read_in_its_own_form(make_web, apis: Apis) -> None:
    web = make_web(**apis.settings("brave"), environ=KEYS)
    outcome = await web.search(["bridges"], 5)
    (answer,) = outcome.answered
    assert [(r.title, r.url, r.snippet, r.date) for r in answer.results] == [
        (
            "How bridges stand",
            "https://a.test/bridges?utm_source=brave",
            "All about bridges & arches.",
            "2024-05-06",
        ),
        ("Spans", "https://b.test/spans", "Long ones.", ""),
    ]
    ((_, asked),) = apis.asked
    assert parse_qs(urlsplit(asked.path).query) == {"q": ["bridges"], "count": ["5"]}
    assert asked.headers["x-subscription-token"] == "brave-secret"


async def test_tavily_is_asked_and_read_in_its_own_form(make_web, apis: Apis) -> None:
    web = make_web(**apis.settings("tavily"), environ=KEYS)
    (answer,) = (await web.search(["bridges"], 5)).answered
    assert [r.url for r in answer.results] == ["https://c.test/arches", "http://a.test/bridges/"]
    ((_, asked),) = apis.asked
    assert (asked.method, json.loads(asked.body)) == ("POST", {"query": "bridges", "max_results": 5})
    assert asked.headers["authorization"] == "Bearer tavily-secret"


async def test_searxng_is_asked_and_read_in_its_own_form(make_web, apis: Apis) -> None:
    web = make_web(**apis.settings("searxng"))
    (answer,) = (await web.search(["bridges"], 5)).answered
    assert [(r.url, r.date) for r in answer.results] == [("https://d.test/x", "2023-02-01")]
    ((_, asked),) = apis.asked
    assert parse_qs(urlsplit(asked.path).query) == {"q": ["bridges"], "format": ["json"]}


async def test_several_queries_run_at_once_and_each_page_is_listed_once(
    make_web, apis: Apis, site: Site
) -> None:
    web = make_web(**apis.settings("tavily"), environ=KEYS)
    here = asyncio.Barrier(3)
    plain = site.pages["/t/search"]

    async def together(asked: Asked) -> None:
        await here.wait()
        await plain(asked)

    site.pages["/t/search"] = together
    async with asyncio.timeout(60):
        outcome = await web.search(["one", "two", "three"], 5)
    assert [len(answer.results) for answer in outcome.answered] == [2, 0, 0]
    assert [answer.repeated for answer in outcome.answered] == [0, 2, 2]


async def test_the_same_query_twice_is_asked_once(make_web, apis: Apis) -> None:
    web = make_web(**apis.settings("brave"), environ=KEYS)
    await web.search(["bridges", " bridges ", "", "bridges"], 5)
    assert len(apis.asked) == 1


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        ("401 Unauthorized", {}, "401, the key was rejected"),
        ("403 Forbidden", {}, "403, the key was rejected"),
        ("422 Unprocessable Entity", {}, "422, the key or the query was not accepted"),
        ("429 Too Many Requests", {"Retry_After": "12"}, "429, rate limited, again in 12 seconds"),
        ("500 Oops", {}, "status 500"),
        ("302 Found", {"Location": "https://elsewhere.test/"}, "status 302"),
    ],
)
async def test_a_failing_backend_is_named_with_its_reason_and_never_its_key(
    make_web, apis: Apis, status: str, headers: dict[str, str], says: str
) -> None:
    apis.set("brave", {"error": "no"}, status, **headers)
    text = await failure(make_web(**apis.settings("brave"), environ=KEYS), "bridges")
    assert text.startswith("search unavailable (brave: ")
    assert says in text
    assert "does not mean that there is nothing to find" in text
    assert "TAVILY_API_KEY" in text
    assert "brave-secret" not in text


@pytest.mark.parametrize("body", ["<html>", "[]", '"x"', "", "{" * 50_000])
async def test_an_answer_that_is_no_json_object_is_a_failure(make_web, apis: Apis, body: str) -> None:
    apis.set("brave", body)
    assert "JSON" in await failure(make_web(**apis.settings("brave"), environ=KEYS), "x")


@pytest.mark.parametrize(
    "body", [{}, {"web": None}, {"web": {"results": None}}, {"web": {"results": [1, None, {}]}}]
)
async def test_an_answer_without_results_from_a_reliable_backend_means_nothing_found(
    make_web, apis: Apis, body: object
) -> None:
    apis.set("brave", body)
    (answer,) = (await make_web(**apis.settings("brave"), environ=KEYS).search(["x"], 5)).answered
    assert answer.ok
    assert answer.results == ()


async def test_the_next_backend_is_asked_when_one_fails(make_web, apis: Apis) -> None:
    apis.set("searxng", {}, "500 x")
    apis.set("brave", {}, "429 x")
    web = make_web(**apis.settings("searxng", "brave", "tavily"), environ=KEYS)
    (answer,) = (await web.search(["bridges"], 5)).answered
    assert answer.backend == "tavily"
    assert [failure.partition(":")[0] for failure in answer.failures] == ["searxng", "brave"]
    assert [name for name, _ in apis.asked] == ["searxng", "brave", "tavily"]


async def test_a_backend_that_just_failed_is_not_asked_again_at_once(make_web, apis: Apis) -> None:
    now = 1000.0
    apis.set("brave", {}, "503 x")
    web = make_web(**apis.settings("brave", "tavily"), environ=KEYS, clock=lambda: now)
    await web.search(["one"], 5)
    await web.search(["two"], 5)
    assert [name for name, _ in apis.asked] == ["brave", "tavily", "tavily"]
    now += 31
    apis.set("brave", BRAVE)
    (answer,) = (await web.search(["three"], 5)).answered
    assert answer.backend == "brave"


async def test_searxng_without_json_says_how_to_switch_it_on(make_web, apis: Apis) -> None:
    apis.set("searxng", "", "403 Forbidden")
    assert "search.formats" in await failure(make_web(**apis.settings("searxng")), "x")


async def test_searxng_whose_engines_are_blocked_is_unavailable(make_web, apis: Apis) -> None:
    apis.set("searxng", {"results": [], "unresponsive_engines": [["google", "CAPTCHA"], ["bing", "timeout"]]})
    assert "\ngoogle, bing\n" in await failure(make_web(**apis.settings("searxng")), "x")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("brave", "BRAVE_API_KEY is not set"),
        ("tavily", "TAVILY_API_KEY is not set"),
        ("searxng", "web.searxng_url"),
    ],
)
async def test_a_backend_without_its_key_or_address_says_so(make_web, name: str, says: str) -> None:
    assert says in await failure(make_web(search=(name,)), "x")


async def test_without_any_backend_there_is_a_way_forward(make_web) -> None:
    assert "no backend is configured" in await failure(make_web(search=()), "x")


async def test_no_query_is_an_error(make_web) -> None:
    assert "no query" in await failure(make_web(search=()), "  ", "")


async def test_answers_are_kept_and_failures_are_not(make_web, apis: Apis) -> None:
    kept = Kept()
    web = make_web(kept, **apis.settings("brave"), environ=KEYS)
    await web.search(["bridges"], 5)
    await web.search(["BRIDGES"], 5)
    assert len(apis.asked) == 1
    assert not any(b"brave-secret" in value for value, _ in kept.values.values())
    kept.now += 4000
    await web.search(["bridges"], 5)
    assert len(apis.asked) == 2


async def test_what_another_address_answered_is_not_kept_for_this_one(make_web, apis: Apis) -> None:
    kept = Kept()
    await make_web(kept, **apis.settings("searxng")).search(["bridges"], 5)
    other = {**apis.settings("searxng"), "searxng_url": apis.settings("searxng")["searxng_url"] + "/x/.."}
    await make_web(kept, **other).search(["bridges"], 5)
    assert len(apis.asked) == 2


# ---- ddgs


def searcher(*backends: Any) -> Searcher:
    pages = CachedPages(None, None, scope="web", ttl=0, wall=lambda: 0)
    return Searcher(
        WebSettings(), environ={}, user_agent="retinue/test", pages=pages, backends=list(backends)
    )


async def test_an_engine_is_not_told_to_hand_a_query_on_to_another_site() -> None:
    asked: list[str] = []

    def engine(query: str, _: int) -> list[dict[str, str]]:
        asked.append(query)
        return [{"href": "https://a.test/"}]

    async def at_once(_: float) -> None:
        """Whoever is asked here needs no rest."""

    backend = Ddgs(engine=engine, sleep=at_once)
    await searcher(backend).search(["!evil a secret", "!!g x w! \\y !", "plain!"], 5)
    assert sorted(asked) == ["evil a secret", "g x w y", "plain"]


def broken(_: str, __: int) -> list[dict[str, str]]:
    raise RuntimeError("No results found. secret detail")


@pytest.mark.parametrize("engine", [lambda _q, _n: [], broken, lambda _q, _n: [{"title": "no address"}]])
async def test_an_empty_or_failed_answer_is_unavailable_and_never_nothing(engine) -> None:
    with pytest.raises(ToolError) as caught:
        await searcher(Ddgs(engine=engine)).search(["anything"], 5)
    text = str(caught.value)
    assert text.startswith("search unavailable (ddgs: ")
    assert "secret detail" not in text
    assert "BRAVE_API_KEY" in text


async def test_results_of_ddgs_are_read() -> None:
    found = [
        {"title": "A  b", "href": "https://a.test/", "body": "x\ny"},
        {"title": "bad", "href": "javascript:1"},
    ]
    (answer,) = (await searcher(Ddgs(engine=lambda _q, _n: found)).search(["q"], 5)).answered
    assert [(r.title, r.url, r.snippet) for r in answer.results] == [("A b", "https://a.test/", "x y")]


async def test_ddgs_is_asked_once_a_second() -> None:
    now, pauses, times = 100.0, [], []

    async def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(round(seconds, 3))
        now += seconds

    def engine(_: str, __: int) -> list[dict[str, str]]:
        times.append(now)
        return [{"title": "t", "href": "https://a.test/"}]

    await searcher(Ddgs(engine=engine, clock=lambda: now, sleep=sleep)).search(["a", "b", "c"], 5)
    assert pauses == [1.0, 1.0]
    assert len(times) == 3


async def test_the_real_library_behind_a_dead_proxy_is_unavailable(site: Site) -> None:
    site.add("*", "", status="502 Bad Gateway")
    with pytest.raises(ToolError, match="search unavailable"):
        await searcher(Ddgs(proxy=site.url("").rstrip("/"))).search(["anything"], 3)
    assert site.connections > 0


DUCKDUCKGO = """<html><body><div class="serp__results"><div id="links" class="results">
<div class="result results_links results_links_deep web-result"><div class="links_main links_deep result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a" href="https://en.example.org/wiki/Bridge">Bridge</a></h2>
<a class="result__snippet" href="https://en.example.org/wiki/Bridge">A <b>bridge</b> spans an obstacle.</a>
</div></div></div></div></body></html>"""


@pytest.fixture
def authority(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """A certificate for every name the library asks for, and the file that vouches for it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    root, root_key, key, cert = (
        str(tmp_path / name) for name in ("root.pem", "root.key", "key.pem", "cert.pem")
    )
    names = ",".join(f"DNS:{name}" for name in ("html.duckduckgo.com", "*.wikipedia.org"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    make = ["openssl", "req", "-x509", *curve, "-nodes", "-days", "1"]
    for command in (
        [*make, "-subj", "/CN=root", "-keyout", root_key, "-out", root],
        [*make, "-subj", "/CN=leaf", "-keyout", key, "-out", cert, "-CA", root, "-CAkey", root_key, "-addext",
         "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName={names}"],
    ):  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, root


async def test_the_real_library_reads_the_page_of_an_engine(site: Site, make_site, authority) -> None:
    context, cert = authority
    engine = await make_site(tls=context)
    engine.add("*", DUCKDUCKGO)

    async def tunnel(asked: Asked) -> None:
        """The proxy's half of CONNECT: every name leads to the engine above."""
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
        await asked.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
            sink.close()

        await asyncio.gather(pump(asked.reader, writer), pump(reader, asked.writer), return_exceptions=True)

    site.pages["*"] = tunnel
    backend = Ddgs(proxy=site.url("").rstrip("/"), verify=cert)
    (answer,) = (await searcher(backend).search(["bridge"], 3)).answered
    assert answer.backend == "ddgs"
    assert "https://en.example.org/wiki/Bridge" in [r.url for r in answer.results]
    assert engine.asked
