"""Which files answer a question best, from the hits of several searches.

A definition beats a use, a name in a definition beats one in a comment, many terms in one place beat many
places, and source beats tests, tests beat docs. Called by the code search and the planner.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from retinue.models.offline.results import Hit
from retinue.models.offline.words import Term, parts_of

KIN_WEIGHT = 0.3
DEFINES = (
    r"def|class|function|func|fn|const|let|var|val|struct|interface|enum|trait|type|impl|module|namespace|"
    r"protocol|record|object|macro_rules!|#define|package|message|service|CREATE TABLE"
)
_DEFINITION = re.compile(
    r"^\s*(?:(?:export|default|pub(?:\([a-z]+\))?|public|private|protected|internal|static|abstract|final|async|"
    r"override|inline|unsafe|extern|data|sealed|open|declare|virtual)\s+)*"
    rf"(?:{DEFINES})\b[*&]?\s*(?:\([^)]{{0,80}}\)\s*)?(?P<name>[A-Za-z_$][\w$]*)"
    r"|^(?P<constant>[A-Z_][A-Z0-9_]{2,})\s*(?::[^=]{1,60})?=(?!=)"
    r"|^\s*(?P<property>[A-Za-z_$][\w$]*)\s*[:=]\s*(?:async\s+)?(?:function\b|\([^)]{0,80}\)\s*=>)"
)
_ASIDE_LINE = re.compile(r"\s*(?:#|//|\*|/\*|\"\"\"|import\b|from\b|use\b|require\b|include\b)")
_TESTS = re.compile(
    r"(?:^|/)(?:tests?|testing|__tests__|spec|specs|fixtures?)/|(?:^|/)test_|_test\.|\.spec\.|\.test\."
)
_DOCS = re.compile(
    r"(?:^|/)(?:docs?|documentation|changes|changelog)(?:/|$)|\.(?:md|rst|txt|adoc)$|CHANGELOG|HISTORY",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"(?:^|/)(?:examples?|samples?|demos?|bench(?:marks?)?|vendor(?:ed)?|third_party|node_modules|dist|build|"
    r"migrations|locales?)/"
)
_DATA = re.compile(
    r"\.(?:lock|json|ya?ml|toml|ini|cfg|svg|csv|min\.js|map|snap|ipynb|po|log)$|(?:^|/)\.[^/]+(?:/|$)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedFile:
    """A file with the lines in it that matter, the best first."""

    path: str
    score: float
    lines: tuple[Hit, ...]
    terms: frozenset[str]
    defines: str = ""
    named: bool = False


@dataclass(kw_only=True, slots=True)
class _File:
    hits: dict[int, str] = field(default_factory=dict[int, str])


def definition_name(line: str) -> str:
    """The name that a line defines, or nothing."""
    match = _DEFINITION.match(line[:300])
    return next((group for group in match.groups() if group), "") if match else ""


def location_factor(path: str, question: str) -> float:
    """How much a file counts by where it lies, unless the question asks for just that."""
    asked = question.lower()
    if _TESTS.search(path):
        return 1.2 if re.search(r"\btest", asked) else 0.45
    if _DOCS.search(path):
        return 1.2 if re.search(r"\b(?:docs?|documented|readme|changelog)\b", asked) else 0.3
    if _DATA.search(path):
        return 0.25
    return 0.5 if _ASIDE.search(path) else 1.0


def rank(
    hits: Sequence[Hit],
    terms: Sequence[Term],
    question: str,
    *,
    kin: Sequence[Term] = (),
    extra: Sequence[str] = (),
) -> list[RankedFile]:
    """The files of these hits, and those in `extra` by their names alone, the best first."""
    files: dict[str, _File] = {}
    for hit in hits:
        files.setdefault(hit.path, _File()).hits.setdefault(hit.line, hit.text)
    for path in extra:
        files.setdefault(path, _File())
    weights = _weights(files, terms)
    weights.update(dict.fromkeys(kin, 0.3))
    places = [_place(path, file, weights, question) for path, file in files.items()]
    return sorted((place for place in places if place.score > 0), key=lambda one: (-one.score, one.path))


def _weights(files: dict[str, _File], terms: Sequence[Term]) -> dict[Term, float]:
    """A term that is everywhere says little."""
    weights: dict[Term, float] = {}
    for term in terms:
        count = sum(any(term.found_in(text) for text in file.hits.values()) for file in files.values())
        weights[term] = term.weight / (1 + math.log1p(count) / 3)
    return weights


def _place(path: str, file: _File, weights: dict[Term, float], question: str) -> RankedFile:
    stem = PurePosixPath(path).stem
    named = {term: weight for term, weight in weights.items() if term.kind != "exact" and term.found_in(stem)}
    alone = sum(weight > KIN_WEIGHT for weight in weights.values()) == 1
    matched: dict[Term, float] = {}
    scored: list[tuple[float, int]] = []
    for number, text in file.hits.items():
        here = {term: weight for term, weight in weights.items() if term.found_in(text)}
        matched.update(here)
        score = _line_score(text, here, alone)
        if named and definition_name(text):
            score += 0.5 * sum(named.values())
        scored.append((score, number))
    best = _cluster(scored)
    folder = str(PurePosixPath(path).parent)
    around = sum(weight for term, weight in weights.items() if term.found_in(folder))
    distinct = sum({**matched, **named}.values())
    peak = max((score for score, _ in scored), default=0.0)
    whole = sum(weight for term, weight in named.items() if term.text.lower() == stem.lower().strip("_"))
    total = (
        whole * 2
        + distinct
        + peak * 1.5
        + sum(named.values()) * 2.0
        + around * 0.4
        + math.log1p(len(scored)) * 0.1
    )
    names = [definition_name(file.hits[number]) for number in best]
    return RankedFile(
        path=path,
        score=total * location_factor(path, question) if distinct else 0.0,
        lines=tuple(Hit(path, number, file.hits[number]) for number in best),
        terms=frozenset(term.text for term in {**matched, **named}),
        defines=names[0] if names else "",
        named=bool(named),
    )


def _line_score(text: str, here: dict[Term, float], alone: bool) -> float:
    """What a line is worth: more for every further term in it, most for the definition of the very name."""
    asked = [term for term in here if term.weight >= 1 and here[term] > KIN_WEIGHT]
    score = sum(here.values()) * (1 + 0.8 * max(0, len(asked) - 1))
    name = definition_name(text)
    if name:
        named = 0.8 if name.upper() == name else 1.4 * (0.5 + _covered(name, here))
        for term, weight in here.items():
            if term.kind == "name" and term.text == name:
                score += weight * 8
            elif alone and term.text.lower() == name.lower():
                score += weight * 4
            elif term.found_in(name):
                score += weight * named
    elif _ASIDE_LINE.match(text) or _is_prose(text):
        score *= 0.6
    return score


def _is_prose(text: str) -> bool:
    """A line of a docstring or a comment block, by its looks."""
    bare = text.strip()
    if re.match(r"\w+ \([^)]{2,80}\): ", bare):
        return True
    return len(bare.split()) > 5 and bare[0] not in "\"'`" and not re.search(r"[(){}\[\]=;]|->", bare)


def _covered(name: str, here: dict[Term, float]) -> float:
    """How much of a name the terms account for: all of `Traceback`, a third of `ipy_show_traceback`."""
    parts = parts_of(name) or [name]
    return sum(any(term.found_in(part) for term in here) for part in parts) / len(parts)


def _cluster(scored: list[tuple[float, int]]) -> list[int]:
    """The best lines, a line being better for good lines near it; at most one of a neighbourhood."""
    numbers = {number: score for score, number in scored[:400]}
    together = {
        number: score + 0.25 * sum(numbers.get(number + step, 0.0) for step in range(-6, 7) if step)
        for number, score in numbers.items()
    }
    chosen: list[int] = []
    for number in sorted(together, key=lambda one: (-together[one], one)):
        if all(abs(number - other) > 8 for other in chosen):
            chosen.append(number)
        if len(chosen) == 4:
            break
    return chosen
