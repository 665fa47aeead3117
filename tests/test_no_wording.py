"""No program decides by the wording of a text: what it needs to know is a field of an event or a report."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "retinue"
PARSERS = ("models", "web", "tools", "testing", "agents", "authority")
"""These read what others wrote: providers, pages, programs, agent files. That is their work."""
WORDED = {"text", "error", "reason", "message", "incomplete", "note", "notice", "summary", "why", "detail"}
"""Fields that hold sentences."""
TESTS = {"startswith", "endswith", "find", "index", "partition", "removeprefix", "removesuffix"}
SHOWS = {
    # what is attached must not end its own frame
    "attachments.py: re.sub",
    # what is shown beside a source already is not shown again; both are the same list
    "view/answer.py: problem.startswith",
}


def worded(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in WORDED


def decisions(tree: ast.AST) -> Iterator[str]:
    """Where a sentence is looked into: `"…" in x.text`, `x.error.startswith(…)`, `re.match(…, x.reason)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if worded(node.comparators[0]) and isinstance(node.left, ast.Constant | ast.Name):
                yield f"{ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asks = node.func.attr in TESTS and worded(node.func.value)
            if asks or (ast.unparse(node.func.value) == "re" and any(map(worded, node.args))):
                yield ast.unparse(node.func)


def test_nothing_looks_into_a_sentence_to_decide():
    found: list[str] = []
    for file in sorted(SRC.rglob("*.py")):
        place = file.relative_to(SRC)
        if place.parts[0] not in PARSERS:
            found += [f"{place}: {each}" for each in decisions(ast.parse(file.read_text("utf-8")))]
    assert sorted(set(found) - SHOWS) == []


def test_the_search_finds_what_it_is_meant_to_find():
    text = """
if "nobody to ask" in event.text: pass
if report.error.startswith("timed out"): pass
re.match("x", event.reason)
"""
    assert len(list(decisions(ast.parse(text)))) == 3
