"""Tools that ask the public sources of knowledge: encyclopedias, graphs, papers, computed answers.

`app` makes one `KnowledgeClient` and hands its tools to agents:

    knowledge = Knowledge(settings.knowledge, cached=store.cached, cache=store.cache)
    tools = knowledge_tools(knowledge)

`client` is the only module that talks to the net. Each source has a small module that builds a request
and reads the answer, and each tool a `.md` file with what the model is told of it. Sources are loaded
when their tools are made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from retinue.tools.base import Tool

if TYPE_CHECKING:
    from retinue.tools.knowledge.client import KnowledgeClient

SOURCES = ("wikipedia", "wikidata", "duckduckgo", "arxiv", "dbpedia", "wolfram", "stackexchange", "nasa")
EXTRA = {
    "crossref": "crossref_search",
    "semanticscholar": "semantic_scholar_search",
    "pubmed": "pubmed_search",
    "openalex": "openalex_search",
    "hackernews": "hackernews_search",
}
"""What `knowledge.extra` may name, and the tool of each."""


def knowledge_tools(knowledge: KnowledgeClient) -> list[Tool]:
    """The tools of every source that is on: the eight, and those named in `knowledge.extra`."""
    names = SOURCES + tuple(name for name in EXTRA if name in knowledge.settings.extra)
    tools: list[Tool] = []
    for name in names:
        tools += import_module(f"{__name__}.{name}").tools(knowledge)
    return tools
