"""Passages of a source: its text cut into sentences, and which of them fit a claim best.

Called by `verdicts`. A passage is one sentence or a few that follow one another. Ranked by how much of
the claim's words it has, rare words counting more, as BM25 does; passages are short and alike in length,
so that length is left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from retinue.claims.quantities import Date, Quantity, dates, quantities
from retinue.claims.words import TextWord, words
from retinue.quotations import plain

LONGEST_SENTENCE = 400
"""Characters; what has no full stop for longer than that is cut."""
WINDOW = 3
"""Sentences of a passage at the most."""
COMMON = 500
"""A word that stands in more sentences than these finds nothing by itself."""
LONGEST_TEXT = 2_000_000

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|al|Fig|No|Vol|pp|ca|approx|Inc|Ltd|Co|Corp|U\.S|U\.K|e\.g|i\.e|cf|ed|eds)|\b[A-Z])\.$"
)
_END = re.compile(
    r"[.!?…](?:[\"'”’)\]]{0,3})(?=\s+[^\sa-z]|\s*\n|\s*$)|[。！？．؟۔][”』」）]?|\n\s*\n|\n(?=\s*(?:[-*•#>|]|\d{1,3}[.)]\s))"
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """`start` and `end` are its place in the text."""

    start: int
    end: int
    words: tuple[TextWord, ...]


@dataclass(frozen=True, slots=True)
class Amounts:
    """What is counted and dated in a piece of a source. `everything` has the numbers of the dates too."""

    dates: list[Date]
    numbers: list[Quantity]
    everything: list[Quantity]


def sentences(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a text begin and end."""
    found: list[tuple[int, int]] = []
    at = 0
    for match in _END.finditer(text):
        if match[0].startswith(".") and _ABBREVIATION.search(
            text, max(at, match.start() - 8), match.start() + 1
        ):
            continue
        _add(text, at, match.end(), found)
        at = match.end()
    _add(text, at, len(text), found)
    return found


def _add(text: str, start: int, end: int, found: list[tuple[int, int]]) -> None:
    while end - start > LONGEST_SENTENCE:
        cut = max(text.rfind(mark, start, start + LONGEST_SENTENCE) for mark in (". ", "; ", "\n", " "))
        cut = cut + 1 if cut > start + LONGEST_SENTENCE // 3 else start + LONGEST_SENTENCE
        if text[start:cut].strip():
            found.append((start, cut))
        start = cut
    if text[start:end].strip():
        found.append((start, end))


class SourceText:
    """The text of one source, read once for all the claims that cite it."""

    def __init__(self, text: str, title: str = "") -> None:
        self.text = text[:LONGEST_TEXT]
        self.cut = len(text) > LONGEST_TEXT
        self.sentences = [
            Sentence(start, end, tuple(words(self.text[start:end]))) for start, end in sentences(self.text)
        ]
        self._stems = [frozenset(word.stem for word in sentence.words) for sentence in self.sentences]
        # What a page is about stands at its top; its sentences do not repeat it.
        top = self.text[: self.text.find("\n")] if self.text.startswith("#") else ""
        self.title = frozenset(word.stem for word in words(f"{title} {top}"))
        self._amounts: dict[tuple[int, int], Amounts] = {}
        self._where: defaultdict[str, list[int]] = defaultdict(list)
        for at, stems in enumerate(self._stems):
            for one in stems:
                self._where[one].append(at)

    @cached_property
    def plain(self) -> str:
        """Its letters and digits alone: what quotations are looked up in."""
        return plain(self.text)

    @cached_property
    def sample(self) -> list[TextWord]:
        """Its first words: enough to tell its language."""
        return [word for sentence in self.sentences[:40] for word in sentence.words]

    def has(self, stem: str) -> bool:
        return stem in self._where or stem in self.title

    def weight(self, stem: str) -> float:
        """How much a word tells about where it stands: rare ones more."""
        return math.log(1 + (len(self.sentences) + 1) / (len(self._where.get(stem, ())) + 0.5))

    def places(self, claim: Iterable[str]) -> int:
        """How many places have to be looked at to find what fits these words best."""
        return sum(len(self._where.get(one, ())) for one in set(claim))  # at the most

    def amounts(self, passage: SourcePassage, reach: int) -> Amounts:
        """Dates and numbers in a passage with so many sentences on both sides; read once."""
        first, last = self._reach(passage, reach)
        if (first, last) not in self._amounts:
            text = self.text[self.sentences[first].start : self.sentences[last].end]
            days = dates(text)
            everything = quantities(text, []) if days else None
            numbers = quantities(text, days)
            self._amounts[first, last] = Amounts(days, numbers, everything or numbers)
        return self._amounts[first, last]

    def best(self, claim: Iterable[str], count: int = 3) -> list[SourcePassage]:
        """The passages that have most of these words, best first."""
        wanted = {one: self.weight(one) for one in sorted(set(claim))}
        if not wanted or not self.sentences:
            return []
        alone: Counter[int] = Counter()
        # Rare words first: where one stands in very many sentences, those that have none of the others are
        # not what is looked for.
        for one in sorted(wanted, key=lambda one: (len(self._where.get(one, ())), one)):
            where = self._where.get(one, ())
            if len(where) > COMMON and 0 < len(alone) < len(where):
                where = [at for at in alone if one in self._stems[at]]
            for at in where:
                alone[at] += wanted[one]  # pyright: ignore[reportArgumentType]  # a Counter adds floats too
        found = [self._around(at, wanted) for at, _ in alone.most_common(count * 2)]
        found.sort(
            key=lambda one: (-round(one.coverage, 9), -round(one.alone, 9), one.last - one.first, one.first)
        )
        kept: list[SourcePassage] = []
        for passage in found:
            if all(passage.at != other.at for other in kept):
                kept.append(passage)
        return kept[:count]

    def _around(self, at: int, wanted: dict[str, float]) -> SourcePassage:
        """One sentence, and its neighbours as far as they bring in more of what is wanted."""
        total = sum(wanted.values())
        first = last = at
        have = self._stems[at] & wanted.keys()
        while last - first + 1 < WINDOW:
            options = [
                (
                    sum(wanted[one] for one in (self._stems[near] & wanted.keys()) - have),
                    -abs(near - at),
                    near,
                )
                for near in (first - 1, last + 1)
                if 0 <= near < len(self.sentences)
            ]
            gain, _, near = max(options, default=(0.0, 0, 0))
            if gain <= 0.04 * total:
                break
            have |= self._stems[near] & wanted.keys()
            first, last = min(first, near), max(last, near)
        alone = sum(wanted[one] for one in self._stems[at] & wanted.keys())
        named = self.title & wanted.keys()  # a page's title says what its sentences are about
        covered = sum(wanted[one] for one in have | named)
        return SourcePassage(at=at, first=first, last=last, coverage=covered / total, alone=alone / total)

    def excerpt(self, passage: SourcePassage) -> tuple[int, int]:
        return self.sentences[passage.first].start, self.sentences[passage.last].end

    def stems_near(self, passage: SourcePassage, reach: int) -> set[str]:
        first, last = self._reach(passage, reach)
        return {one for at in range(first, last + 1) for one in self._stems[at]}

    def _reach(self, passage: SourcePassage, reach: int) -> tuple[int, int]:
        return max(0, passage.first - reach), min(len(self.sentences) - 1, passage.last + reach)


@dataclass(frozen=True, slots=True)
class SourcePassage:
    """Sentences `first` to `last` around the one `at`, and how much of a claim they have: 0 to 1."""

    at: int
    first: int
    last: int
    coverage: float
    alone: float
    """What the sentence `at` has by itself."""


def stems(claim: Sequence[TextWord]) -> list[str]:
    return [word.stem for word in claim if word.content]
