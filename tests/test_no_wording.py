"""No program decides by the wording of a text: what it needs to know is a field of an event or a report."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "retinue"
PARSERS = ("models", "web", "tools", "testing", "agents", "authority", "claims", "research")
"""These read what others wrote: providers, pages, programs, agent files, reports. That is their work."""
WORDED = {"text", "error", "reason", "message", "incomplete", "note", "notice", "summary", "why", "detail"}
"""Fields that hold sentences."""
TESTS = {"startswith", "endswith", "find", "index", "partition", "removeprefix", "removesuffix"}
READS_OTHERS = ("sandbox", "skills")
"""So do these, of which the fields are looked at all the same: git, the sandbox's Python, skills."""
SHOWS = {
    # what is attached must not end its own frame
    "attachments.py: re.sub",
    # a digest of a digest: either may be a model's own words, so no event has them in parts
    "digest.py: bare.startswith: you were told: ",
    "digest.py: bare.startswith: you said: ",
    "digest.py: found.startswith: reported: ",
    "digest.py: found.removeprefix: reported: ",
    # the kernel's and the TOML reader's own words
    "engine/abandoned.py: line.startswith: btime",
    "settings/files.py: re.search:  \\(at (?:line (\\d+), column \\d+|end of document)\\)$",
    # the name of a database's driver
    "cli/checks.py: scheme.startswith: sqlite",
}
SENTENCE = re.compile(r"[A-Za-z]{2,}[:,]? +[A-Za-z]?|[a-z]{4,}")
"""Two words, or one: no sign, no suffix of a file, no prefix of a name such as `mcp__`."""


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


def constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                    yield target.id, node.value.value


def words_of(node: ast.expr, named: Mapping[str, str]) -> list[str]:
    """The texts that a value is written as, here or where its constant is."""
    if isinstance(node, ast.Tuple):
        return [text for each in node.elts for text in words_of(each, named)]
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return [named[name]] if name in named else []


def searches(tree: ast.AST, named: Mapping[str, str]) -> Iterator[str]:
    """Where any text, whatever its name, is searched for words that stand in the code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            found = [text for text in words_of(node.left, named) if re.search("[a-z]{2,} [a-z]", text)]
            yield from (f"{ast.unparse(node.comparators[0])}: {text}" for text in found)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in TESTS | {"rpartition", "match", "search", "fullmatch", "split"}:
                continue
            words = [text for argument in node.args[:1] for text in words_of(argument, named)]
            sentences = [text for text in words if SENTENCE.fullmatch(text) or " " in text.strip()]
            if node.func.attr == "split":
                sentences = [text for text in words if text.strip().isalpha()]
            yield from (f"{ast.unparse(node.func)}: {text}" for text in sentences)


def test_no_text_is_searched_for_words_of_ours():
    trees = {file: ast.parse(file.read_text("utf-8")) for file in sorted(SRC.rglob("*.py"))}
    everywhere = {name: text for tree in trees.values() for name, text in constants(tree)}
    found: set[str] = set()
    for file, tree in trees.items():
        place = file.relative_to(SRC)
        if place.parts[0] not in (*PARSERS, *READS_OTHERS):
            named = {**everywhere, **dict(constants(tree))}
            found |= {f"{place}: {each}" for each in searches(tree, named)}
    assert sorted(found - SHOWS) == []


def test_no_script_of_the_page_searches_a_text_for_words_of_ours():
    asks = re.compile(
        r"""\.(?:startsWith|endsWith|includes|indexOf|match|search|split)\(\s*["'`/^]+[A-Za-z]{2,}[:,]? [A-Za-z]"""
    )
    scripts = sorted((SRC / "server" / "static" / "js").rglob("*.js"))
    found = [f"{file.name}: {hit[0]}" for file in scripts for hit in asks.finditer(file.read_text("utf-8"))]
    assert scripts
    assert found == []
    assert asks.search('if (event.text.includes("nobody to ask")) return;')
    assert asks.search("const ended = /^timed out/;") is None  # what a pattern is for, its use says
    assert asks.search("report.error.match(/^timed out/)")


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
    text = """
MISFIT = "the answer does not fit"
NO = "nobody to ask"
said = event.text
if NO in said: pass
if "timed out" in str(error): pass
if said.startswith((MISFIT, "gone")): pass
parts = origin.split(" and ")
"""
    tree = ast.parse(text)
    assert len(list(searches(tree, dict(constants(tree))))) == 5
