"""Contradictions between pages: two sentences on the same thing that give another number, date or name.

Called by the tools of research, over all that a workflow has read. By program alone, and careful: a pair is
told only where both sentences share most of what they say and the subject, and where nothing beside them
says that they speak of another time. What is told may still be a misreading; what is not told may still
differ.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from retinue.claims.names import Name, names
from retinue.claims.passages import sentences
from retinue.claims.quantities import Date, Quantity, dates, fits, fits_date, quantities
from retinue.claims.words import words

MOST_PAGES = 80
MOST_SENTENCES = 600
"""Of one page that are compared; later ones are not."""
MOST_TEXT = 500_000
"""Characters of all pages together that are compared, which takes some seconds: short pages whole, and as
much of each long one."""
MOST_PAIRS = 60_000
"""Of sentences that are looked at."""
MOST_TOLD = 40
COMMON = 60
"""A word that stands in more sentences than these brings none together."""
ALIKE = 0.5
"""Share of their words, rare ones counting more, that both sentences must have of each other."""
REACH = 4
"""Words before a date or a name among which the one is looked for that says what it is of."""
BESIDE = 3
"""Words between a number and a date that says when it was so."""
ALIKE_CLAUSE = 0.6
"""The same for the clauses around a number, of sentences that say more beside it."""
SHORTEST, LONGEST = 3, 60
"""Words of a sentence that is compared."""

DifferenceKind = Literal["number", "date", "name"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadPage:
    """A page, or a file, that was read. `key` is what it is known by: its address or its path."""

    key: str
    text: str
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSays:
    """One side: the page, its sentence, and what it gives there."""

    key: str
    sentence: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    kind: DifferenceKind
    one: PageSays
    other: PageSays


def contradictions(pages: Iterable[ReadPage]) -> tuple[Contradiction, ...]:
    """Where these pages contradict one another, those that share most first."""
    distinct = _distinct(pages)
    reach = _reach([len(page.text) for page in distinct])
    said = [one for at, page in enumerate(distinct) for one in _statements(page, at, reach)]
    weights = _Weights(said)
    found: dict[tuple[str, str, str, str], tuple[float, Contradiction]] = {}
    for one, other in _pairs(said, weights):
        for score, each in _compared(one, other, weights):
            place = (each.one.key, each.other.key, each.one.value, each.other.value)
            if place not in found or found[place][0] < score:
                found[place] = (score, each)
    ranked = sorted(found.values(), key=lambda pair: (-round(pair[0], 9), pair[1].one.key, pair[1].other.key))
    return tuple(each for _, each in ranked[:MOST_TOLD])


def _distinct(pages: Iterable[ReadPage]) -> list[ReadPage]:
    """Each page once, and each text once: a mirror says nothing of its own."""
    found: dict[str, ReadPage] = {}
    texts: set[str] = set()
    for page in pages:
        text = " ".join(page.text.split())
        if page.key not in found and text and text not in texts:
            texts.add(text)
            found[page.key] = page
    return list(found.values())[:MOST_PAGES]


def _reach(lengths: Sequence[int]) -> int:
    """How much of each page is looked at, so that all of them together are not more than may be."""
    left = MOST_TEXT
    for at, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - at)
        if length > share:
            return share
        left -= length
    return MOST_TEXT


class _Statement:
    """A sentence that gives a number, a date or a name, and what it shares with others."""

    def __init__(self, page: ReadPage, at: int, text: str, subject: frozenset[str]) -> None:
        self.page, self.at = page, at
        self.text = text
        self.words = words(text)
        self.dates = dates(text)
        everything = quantities(text, self.dates)
        self.numbers = [one for one in everything if not one.year]
        self.dates += [_year(one) for one in everything if one.year]
        taken = {at for one in (*self.dates, *self.numbers) for at in range(one.start, one.end)}
        self.plain = [
            word
            for word in self.words
            if word.content and word.start not in taken and not word.text.isdigit()
        ]
        self.stems = frozenset(word.stem for word in self.plain)
        self.subject = subject

    @cached_property
    def names(self) -> list[Name]:
        return [name for name in names(self.text, self.words) if name.sure]

    @cached_property
    def named(self) -> frozenset[str]:
        return frozenset(word.stem for name in self.names for word in name.words)

    @cached_property
    def things(self) -> list[frozenset[str]]:
        """What it is about: what it names itself, else what its page is about."""
        own = [frozenset(word.stem for word in name.words) for name in self.names]
        return own or ([self.subject] if self.subject else [])

    @property
    def told(self) -> bool:
        """Whether it says anything that another page could say otherwise."""
        return bool(self.numbers or self.dates or self.names)

    def clause(self, at: int) -> frozenset[str]:
        """The words of the part of the sentence that a place lies in."""
        start = max((self.text.rfind(mark, 0, at) for mark in _PARTS), default=-1)
        ends = [end for mark in _PARTS if (end := self.text.find(mark, at)) > 0]
        end = min(ends, default=len(self.text))
        return frozenset(word.stem for word in self.plain if start < word.start < end)

    def dated(self, number: Quantity) -> bool:
        """Whether a date beside a number, or at the beginning, says when it was so."""
        first = [word.start for word in self.words[:REACH]]
        return any(
            date.start in first
            or self._between(number.end, date.start) <= BESIDE
            or self._between(date.end, number.start) <= BESIDE
            for date in self.dates
        )

    def _between(self, start: int, end: int) -> float:
        return sum(start <= word.start < end for word in self.words) if start <= end else math.inf

    def role(self, at: int) -> str:
        """The word before a place that says what stands there: "designed" before "by Ida"."""
        before = [word for word in self.words if word.end <= at][-REACH:]
        return next((word.stem for word in reversed(before) if word in self.plain), "")


_PARTS = (", ", "; ", ": ", " (", ") ", " – ", " — ", "，", "；", "、")


def _year(one: Quantity) -> Date:
    return Date(int(one.value), None, None, one.text, one.start, one.end)


def _statements(page: ReadPage, at: int, reach: int) -> Iterator[_Statement]:
    top = page.text[: page.text.find("\n")] if page.text.startswith("#") else ""
    subject = frozenset(word.stem for word in words(f"{page.title} {top}") if word.content)
    for start, end in sentences(page.text[:reach])[:MOST_SENTENCES]:
        text = " ".join(page.text[start:end].split())
        if not text or text.startswith("#"):
            continue
        one = _Statement(page, at, text, subject)
        if SHORTEST <= len(one.words) <= LONGEST and one.stems and one.told:
            yield one


class _Weights:
    """How much a word tells: the fewer sentences and pages have it, the more."""

    def __init__(self, said: Sequence[_Statement]) -> None:
        self._counts = Counter(stem for one in said for stem in one.stems)
        self._all = len(said)
        self.where: defaultdict[str, list[int]] = defaultdict(list)
        for at, one in enumerate(said):
            for stem in one.stems:
                self.where[stem].append(at)

    def of(self, stems: Iterable[str]) -> float:
        return sum(math.log(1.5 + self._all / (self._counts.get(stem, 0) + 0.5)) for stem in stems)

    def shared(self, one: frozenset[str], other: frozenset[str], given: frozenset[str]) -> float:
        """Share of the words of one that the other has, or that its page is about."""
        whole = self.of(one)
        return self.of(one & (other | given)) / whole if whole else 0.0


def _pairs(said: Sequence[_Statement], weights: _Weights) -> Iterator[tuple[_Statement, _Statement]]:
    """Sentences of different pages that have words in common which are not in every other one."""
    looked = 0
    for at, one in enumerate(said):
        near: Counter[int] = Counter()
        for stem in one.stems:
            where = weights.where[stem]
            if len(where) <= COMMON:
                near.update(where)
        for other, _ in near.most_common(COMMON * 2):
            if other > at and said[other].at != one.at:
                looked += 1
                if looked > MOST_PAIRS:
                    return
                yield one, said[other]


def _compared(one: _Statement, other: _Statement, weights: _Weights) -> Iterator[tuple[float, Contradiction]]:
    if not _same_subject(one, other):
        return
    whole = _alike(one.stems, other.stems, one, other, weights)
    mine, its = _only(one, other), _only(other, one)
    apart = _other_time(one, other)
    if not apart and not (mine and its):
        yield from _numbers(one, other, whole, weights)
    agree = all(any(_same(number, there) for there in other.numbers) for number in one.numbers)
    if not (agree or not other.numbers):
        return
    if not (mine and its):
        yield from _dates(one, other, whole)
    elif not apart and len(mine) == len(its) == 1:
        yield from _names(one, mine[0], other, its[0], weights)


def _alike(
    mine: frozenset[str], its: frozenset[str], one: _Statement, other: _Statement, weights: _Weights
) -> float:
    """How much two pieces of sentences have in common, by the one that has less of the other."""
    return min(weights.shared(mine, its, other.subject), weights.shared(its, mine, one.subject))


def _same_subject(one: _Statement, other: _Statement) -> bool:
    """Whether both are about one thing: they name it, or their pages do."""
    mine, its = one.named | one.subject, other.named | other.subject
    if not mine or not its:
        return len(one.stems & other.stems) >= SHORTEST
    if _siblings(one, other):
        return False
    return bool(mine & (its | other.stems) or its & one.stems)


def _siblings(one: _Statement, other: _Statement) -> bool:
    """Whether they name two things of one kind: "Harrow Tower" and "Velden Tower" share a word, and each has
    one that the other side lacks."""
    mine, its = one.named | one.subject, other.named | other.subject
    return any(
        called & known and called - its - other.stems and known - mine - one.stems
        for called in one.things
        for known in other.things
    )


def _other_time(one: _Statement, other: _Statement) -> bool:
    """Whether they speak of different times, so that what differs need not contradict."""
    return bool(
        one.dates and other.dates and not any(_meet(mine, its) for mine in one.dates for its in other.dates)
    )


def _meet(mine: Date, its: Date) -> bool:
    return fits_date(mine, its) or fits_date(its, mine)


def _numbers(
    one: _Statement, other: _Statement, whole: float, weights: _Weights
) -> Iterator[tuple[float, Contradiction]]:
    """One number that is another there. Where several are, the sentences speak of different cases."""
    mine = [each for each in one.numbers if not any(_same(each, its) for its in other.numbers)]
    its = [each for each in other.numbers if not any(_same(each, my) for my in one.numbers)]
    pairs = [(number, there) for number in mine for there in its if _counts_the_same(number, there)]
    if len(pairs) != 1 or _other_case(mine, its, pairs[0]):
        return
    number, there = pairs[0]
    if one.dated(number) != other.dated(there):
        return  # one says when, and the other may speak of another time
    near = _alike(one.clause(number.start), other.clause(there.start), one, other, weights)
    score = max(whole if whole >= ALIKE else 0.0, near if near >= ALIKE_CLAUSE else 0.0)
    if score:
        yield score, _told("number", one, number.text, other, there.text)


def _other_case(mine: list[Quantity], its: list[Quantity], pair: tuple[Quantity, Quantity]) -> bool:
    """Whether both sides have another number beside the one that differs: they say of what it is."""
    return any(one is not pair[0] for one in mine) and any(one is not pair[1] for one in its)


def _same(one: Quantity, other: Quantity) -> bool:
    return fits(one, other) or fits(other, one)


def _counts_the_same(one: Quantity, other: Quantity) -> bool:
    if one.dimension or other.dimension:
        return one.dimension == other.dimension
    if one.behind and other.behind:
        return one.behind == other.behind
    beside = bool(one.before) and one.before == other.before
    return beside or not (one.small or other.small)


def _dates(one: _Statement, other: _Statement, whole: float) -> Iterator[tuple[float, Contradiction]]:
    """Another date for the same thing that happened."""
    mine = [each for each in one.dates if not any(_meet(each, its) for its in other.dates)]
    its = [each for each in other.dates if not any(_meet(each, my) for my in one.dates)]
    if len(mine) != 1 or len(its) != 1 or len(one.dates) != len(other.dates):
        return
    role = one.role(mine[0].start)
    if whole >= ALIKE and role and role == other.role(its[0].start):
        yield whole, _told("date", one, mine[0].text, other, its[0].text)


def _names(
    one: _Statement, mine: Name, other: _Statement, its: Name, weights: _Weights
) -> Iterator[tuple[float, Contradiction]]:
    """One name stands where the other page has another, for the same part in the same thing."""
    without = frozenset(word.stem for name in (mine, its) for word in name.words)
    rest = _alike(one.stems - without, other.stems - without, one, other, weights)
    role = one.role(mine.words[0].start)
    if rest >= ALIKE and role and role == other.role(its.words[0].start) and mine.acronym == its.acronym:
        yield rest, _told("name", one, mine.text, other, its.text)


def _only(one: _Statement, other: _Statement) -> list[Name]:
    """The names of a sentence of which the other, and what its page is about, has no word."""
    there = frozenset(word.stem for word in other.words) | other.subject
    return [name for name in one.names if all(word.stem not in there for word in name.words)]


def _told(kind: DifferenceKind, one: _Statement, mine: str, other: _Statement, its: str) -> Contradiction:
    return Contradiction(
        kind=kind,
        one=PageSays(key=one.page.key, sentence=one.text, value=mine),
        other=PageSays(key=other.page.key, sentence=other.text, value=its),
    )
