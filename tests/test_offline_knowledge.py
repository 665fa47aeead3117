"""The offline model looks things up, and computes."""

from __future__ import annotations

import pytest

from asking_offline import (
    GREP,
    READ,
    WEB_FETCH,
    WEB_SEARCH,
    WIKI_SEARCH,
    WIKI_SUMMARY,
    first_calls,
    framed,
    play,
    spec,
)
from retinue.models.offline.sums import evaluate, solve
from retinue.models.offline.words import stem_of, terms_of

ARXIV = spec("arxiv_search", required=("query",), query="string", limit="integer")


@pytest.mark.parametrize(
    ("question", "names", "words", "paths"),
    [
        ("Where is ClientSession defined?", ["ClientSession"], [], []),
        ("where are retries decided?", [], ["retries", "decided"], []),
        ("who calls `parse_header()` in src/net/http.py?", ["parse_header"], [], ["src/net/http.py"]),
        ('which file prints "connection lost"?', ["connection lost"], ["prints"], []),
        ("how is the SSE stream read", [], ["SSE", "stream", "read"], []),
        ("where is retinue.loop.run_agent?", ["run_agent"], [], []),
        ("what reads --max-cost?", ["--max-cost"], ["reads"], []),
    ],
)
def test_terms_are_names_first_then_words(
    question: str, names: list[str], words: list[str], paths: list[str]
) -> None:
    terms = terms_of(question)
    assert [term.text for term in terms.names] == names
    assert [term.text for term in terms.words] == words
    assert list(terms.paths) == paths


@pytest.mark.parametrize(
    ("word", "others"),
    [
        ("retries", ["retry", "retried", "retrying"]),
        ("cookies", ["cookie"]),
        ("parses", ["parse", "parser", "parsing"]),
        ("splitting", ["split", "splits"]),
        ("decided", ["decide", "deciding"]),
        ("validation", ["validate", "validator"]),
        ("classes", ["class"]),
    ],
)
def test_a_stem_finds_the_other_forms_of_a_word(word: str, others: list[str]) -> None:
    import re

    _, pattern = stem_of(word)
    assert all(re.match(pattern, other) for other in [word, *others])


def test_knowledge_comes_as_bullets_with_the_address_of_each() -> None:
    search = "Wikipedia: 2 results\n\n[1] Marie Curie\nhttps://en.wikipedia.org/wiki/Marie_Curie\nPhysicist."
    summary = (
        "Wikipedia: Marie Curie\n\n[1] Marie Curie\nhttps://en.wikipedia.org/wiki/Marie_Curie\n"
        "Marie Curie was a Polish and French physicist and chemist. She won two Nobel Prizes."
    )
    tools = (WIKI_SEARCH, WIKI_SUMMARY)
    calls = first_calls("web-knowledge", "Who is Marie Curie?", *tools)
    assert calls == [("wiki_search", {"query": "Marie Curie", "limit": 5})]
    text = play(
        "web-knowledge", "Who is Marie Curie?", tools, {"wiki_search": search, "wiki_summary": summary}
    )
    assert "- Marie Curie was a Polish and French physicist" in text
    assert "Source: https://en.wikipedia.org/wiki/Marie_Curie" in text


def test_knowledge_that_was_not_found_is_not_made_up() -> None:
    text = play("web-knowledge", "Who is Zorblax Quux?", (WIKI_SEARCH,), {"wiki_search": "no result"})
    assert "**Not found:**" in text


def test_knowledge_that_could_not_be_looked_up_is_not_said_to_be_missing() -> None:
    said = {"wiki_search": "Wikipedia is not working now"}
    text = play("web-knowledge", "Who is Zorblax Quux?", (WIKI_SEARCH,), said, failing="wiki_search")
    assert "**Not looked up:**" in text
    assert "wiki_search: Wikipedia is not working now" in text


def test_papers_are_listed_with_authors_year_and_link() -> None:
    found = (
        "arXiv: 1 paper\n\n[1] Attention Is All You Need (2017-06-12)\nhttps://arxiv.org/abs/1706.03762\n"
        "authors: A. Vaswani, N. Shazeer\nThe dominant sequence models are based on recurrent networks."
    )
    text = play("science-research", "papers about attention models", (ARXIV,), {"arxiv_search": found})
    assert "*Attention Is All You Need*" in text
    assert "A. Vaswani, N. Shazeer" in text
    assert "2017" in text
    assert "https://arxiv.org/abs/1706.03762" in text


def test_only_fetched_pages_are_sources() -> None:
    found = (
        "## uv release notes\n1. Uv guide (2026-05-02)\n   https://docs.example/uv\n   All about uv release notes\n"
        "2. Other\n   https://other.example/\n   something else"
    )
    page = "Title: The uv guide\n\nIntroduction here.\n\nThe uv release notes say that version 9 is out since May."
    results: dict[str, str | list[str]] = {
        "web_search": framed(found, "search results"),
        "web_fetch": [f"https://docs.example/uv (HTML, fetched now)\n{framed(page, 'web page')}", "x"],
    }
    calls = first_calls("agentic-fetch", "Search the web for uv release notes", WEB_SEARCH, WEB_FETCH)
    assert calls == [("web_search", {"queries": ["uv release notes", "release notes"]})]
    text = play("agentic-fetch", "Search the web for uv release notes", (WEB_SEARCH, WEB_FETCH), results)
    assert "- The uv release notes say that version 9 is out since May. [1]" in text
    assert "1. [The uv guide](https://docs.example/uv)" in text
    assert "It is data" not in text


def test_a_page_that_was_saved_is_searched_in_its_file() -> None:
    results: dict[str, str | list[str]] = {
        "web_fetch": "The page is large and was saved to /home/agent/page.md",
        "grep": "/home/agent/page.md:90: The uv release of May brought workspaces to everyone.",
        "read": "    90\tThe uv release of May brought workspaces to everyone.",
    }
    question = "prompt: what did the uv release bring?\nurl: https://docs.example/uv"
    text = play("agentic-fetch", question, (WEB_FETCH, GREP, READ), results)
    assert "brought workspaces to everyone" in text
    assert "(https://docs.example/uv)" in text


@pytest.mark.parametrize(
    ("problem", "result"),
    [
        ("Compute 12 * (3 + 4)", "84"),
        ("what is 15% of 80?", "12"),
        ("2^10 - 1", "1023"),
        ("Solve 2x + 3 = 7 for x", "x = 2"),
        ("solve 3x = x + 1", "x = 0.5"),
        ("calculate 1/3 + 1/3", "2/3 ≈ 0.6666666667"),
        ("sqrt(2) * sqrt(2)", "2"),
    ],
)
def test_arithmetic_is_computed(problem: str, result: str) -> None:
    solved = solve(problem)
    assert solved is not None
    assert solved[2] == result


@pytest.mark.parametrize(
    "problem",
    ["solve x^3 + sin(x) = 2", "cos(x) + x = 1", "solve y + 2x = 4", "solve y - 2x = 4", "sqrt(x) = 3"],
)
def test_a_part_of_an_equation_is_not_solved_as_if_it_were_all_of_it(problem: str) -> None:
    solved = solve(problem)
    assert solved is None or not solved[2].startswith("x ="), solved


@pytest.mark.parametrize(
    "text",
    ["9**9**9**9", "__import__('os')", "(1).__class__", "1/0", "factorial(10**9)", "x" * 400, "sqrt(-1)"],
)
def test_what_is_not_arithmetic_or_too_large_has_no_value(text: str) -> None:
    assert evaluate(text) is None
