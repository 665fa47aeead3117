"""The tools over answers that were recorded from the real sources and from real server software.

Skipped where the recordings are not there. Bodies are served unchanged, over HTTP, by the local server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from retinue.tools.knowledge.causes import SourceError

from .wiring import Clock, Reply, Wire, World

Make = Callable[..., World]
API = "/wikipedia/w/api.php"
REST = "/wikipedia/api/rest_v1/page/summary/"
KEPT = ("content-type", "retry-after", "mediawiki-api-error", "x-sparql-maxrows", "x-sql-state")


def raw(path: Path) -> Reply:
    """A file that is an HTTP answer as it came."""
    head, _, body = path.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    first, *lines = head.decode().split("\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    kept = {k: v for k, v in headers.items() if k in KEPT}
    return Reply(body, status=int(first.split()[1]), type=kept.pop("content-type"), headers=kept)


def cassette(path: Path) -> Reply:
    """A file of one of four ways to record a request and its answer."""
    data: Any = json.loads(path.read_text("utf-8"))
    if isinstance(data, list):
        answer = data[0]["response"]
        headers = {k.lower(): v for k, v in dict(answer["headers"]).items()}
        return Reply(answer["body"].encode(), status=answer["status_code"], type=headers["content-type"])
    if "body" in data and "status_code" in data:
        return Reply(data["body"].encode("latin-1"), status=data["status_code"], type="application/atom+xml")
    answer = (data.get("interactions") or data["http_interactions"])[0]["response"]
    code = answer["status"]["code"] if isinstance(answer["status"], dict) else answer["status"]
    return Reply(answer["body"]["string"].encode(), status=code)


def bare(path: Path) -> Reply:
    return Reply(path.read_bytes())


# ---- Wikipedia


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("vcr_WikiSearch.test_limit.json", "Python (programming language)"),
        ("vcr_WikiSearch.test_prop_snippet_.json", "Python (programming language)"),
        ("vcr_WikiSearch.test_enable_rewrites.json", "Python (programming language)"),
        ("vcr_WikiSearch.test_info_suggestion_.json", "Python (programming language)"),
        ("r_vcr_wt_wikipedia_search.json", "Pine"),
    ],
)
async def test_recorded_searches(world: Make, wire: Wire, recorded: Path, name: str, first: str) -> None:
    wire.on(API, cassette(recorded / "wikipedia" / name))
    result = await world().ask("wiki_search", query="x")
    assert f"[1] {first}" in result.text
    assert "searchmatch" not in result.text
    assert "&quot;" not in result.text
    assert len(result.sources) >= 3


async def test_a_recorded_search_without_hits(world: Make, wire: Wire, recorded: Path) -> None:
    for reply in (
        cassette(recorded / "wikipedia" / "r_vcr_wt_wikipedia_search_not_found.json"),
        raw(recorded / "local_real_servers" / "mw_search_empty.http"),
    ):
        wire.on(API, reply)
        with pytest.raises(SourceError, match="has nothing for 'x'"):
            await world().ask("wiki_search", query="x")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            lambda r: cassette(r / "wikipedia/vcr_WikiSearch.test_what_title_.json"),
            '"title" search is disabled',
        ),
        (lambda r: bare(r / "wikipedia/android_api_error.json"), "oscillate"),
        (lambda r: raw(r / "local_real_servers/mw_err_badvalue.http"), "nosuch"),
        (lambda r: raw(r / "local_real_servers/mw_err_missingparam.http"), "must be set"),
    ],
)
async def test_recorded_errors_with_status_200(
    world: Make, wire: Wire, recorded: Path, reply: Callable[[Path], Reply], said: str
) -> None:
    wire.on(API, reply(recorded))
    with pytest.raises(SourceError, match=said) as caught:
        await world().ask("wiki_search", query="x")
    assert caught.value.cause == "bad_query"
    assert "mailing list" not in str(caught.value)


async def test_recorded_results_of_a_real_mediawiki(world: Make, wire: Wire, recorded: Path) -> None:
    wire.on(API, raw(recorded / "local_real_servers" / "mw_search.http"))
    result = await world().ask("wiki_search", query="turing")
    assert "Alan Mathison Turing (23 June 1912 – 7 June 1954) was an English mathematician" in result.text
    assert "redirects to Alan Turing" in result.text
    wire.on(API, raw(recorded / "local_real_servers" / "mw_warning_limit.http"))
    assert "must be between 1 and 500" in (await world().ask("wiki_search", query="turing")).text


@pytest.mark.parametrize(
    ("name", "title", "words"),
    [
        ("wikipedia/android_rb_page_summary_geo.json", "Moscow", "capital and largest city of Russia"),
        (
            "wikipedia/android_rb_page_summary_valid.json",
            "Fermat's Last Theorem",
            "no three positive integers",
        ),
        ("wikipedia/wptools_rest_summary.json", "Douglas Adams", "English author"),
        ("local_real_servers/pcs_summary.http", "Alan Turing", "Turing"),
        ("local_real_servers/pcs_no_extract.http", "Turing", "has no summary text"),
    ],
)
async def test_recorded_summaries(
    world: Make, wire: Wire, recorded: Path, name: str, title: str, words: str
) -> None:
    from urllib.parse import quote

    path = recorded / name
    wire.on(
        REST + quote(title.replace(" ", "_"), safe=""), raw(path) if path.suffix == ".http" else bare(path)
    )
    result = await world().ask("wiki_summary", title=title)
    assert f"[1] {title}" in result.text
    assert words in result.text
    assert result.sources[0].url


async def test_recorded_extracts_in_both_formats(world: Make, wire: Wire, recorded: Path) -> None:
    wire.on(API, raw(recorded / "local_real_servers" / "mw_extract_redirect.http"))
    result = await world().ask("wiki_summary", title="Turing")
    assert "theoretical computer science" in result.text
    assert "'Turing' led to 'Alan Turing'" in result.text
    wire.on(API, cassette(recorded / "wikipedia" / "vcr_PageExtractProps.test_summary.json"))
    result = await world().ask("wiki_summary", title="Python (programming language)")
    assert "high-level, general-purpose programming language" in result.text
    wire.on(API, bare(recorded / "wikipedia" / "wptools_disambiguation.json"))
    result = await world().ask("wiki_summary", title="Douglas Adams (disambiguation)")
    assert "- Douglas Adams (engineer), American engineer" in result.text


async def test_recorded_pages_that_are_not_there(world: Make, wire: Wire, recorded: Path) -> None:
    wire.on(API, raw(recorded / "local_real_servers" / "mw_missing.http"))
    with pytest.raises(SourceError, match="nothing for 'Nope page'"):
        await world().ask("wiki_summary", title="Nope page")
    wire.on(API, raw(recorded / "local_real_servers" / "mw_invalid_title.http"))
    with pytest.raises(SourceError, match="invalid characters"):
        await world().ask("wiki_summary", title="{bad}")
    wire.on(REST + "Nope", raw(recorded / "local_real_servers" / "mw_rest_404.http"))
    with pytest.raises(SourceError, match="nothing for 'Nope'"):
        await world().ask("wiki_summary", title="Nope")


# ---- Wikidata and DBpedia


async def test_recorded_entities(world: Make, wire: Wire, recorded: Path) -> None:
    wire.on("/wikidata/w/api.php", raw(recorded / "local_real_servers" / "wb_search_alias.http"))
    result = await world().ask("wikidata_search", query="A. M.")
    assert "[1] Q1 Alan Turing" in result.text
    assert "also known as: A. M. Turing\nEnglish computer scientist (1912–1954)" in result.text


@pytest.mark.parametrize(
    "reply",
    [
        lambda r: raw(r / "local_real_servers/wb_err_no_such_entity.http"),
        lambda r: bare(r / "wikidata/android_wikidata_entity_label_invalid_entity.json"),
    ],
)
async def test_recorded_errors_of_wikidata(
    world: Make, wire: Wire, recorded: Path, reply: Callable[[Path], Reply]
) -> None:
    wire.on("/wikidata/w/api.php", reply(recorded))
    with pytest.raises(SourceError, match="no-such-entity"):
        await world().ask("wikidata_search", query="foo")


@pytest.mark.parametrize("name", ["post_directly", "post_url_encoded"])
async def test_recorded_rows_of_wikidata(world: Make, wire: Wire, recorded: Path, name: str) -> None:
    wire.on("/wikidata_sparql", cassette(recorded / "wikidata" / f"wikidata_select_as_json_via_{name}.json"))
    result = await world().ask("wikidata_query", sparql="SELECT …")
    assert "item | label\nQ4544975 | *Lisp" in result.text
    assert "http://www.wikidata.org/entity/Q4544975" in {source.url for source in result.sources}


@pytest.mark.parametrize("name", ["construct", "describe"])
async def test_recorded_triples_of_wikidata(world: Make, wire: Wire, recorded: Path, name: str) -> None:
    wire.on("/wikidata_sparql", cassette(recorded / "wikidata" / f"wikidata_{name}_as_ntriples.json"))
    result = await world().ask("wikidata_query", sparql="DESCRIBE …")
    assert (
        "<http://www.wikidata.org/prop/direct/P31>" in result.text
        or "<http://www.wikidata.org/" in result.text
    )
    assert len(result.text) < 70_000


@pytest.mark.parametrize(
    "name",
    [
        "wikidata/wikidata_ask_as_xml.json",
        "wikidata/wikidata_select_as_csv_via_get.json",
        "dbpedia/dbpedia_ask_as_xml.json",
    ],
)
async def test_a_recorded_form_that_was_not_asked_for_is_a_clear_error(
    world: Make, wire: Wire, recorded: Path, name: str
) -> None:
    wire.on("/wikidata_sparql", cassette(recorded / name))
    with pytest.raises(SourceError, match=r"(?s)not a result.*(application/sparql-results\+xml|text/csv)"):
        await world().ask("wikidata_query", sparql="ASK …")


@pytest.mark.parametrize("name", ["as_json_via_get", "as_json_via_post_url_encoded", "via_defaults"])
async def test_recorded_rows_of_dbpedia(world: Make, wire: Wire, recorded: Path, name: str) -> None:
    wire.on("/dbpedia", cassette(recorded / "dbpedia" / f"dbpedia_select_{name}.json"))
    result = await world().ask("dbpedia_query", sparql="SELECT …")
    assert (
        'name | birth | death | person\n"Annot" (Annot Jacobi) | 1894-12-27 | 1981-10-20 | dbr:Annot_(artist)'
        in result.text
    )
    assert "INCOMPLETE" not in result.text


async def test_other_recorded_answers_of_dbpedia(world: Make, wire: Wire, recorded: Path) -> None:
    wire.on("/dbpedia", cassette(recorded / "dbpedia" / "dbpedia_ask_as_json.json"))
    assert "\n\nyes" in (await world().ask("dbpedia_query", sparql="ASK …")).text
    for name in ("construct_as_ntriples", "describe"):
        wire.on("/dbpedia", cassette(recorded / "dbpedia" / f"dbpedia_{name}.json"))
        assert "dbpedia.org" in (await world().ask("dbpedia_query", sparql="CONSTRUCT …")).text


async def test_recorded_answers_of_a_real_virtuoso(world: Make, wire: Wire, recorded: Path) -> None:
    folder = recorded / "local_real_servers"
    wire.on("/dbpedia", raw(folder / "virt_select.http"))
    assert "Q7251 | Alan Turing" in (await world().ask("dbpedia_query", sparql="SELECT …")).text
    wire.on("/dbpedia", raw(folder / "virt_maxrows.http"))
    assert (
        "INCOMPLETE: the server gives at most 5 rows"
        in (await world().ask("dbpedia_query", sparql="SELECT …")).text
    )
    wire.on("/dbpedia", raw(folder / "virt_400.http"))
    with pytest.raises(SourceError, match=r"SPARQL compiler, line 1: syntax error at 'SELEC' before 'nope'"):
        await world().ask("dbpedia_query", sparql="SELEC nope")
    wire.on("/dbpedia", raw(folder / "virt_partial_anytime.http"))
    with pytest.raises(SourceError, match="found nothing before its time limit"):
        await world().ask("dbpedia_query", sparql="SELECT ?x { ?x a dbo:City }")


async def test_recorded_answers_of_a_real_oxigraph(world: Make, wire: Wire, recorded: Path) -> None:
    folder = recorded / "local_real_servers"
    wire.on("/wikidata_sparql", raw(folder / "ox_select.http"))
    assert "Q7251 | Alan Turing" in (await world().ask("wikidata_query", sparql="SELECT …")).text
    wire.on("/wikidata_sparql", raw(folder / "ox_ask.http"))
    assert "\n\nyes" in (await world().ask("wikidata_query", sparql="ASK {}")).text
    wire.on("/wikidata_sparql", raw(folder / "ox_200_truncated.http"))
    with pytest.raises(SourceError, match=r"(?s)broke off its answer.*failed to lookup address information"):
        await world().ask("wikidata_query", sparql="SELECT …")


# ---- the others


async def test_recorded_instant_answers(world: Make, wire: Wire, recorded: Path) -> None:
    folder = recorded / "duckduckgo"
    wire.on(
        "/duckduckgo/", Reply((folder / "topic_summaries.json").read_bytes(), type="application/x-javascript")
    )
    result = await world().ask("duckduckgo", query="valley forge")
    assert "[1] Valley Forge National Historical Park" in result.text
    wire.on(
        "/duckduckgo/", Reply((folder / "disambiguation.json").read_bytes(), type="application/x-javascript")
    )
    result = await world().ask("duckduckgo", query="apple")
    assert "multinational technology company" in result.text
    assert all(source.url and source.url.startswith("https://") for source in result.sources)
    wire.on(
        "/duckduckgo/",
        Reply((folder / "bang_no_redirect.json").read_bytes(), type="application/x-javascript"),
    )
    assert "imdb.com/find" in (await world().ask("duckduckgo", query="!imdb rushmore")).text


@pytest.mark.parametrize(
    ("name", "count", "total"),
    [
        ("q_testing_s0_m100_cfe7536492ca.json", 100, 214881),
        ("q_testing_s0_m10_bc5a6c384fe9.json", 10, 214881),
        ("q_testing_s10_m10_34e56e15aaac.json", 10, 214881),
        ("q_testing_s20_m10_348a237fecab.json", 10, 214881),
        ("q_testing_s40_m10_96dd32eb854c.json", 10, 214881),
        ("q_testing_s50_m10_7f488ab8598c.json", 10, 214881),
        ("q_testing_s5_m15_bbcf6b23085b.json", 15, 214881),
        ("q_testing_s9_m15_0b78d4b4d476.json", 15, 214881),
    ],
)
async def test_recorded_pages_of_arxiv(
    world: Make, wire: Wire, recorded: Path, name: str, count: int, total: int
) -> None:
    wire.on("/arxiv", cassette(recorded / "arxiv" / name))
    result = await world().ask("arxiv_search", query="testing")
    assert f"{count} of {total} papers" in result.text
    assert len(result.sources) == count
    assert all(source.url and source.url.startswith("https://arxiv.org/abs/") for source in result.sources)
    assert "Ã" not in result.text  # UTF-8 read as UTF-8


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("id_1605.08386_s0_m100_199195aa31ad.json", "1605.08386", "Heat-bath random walks with Markov bases"),
        ("id_1707.08567_s0_m100_6a1afebfc6a3.json", "1707.08567", "Proceedings of Workshop AEW10"),
        (
            "id_0808.05394_1707.08567_s0_m100_42e5aa0ec3af.json",
            "0808.05394 1707.08567",
            "not found: 0808.05394",
        ),
        ("id_astro-ph_0601001_s0_m100_3150dca9dc76.json", "astro-ph/0601001", "abs/astro-ph/0601001v1"),
    ],
)
async def test_recorded_papers_by_id(
    world: Make, wire: Wire, recorded: Path, name: str, asked: str, words: str
) -> None:
    wire.on("/arxiv", cassette(recorded / "arxiv" / name))
    assert words in (await world().ask("arxiv_search", query=asked)).text


async def test_the_recorded_error_of_arxiv(world: Make, wire: Wire, recorded: Path) -> None:
    wire.on("/arxiv", cassette(recorded / "arxiv" / "id_abc_s0_m100_b79c8dcf6bc3.json"))
    with pytest.raises(SourceError, match=r"(?s)rejected the query.*incorrect id format for abc"):
        await world().ask("arxiv_search", query="id:abc")


async def test_recorded_errors_of_stack_exchange(world: Make, wire: Wire, recorded: Path) -> None:
    for name, said in (("throttle_ip", "4.9 h"), ("backoff_violation", "rate limited")):
        body = (recorded / "stackexchange" / f"error_502_{name}.json").read_bytes()
        wire.on("/stackexchange/search/advanced", Reply(body, status=400, gzipped=True))
        with pytest.raises(SourceError, match=said):
            await world().ask("stackexchange_search", query="x")


async def test_the_recorded_501_of_wolfram(world: Make, wire: Wire, recorded: Path) -> None:
    body = (recorded / "wolfram" / "result_501_no_short_answer.txt").read_bytes()
    wire.on("/wolfram/v1/result", Reply(body, status=501, type="text/plain"))
    with pytest.raises(SourceError, match="mode='full'"):
        await world(environ={"WOLFRAM_APP_ID": "ABCD-1234"}).ask("wolfram_query", query="x")


async def test_the_recorded_picture_of_the_old_service(world: Make, wire: Wire, recorded: Path) -> None:
    wire.on("/nasa/planetary/apod", raw(recorded / "nasa" / "ovid_get_planetary_apod_1.http"))
    clock = Clock(datetime(2026, 11, 16, tzinfo=UTC).timestamp())
    result = await world(clock=clock).ask("nasa_apod", date="2023-06-12")
    assert (
        "[1] The Largest Satellites of Earth (2023-06-12)\nhttps://apod.nasa.gov/apod/ap230612.html"
        in result.text
    )
    assert (
        "image: https://apod.nasa.gov/apod/image/2306/IssMoon_Yang_2599.jpg\ncredit: Tianyao Yang"
        in result.text
    )


async def test_recorded_asteroids(world: Make, wire: Wire, recorded: Path) -> None:
    body = (
        (recorded / "nasa" / "ovid_get_neo_rest_v1_neo_browse_0.http").read_text("utf-8").partition("\n\n")[2]
    )
    browsed = json.loads(body)
    feed = {"links": browsed["links"], "near_earth_objects": {"2026-11-16": browsed["near_earth_objects"]}}
    wire.on("/nasa/neo/rest/v1/feed", Reply(feed))
    result = await world().ask("nasa_neows", start_date="2026-11-16")
    assert "433 Eros (A898 PA)" in result.text
    assert "potentially hazardous: no" in result.text
    assert "api_key" not in repr(result)
