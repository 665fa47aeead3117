"""The sources that are off unless asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from retinue.app import Retinue
from retinue.errors import ConfigError
from retinue.settings import ExtraSource
from retinue.tools import knowledge
from retinue.tools.knowledge.causes import SourceError
from retinue.types import AgentSpec

from .wiring import Reply, Wire, World

Make = Callable[..., World]
EXTRA = ["crossref", "semanticscholar", "pubmed", "openalex", "hackernews"]
NAMES = [
    "crossref_search",
    "semantic_scholar_search",
    "pubmed_search",
    "openalex_search",
    "hackernews_search",
]


def test_extras_are_off_until_named(world: Make) -> None:
    assert not set(NAMES) & set(world().tools)
    assert set(NAMES) <= set(world(extra=EXTRA).tools)
    assert "pubmed_search" in world(extra=["pubmed"]).tools
    assert "crossref_search" not in world(extra=["pubmed"]).tools


def test_the_setting_knows_the_sources_that_there_are() -> None:
    assert get_args(ExtraSource) == tuple(knowledge.EXTRA)
    assert list(knowledge.EXTRA.values()) == NAMES


async def test_an_extra_source_reaches_the_agents_that_ask_sources(tmp_path: Path) -> None:
    extra = {"knowledge.extra": ["pubmed", "hackernews"]}
    async with Retinue(db="memory:", model="offline", settings=extra, environ={}, cwd=tmp_path) as app:
        specs = app.services.specs
        for name in ("web-knowledge", "science-research"):
            assert {"pubmed_search", "hackernews_search"} <= {*(specs[name].tools or ())}
            assert "crossref_search" not in (specs[name].tools or ())
        assert "pubmed_search" not in (specs["math-expert"].tools or ())


async def test_an_agent_of_ones_own_names_its_sources_itself(tmp_path: Path) -> None:
    mine = AgentSpec(name="web-knowledge", description="mine", prompt="Look it up.", tools=("wiki_search",))
    extra = {"knowledge.extra": ["pubmed"]}
    async with Retinue(
        db="memory:", model="offline", agents=[mine], settings=extra, environ={}, cwd=tmp_path
    ) as app:
        assert app.services.specs["web-knowledge"].tools == ("wiki_search",)


def test_an_unknown_extra_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"knowledge\.extra.*`crossref` or `semanticscholar`"):
        Retinue(db="memory:", settings={"knowledge.extra": ["googlescholar"]}, environ={}, cwd=tmp_path)


@pytest.mark.parametrize("name", NAMES)
async def test_an_empty_query_is_not_sent(world: Make, wire: Wire, name: str) -> None:
    with pytest.raises(Exception, match="query is empty"):
        await world(extra=EXTRA).ask(name, query=" ")
    assert wire.seen == []


async def test_crossref(world: Make, wire: Wire) -> None:
    work = {
        "DOI": "10.1093/mind/LIX.236.433",
        "title": ["I.—COMPUTING <i>MACHINERY</i>"],
        "author": [{"given": "A. M.", "family": "TURING"}, {"name": "A Group"}],
        "issued": {"date-parts": [[1950, 10, 1]]},
        "container-title": ["Mind"],
        "abstract": "<jats:p>I propose to consider a question &amp; more.</jats:p>",
        "is-referenced-by-count": 9000,
        "type": "journal-article",
    }
    bare = {"DOI": "10.1/x", "issued": {"date-parts": [[None]]}}
    wire.on(
        "/crossref/works", Reply({"status": "ok", "message": {"total-results": 12, "items": [work, bare]}})
    )
    result = await world(extra=EXTRA).ask("crossref_search", query="computing machinery", limit=2)
    assert wire.seen[0].query == {"query": "computing machinery", "rows": "2", "mailto": "ops@example.org"}
    assert "[1] I.—COMPUTING MACHINERY (1950-10-01)\nhttps://doi.org/10.1093/mind/LIX.236.433" in result.text
    assert (
        "authors: A. M. TURING, A Group\npublished in: Mind\ntype: journal article\ncited by: 9000"
        in result.text
    )
    assert "I propose to consider a question & more." in result.text
    assert "[2] 10.1/x\nhttps://doi.org/10.1/x" in result.text


async def test_semantic_scholar(world: Make, wire: Wire) -> None:
    paper: dict[str, Any] = {
        "paperId": "abc",
        "title": "Attention",
        "abstract": None,
        "year": 2017,
        "authors": [{"authorId": "1", "name": "A. V."}],
        "url": "https://www.semanticscholar.org/paper/abc",
        "citationCount": 5,
        "openAccessPdf": {"url": "https://x/y.pdf"},
        "externalIds": {"DOI": "10.2/y", "CorpusId": 13},
    }
    path = "/semanticscholar/graph/v1/paper/search"
    wire.on(path, Reply({"total": 1, "data": [paper]}), Reply({"total": 0, "offset": 0}))
    one = world(extra=EXTRA, environ={"SEMANTIC_SCHOLAR_API_KEY": "s2-key-000"})
    result = await one.ask("semantic_scholar_search", query="attention")
    assert wire.seen[0].headers["x-api-key"] == "s2-key-000"
    assert "[1] Attention (2017)" in result.text
    assert "cited by: 5\ndoi: 10.2/y\npdf: https://x/y.pdf" in result.text
    with pytest.raises(SourceError, match="Semantic Scholar has nothing"):
        await one.ask("semantic_scholar_search", query="zzz")


ARTICLE = """<?xml version="1.0" ?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN"
 "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">
<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">42</PMID><Article>
<Journal><JournalIssue><PubDate><Year>2025</Year></PubDate></JournalIssue><Title>J Lungs</Title></Journal>
<ArticleTitle>Asthma in <i>mice</i></ArticleTitle>
<Abstract><AbstractText Label="AIM">To breathe.</AbstractText><AbstractText>They did.</AbstractText></Abstract>
<AuthorList><Author><LastName>Doe</LastName><Initials>J</Initials></Author>
<Author><CollectiveName>Lung Group</CollectiveName></Author></AuthorList></Article></MedlineCitation>
<PubmedData><ArticleIdList><ArticleId IdType="doi">10.3/z</ArticleId></ArticleIdList></PubmedData>
</PubmedArticle></PubmedArticleSet>"""


async def test_pubmed_finds_ids_then_fetches_abstracts(world: Make, wire: Wire) -> None:
    wire.on("/pubmed/esearch.fcgi", Reply({"esearchresult": {"count": "7", "idlist": ["42"]}}))
    wire.on("/pubmed/efetch.fcgi", Reply(ARTICLE, type="text/xml; charset=UTF-8"))
    result = await world(extra=EXTRA).ask("pubmed_search", query="asthma", limit=1)
    assert {
        "db": "pubmed",
        "tool": "retinue",
        "email": "ops@example.org",
        "term": "asthma",
    }.items() <= wire.seen[0].query.items()
    assert wire.seen[1].query["id"] == "42"
    assert "1 of 7 articles" in result.text
    assert "[1] Asthma in mice (2025)\nhttps://pubmed.ncbi.nlm.nih.gov/42/" in result.text
    assert "authors: Doe J, Lung Group\npublished in: J Lungs\ndoi: 10.3/z" in result.text
    assert "AIM: To breathe. They did." in result.text


async def test_pubmeds_errors_are_read(world: Make, wire: Wire) -> None:
    path = "/pubmed/esearch.fcgi"
    one = world(extra=EXTRA)
    wire.on(path, Reply({"esearchresult": {"ERROR": "Search Backend failed: bad query"}}))
    with pytest.raises(SourceError, match="Search Backend failed"):
        await one.ask("pubmed_search", query="((")
    wire.on(path, Reply({"esearchresult": {"count": "0", "idlist": []}}))
    with pytest.raises(SourceError, match="PubMed has nothing"):
        await one.ask("pubmed_search", query="zzz")
    wire.on(path, Reply({"error": "API rate limit exceeded", "count": "4"}))
    with pytest.raises(SourceError, match=r"rate limited.*NCBI_API_KEY|rate limited"):
        await one.ask("pubmed_search", query="yyy")


async def test_openalex_needs_its_key_and_puts_abstracts_together(world: Make, wire: Wire) -> None:
    with pytest.raises(SourceError, match="set OPENALEX_API_KEY"):
        await world(extra=EXTRA).ask("openalex_search", query="x")
    assert wire.seen == []
    work = {
        "id": "https://openalex.org/W1",
        "display_name": "On order",
        "doi": "https://doi.org/10.4/w",
        "publication_date": "2024-02-03",
        "cited_by_count": 8,
        "authorships": [{"author": {"display_name": "Bo"}}],
        "primary_location": {"source": {"display_name": "J Order"}, "pdf_url": None},
        "abstract_inverted_index": {"words": [1, 3], "All": [0], "come": [2]},
    }
    wire.on("/openalex/works", Reply({"meta": {"count": 3}, "results": [work]}))
    result = await world(extra=EXTRA, environ={"OPENALEX_API_KEY": "oa-key-00"}).ask(
        "openalex_search", query="x"
    )
    assert wire.seen[0].query == {"search": "x", "per_page": "5", "api_key": "oa-key-00"}
    assert "[1] On order (2024-02-03)\nhttps://doi.org/10.4/w" in result.text
    assert "All words come words" in result.text
    assert "oa-key" not in repr(result)


async def test_hacker_news(world: Make, wire: Wire) -> None:
    hit = {
        "objectID": "8863",
        "title": "My YC app &amp; more",
        "url": "http://example.org/u",
        "author": "dh",
        "points": 104,
        "num_comments": 71,
        "created_at": "2007-04-04T19:16:40Z",
        "story_text": None,
    }
    wire.on("/hackernews/search", Reply({"hits": [hit], "nbHits": 9}))
    result = await world(extra=EXTRA).ask("hackernews_search", query="yc app")
    assert wire.seen[0].query == {"query": "yc app", "tags": "story", "hitsPerPage": "5"}
    assert "[1] My YC app & more (2007-04-04)\nhttps://news.ycombinator.com/item?id=8863" in result.text
    assert "link: http://example.org/u\npoints: 104\ncomments: 71\nby: dh" in result.text
