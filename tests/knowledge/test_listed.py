"""What counts as read: the content of a thing, an abstract, an article, a value. A hit is only listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_hostile import EXTRA, KEYS, TEXT_OF
from .wiring import Reply, Wire, World

Make = Callable[..., World]
SPARQL = {
    "head": {"vars": ["v"]},
    "results": {"bindings": [{"v": {"type": "literal", "value": "1"}}]},
}
FEED = """<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>http://arxiv.org/abs/2001.00001v1</id><title>A</title>
{}</entry></feed>"""
ARTICLES = """<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID><Article>{}</Article></MedlineCitation>
</PubmedArticle></PubmedArticleSet>"""
IDS = Reply({"esearchresult": {"count": "1", "idlist": ["1"]}})
QUESTION = {
    "question_id": 1,
    "title": "q",
    "body": "why",
    "link": "https://x.test/questions/1/q",
    "answer_count": 1,
}
SUMMARY = {"title": "A", "extract": "An A.", "content_urls": {"desktop": {"page": "https://x.test/A"}}}
PICTURE = {"title": "a", "date": "1970-01-01", "explanation": "b", "permalink": "https://x.test/p"}
NEO = {"name": "n", "nasa_jpl_url": "https://x.test/n"}
TOPIC = {"Text": "A - a letter", "FirstURL": "https://x.test/A"}


def xml(text: str) -> Reply:
    return Reply(text, type="text/xml")


CASES: list[tuple[str, dict[str, Reply], dict[str, Any], list[bool]]] = [
    ("wiki_search", {"wikipedia/w/api.php": Reply({"query": {"search": [{"title": "A", "snippet": "s"}]}})}, {}, [True]),
    ("wiki_summary", {"wikipedia/api/rest_v1/page/summary/x": Reply(SUMMARY)}, {}, [False]),
    ("wikidata_search", {"wikidata/w/api.php": Reply({"search": [{"id": "Q1", "description": "d"}]})}, {}, [True]),
    ("wikidata_query", {"wikidata_sparql": Reply(SPARQL)}, {}, [False]),
    ("dbpedia_query", {"dbpedia": Reply(SPARQL)}, {}, [False]),
    ("duckduckgo", {"duckduckgo/": Reply({"RelatedTopics": [TOPIC]})}, {}, [True]),
    ("duckduckgo", {"duckduckgo/": Reply({"RelatedTopics": [TOPIC], "AbstractText": "t", "AbstractURL": TOPIC["FirstURL"]})}, {}, [False]),
    ("arxiv_search", {"arxiv": xml(FEED.format("<summary>We show.</summary>"))}, {}, [False]),
    ("arxiv_search", {"arxiv": xml(FEED.format(""))}, {}, [True]),
    ("wolfram_query", {"wolfram/v1/result": Reply("4", type="text/plain")}, {}, [False]),
    ("stackexchange_search", {"stackexchange/search/advanced": Reply({"items": [QUESTION]})}, {}, [True]),
    ("stackexchange_search", {"stackexchange/search/advanced": Reply({"items": [QUESTION]}), "stackexchange/questions/1/answers": Reply({"items": [{"question_id": 1, "body": "so"}]})}, {"answers": True}, [False]),
    ("nasa_apod", {"nasa_science/wp-json/wp/v2/apod-basic": Reply([PICTURE])}, {}, [False]),
    ("nasa_neows", {"nasa/neo/rest/v1/feed": Reply({"near_earth_objects": {"1970-01-01": [NEO]}})}, {}, [False]),
    ("crossref_search", {"crossref/works": Reply({"message": {"items": [{"DOI": "1/a"}, {"DOI": "1/b", "abstract": "We show."}]}})}, {}, [True, False]),
    ("semantic_scholar_search", {"semanticscholar/graph/v1/paper/search": Reply({"total": 2, "data": [{"paperId": "a"}, {"paperId": "b", "abstract": "We show."}]})}, {}, [True, False]),
    ("pubmed_search", {"pubmed/esearch.fcgi": IDS, "pubmed/efetch.fcgi": xml(ARTICLES.format("<Abstract><AbstractText>We show.</AbstractText></Abstract>"))}, {}, [False]),
    ("pubmed_search", {"pubmed/esearch.fcgi": IDS, "pubmed/efetch.fcgi": xml(ARTICLES.format(""))}, {}, [True]),
    ("openalex_search", {"openalex/works": Reply({"results": [{"id": "https://x.test/a"}, {"id": "https://x.test/b", "abstract_inverted_index": {"We": [0]}}]})}, {}, [True, False]),
    ("hackernews_search", {"hackernews/search": Reply({"hits": [{"objectID": "1"}, {"objectID": "2", "story_text": "We show."}]})}, {}, [True, False]),
]  # fmt: skip


def test_every_tool_is_decided_upon() -> None:
    assert {name for name, *_ in CASES} == set(TEXT_OF)


@pytest.mark.parametrize(("name", "replies", "more", "listed"), CASES)
async def test_a_hit_is_listed_and_content_is_read(
    world: Make, wire: Wire, name: str, replies: dict[str, Reply], more: dict[str, Any], listed: list[bool]
) -> None:
    for path, reply in replies.items():
        wire.on(f"/{path}", reply)
    text = {TEXT_OF[name]: "" if name.startswith("nasa") else "x"}
    result = await world(extra=EXTRA, environ=KEYS).ask(name, **text, **more)
    assert [source.listed for source in result.sources] == listed
