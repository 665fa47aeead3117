"""Words that turn a sentence into its opposite: negations, and pairs that exclude one another.

Called by `verdicts`. A negation counts for the few words behind it, up to the end of its clause: "does
not cause" denies *cause*, and says nothing about the rest of the sentence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import pairwise

from retinue.claims.lists import listed
from retinue.claims.words import TextWord, stem

REACH = 4
"""How many words behind a negation it holds for."""

_NEGATIONS = frozenset(listed("negations.txt"))
_NEGATIVE_PAIRS = ("不", "没", "沒", "無", "无", "非")
_CLAUSE_ENDS = ",;:()—–"
_NOT_ONLY = frozenset(["only", "just", "merely", "simply"])


def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    said = iter(listed("opposites.txt"))
    for one, other in zip(said, said, strict=True):
        found.setdefault(stem(one), set()).add(stem(other))
        found.setdefault(stem(other), set()).add(stem(one))
    return {one: frozenset(others) for one, others in found.items()}


OPPOSITES = _opposites()


def negates(word: TextWord) -> bool:
    folded = word.text.casefold().replace("’", "").replace("'", "")
    return (
        folded in _NEGATIONS
        or folded.startswith(_NEGATIVE_PAIRS)
        or (folded.endswith("nt") and "'" in word.text.replace("’", "'"))
    )


def denied(text: str, found: Sequence[TextWord]) -> frozenset[str]:
    """The stems of the content words that a text denies."""
    return frozenset(
        word.stem for at, word in enumerate(found) if word.content and _is_denied(text, found, at)
    )


def _only(found: Sequence[TextWord], at: int) -> bool:
    return at + 1 < len(found) and found[at + 1].text.casefold() in _NOT_ONLY


def _is_denied(text: str, found: Sequence[TextWord], at: int) -> bool:
    count = 0
    for before in range(at - 1, max(-1, at - 1 - REACH), -1):
        between = text[found[before].end : found[before + 1].start]
        if any(mark in between for mark in _CLAUSE_ENDS):
            break
        if negates(found[before]) and not _only(found, before):
            count += 1
    return count % 2 == 1


_NEGATIVE = frozenset(map(stem, listed("negative_words.txt")))
_PREFIXES = ("un", "in", "im", "ir", "il", "non", "dis", "mis")


def answered(
    held: frozenset[str], text: str, found: Sequence[TextWord], said: frozenset[str] = frozenset()
) -> bool:
    """Whether a text denies what a negation holds for, by one of its own or by a word that says as much.

    `said` are the other words of who denies: a "lack" that both of them have answers for no "not" of one.
    """
    stems = [word.stem for word in found]
    if denied(text, found) & held:
        return True
    opposites = {prefix + one for one in held for prefix in _PREFIXES}
    if not opposites.isdisjoint(stems) or any(OPPOSITES.get(one, frozenset()) & set(stems) for one in held):
        return True
    places = [at for at, one in enumerate(stems) if one in held]
    marks = [
        at
        for at, word in enumerate(found)
        if negates(word) or (word.stem in _NEGATIVE and word.stem not in held and word.stem not in said)
    ]
    if not places:
        return bool(marks)
    sentence = _sentence_numbers(text, found)
    return any(
        sentence[mark] == sentence[place] and -BEHIND <= place - mark <= 2 * REACH
        for mark in marks
        for place in places
    )


BEHIND = 4
"""How many words behind what it denies a negation may stand."""


def _sentence_numbers(text: str, found: Sequence[TextWord]) -> list[int]:
    """For each word which sentence it stands in."""
    numbers = [0] if found else []
    for one, other in pairwise(found):
        ends = any(mark in text[one.end : other.start] for mark in ".!?;。！？\n")
        numbers.append(numbers[-1] + ends)
    return numbers


_WHERE = frozenset(
    ["in", "at", "on", "by", "during", "among", "within", "im", "am", "beim", "dans", "en", "à"]
)


def heads(text: str, found: Sequence[TextWord]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """For each negation the stems of what it denies, and of all content words it holds for: in "not unanimous
    in the council" the council is not denied."""
    for at, word in enumerate(found):
        if not negates(word) or _only(found, at) or text[word.end : word.end + 1] == "-":
            continue
        held: list[str] = []
        denies = -1
        for behind in range(at + 1, min(len(found), at + 1 + REACH)):
            between = text[found[behind - 1].end : found[behind].start]
            if any(mark in between for mark in _CLAUSE_ENDS):
                break
            if found[behind].content:
                held.append(found[behind].stem)
            elif held and denies < 0 and found[behind].text.casefold() in _WHERE:
                denies = len(held)
        if held:
            yield frozenset(held[:denies] if denies > 0 else held), frozenset(held)


def opposed(claim: Sequence[TextWord], source: Sequence[TextWord]) -> Iterator[tuple[TextWord, TextWord]]:
    """Words of a claim for which the source has the opposite in their place."""
    said = {word.stem for word in claim}
    places: defaultdict[str, list[int]] = defaultdict(list)
    for i, word in enumerate(source):
        places[word.stem].append(i)
    around = cache(partial(_beside, source, reach=4))
    for at, word in enumerate(claim):
        others = OPPOSITES.get(word.stem)
        if not others:
            continue
        beside = _beside(claim, at, 3)
        own = max((len(around(i) & beside) for i in places.get(word.stem, ())), default=-1)
        there = sorted(i for one in others if one not in said for i in places.get(one, ()))
        for i in there:
            if len(around(i) & beside) > max(own, 0):
                yield word, source[i]
                break


def _beside(found: Sequence[TextWord], at: int, reach: int) -> set[tuple[bool, str]]:
    """What stands around a word, and on which side of it; small words left out."""
    before, behind = found[max(0, at - reach) : at], found[at + 1 : at + 1 + reach]
    return {
        (side, word.stem)
        for side, words_there in ((False, before), (True, behind))
        for word in words_there
        if word.content or word.text.isdigit()
    }
