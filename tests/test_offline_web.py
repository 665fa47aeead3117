"""The offline model with the real web and knowledge tools, before a local server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web as http

from retinue.agents import builtin_agents
from retinue.errors import ToolError
from retinue.models.offline import OfflineModel
from retinue.models.offline.cells import best_cells
from retinue.models.offline.results import sentences_in
from retinue.models.offline.words import terms_of
from retinue.settings import KnowledgeSettings, WebSettings
from retinue.tools.base import Tool, ToolContext
from retinue.tools.files import file_tools
from retinue.tools.knowledge import knowledge_tools
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.web import web_tools
from retinue.types import Message, ModelRequest, Reply, ToolMessage, UserMessage
from retinue.web.fetch import Web
from retinue.workspace import Files
from retinue.workspace_folder import Workspace

AGENTS = builtin_agents()
GUIDE = "<html><head><title>Guide to Lanterns</title></head><body><h1>Lanterns</h1>{body}</body></html>"
ANSWER = "A lantern of the harbour office burns for nine hours on one filling."


async def _search(request: http.Request) -> http.Response:
    host = request.host
    results = [
        {"title": "Guide to Lanterns", "url": f"http://{host}/guide", "content": "How long a lantern burns"},
        {"title": "Cheese", "url": f"http://{host}/missing", "content": "Nothing about light"},
    ]
    return http.json_response({"results": results, "unresponsive_engines": []})


async def _page(request: http.Request) -> http.Response:
    filler = "<p>Other harbours use other lamps, which is told elsewhere.</p>" * (
        2 if "guide" in request.path else 2000
    )
    body = f"{filler}<p>{ANSWER}</p>{filler}"
    return http.Response(text=GUIDE.format(body=body), content_type="text/html")


async def _wide(request: http.Request) -> http.Response:
    """A page with a title that could be an answer, and all its text in one line."""
    filler = "Other harbours use other lamps, which is told elsewhere. " * int(request.query["times"])
    title = "How long the lantern of a harbour may burn"
    page = f"<html><head><title>{title}</title></head><body><p>{filler}{ANSWER} {filler}</p></body></html>"
    return http.Response(text=page, content_type="text/html")


PLANS = """<h1>{name}</h1><p>The lanterns of {name} are told of on this page, with what they need.</p>
<h2>Plans</h2><table><tr><th>Plan</th><th>Monthly price</th><th>Lamps</th></tr>
<tr><td>Quay</td><td>${quay}</td><td>12</td></tr><tr><td>Harbour</td><td>${harbour}</td><td>40</td></tr></table>
<h2>Facts</h2><table><tr><td>Licence</td><td>{licence}</td></tr><tr><td>Founded</td><td>1871</td></tr></table>"""


async def _plans(request: http.Request) -> http.Response:
    """Plans with their prices in one table, facts in another that has no header."""
    told = {
        "north": PLANS.format(name="North Lights", quay="5.50", harbour="19", licence="MIT"),
        "south": PLANS.format(name="South Lamps", quay="7", harbour="16.25", licence="Apache-2.0"),
    }[request.match_info["who"]]
    filler = "<p>Other harbours use other lamps, which is told elsewhere.</p>" * int(
        request.query.get("more", 0)
    )
    page = f"<html><body>{filler}{told}</body></html>"
    return http.Response(text=page, content_type="text/html")


async def _wiki(request: http.Request) -> http.Response:
    hits = [
        {"title": "Marie Curie", "snippet": "physicist", "pageid": 1},
        {"title": "Curie (unit)", "snippet": "unit"},
    ]
    return http.json_response({"query": {"search": hits, "searchinfo": {"totalhits": 2}}})


async def _summary(request: http.Request) -> http.Response:
    title = request.match_info["title"].replace("_", " ")
    page = f"https://en.wikipedia.org/wiki/{title.replace(' ', '_')}"
    extract = f"{title} was a physicist and chemist who did research on radioactivity. More follows here."
    return http.json_response(
        {"title": title, "extract": extract, "type": "standard", "content_urls": {"desktop": {"page": page}}}
    )


@pytest.fixture
async def server() -> AsyncIterator[str]:
    app = http.Application()
    app.router.add_get("/search", _search)
    app.router.add_get("/guide", _page)
    app.router.add_get("/large", _page)
    app.router.add_get("/wide", _wide)
    app.router.add_get("/plans/{who}", _plans)
    app.router.add_get("/w/api.php", _wiki)
    app.router.add_get("/api/rest_v1/page/summary/{title}", _summary)
    runner = http.AppRunner(app, access_log=None)
    await runner.setup()
    site = http.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def tools(server: str) -> AsyncIterator[dict[str, Tool]]:
    settings = WebSettings(
        search=("searxng",), searxng_url=f"http://{server}", allow_hosts=(server,), robots=False
    )
    reach = Web(settings, environ={})
    sources = {"wikipedia": f"http://{server}"}
    knowledge = KnowledgeClient(KnowledgeSettings(base_urls=sources, contact="test@example.org"), environ={})
    offered = [*web_tools(reach), *knowledge_tools(knowledge), *file_tools()]
    offered += [replace(tool, name="view") for tool in offered if tool.name == "read"]
    yield {tool.name: tool for tool in offered}
    await reach.close()
    await knowledge.close()


async def run(role: str, question: str, tools: dict[str, Tool], files: Files, only: set[str]) -> str:
    spec = AGENTS[role]
    offered = tuple(tool.spec for name, tool in tools.items() if name in (spec.tools or ()) and name in only)
    messages: list[Message] = [UserMessage(text=question)]
    for _ in range(spec.max_turns or 10):
        asked = ModelRequest(system=spec.prompt, messages=tuple(messages), tools=offered)
        reply = [event async for event in OfflineModel().stream(asked)][-1]
        assert isinstance(reply, Reply)
        messages.append(reply.message)
        if not reply.message.calls:
            return reply.message.text
        for call in reply.message.calls:
            context = ToolContext(
                run_id="r",
                root_id="r",
                depth=0,
                agent=role,
                call_id=call.id,
                files=files,
                progress=lambda text: None,
                denied=lambda what, detail: None,
            )
            try:
                result = await tools[call.name].call(tools[call.name].parse(call.arguments), context)
                text, failed = (result, False) if isinstance(result, str) else (result.text, result.is_error)
            except ToolError as error:
                text, failed = str(error), True
            messages.append(ToolMessage(call_id=call.id, name=call.name, text=text, is_error=failed))
    raise AssertionError("no answer")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(None, Workspace(root=tmp_path))
    yield made
    made.close()


WEB = {"web_search", "web_fetch", "grep", "view"}


async def test_a_page_is_fetched_quoted_and_cited(tools: dict[str, Tool], files: Files, server: str) -> None:
    url = f"http://{server}/guide"
    text = await run("agentic-fetch", f"prompt: how long does a lantern burn?\nurl: {url}", tools, files, WEB)
    assert f"{ANSWER} [1]" in text
    assert f"1. [Guide to Lanterns]({url})" in text


async def test_a_large_page_is_searched_where_it_was_saved(
    tools: dict[str, Tool], files: Files, server: str
) -> None:
    url = f"http://{server}/large"
    text = await run("agentic-fetch", f"prompt: how long does a lantern burn?\nurl: {url}", tools, files, WEB)
    assert ANSWER in text
    assert f"({url})" in text


@pytest.mark.parametrize("times", [2, 2000])
@pytest.mark.parametrize("role", ["agentic-fetch", "summarize"])
async def test_remarks_of_the_tools_are_not_taken_for_words_of_the_page(
    tools: dict[str, Tool], files: Files, server: str, role: str, times: int
) -> None:
    url = f"http://{server}/wide?times={times}"
    asked = {
        "agentic-fetch": f"prompt: how long does a lantern burn?\nurl: {url}",
        "summarize": f"source: {url}\nfocus: how long a lantern burns",
    }
    text = await run(role, asked[role], tools, files, WEB)
    assert ANSWER in text
    assert re.findall(r"Title:|\[long line|\[line \d+ has", text) == []


@pytest.mark.parametrize(
    "remark",
    [
        "… [long line, match at column 99; read it with column]",
        "… [long line, read it wi",
        "… [line 3 has 90,210 bytes; go on with offset=3, limit=1, column=2001]",
    ],
)
def test_where_a_long_line_was_cut_is_no_sentence(remark: str) -> None:
    assert sentences_in(
        f"The lamps of the harbour burn all night{remark}\nThey are lit at six every day."
    ) == [
        "The lamps of the harbour burn all night",
        "They are lit at six every day.",
    ]


async def test_the_web_is_searched_and_only_what_was_read_is_a_source(
    tools: dict[str, Tool], files: Files, server: str
) -> None:
    text = await run("agentic-fetch", "Search the web: how long does a lantern burn?", tools, files, WEB)
    assert ANSWER in text
    sources = text.partition("## Sources")[2]
    assert f"http://{server}/guide" in sources
    assert "/missing" not in sources
    assert "/missing" in text.partition("## Sources")[0]


async def test_a_page_is_summed_up_with_its_source(tools: dict[str, Tool], files: Files, server: str) -> None:
    url = f"http://{server}/guide"
    text = await run("summarize", f"source: {url}\nfocus: how long a lantern burns", tools, files, WEB)
    assert ANSWER in text
    assert f"Source: {url}" in text


async def test_pages_are_compared_point_by_point(tools: dict[str, Tool], files: Files, server: str) -> None:
    pages = f"http://{server}/guide\nhttp://{server}/large\nhttp://{server}/missing"
    text = await run("compare", f"sources: {pages}\npoints: lantern hours, price", tools, files, WEB)
    rows = text.splitlines()
    assert rows[2].count(ANSWER) == 2
    assert rows[3].count("not stated") == 2
    assert "/missing" in text.partition("Could not be opened")[2]


@pytest.mark.parametrize("more", [0, 2000])
async def test_values_in_tables_are_compared(
    tools: dict[str, Tool], files: Files, server: str, more: int
) -> None:
    """Under a header, in a row, at both, and in a table of pairs; the large page is read where it was saved."""
    pages = f"http://{server}/plans/north?more={more}\nhttp://{server}/plans/south?more={more}"
    points = "price, harbour price, quay, licence, cheese"
    text = await run("compare", f"sources: {pages}\npoints: {points}", tools, files, WEB)
    assert text.splitlines()[2:7] == [
        "| price | Monthly price: Quay: $5.50; Harbour: $19 | Monthly price: Quay: $7; Harbour: $16.25 |",
        "| harbour price | Harbour: $19 | Harbour: $16.25 |",
        "| quay | Quay: Monthly price: $5.50, Lamps: 12 | Quay: Monthly price: $7, Lamps: 12 |",
        "| licence | Licence: MIT | Licence: Apache-2.0 |",
        "| cheese | not stated | not stated |",
    ]


def test_prices_are_found_under_any_header() -> None:
    table = "| Plan | Monthly | Lamps |\n| --- | --- | --- |\n| Quay | $5 | 12 |\n| Pier | $9 | 40 |"
    assert best_cells(table, terms_of("cost").all, 200)[1] == "Monthly: Quay: $5; Pier: $9"
    assert best_cells(table, terms_of("lamps").all, 200)[1] == "Lamps: Quay: 12; Pier: 40"
    assert best_cells(table, terms_of("weight").all, 200) == (0.0, "")


@pytest.mark.parametrize("row", ["|", "| pier", "| pier | $9 | 3 | 4 | 5 |", "| | $9 |"])
def test_rows_that_are_too_short_or_too_long_are_read_as_far_as_they_go(row: str) -> None:
    table = f"| Plan | Price | Lamps |\n| --- | --- | --- |\n| Quay | $5 | 12 |\n{row}\n"
    assert "Quay: $5" in best_cells(table, terms_of("price").all, 200)[1]
    assert best_cells(f"| Price |\n| --- |\n{row}\n", terms_of("weight").all, 200) == (0.0, "")


async def test_a_text_is_summed_up_as_it_is(tools: dict[str, Tool], files: Files) -> None:
    given = (
        f"Other harbours use other lamps, see https://example.org/lamps for them. {ANSWER} It is lit at six."
    )
    text = await run("summarize", f"source: {given}\nfocus: how long a lantern burns", tools, files, WEB)
    assert ANSWER in text
    assert "Source: the given text" in text


async def test_texts_are_compared_as_they_are(tools: dict[str, Tool], files: Files) -> None:
    north = "The lantern of the north burns for nine hours on one filling."
    south = "The lantern of the south burns for seven hours on one filling."
    text = await run("compare", f"sources: {north}\n\n{south}\npoints: lantern hours", tools, files, WEB)
    rows = text.splitlines()
    assert rows[0] == "| | text 1 | text 2 |"
    assert rows[2] == f"| lantern hours | {north} | {south} |"


@pytest.mark.parametrize(("role", "field"), [("summarize", "source"), ("compare", "sources")])
async def test_what_is_no_source_gets_told_what_to_give(
    tools: dict[str, Tool], files: Files, role: str, field: str
) -> None:
    text = await run(role, f"{field}: the usual lamps", tools, files, WEB)
    assert "“the usual lamps” is neither a URL nor a path, and too short to be a text." in text
    assert f"Ask again with `{field}`:" in text


async def test_an_encyclopedia_answers_with_its_address(tools: dict[str, Tool], files: Files) -> None:
    text = await run("web-knowledge", "Who is Marie Curie?", tools, files, {"wiki_search", "wiki_summary"})
    first = text.splitlines()[0]
    assert first.startswith("- Marie Curie was a physicist and chemist")
    assert first.endswith("Source: https://en.wikipedia.org/wiki/Marie_Curie")
