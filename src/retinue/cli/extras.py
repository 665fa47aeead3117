"""What each extra of the package brings, so that a missing one is named by the command that installs it.

Called where an import failed (`exits`), where an agent lacks its tools (`ask`) and by `doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable

EXTRAS = {
    "postgres": ("asyncpg",),
    "providers": ("pydantic_ai",),
    "web": ("ddgs", "html_to_markdown", "trafilatura", "protego", "charset_normalizer", "defusedxml"),
    "code": ("pydantic_monty",),
    "sheets": ("python_calamine",),
    "server": ("fastapi", "uvicorn", "markdown_it", "nh3"),
}
_WEB_TOOLS = """
web_search web_fetch extract wiki_search wiki_summary wikidata_search wikidata_query duckduckgo
arxiv_search dbpedia_query wolfram_query stackexchange_search nasa_apod nasa_neows
"""
WEB_TOOLS = frozenset(_WEB_TOOLS.split())


def install(extra: str) -> str:
    return f"pip install 'retinue[{extra}]'"


def extra_with(module: str) -> str:
    """The extra that brings a module, or an empty text."""
    top = module.partition(".")[0]
    return next((name for name, modules in EXTRAS.items() if top in modules), "")


def lacking(wanted: Iterable[str], held: Iterable[str]) -> list[str]:
    """The tools out of these that are not there because the `web` extra is not."""
    there = frozenset(held)
    return [name for name in wanted if name in WEB_TOOLS and name not in there]
