"""What the model is told of the knowledge tools, and how they are loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .wiring import World

Make = Callable[..., World]
SNAPSHOT = Path(__file__).with_name("tools.snapshot.json")
EIGHT = {
    "wiki_search": ["query", "limit", "lang"],
    "wiki_summary": ["title", "lang"],
    "wikidata_search": ["query", "limit", "lang"],
    "wikidata_query": ["sparql"],
    "duckduckgo": ["query"],
    "arxiv_search": ["query", "limit", "sort", "start"],
    "dbpedia_query": ["sparql"],
    "wolfram_query": ["query", "mode"],
    "stackexchange_search": ["query", "site", "limit", "answers"],
    "nasa_apod": ["date"],
    "nasa_neows": ["start_date", "end_date"],
}
EXTRA = ["crossref", "semanticscholar", "pubmed", "openalex", "hackernews"]


def test_the_tools_have_their_names_and_parameters(world: Make) -> None:
    tools = world().tools
    assert {name: list(tool.schema["properties"]) for name, tool in tools.items()} == EIGHT


def test_every_tool_is_a_repeatable_network_tool_that_bounds_its_time(world: Make) -> None:
    for tool in world(extra=EXTRA, request_timeout=30).tools.values():
        assert tool.effect == "network"
        assert tool.repeatable
        assert tool.timeout == 35


def test_every_parameter_is_described(world: Make) -> None:
    for tool in world(extra=EXTRA).tools.values():
        assert len(tool.description) > 40
        for name, schema in tool.schema["properties"].items():
            assert schema.get("description"), f"{tool.name}.{name}"


def test_what_the_model_reads_is_what_was_reviewed(world: Make) -> None:
    """Set RETINUE_SNAPSHOTS=write to write the file anew after a change that is meant."""
    keys = {"WOLFRAM_APP_ID": "x", "OPENALEX_API_KEY": "x"}
    tools = world(extra=EXTRA, environ=keys).tools.values()
    shown = [{"name": t.name, "description": t.description, "schema": t.schema} for t in tools]
    text = json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("RETINUE_SNAPSHOTS") == "write":
        SNAPSHOT.write_text(text, "utf-8")
    assert text == SNAPSHOT.read_text("utf-8")


@pytest.mark.parametrize("module", ["retinue.tools.knowledge", "retinue.tools.knowledge.trigger"])
def test_nothing_heavy_is_loaded_before_it_is_used(module: str) -> None:
    code = f"import sys, {module}; print(sorted(m for m in ('aiohttp', 'pydantic', 'defusedxml', 'yarl') if m in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_client_is_made_without_loading_an_http_library() -> None:
    code = (
        "import sys; from retinue.settings import KnowledgeSettings;"
        "from retinue.tools.knowledge.client import KnowledgeClient; KnowledgeClient(KnowledgeSettings());"
        "print('aiohttp' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
