"""The sources: where each lives, what it allows, which key it takes.

Data only. A base URL can be replaced by `knowledge.base_urls`; limits are those the sources publish, or a
careful guess where they publish none. Sources that share a server's limit share a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retinue.web.pacing import Limit

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceInfo:
    """`limit` without, `better` with what `unlock` names: the operator's contact, or the source's key."""

    label: str
    base: str
    limit: Limit
    better: Limit | None = None
    unlock: Literal["contact", "key", ""] = ""
    lane: str = ""
    key: str = ""
    """The environment variable that holds its key."""
    get_key: str = ""
    default_key: str = ""
    timeout: float = 20.0


# A second more than the minute they count by: requests may take unequal times to arrive.
_WIKIMEDIA = Limit(interval=0.1, concurrency=3, windows=((10, 61.0),))
_WIKIMEDIA_KNOWN = Limit(interval=0.1, concurrency=3, windows=((200, 61.0),))
# One at a time keeps within 60 s of query time per minute; the pause keeps within 30 errors per minute.
_SPARQL = Limit(interval=0.5, concurrency=1, after_error=2.0)

SOURCES: dict[str, SourceInfo] = {
    "wikipedia": SourceInfo(
        label="Wikipedia",
        base="https://{lang}.wikipedia.org",
        lane="wikimedia",
        limit=_WIKIMEDIA,
        better=_WIKIMEDIA_KNOWN,
        unlock="contact",
    ),
    "wikidata": SourceInfo(
        label="Wikidata",
        base="https://www.wikidata.org",
        lane="wikimedia",
        limit=_WIKIMEDIA,
        better=_WIKIMEDIA_KNOWN,
        unlock="contact",
    ),
    "wikidata_sparql": SourceInfo(
        label="the Wikidata query service",
        base="https://query.wikidata.org/sparql",
        lane="wikidata_sparql",
        limit=_SPARQL,
        timeout=60.0,
    ),
    "wikidata_scholarly": SourceInfo(
        label="the Wikidata query service for scholarly articles",
        base="https://query-scholarly.wikidata.org/sparql",
        lane="wikidata_sparql",
        limit=_SPARQL,
        timeout=60.0,
    ),
    "duckduckgo": SourceInfo(
        label="DuckDuckGo", base="https://api.duckduckgo.com", limit=Limit(interval=1.0, concurrency=1)
    ),
    "arxiv": SourceInfo(
        label="arXiv",
        base="https://export.arxiv.org/api/query",
        limit=Limit(interval=3.0, concurrency=1),
    ),
    "dbpedia": SourceInfo(
        label="DBpedia",
        base="https://dbpedia.org/sparql",
        limit=Limit(interval=0.05, concurrency=4),
        timeout=15.0,
    ),
    "wolfram": SourceInfo(
        label="Wolfram|Alpha",
        base="https://api.wolframalpha.com",
        limit=Limit(interval=0.5, concurrency=2),
        key="WOLFRAM_APP_ID",
        get_key="free at https://developer.wolframalpha.com",
    ),
    "wolfram_llm": SourceInfo(
        label="Wolfram|Alpha",
        base="https://www.wolframalpha.com",
        lane="wolfram",
        limit=Limit(interval=0.5, concurrency=2),
        key="WOLFRAM_APP_ID",
        get_key="free at https://developer.wolframalpha.com",
    ),
    "stackexchange": SourceInfo(
        label="Stack Exchange",
        base="https://api.stackexchange.com/2.3",
        limit=Limit(interval=0.1, concurrency=2, windows=((300, DAY),)),
        better=Limit(interval=0.1, concurrency=2, windows=((10_000, DAY),)),
        unlock="key",
        key="STACKEXCHANGE_KEY",
        get_key="free at https://stackapps.com",
    ),
    "nasa_science": SourceInfo(
        label="NASA", base="https://science.nasa.gov", limit=Limit(interval=0.5, concurrency=2)
    ),
    "nasa": SourceInfo(
        label="NASA",
        base="https://api.nasa.gov",
        limit=Limit(interval=0.2, concurrency=2, windows=((30, HOUR), (50, DAY))),
        better=Limit(interval=0.2, concurrency=2, windows=((1000, HOUR),)),
        unlock="key",
        key="NASA_API_KEY",
        get_key="free at https://api.nasa.gov",
        default_key="DEMO_KEY",
    ),
    "crossref": SourceInfo(
        label="Crossref",
        base="https://api.crossref.org",
        limit=Limit(interval=0.2, concurrency=1),
        better=Limit(interval=0.1, concurrency=3),
        unlock="contact",
    ),
    "semanticscholar": SourceInfo(
        label="Semantic Scholar",
        base="https://api.semanticscholar.org",
        limit=Limit(interval=3.0, concurrency=1),
        better=Limit(interval=1.0, concurrency=1),
        unlock="key",
        key="SEMANTIC_SCHOLAR_API_KEY",
        get_key="free at https://www.semanticscholar.org/product/api",
    ),
    "pubmed": SourceInfo(
        label="PubMed",
        base="https://eutils.ncbi.nlm.nih.gov/entrez/eutils",
        limit=Limit(interval=0.34, concurrency=1),
        better=Limit(interval=0.1, concurrency=3),
        unlock="key",
        key="NCBI_API_KEY",
        get_key="free at https://account.ncbi.nlm.nih.gov/settings",
    ),
    "openalex": SourceInfo(
        label="OpenAlex",
        base="https://api.openalex.org",
        limit=Limit(interval=0.1, concurrency=4),
        key="OPENALEX_API_KEY",
        get_key="free at https://openalex.org/settings/api",
    ),
    "hackernews": SourceInfo(
        label="Hacker News",
        base="https://hn.algolia.com/api/v1",
        limit=Limit(interval=0.4, concurrency=2),
    ),
}
